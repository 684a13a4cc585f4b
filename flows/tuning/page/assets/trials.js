// The table of all candidates of the chosen task.
const TRIAL_ORDER = new Order("ratio", true, () => drawTrials());
let firstTrials = null;

function showTrials() {
  VIEW.redraw.push(resetTrials);
  resetTrials();
}

function resetTrials() {
  const button = byId("more").cloneNode(true);
  byId("more").replaceWith(button);
  firstTrials = firstRows(button, VIEW.task.points.length, drawTrials);
  drawTrials();
}

function drawTrials() {
  const { task } = VIEW;
  const value = (point, key) => (key === "choice" ? choiceText(point.choice) : point[key]);
  const rows = firstTrials(TRIAL_ORDER.sorted(task.points, value)).map((point) => make("tr", {},
    make("td", { class: "left text-cell" }, choiceText(point.choice)),
    make("td", {}, point.ratio === null ? "–" : ratio(point.ratio)),
    make("td", { class: "wide" }, point.ratio === null ? "–" : amount(task, point.ratio)),
    make("td", { class: "wide" }, task.exact ? "exact" : percent(point.noise)),
    make("td", { class: "left" }, point.verdict)));
  replaceTable(byId("trials"), table([
    { text: "Candidate", key: "choice", left: true }, { text: "Ratio", key: "ratio" },
    { text: task.exact ? "Cycles" : "Time", wide: true }, { text: "Noise", wide: true },
    { text: "Verdict", key: "verdict", left: true },
  ], [make("tbody", { class: "plain" }, ...rows)], 0, TRIAL_ORDER));
}
