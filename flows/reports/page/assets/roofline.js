const MOST_LABELS = 12, MOST_NUMBERS = 6;

// Where the slope may have its name, as shares of its length, and the pixels from a dot that do.
const SHARES = [0.5, 0.4, 0.6, 0.3, 0.7, 0.2, 0.8], FREE = 60;

// The roofline (Williams, Waterman and Patterson, CACM 2009) on logarithmic axes.
function showRoofline() {
  const shown = DATA.layers
    .map((layer, index) => ({ ...layer, number: index + 1 }))
    .filter((layer) => layer.macs_per_cycle);
  const others = DATA.layers.filter((layer) => !layer.macs_per_cycle);
  if (others.length) {
    const names = others.slice(0, 5).map((layer) => layer.name).join(", ");
    const rest = others.length > 5 ? ` and ${others.length - 5} more` : "";
    byId("roofline-note").textContent = `Not shown, because they have no MACs: ${names}${rest}.`;
  }
  whenSized(byId("roofline"), (width) =>
    byId("roofline").replaceChildren(rooflineChart(shown, width, 440)));
}

function rooflineChart(layers, width, height) {
  const { peak, bytes_per_cycle: slope } = DATA.roofline;
  const [left, right, top, bottom] = [46, 14, 22, 42];
  const xs = [peak / slope, ...layers.map((layer) => layer.macs_per_byte)];
  const ys = [peak, ...layers.map((layer) => layer.macs_per_cycle)];
  const lowX = 2 ** Math.floor(Math.log2(Math.min(...xs)) - 1);
  const highX = 2 ** Math.ceil(Math.log2(Math.max(...xs)) + 1);
  const lowY = 2 ** Math.floor(Math.log2(Math.min(...ys)) - 0.5);
  const highY = peak * 1.6;
  const along = (value, low, high) => Math.log(value / low) / Math.log(high / low);
  const x = (value) => left + along(value, lowX, highX) * (width - left - right);
  const y = (value) => height - bottom - along(value, lowY, highY) * (height - top - bottom);
  const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, role: "img",
    "aria-label": "Roofline: MACs per cycle over MACs per byte" });
  for (let mark = lowX, n = 0; mark <= highX; mark *= 2, n += 1) {
    svg.append(draw("line", { x1: x(mark), x2: x(mark), y1: top, y2: height - bottom,
      stroke: "var(--grid)" }));
    if ((x(lowX * 2) - x(lowX)) > 30 || n % 2 === 0) {
      svg.append(draw("text", { x: x(mark), y: height - bottom + 17, "text-anchor": "middle" },
        mark < 1 ? `1/${1 / mark}` : String(mark)));
    }
  }
  for (let mark = lowY; mark <= highY; mark *= 2) {
    svg.append(
      draw("line", { x1: left, x2: width - right, y1: y(mark), y2: y(mark),
        stroke: "var(--grid)" }),
      draw("text", { x: left - 8, y: y(mark) + 4, "text-anchor": "end" },
        mark < 1 ? `1/${1 / mark}` : String(mark)));
  }
  const ridge = peak / slope;
  const start = Math.max(lowX, lowY / slope);
  svg.append(
    draw("path", { d: `M${x(start)} ${y(start * slope)}L${x(ridge)} ${y(peak)}H${x(highX)}`,
      fill: "none", stroke: "var(--ink)", "stroke-width": 2, "stroke-linejoin": "round" }),
    draw("text", { x: width - right, y: y(peak) - 8, "text-anchor": "end", class: "strong" },
      `${peak} MACs a cycle`));
  const tilt = (Math.atan2(y(peak) - y(start * slope), x(ridge) - x(start)) * 180) / Math.PI;
  const dots = layers.map((layer) =>
    ({ layer, x: x(layer.macs_per_byte), y: y(layer.macs_per_cycle) }));
  const middle = freestPlace(dots, SHARES.map((share) => start * (ridge / start) ** share)
    .map((at) => ({ x: x(at), y: y(at * slope) - 8 })));
  svg.append(draw("text", { x: 0, y: 0, "text-anchor": "middle", class: "strong", transform:
    `translate(${middle.x} ${middle.y}) rotate(${tilt})` }, `${slope} bytes a cycle`));
  svg.append(
    draw("text", { x: (left + width - right) / 2, y: height - 6, "text-anchor": "middle" },
      "MACs per byte moved"),
    draw("text", { x: 0, y: 11 }, "MACs per cycle"));
  const roof = [{ x: width - right - 62, y: y(peak) - 12, across: 62, down: 9 },
    { x: middle.x, y: middle.y - 4, across: 44, down: 34 }];
  for (let at = start; at < highX; at *= 1.06) {
    roof.push({ x: x(at), y: y(Math.min(peak, at * slope)), across: 3, down: 3 });
  }
  drawDots(svg, dots, roof, { left, right: width - right, top, bottom: height - bottom });
  return svg;
}

