// The timeline: every slice of the trace on a canvas that can be moved and zoomed.
const TRACK_ROW = 26, TRACK_GAP = 7, TRACK_AXIS = 24, MOST_TOKENS = 400, LEAST_CYCLES = 50;
const TRACK_ORDER = ["FETCH", "LOAD", "LOAD: SYNC", "GEMM", "GEMM: SYNC", "VECTOR", "VECTOR: SYNC",
  "STORE", "STORE: SYNC", "main memory: read", "main memory: write"];
const PATH = "critical path";

const timeline = { begin: 0, end: 1, width: 0, rows: [], colours: {}, layers: new Map() };

function showTimeline() {
  const data = DATA.timeline;
  const canvas = byId("timeline").querySelector("canvas");
  timeline.canvas = canvas;
  timeline.paper = canvas.getContext("2d");
  const unpacked = (rows) => rows.map(([begin, cycles, kind, name, at, count]) =>
    ({ begin, end: begin + cycles, kind: data.kinds[kind], name: data.names[name], at, count }));
  timeline.rows = [{ title: PATH, slices: unpacked(data.path) },
    ...TRACK_ORDER.filter((title) => data.tracks[title]).map((title) =>
      ({ title, slices: unpacked(data.tracks[title]) }))];
  DATA.layers.forEach((layer, index) => timeline.layers.set(layer.name, index));
  if (data.joined_cycles) {
    byId("timeline-note").textContent = ` The run is long: ${data.exact_layers} of ` +
      `${DATA.layers.length} layers, the slowest, are shown by instruction; in the others, what a ` +
      `unit does within ${grouped(data.joined_cycles)} cycles is one block. The command ` +
      "“tilewright run --trace” writes every instruction.";
  }
  byId("timeline-legend").append(legendEntry(waitColour("work"), "works, bursts"),
    legendEntry(waitColour("next"), "the same, next layer"),
    ...WAITS.slice(1).map((wait) => legendEntry(waitColour(wait), `waits: ${WAIT_NAMES[wait]}`)));
  const select = byId("timeline-layer");
  select.append(make("option", { value: "" }, "all"), ...DATA.completions.map(({ name }, index) =>
    make("option", { value: String(index) }, `${index + 1}  ${name}`)));
  select.addEventListener("change", () => {
    if (select.value === "") setView(0, DATA.summary.cycles);
    else chooseLayer(Number(select.value));
  });
  byId("timeline-in").addEventListener("click", () => zoom(0.5, 0.5));
  byId("timeline-out").addEventListener("click", () => zoom(2, 0.5));
  byId("timeline-fit").addEventListener("click", () => setView(0, DATA.summary.cycles));
  listen(canvas);
  const asked = /cycles=(\d+)-(\d+)/.exec(location.hash);
  timeline.begin = asked ? Number(asked[1]) : 0;
  timeline.end = asked ? Number(asked[2]) : DATA.summary.cycles;
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paintTimeline);
  whenSized(byId("timeline"), (width) => { timeline.width = width; paintTimeline(); });
}

// A layer's cycles with a margin.
function showInTimeline(index) {
  byId("timeline-layer").value = String(index);
  const layer = DATA.completions[index];
  const margin = Math.max(40, (layer.end - layer.begin) / 30);
  setView(layer.begin - margin, layer.end + margin);
}

const labelWidth = () => (timeline.width > 700 ? 104 : 62);
const perCycle = () => (timeline.width - labelWidth()) / (timeline.end - timeline.begin);
const cycleAt = (x) => timeline.begin + (x - labelWidth()) / perCycle();

function setView(begin, end) {
  const whole = DATA.summary.cycles;
  const room = Math.min(Math.max(end - begin, LEAST_CYCLES), whole);
  timeline.begin = Math.max(0, Math.min(begin, whole - room));
  timeline.end = timeline.begin + room;
  const all = timeline.begin === 0 && timeline.end === whole;
  timeline.canvas.setAttribute("aria-label", "Timeline of every unit, " + (all ? "the whole run"
    : `cycles ${grouped(timeline.begin)} to ${grouped(timeline.end)}`));
  requestAnimationFrame(paintTimeline);
}

function zoom(factor, place) {
  const at = timeline.begin + (timeline.end - timeline.begin) * place;
  setView(at - (at - timeline.begin) * factor, at + (timeline.end - at) * factor);
}

