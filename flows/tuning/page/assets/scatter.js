// Two scatters of the chosen task: what a model expected, and the space by answers.
const RATIO = "ratio";

// Every trial for which a model had a prediction, once for each run.
const judged = (task) => task.runs.flatMap((run) => run.trials
  .filter(([, value, predicted]) => value !== null && predicted !== null)
  .map(([index, value, predicted]) =>
    ({ tuner: run.tuner, value, predicted, point: task.points[index] })));

// The share of pairs that predictions put in the right order; null without pairs.
function pairsInOrder(trials, larger) {
  let [right, all] = [0, 0];
  for (const [at, one] of trials.entries()) {
    for (const other of trials.slice(0, at)) {
      const measured = Math.sign(one.value - other.value);
      const expected = Math.sign(one.predicted - other.predicted) * larger;
      if (measured && expected) {
        all += 1;
        right += measured === expected;
      }
    }
  }
  return all ? right / all : null;
}

function showPredicted() {
  VIEW.redraw.push(drawPredicted);
  whenSized(byId("predicted"), drawPredicted);
}

const MOST_JUDGED = 1500;

function drawPredicted() {
  const { task } = VIEW;
  const trials = judged(task).slice(0, MOST_JUDGED);
  if (!trials.length) {
    byId("predicted-note").textContent =
      "No model has judged candidates of this task before their trials; --tuner xgboost has one.";
    byId("predicted").replaceChildren();
    return;
  }
  const share = pairsInOrder(trials, task.exact ? 1 : -1);
  const how = task.exact
    ? "Each dot is a candidate: its estimated cycles by which the search orders candidates, and its exact ones, over those of the default. On the line they are equal."
    : "Each dot is a trial: the score that the model gave it before, and its ratio. A good model puts fast candidates at the right.";
  byId("predicted-note").textContent = `${how} Pairs in order: ${percent(share)}.`;
  const width = byId("predicted").clientWidth;
  const across = scaleOf(trials.map((trial) => trial.predicted), marksFor(width));
  const up = scaleOf([1, ...trials.map((trial) => trial.value)], 6);
  const chart = chartOf(width, 340, across, up,
    [task.exact ? "estimated ratio" : "score of the model", "measured ratio"],
    `${grouped(trials.length)} predictions and what was measured; pairs in order: ${percent(share)}`);
  if (task.exact) drawDiagonal(chart, trials);
  for (const { tuner, value, predicted, point } of trials) {
    const dot = draw("circle", { cx: chart.x(predicted), cy: chart.y(value), r: 4.5,
      fill: colour(tunerColour(tuner)), "fill-opacity": 0.75, stroke: "var(--card)" });
    hovers(dot, () => pointTip(task, point));
    chart.svg.append(dot);
  }
  byId("predicted").replaceChildren(chart.svg);
}

function drawDiagonal({ svg, x, y }, trials) {
  const both = ["predicted", "value"].map((name) => trials.map((trial) => trial[name]));
  const low = Math.max(...both.map((values) => Math.min(...values)));
  const high = Math.min(...both.map((values) => Math.max(...values)));
  if (low < high) {
    svg.append(draw("line", { x1: x(low), y1: y(low), x2: x(high), y2: y(high),
      stroke: "var(--ink)", "stroke-dasharray": "2 4" }));
  }
}

const pointTip = (task, point) => [
  make("b", {}, point.ratio === null ? point.verdict
    : `${ratio(point.ratio)} of the default, ${amount(task, point.ratio)}${task.exact ? " cycles" : ""}`),
  make("div", {}, choiceText(point.choice)),
];

function showSpace() {
  const redraw = () => drawSpace();
  for (const id of ["across", "up"]) byId(id).addEventListener("change", redraw);
  VIEW.redraw.push(chooseAxes, redraw);
  chooseAxes();
  whenSized(byId("space"), redraw);
}

let AXES = [];

// The questions of the task, those with the most answers first: they tell most.
function chooseAxes() {
  const answers = {};
  for (const { choice } of VIEW.task.points) {
    for (const [name, value] of Object.entries(choice)) (answers[name] ||= new Set()).add(value);
  }
  const names = Object.keys(answers).sort((a, b) => answers[b].size - answers[a].size);
  AXES = [...names, RATIO];
  options(byId("across"), AXES, AXES[0]);
  options(byId("up"), AXES, RATIO);
}

const valueOf = (point, name) => (name === RATIO ? point.ratio : point.choice[name] ?? "–");

function drawSpace() {
  const { task } = VIEW;
  const names = ["across", "up"].map((id) => AXES[byId(id).value]);
  const timed = task.points.filter((point) => point.ratio !== null);
  const width = byId("space").clientWidth;
  const scales = names.map((name, at) => {
    const of = name === RATIO ? timed : task.points;
    return scaleOf(of.map((point) => valueOf(point, name)), at ? 6 : marksFor(width), name !== RATIO);
  });
  const label = `${grouped(task.points.length)} of ${grouped(task.space)} candidates by ` +
    `${names.join(" and ")}; the best takes ${ratio(task.best)} of the default`;
  const chart = chartOf(width, 380, ...scales, names, label);
  const order = [...timed].sort((a, b) => a.ratio - b.ratio);
  const places = new Map();
  for (const point of [...order].reverse()) {
    const strength = 100 - (70 * order.indexOf(point)) / Math.max(1, order.length - 1);
    const [x, y] = sideBySide(places, names.map((name, at) =>
      chart[at ? "y" : "x"](valueOf(point, name))), scales[0].width ? chart.acrossWidth : 24);
    const dot = draw("circle", { cx: x, cy: y, r: 5, stroke: "var(--muted)", "stroke-width": 0.75,
      fill: `color-mix(in srgb, var(--accent) ${strength.toFixed(0)}%, var(--card))` });
    hovers(dot, () => pointTip(task, point));
    chart.svg.append(dot);
  }
  for (const point of task.points.filter(({ ratio: value }) => value === null)) {
    const [x, y] = names.map((name, at) => (name === RATIO
      ? (at ? AREA.top : AREA.left) : chart[at ? "y" : "x"](valueOf(point, name))));
    const cross = draw("path", { d: `M${x - 4} ${y - 4}l8 8m0 -8l-8 8`, stroke: "var(--worse)",
      "stroke-width": 2, fill: "none" });
    hovers(cross, () => pointTip(task, point));
    chart.svg.append(cross);
  }
  byId("space").replaceChildren(chart.svg);
}

// A place beside dots that would lie on the same one.
function sideBySide(places, [x, y], room) {
  const key = `${Math.round(x)} ${Math.round(y / 7)}`;
  const count = places.get(key) || 0;
  places.set(key, count + 1);
  const step = Math.ceil(count / 2) * (count % 2 ? 1 : -1) * 9;
  return [x + (Math.abs(step) < room / 2 - 5 ? step : step % Math.max(1, room / 2 - 5)), y];
}
