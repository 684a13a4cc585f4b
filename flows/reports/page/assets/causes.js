// Causes of the cycles on the critical path, and what units wait for.
const CAUSES = Object.keys(DATA.causes);
const WAITS = ["work", "memory", "token", "queue", "fetch", "unit", "fill"];
const WAIT_NAMES = {
  work: "work", memory: "main memory", token: "token", queue: "full queue", fetch: "FETCH",
  unit: "own pipeline", fill: "pipeline fills", done: "done",
};

const waitColour = (wait) => `wait-${wait}`;

// A bar of cycles by cause.
function stack(cycles, total, className, labelled) {
  const bar = make("div", { class: className, role: "img", "aria-label": CAUSES
    .filter((cause) => cycles[cause])
    .map((cause) => `${cause} ${percent(cycles[cause] / total)}`).join(", ") || "no cycles" });
  for (const cause of CAUSES) {
    if (!cycles[cause]) continue;
    const share = cycles[cause] / total;
    const part = make("div", {
      style: `width:${100 * share}%;background:${colour(cause)}`,
    });
    if (labelled && share > 0.09) part.textContent = percent(share);
    bar.append(part);
  }
  hovers(bar, () => CAUSES.filter((cause) => cycles[cause]).map((cause) =>
    tipLine(cause, cause, `${grouped(cycles[cause])} (${percent(cycles[cause] / total)})`)));
  return bar;
}
