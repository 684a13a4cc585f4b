// The tasks, which of them is chosen, and the table of all.
const TASKS = DATA.tasks.map((task, index) => {
  const fine = task.points.filter((point) => point.ratio !== null && point.verdict === "ok");
  fine.sort((a, b) => a.ratio - b.ratio);
  const exact = task.unit === "cycles";
  // Less than the gain that the tuner asks for is noise.
  const found = fine.length && fine[0].ratio < (exact ? 1 : 1 - DATA.min_gain) ? fine[0] : null;
  return { ...task, index, exact, found, best: found ? found.ratio : 1,
    failed: task.points.filter((point) => point.verdict !== "ok").length };
});

// The state of the page: parts redraw when it changes.
const VIEW = { task: TASKS[0], redraw: [] };

function chooseTask(task) {
  VIEW.task = task;
  for (const redraw of VIEW.redraw) redraw();
}

const ratio = (value) => value.toFixed(3);
const choiceText = (choice) =>
  Object.entries(choice).map(([name, value]) => `${name}=${value}`).join(", ") || "default";
const amount = (task, share) => (task.exact ? grouped(task.default * share)
  : quantity(task.default * share, "s"));

const TASK_ORDER = new Order(null, true, () => drawTasks(), ["default", "tried"]);
const TASK_KEYS = { title: (task) => task.title, default: (task) => task.default,
  tried: (task) => task.points.length, best: (task) => task.best };

function showTasks() {
  options(byId("task"), TASKS, VIEW.task, ({ title }) => title);
  byId("task").addEventListener("change", (event) => chooseTask(TASKS[event.target.value]));
  VIEW.redraw.push(() => { byId("task").value = VIEW.task.index; }, drawTasks);
  drawTasks();
}

function drawTasks() {
  const sorted = TASK_ORDER.key
    ? TASK_ORDER.sorted(TASKS, (task, key) => TASK_KEYS[key](task)) : TASKS;
  const headings = [
    { text: "Task", key: "title", left: true }, { text: "Machine", left: true, wide: true },
    { text: "Default", key: "default" }, { text: "Tried", key: "tried" },
    { text: "Best ratio", key: "best" }, { text: "Noise", wide: true },
    { text: "Best candidate", left: true, wide: true },
  ];
  const held = document.activeElement?.closest("#tasks tr")?.dataset.task;
  const body = make("tbody", { class: "plain" }, ...sorted.map(taskRow));
  replaceTable(byId("tasks"), table(headings, [body], 0, TASK_ORDER));
  if (held) byId("tasks").querySelector(`[data-task="${held}"] button`)?.focus();
}

function taskRow(task) {
  const chosen = task === VIEW.task;
  const pick = make("button", { class: "link", type: "button", "aria-pressed": chosen },
    ...breakable(task.title));
  pick.addEventListener("click", () => chooseTask(task));
  return make("tr", { "data-task": task.index, class: chosen ? "chosen" : "" },
    make("td", { class: "left name-cell" }, pick),
    make("td", { class: "left text-cell wide" }, task.place),
    make("td", {}, amount(task, 1)),
    make("td", {}, `${grouped(task.points.length)} of ${grouped(task.space)}`),
    make("td", {}, ratio(task.best)),
    make("td", { class: "wide" }, task.exact ? "exact" : percent(task.found ? task.found.noise : null)),
    make("td", { class: "left text-cell wide" },
      task.found ? choiceText(task.found.choice) : "the default stays"));
}
