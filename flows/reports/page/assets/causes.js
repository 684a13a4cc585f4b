// Causes of the cycles on the critical path, and what units wait for.
const CAUSES = Object.keys(DATA.causes);
const WAITS = ["work", "memory", "token", "queue", "fetch", "unit", "fill"];
const WAIT_NAMES = {
  work: "work", memory: "main memory", token: "token", queue: "full queue", fetch: "FETCH",
  unit: "own pipeline", fill: "pipeline fills", done: "done",
};

const waitColour = (wait) => `wait-${wait}`;

// A bar of cycles by cause.
// A label that shows where the part is wide enough for it.
function labelInside(part, text) {
  const label = make("span", {}, text);
  part.append(label);
  whenSized(part, (width) => {
    label.hidden = false;
    label.hidden = width < label.offsetWidth + 6;
  });
}

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
    if (labelled) labelInside(part, percent(share));
    bar.append(part);
  }
  hovers(bar, () => CAUSES.filter((cause) => cycles[cause]).map((cause) =>
    tipLine(cause, cause, `${grouped(cycles[cause])} (${percent(cycles[cause] / total)})`)));
  return bar;
}
