// Best-so-far curves of each tuner: the median over seeds, and the range of all seeds.
const DASHES = ["", "8 4", "2 3", "10 3 2 3", "5 2"];
const TUNERS = [...new Set(TASKS.flatMap((task) => task.runs.map((run) => run.tuner)))].sort();
const tunerColour = (tuner) => `tuner-${(TUNERS.indexOf(tuner) % DASHES.length) + 1}`;

const middle = (sorted) => (sorted[Math.floor((sorted.length - 1) / 2)] +
  sorted[Math.ceil((sorted.length - 1) / 2)]) / 2;

// The best ratio after each trial; before any success, the default's.
function bestSoFar(run) {
  let best = 1;
  return run.trials.map(([, value]) => {
    if (value !== null) best = Math.min(best, value);
    return best;
  });
}

function tunerCurves(task) {
  const tuners = [...new Set(task.runs.map((run) => run.tuner))];
  return tuners.map((tuner) => {
    const curves = task.runs.filter((run) => run.tuner === tuner)
      .map(bestSoFar);
    const length = Math.max(...curves.map((curve) => curve.length));
    const steps = Array.from({ length }, (_, at) => {
      const values = curves.map((curve) => curve[Math.min(at, curve.length - 1)]).sort((a, b) => a - b);
      return { low: values[0], middle: middle(values), high: values.at(-1) };
    });
    return { tuner, seeds: curves.length, steps, last: steps.at(-1) };
  });
}

// Trials until the median is within a hundredth of the best that any tuner found.
function trialsToBest(curve, best) {
  const at = curve.steps.findIndex((step) => step.middle <= best * 1.01);
  return at < 0 ? null : at + 1;
}

const spread = ({ seeds, last }) => (seeds > 1 ? `${ratio(last.low)} to ${ratio(last.high)}` : "–");
const seedText = (count) => `${count} seed${count === 1 ? "" : "s"}`;

function showCurves() {
  VIEW.redraw.push(drawCurves);
  whenSized(byId("curves"), drawCurves);
}

function drawCurves() {
  const { task } = VIEW;
  const curves = tunerCurves(task);
  const best = Math.min(...curves.map((curve) => curve.last.low));
  byId("curves-note").textContent = task.exact ? "Cycles are exact."
    : `A candidate replaces the best only if it is faster by ${percent(DATA.min_gain)}.`;
  byId("curves-legend").replaceChildren(...curves.map((curve) =>
    legendEntry(tunerColour(curve.tuner), `${curve.tuner}, ${seedText(curve.seeds)}`)));
  byId("curves").replaceChildren(curvesChart(task, curves, byId("curves").clientWidth));
  const rows = curves.map((curve) => make("tr", {},
    make("td", { class: "left" }, curve.tuner), make("td", {}, grouped(curve.seeds)),
    make("td", {}, grouped(curve.steps.length)), make("td", {}, ratio(curve.last.middle)),
    make("td", { class: "wide" }, spread(curve)),
    make("td", {}, trialsToBest(curve, best) ?? "–")));
  byId("tuners").replaceChildren(table(
    ["Tuner", "Seeds", "Trials", "Best ratio", { text: "Spread over seeds", wide: true },
      "Trials to 1% of the best"], [make("tbody", { class: "plain" }, ...rows)]));
}

function curvesChart(task, curves, width) {
  const longest = Math.max(2, ...curves.map((curve) => curve.steps.length));
  const values = curves.flatMap(({ steps }) => steps.flatMap(({ low, high }) => [low, high]));
  const shown = [1, ...values, ...(task.bound ? [task.bound] : [])];
  const flat = Math.max(...shown) - Math.min(...shown) < 0.02;
  const across = scaleOf([0, 1, longest], marksFor(width));
  across.marks = across.marks.filter((mark) => mark >= 0 && Number.isInteger(mark));
  const up = scaleOf(flat ? [0.9, 1, 1.02] : [...shown, 1.01, 0.999], 6);
  const said = curves.map((curve) => `${curve.tuner} ${ratio(curve.last.middle)} after ` +
    `${grouped(curve.steps.length)} trials`);
  const chart = chartOf(width, 340, across, up, ["trials", "best ratio"],
    `Best ratio so far of ${task.title}: ${said.join("; ")}`);
  const { svg, x, y } = chart;
  levelLine(chart, width, 1, "default");
  if (task.bound) levelLine(chart, width, task.bound, "bound");
  for (const { tuner, steps } of curves) {
    const paint = colour(tunerColour(tuner));
    const path = (name) => steps.map((step, at) =>
      `${at ? "H" : "M"}${x(at + 1)}${at ? "V" : " "}${y(step[name])}`).join("");
    const back = [...steps].reverse().map((step, at) =>
      `${at ? "V" : `L${x(steps.length)} `}${y(step.high)}` +
      `${at ? `H${x(steps.length - at)}` : ""}`).join("");
    svg.append(draw("path", { d: `${path("low")}${back}Z`, fill: paint, "fill-opacity": 0.16 }));
    svg.append(draw("path", { d: path("middle"), fill: "none", stroke: paint, "stroke-width": 2,
      "stroke-dasharray": DASHES[TUNERS.indexOf(tuner) % DASHES.length] }));
    if (steps.length === 1) {
      svg.append(draw("circle", { cx: x(1), cy: y(steps[0].middle), r: 4, fill: paint }));
    }
  }
  return svg;
}
