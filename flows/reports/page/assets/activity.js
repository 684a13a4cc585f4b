// Units over time: stacked columns per unit, what the memory's channels carry, and the layers.
const ROW = 46, GAP = 12, LAYER_ROW = 20, AXIS = 24, LABEL = 62;

const CHANNELS = [
  { name: "read", parts: [["LOAD", "wait-work"], ["FETCH", "wait-fetch"]] },
  { name: "write", parts: [["STORE", "wait-work"]] },
];

function showActivity() {
  const { slot_cycles: slot } = DATA.activity;
  byId("slot").textContent = `${grouped(slot)} cycles`;
  const used = WAITS.filter((wait) =>
    Object.values(DATA.activity.units).some((unit) => unit[wait]));
  byId("activity-legend").append(...used.map((wait) =>
    legendEntry(waitColour(wait), wait === "work" ? "works" : `waits: ${WAIT_NAMES[wait]}`)));
  whenSized(byId("activity"), (width) => byId("activity").replaceChildren(activityChart(width)));
}

function activityChart(width) {
  const { units, beats, cycles, slot_cycles: slot } = DATA.activity;
  const names = Object.keys(units);
  const count = beats.LOAD.length;
  const height = LAYER_ROW + GAP + (names.length + CHANNELS.length) * (ROW + GAP) + AXIS;
  const scale = (width - LABEL) / (count * slot);
  const x = (cycle) => LABEL + cycle * scale;
  const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, role: "img",
    "aria-label": "What each unit does over time" });
  drawLayers(svg, x);
  let top = LAYER_ROW + GAP;
  for (const name of names) {
    drawRow(svg, top, width, name);
    const base = new Array(count).fill(0);
    for (const wait of WAITS) {
      // FETCH before full queues is ahead of the units: nothing that a column should shout.
      const ahead = name === "FETCH" && wait === "queue";
      if (units[name][wait] && !ahead) {
        svg.append(columns(units[name][wait], base, top, x, slot,
          waitColour(wait)));
      }
    }
    top += ROW + GAP;
  }
  for (const { name, parts } of CHANNELS) {
    drawRow(svg, top, width, name);
    const base = new Array(count).fill(0);
    for (const [owner, look] of parts) {
      svg.append(columns(beats[owner], base, top, x, slot, look));
    }
    top += ROW + GAP;
  }
  drawAxis(svg, x, cycles, top, width);
  const guide = draw("line", { y1: LAYER_ROW, y2: top, stroke: "var(--ink)", opacity: 0 });
  svg.append(guide);
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    const across = ((event.clientX - box.left) * width) / box.width;
    const at = Math.floor((across - LABEL) / scale / slot);
    const row = Math.floor((event.clientY - box.top - LAYER_ROW - GAP) / (ROW + GAP));
    if (at < 0 || at >= count || row < 0 || row >= names.length + CHANNELS.length) {
      guide.setAttribute("opacity", 0);
      return hideTip();
    }
    for (const end of ["x1", "x2"]) guide.setAttribute(end, x((at + 0.5) * slot));
    guide.setAttribute("opacity", 0.35);
    showTip(event, ...activityTip(names, at, row));
  });
  svg.addEventListener("pointerleave", () => { guide.setAttribute("opacity", 0); hideTip(); });
  return svg;
}

function activityTip(names, at, row) {
  const { units, beats, slot_cycles: slot } = DATA.activity;
  const span = `cycles ${grouped(at * slot)} to ${grouped((at + 1) * slot)}`;
  if (row < names.length) {
    const unit = units[names[row]];
    const rows = [...WAITS, "done"].filter((wait) => unit[wait] && unit[wait][at]);
    return [make("b", {}, `${names[row]}, ${span}`), ...rows.map((wait) =>
      tipLine(waitColour(wait), WAIT_NAMES[wait], grouped(unit[wait][at])))];
  }
  const channel = CHANNELS[row - names.length];
  const width = DATA.what_if.bus_bytes;
  return [make("b", {}, `Main memory, ${channel.name}, ${span}`),
    ...channel.parts.map(([owner, look]) => {
      const rate = ((beats[owner][at] * width) / slot).toFixed(1);
      return tipLine(look, owner, `${grouped(beats[owner][at])} beats, ${rate} B a cycle`);
    })];
}

function drawRow(svg, top, width, name) {
  svg.append(
    draw("rect", { x: LABEL, y: top, width: width - LABEL, height: ROW, fill: "var(--stripe)" }),
    draw("text", { x: 0, y: top + ROW / 2 + 4, class: "strong" }, name));
}

function columns(values, base, top, x, slot, look) {
  let path = "";
  values.forEach((value, index) => {
    if (!value) return;
    const low = top + ROW - (base[index] / slot) * ROW;
    base[index] += value;
    const high = top + ROW - (base[index] / slot) * ROW;
    const [left, right] = [x(index * slot), x((index + 1) * slot)];
    path += `M${left.toFixed(2)} ${low.toFixed(2)}H${right.toFixed(2)}V${high.toFixed(2)}` +
      `H${left.toFixed(2)}Z`;
  });
  return draw("path", { d: path, fill: colour(look), "shape-rendering": "crispEdges" });
}

function drawLayers(svg, x) {
  DATA.completions.forEach(({ name, begin, end }, index) => {
    const room = x(end) - x(begin);
    if (room <= 0) return;
    const group = draw("g", {}, draw("rect", { x: x(begin), y: 0, width: Math.max(0.5, room - 1),
      height: LAYER_ROW, rx: 3, fill: "var(--grid)" }));
    const text = fitted(joined(name), room - 10, 7.1, index + 1);
    if (text) {
      group.append(draw("text", { x: x(begin) + room / 2, y: 14, "text-anchor": "middle" }, text));
    }
    hovers(group, () => [make("b", {}, name), make("div", {},
      `adds ${grouped(end - begin)} cycles, up to cycle ${grouped(end)}`)]);
    svg.append(group);
  });
  svg.append(draw("text", { x: 0, y: 14, class: "strong" }, "layers"));
}

// A layer's number and name, without the middle where room is short; else the number; else "".
function fitted(name, room, each, number) {
  const text = `${number}  ${name}`;
  if (text.length * each <= room) return text;
  const most = Math.floor(room / each);
  if (most > 8) return shortened(text, most);
  return String(number).length * each <= room ? String(number) : "";
}

function drawAxis(svg, x, cycles, top, width) {
  const step = niceStep(cycles, (width - LABEL) / 90);
  for (let cycle = 0; cycle <= cycles; cycle += step) {
    svg.append(draw("line", { x1: x(cycle), x2: x(cycle), y1: LAYER_ROW + 4, y2: top - GAP + 5,
      stroke: "var(--muted)", opacity: 0.18 }));
    if (x(cycle) > width - 70 && cycle + step > cycles) continue;
    svg.append(draw("text", { x: x(cycle), y: top + 8,
      "text-anchor": cycle ? "middle" : "start" }, grouped(cycle)));
  }
  svg.append(draw("text", { x: width, y: top + 8, "text-anchor": "end" }, "cycles"));
}