function lookOf(slice, title) {
  if (slice.kind === "path") return slice.name.split(": ")[1];
  if (slice.kind === "wait") {
    if (title === "FETCH" && slice.name.includes("full queue")) return "wait-token";
    const found = [["token", "token"], ["full queue", "queue"], ["main memory", "memory"],
      ["FETCH", "fetch"], ["own pipeline", "unit"]].find(([text]) => slice.name.includes(text));
    return waitColour(found ? found[1] : "fill");
  }
  if (slice.at < 0) return "wait-fetch";
  const label = slice.at >= 0 ? DATA.timeline.instructions[slice.at][0] : "";
  const layer = label.slice(0, label.lastIndexOf(": "));
  return waitColour((timeline.layers.get(layer) ?? 0) % 2 ? "next" : "work");
}

function paintTimeline() {
  const { canvas, paper, rows, width } = timeline;
  if (!width) return;
  const style = getComputedStyle(document.documentElement);
  for (const name of [...WAITS.map(waitColour), waitColour("next"), ...CAUSES, "ink", "muted",
    "stripe", "grid"]) {
    timeline.colours[name] = style.getPropertyValue(`--${name}`).trim();
  }
  const height = rows.length * (TRACK_ROW + TRACK_GAP) + TRACK_AXIS;
  const ratio = devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.height = `${height}px`;
  paper.setTransform(ratio, 0, 0, ratio, 0, 0);
  paper.clearRect(0, 0, width, height);
  paintAxis(height);
  rows.forEach(paintRow);
  paintTokens();
  rows.forEach(({ title }, index) => {
    paper.fillStyle = timeline.colours.ink;
    paper.font = "600 12px system-ui, sans-serif";
    paper.textAlign = "left";
    const text = labelWidth() > 90 ? title.replace("main memory: ", "memory, ")
      : title.replace("main memory: ", "").replace(PATH, "path");
    paper.fillText(text, 0, index * (TRACK_ROW + TRACK_GAP) + TRACK_ROW / 2 + 4);
  });
}

function paintAxis(height) {
  const { paper, begin, end, width, colours } = timeline;
  const step = niceStep(end - begin, (width - labelWidth()) / 100);
  paper.font = "12px system-ui, sans-serif";
  paper.textAlign = "center";
  for (let cycle = Math.ceil(begin / step) * step; cycle <= end; cycle += step) {
    const x = labelWidth() + (cycle - begin) * perCycle();
    paper.fillStyle = colours.grid;
    paper.fillRect(x, 0, 1, height - TRACK_AXIS);
    paper.fillStyle = colours.muted;
    if (x > labelWidth() + 20 && x < width - 84) paper.fillText(grouped(cycle), x, height - 7);
  }
  paper.textAlign = "right";
  paper.fillText("cycles", width, height - 7);
}

function firstVisible(slices) {
  let [low, high] = [0, slices.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (slices[middle].end <= timeline.begin) low = middle + 1;
    else high = middle;
  }
  return low;
}

function paintRow({ slices, title }, index) {
  const { paper, begin, end, width, colours } = timeline;
  const top = index * (TRACK_ROW + TRACK_GAP);
  paper.fillStyle = colours.stripe;
  paper.fillRect(labelWidth(), top, width - labelWidth(), TRACK_ROW);
  for (let at = firstVisible(slices); at < slices.length && slices[at].begin < end; at += 1) {
    const slice = slices[at];
    const left = Math.max(labelWidth(), labelWidth() + (slice.begin - begin) * perCycle());
    const right = Math.min(width, labelWidth() + (slice.end - begin) * perCycle());
    const room = right - left;
    const look = lookOf(slice, title);
    const waits = slice.kind === "wait";
    const inset = waits ? 5 : 0;
    paper.fillStyle = colours[look];
    paper.fillRect(left, top + inset, room > 3 ? room - 0.6 : Math.max(room, 0.35),
      TRACK_ROW - 2 * inset);
    if (room > 46) paintText(slice, left, room, top, look, title);
  }
}

function paintText(slice, left, room, top, look, title) {
  const { paper, colours } = timeline;
  paper.font = "11.5px system-ui, sans-serif";
  paper.textAlign = "left";
  let text = slice.name.replace("starved: ", "");
  if (slice.at >= 0 && !slice.count && slice.kind !== "wait" && slice.kind !== "path") {
    const [label, note] = DATA.timeline.instructions[slice.at];
    text = title.includes("memory") || title === "FETCH" || !note ? label : note;
  }
  if (paper.measureText(text).width > room - 10) {
    if (slice.kind === "wait" || slice.kind === "path") return;
    const most = Math.floor((room - 18) / 6.2);
    if (most < 6) return;
    text = `${text.slice(0, most)}…`;
  }
  paper.fillStyle = readableOn(colours[look]);
  paper.fillText(text, left + 5, top + TRACK_ROW / 2 + 4);
}