// The first place that is free of dots, or the farthest from them.
function freestPlace(dots, places) {
  const room = (place) =>
    Math.min(FREE, ...dots.map((dot) => Math.hypot(dot.x - place.x, dot.y - place.y)));
  return places.reduce((best, place) => (room(place) > room(best) ? place : best));
}

// Dots, and one label for those that lie on each other, in the nearest free place.
function drawDots(svg, dots, roof, area) {
  const groups = [];
  for (const dot of dots) {
    const near = groups.find((group) => Math.hypot(group[0].x - dot.x, group[0].y - dot.y) < 11);
    if (near) near.push(dot);
    else groups.push([dot]);
  }
  const taken = [...roof, ...dots.map(({ x, y }) => ({ x, y, across: 8, down: 8 }))];
  const cycles = (group) => group.reduce((sum, { layer }) => sum + layer.added_cycles, 0);
  groups.sort((a, b) => cycles(b) - cycles(a));
  for (const group of groups) {
    for (const { layer, x, y } of group) {
      svg.append(draw("circle", { cx: x, cy: y, r: 6.5, fill: colour(layer.bound || "token"),
        stroke: "var(--card)", "stroke-width": 1.5, class: "dot" }));
    }
  }
  for (const [at, group] of groups.entries()) {
    const [{ x, y }] = group;
    const numbers = group.map((dot) => dot.layer.number);
    const text = numbers.length > MOST_NUMBERS
      ? `${Math.min(...numbers)} and ${numbers.length - 1} more` : ranges(numbers);
    const place = at < MOST_LABELS && freePlace(x, y, 3.8 * text.length, taken, area);
    if (place) {
      taken.push(place);
      svg.append(draw("text", { x: place.x, y: place.y + 4, class: "strong",
        "text-anchor": "middle" }, text));
    }
    const target = draw("circle", { cx: x, cy: y, r: 14, fill: "transparent" });
    hovers(target, () => group.slice(0, 8).flatMap(({ layer }) => [
      make("b", {}, `${layer.number}  ${layer.name}`),
      make("div", {}, `${layer.macs_per_cycle.toFixed(1)} MACs a cycle, ` +
        `${layer.macs_per_byte.toFixed(1)} MACs a byte; ${layer.bound || "hidden"}`)]));
    svg.append(target);
  }
}

// Numbers in order, runs of three or more as “2–5”.
function ranges(numbers) {
  const runs = [];
  for (const number of [...numbers].sort((a, b) => a - b)) {
    const run = runs[runs.length - 1];
    if (run && number === run[1] + 1) run[1] = number;
    else runs.push([number, number]);
  }
  return runs.map(([first, last]) => first === last ? `${first}`
    : `${first}${last === first + 1 ? ", " : "–"}${last}`).join(", ");
}

// Centre and half extents of a label beside a dot: inside the area, and free of what is taken; null
// where there is no such place, so that labels never cross.
function freePlace(x, y, across, taken, area) {
  let best = null;
  for (const away of [15, 18, 22, 27]) {
    if (best) break;
    for (let turn = 0; turn < 24; turn += 1) {
      const angle = (turn * Math.PI) / 12 + Math.PI / 4;
      const place = { x: x + (away + across - 4) * Math.cos(angle), y: y + away * Math.sin(angle),
        across, down: 7, away };
      if (place.x - across < area.left || place.x + across > area.right ||
          place.y - 7 < area.top || place.y + 7 > area.bottom) continue;
      const free = taken.every((other) => across + other.across <= Math.abs(place.x - other.x) ||
        7 + other.down <= Math.abs(place.y - other.y));
      if (free) { best = place; break; }
    }
  }
  return best;
}
