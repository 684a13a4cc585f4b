// Axes of a chart in SVG: numbers on linear scales, or names at equal distances.
const AREA = { left: 54, right: 14, top: 22, bottom: 42 };

// Round numbers from `low` to `high`, some `count` of them.
function ticks(low, high, count) {
  const rough = (high - low) / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].find((each) => each * power >= rough * 0.999) * power;
  const found = [];
  for (let at = Math.ceil(low / step - 1e-9); at * step <= high + step * 1e-6; at += 1) {
    found.push(Number((at * step).toPrecision(10)));
  }
  return found;
}

// A scale from values to 0..1: a linear one with some air, or one place for each of a few answers.
const MOST_NAMES = 10;

function scaleOf(values, marks, isAnswer = false) {
  const names = [...new Set(values)];
  const numeric = names.every((value) => typeof value === "number");
  if (!numeric || (isAnswer && names.length <= MOST_NAMES)) {
    names.sort((a, b) => (typeof a === typeof b ? (a > b) - (a < b) : typeof a === "number" ? -1 : 1));
    return { names, marks: names, text: String, width: 1 / names.length,
      of: (value) => (names.indexOf(value) + 0.5) / names.length };
  }
  const [least, most] = [Math.min(...values), Math.max(...values)];
  const air = (most - least || 1) * 0.06;
  const [low, high] = [least - air, most + air];
  const text = (mark) => mark.toLocaleString("en-US", { maximumFractionDigits: 10 });
  return { marks: ticks(low, high, marks), text, width: 0,
    of: (value) => (value - low) / (high - low) };
}

// An empty chart with grid and labels, and the places of values in it.
function chartOf(width, height, across, up, titles, label) {
  const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
  const { left, right, top, bottom } = AREA;
  const x = (value) => left + across.of(value) * (width - left - right);
  const y = (value) => height - bottom - up.of(value) * (height - top - bottom);
  for (const mark of across.marks) {
    svg.append(
      draw("line", { x1: x(mark), x2: x(mark), y1: top, y2: height - bottom, stroke: "var(--grid)" }),
      draw("text", { x: x(mark), y: height - bottom + 17, "text-anchor": "middle" },
        across.text(mark)));
  }
  for (const mark of up.marks) {
    svg.append(
      draw("line", { x1: left, x2: width - right, y1: y(mark), y2: y(mark), stroke: "var(--grid)" }),
      draw("text", { x: left - 8, y: y(mark) + 4, "text-anchor": "end" }, up.text(mark)));
  }
  svg.append(
    draw("text", { x: (left + width - right) / 2, y: height - 6, "text-anchor": "middle" }, titles[0]),
    draw("text", { x: 0, y: 11 }, titles[1]));
  return { svg, x, y, acrossWidth: across.width * (width - left - right) };
}

// A line at a value of the other axis, with its name at the right end.
function levelLine({ svg, y }, width, value, text) {
  svg.append(
    draw("line", { x1: AREA.left, x2: width - AREA.right, y1: y(value), y2: y(value),
      stroke: "var(--ink)", "stroke-dasharray": "2 4" }),
    draw("text", { x: width - AREA.right, y: y(value) - 5, "text-anchor": "end", class: "strong" },
      text));
}

const marksFor = (width) => Math.max(2, Math.floor(width / 110));

function options(select, names, chosen, text = String) {
  select.replaceChildren(...names.map((name, at) => {
    const option = make("option", { value: at }, text(name));
    option.selected = name === chosen;
    return option;
  }));
}
