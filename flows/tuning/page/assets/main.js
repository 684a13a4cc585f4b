// The heading, the headline figures, and all parts in the order of the page.
function showHeading() {
  byId("date").textContent = DATA.date;
  byId("name").textContent = DATA.name;
  const trials = TASKS.reduce((sum, task) => sum + task.points.length, 0);
  const failed = TASKS.reduce((sum, task) => sum + task.failed, 0);
  const faster = TASKS.filter((task) => task.found);
  const mean = Math.exp(TASKS.reduce((sum, task) => sum + Math.log(task.best), 0) / TASKS.length);
  const plural = (count, name) => `${grouped(count)} ${name}${count === 1 ? "" : "s"}`;
  byId("verdict").textContent = faster.length
    ? `${faster.length} of ${plural(TASKS.length, "task")} have a faster schedule than the default; ` +
      `the best of all take ${ratio(mean)} of it in the geometric mean.`
    : `No faster schedule than the default was found for ${plural(TASKS.length, "task")}.`;
  const gain = Math.min(...TASKS.map((task) => task.best));
  byId("cards").append(
    figure("Tasks", grouped(TASKS.length), `${grouped(faster.length)} with a faster schedule`),
    figure("Candidates", grouped(trials), failed ? `${grouped(failed)} failed` : "none failed"),
    figure("Largest gain", ratioText(1 / gain), "times as fast as the default"),
    figure("Tuners", grouped(TUNERS.length), TUNERS.join(", ")),
  );
  byId("made").textContent = `Made by Tilewright ${DATA.version} on ${DATA.date}, from records.`;
}

for (const show of [showHeading, showTasks, showCurves, showPredicted, showSpace, showTrials,
  showContents]) show();
document.documentElement.dataset.ready = "true";