function paintTokens() {
  const { paper, rows, begin, end, width, colours } = timeline;
  const places = ["LOAD", "GEMM", "VECTOR", "STORE"].map((unit) =>
    rows.findIndex(({ title }) => title === unit));
  const seen = DATA.timeline.tokens.filter((token) => token[1] < end && token[3] > begin);
  if (seen.length > MOST_TOKENS) return;
  const x = (cycle) => labelWidth() + (cycle - begin) * perCycle();
  const middle = (row) => row * (TRACK_ROW + TRACK_GAP) + TRACK_ROW / 2;
  paper.save();
  paper.beginPath();
  paper.rect(labelWidth(), 0, width, rows.length * (TRACK_ROW + TRACK_GAP));
  paper.clip();
  paper.strokeStyle = colours.ink;
  paper.globalAlpha = seen.length > 120 ? 0.25 : 0.5;
  for (const [giver, given, taker, taken] of seen) {
    const down = places[taker] > places[giver] ? 1 : -1;
    const [from, to] = [middle(places[giver]) + (down * TRACK_ROW) / 2,
      middle(places[taker]) - (down * TRACK_ROW) / 2];
    paper.beginPath();
    paper.moveTo(x(given), from);
    paper.lineTo(x(taken), to);
    paper.stroke();
  }
  paper.restore();
}

function sliceAt(event) {
  const box = timeline.canvas.getBoundingClientRect();
  const row = timeline.rows[Math.floor((event.clientY - box.top) / (TRACK_ROW + TRACK_GAP))];
  const cycle = cycleAt(event.clientX - box.left);
  if (!row || event.clientX - box.left < labelWidth()) return null;
  const near = 1.5 / perCycle();
  return row.slices.find((slice) => slice.begin <= cycle && cycle < slice.end) ||
    row.slices.find((slice) => slice.begin - near <= cycle && cycle < slice.end + near) || null;
}

function tellSlice(event) {
  const slice = sliceAt(event);
  if (!slice) return hideTip();
  const span = `cycles ${grouped(slice.begin)} to ${grouped(slice.end)}`;
  const lines = [make("b", {}, slice.name),
    make("div", {}, `${span}: ${grouped(slice.end - slice.begin)}`)];
  if (slice.count) lines.push(make("div", {}, `${grouped(slice.count)} slices near these, joined`));
  else if (slice.at >= 0) {
    const [label, note, assembly] = DATA.timeline.instructions[slice.at];
    if (label !== slice.name) lines.push(make("div", {}, label));
    lines.push(make("div", {}, note), make("code", {}, assembly));
  }
  showTip(event, ...lines);
}

function listen(canvas) {
  const pointers = new Map();
  const place = (clientX) => {
    const box = canvas.getBoundingClientRect();
    return (clientX - box.left - labelWidth()) / (timeline.width - labelWidth());
  };
  canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    zoom(Math.exp(event.deltaY / 300), Math.min(1, Math.max(0, place(event.clientX))));
  }, { passive: false });
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    pointers.set(event.pointerId, event.clientX);
  });
  for (const name of ["pointerup", "pointercancel"]) {
    canvas.addEventListener(name, (event) => pointers.delete(event.pointerId));
  }
  canvas.addEventListener("keydown", (event) => {
    const by = (timeline.end - timeline.begin) / 5;
    const act = { ArrowLeft: () => setView(timeline.begin - by, timeline.end - by),
      ArrowRight: () => setView(timeline.begin + by, timeline.end + by), "+": () => zoom(0.5, 0.5),
      "-": () => zoom(2, 0.5), 0: () => setView(0, DATA.summary.cycles) }[event.key];
    if (!act || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    act();
  });
  canvas.addEventListener("pointerleave", hideTip);
  canvas.addEventListener("pointermove", (event) => {
    if (!pointers.has(event.pointerId)) return tellSlice(event);
    hideTip();
    const before = [...pointers.values()];
    const moved = event.clientX - pointers.get(event.pointerId);
    pointers.set(event.pointerId, event.clientX);
    if (pointers.size === 1) {
      const by = moved / perCycle();
      setView(timeline.begin - by, timeline.end - by);
    } else if (pointers.size === 2) {
      const after = [...pointers.values()];
      const apart = (pair) => Math.max(20, Math.abs(pair[0] - pair[1]));
      zoom(apart(before) / apart(after), place((after[0] + after[1]) / 2));
    }
  });
}
