// The points of the sweep, what is shown of them, and their values by name.
const VARIED = DATA.vary;
const MACHINE = VARIED.filter((name) => !DATA.memory.includes(name));
const FIGURES = Object.keys(DATA.figures);
// States differ in form, so that colours are left for what limits a machine.
const MARKS = {
  front: ["diamond", "--accent"], beaten: ["circle", "--muted"], "ruled out": ["triangle-up-open",
    "--muted"], excluded: ["square-open", "--muted"], failed: ["x-thin-open", "--muted"],
  open: ["circle-open", "--muted"],
};

const LIMITS = ["GEMM", "VECTOR", "LOAD", "STORE", "latency", "dispatch", "hidden"];

const POINTS = DATA.points.map((point, index) => ({
  ...point,
  index,
  memory: DATA.memory.map((name) => `${name} ${point.chosen[name]}`).join(", "),
  label: MACHINE.map((name) => `${name}=${point.chosen[name]}`).join(", ") || DATA.base.name,
  least: weighted(point.bound),
  compiled: Object.keys(point.cycles).length > 0,
}));

const ALL = "all";

// The state of the page: parts redraw when it changes.
const VIEW = { memory: POINTS[0].memory, selected: null, chosen: [], redraw: [] };

function changed() {
  for (const redraw of VIEW.redraw) redraw();
}

function weighted(cycles) {
  const networks = DATA.networks.filter((network) => network.name in cycles);
  return networks.length === DATA.networks.length
    ? networks.reduce((sum, network) => sum + network.weight * cycles[network.name], 0)
    : null;
}

// A figure or a varied value; for times of a point that was not compiled, the bound.
function valueOf(point, name) {
  if (name in point.figures) return point.figures[name];
  if (name === "cycles") return point.least;
  if (name === "ms") {
    const clock = point.figures.clock_mhz ?? (DATA.own_clock ? null : DATA.clock_mhz);
    return point.least === null || clock === null ? null : point.least / clock / 1e3;
  }
  const text = point.chosen[name];
  if (text === undefined) return null;
  if (/^\d+x\d+$/.test(text)) {
    const [rows, columns] = text.split("x").map(Number);
    return rows * columns;
  }
  if (/^\d+\/\d+$/.test(text)) {
    const [beats, cycles] = text.split("/").map(Number);
    return beats / cycles;
  }
  return Number.isNaN(Number(text)) ? text : Number(text);
}

const isChosen = (point) => VIEW.chosen.includes(point.index);
const isSelected = (point) => VIEW.selected === null || VIEW.selected.has(point.index);
const hasPlace = (point) => point.least !== null && point.state !== "failed";
const shownPoints = () =>
  POINTS.filter((point) => VIEW.memory === ALL || point.memory === VIEW.memory);

// What takes the cycles of a point's critical paths: names with their shares, the largest first.
function limitsOf(point) {
  const cycles = {};
  for (const { name, weight } of DATA.networks) {
    for (const [limit, count] of Object.entries(point.limits[name] || {})) {
      cycles[limit] = (cycles[limit] || 0) + weight * count;
    }
  }
  const total = Object.values(cycles).reduce((sum, count) => sum + count, 0);
  return Object.entries(cycles).map(([limit, count]) => [limit, count / total])
    .sort((a, b) => b[1] - a[1]);
}
const limitText = (point) =>
  limitsOf(point).slice(0, 1).map(([name, share]) => `${name} ${percent(share)}`).join("") || "–";

// Figures with a unit, and the factor to that unit.
const UNITS = { ms: [1e-3, "s"], energy_uj: [1e-6, "J"], clock_mhz: [1e6, "Hz"], ram_bits: [1, "bit"] };

function figureText(name, value) {
  if (value === null || value === undefined) return "–";
  if (name === "of_peak") return percent(value);
  if (typeof value !== "number") return value;
  if (name in UNITS) return quantity(value * UNITS[name][0], UNITS[name][1]);
  return Number.isInteger(value) ? grouped(value) : significant(value);
}

// Whether a figure was measured by synthesis or placement, and the text of one with its mark.
const isMeasured = (point, name) => point.measured !== null &&
  ((name in point.measured.counts && name !== "multipliers") ||
    (point.measured.clock_mhz !== null && ["ms", "clock_mhz"].includes(name)));
const markedText = (point, name, text) => (isMeasured(point, name) ? `${text} *` : text);

// Lines about what was measured, and by how much the estimates were off.
function measuredTexts(point) {
  if (point.measured === null) return [];
  const { counts, expected, clocks_mhz: clocks, failures } = point.measured;
  const texts = Object.entries(counts).map(([name, count]) => {
    const off = count ? (expected[name] - count) / count : 0;
    return `measured ${nameText(name)}: ${grouped(count)}, ` + (off
      ? `the estimate was ${grouped(expected[name])} (${off > 0 ? "+" : ""}${percent(off)})`
      : "as expected");
  });
  const seeds = Object.entries(clocks).map(([seed, mhz]) => `${significant(mhz)} (seed ${seed})`);
  if (seeds.length) texts.push(`measured MHz: ${seeds.join(", ")}`);
  return [...texts, ...Object.entries(failures).map(([seed, text]) => `seed ${seed}: ${text}`)];
}

const NAMES = { ram: "block RAMs", unit: "busiest unit", limit: "limited by", ms: "time",
  energy_uj: "energy", lut: "LUT", ff: "flip-flops", ram_bits: "RAM", clock_mhz: "clock",
  macs_per_cycle: "MACs per cycle" };
const nameText = (name) => NAMES[name] || name.replaceAll("_", " ");

// Fonts and colours of the page for Plotly.
function look(more) {
  const style = getComputedStyle(document.documentElement);
  const of = (name) => style.getPropertyValue(name).trim();
  return {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: of("--muted") },
    hoverlabel: { bgcolor: of("--card"), bordercolor: of("--line"), font: { color: of("--ink") } },
    ...more(of),
  };
}
const cssColour = (name) =>
  getComputedStyle(document.documentElement).getPropertyValue(name).trim();
