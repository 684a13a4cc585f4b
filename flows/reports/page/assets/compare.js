// Two reports side by side: headline, causes, layers, figures, and what differs.
const [A, B] = DATA.sides;
const NAMES = ["A", "B"];

// Name, text of a value, and whether more is worse (1), better (-1) or neither (0).
const FIGURES = {
  cycles: ["Cycles", grouped, 1], ms: ["Time", (ms) => quantity(ms / 1e3, "s"), 1],
  of_peak: ["Of peak", percent, -1], gops: ["Speed", (gops) => quantity(1e9 * gops, "op/s"), -1],
  energy_uj: ["Energy, estimated", (uj) => quantity(uj / 1e6, "J"), 1],
  multipliers: ["Multipliers", grouped, 1], ram: ["Block RAMs", grouped, 1],
  lut: ["Look-up tables, estimated", grouped, 1], ff: ["Flip-flops, estimated", grouped, 1],
  macs: ["MACs", quantity, 0], read_bytes: ["Bytes read", bytes, 1],
  written_bytes: ["Bytes written", bytes, 1], program_bytes: ["Bytes of program", bytes, 1],
  instructions: ["Instructions", grouped, 1],
};

function ratioCell(a, b, worse = 1) {
  if (!a || b === null || b === undefined) return make("td", {}, "–");
  return make("td", { style: ratioStyle((b / a) ** worse) }, ratioText(b / a));
}

function showSides() {
  byId("date").textContent = DATA.date;
  const machine = ({ configuration }) => configuration.name;
  byId("title").textContent = titleText(machine);
  DATA.sides.forEach((side, at) => {
    const { memory } = side;
    byId(NAMES[at].toLowerCase()).textContent =
      `${NAMES[at]}: ${side.network} on ${machine(side)} (${side.configuration.hash}), main memory ` +
      `with latency ${memory.latency_cycles} and ${memory.beats}/${memory.cycles} beats a cycle, ` +
      `timed on ${side.device} by Tilewright ${side.version} on ${side.date}.`;
  });
  const card = (side, at) => figure(NAMES[at], `${quantity(side.figures.ms / 1e3, "s")}`,
    `${grouped(side.figures.cycles)} cycles at ${side.clock_mhz} MHz, ` +
    `${percent(side.figures.of_peak)} of peak`);
  const time = B.figures.ms / A.figures.ms;
  const verdict = time < 0.9995 ? `B is ${ratioText(1 / time)} as fast`
    : time > 1.0005 ? `A is ${ratioText(time)} as fast` : "Both take as long";
  byId("cards").append(card(A, 0), card(B, 1),
    figure("Time, B / A", ratioText(time), verdict),
    figure("Cycles, B − A", signed(B.figures.cycles - A.figures.cycles),
      `${ratioText(B.figures.cycles / A.figures.cycles)} the cycles of A`));
  byId("made").textContent = `Made by Tilewright ${DATA.version} on ${DATA.date}.`;
}

// The network and both machines; where these are equal, the first setting that is not.
function titleText(machine) {
  const { network } = A;
  if (network !== B.network) return `${network} on ${machine(A)} and ${B.network} on ${machine(B)}`;
  if (machine(A) !== machine(B)) return `${network}: ${machine(A)} and ${machine(B)}`;
  const [first] = DATA.differences;
  const differ = first ? `: ${first.name.replaceAll("_", " ")} ${first.a} and ${first.b}` : "";
  return `${network} on ${machine(A)}${differ}`;
}

function showCausesOfBoth() {
  const most = Math.max(A.figures.cycles, B.figures.cycles);
  DATA.sides.forEach((side, at) => {
    const bar = stack(side.causes, side.figures.cycles, "stack", true);
    bar.style.width = `${(100 * side.figures.cycles) / most}%`;
    byId("causes").append(make("h3", {}, `${NAMES[at]}: ${grouped(side.figures.cycles)} cycles`), bar);
  });
  byId("causes").append(make("div", { class: "legend" }, ...CAUSES.map((cause) =>
    legendEntry(cause, `${cause}: ${grouped(A.causes[cause])} → ${grouped(B.causes[cause])} cycles`))));
}

const signed = (number) => `${number < 0 ? "−" : "+"}${grouped(Math.abs(number))}`;

function showLayersOfBoth() {
  const alone = DATA.rows.filter((row) => !row.a || !row.b).length;
  if (alone) {
    byId("alone").textContent = alone === DATA.rows.length
      ? " The two sides have no layer in common."
      : ` ${alone} of ${DATA.rows.length} rows have layers of one side only.`;
  }
  DATA.rows.forEach((row, index) => { row.number = index + 1; });
  const shown = firstRows(byId("layers-more"), DATA.rows.length, () => drawRowsOfBoth(shown));
  rowOrder.redraw = () => drawRowsOfBoth(shown);
  drawRowsOfBoth(shown);
}

// A long network begins with the layers that differ most.
const rowOrder = new Order(...(DATA.rows.length > FIRST_ROWS ? ["change", false] : ["#", true]),
  null, ["a", "b", "ratio", "change"]);
const ROW_KEYS = {
  "#": (row) => row.number, name: (row) => row.name, a: (row) => row.a?.cycles,
  b: (row) => row.b?.cycles, aBound: (row) => row.a?.bound, bBound: (row) => row.b?.bound,
  ratio: (row) => (row.a?.cycles && row.b ? row.b.cycles / row.a.cycles : null),
  change: (row) => Math.abs((row.b?.cycles || 0) - (row.a?.cycles || 0)),
};

function drawRowsOfBoth(shown) {
  const most = Math.max(1, ...DATA.rows.flatMap((row) =>
    [row.a, row.b].map((side) => (side ? pathCycles(side) : 0))));
  const told = [new Map(), new Map()];
  const sorted = rowOrder.sorted(DATA.rows, (row, key) => ROW_KEYS[key](row));
  const bodies = shown(sorted).map((row) => rowOfBoth(row, most,
    [row.a, row.b].map((side, at) => (side ? side.sentences : [])
      .map((sentence) => reasonOnce(sentence, row.number, told[at])).join(" "))));
  const totals = [A, B].map(({ figures }) => make("td", {}, grouped(figures.cycles)));
  const wide = () => make("td", { class: "wide" });
  bodies.push(make("tbody", {}, make("tr", { class: "total" }, make("td"),
    make("td", { class: "left" }, "total"), totals[0], wide(), totals[1], wide(),
    ratioCell(A.figures.cycles, B.figures.cycles),
    make("td", { class: "wide" }, signed(B.figures.cycles - A.figures.cycles)), wide())));
  const only = (text, key, left) => ({ text, wide: true, key, left });
  replaceTable(byId("layers"), table([{ text: "#", key: "#" }, { text: "Layer", key: "name" },
    { text: "A cycles", key: "a" }, only("A bound", "aBound", true), { text: "B cycles", key: "b" },
    only("B bound", "bBound", true), { text: "B / A", key: "ratio" }, only("B − A", "change"),
    only("On path, A above B", null, true)], bodies, 2, rowOrder));
}

const pathCycles = (side) => Object.values(side.causes).reduce((sum, count) => sum + count, 0);

function rowOfBoth({ name, number, a, b }, most, why) {
  const cycles = (side) => make("td", {}, side ? grouped(side.cycles) : "–");
  const bound = (side) => make("td", { class: "left wide" }, !side ? ""
    : side.bound ? make("span", { class: "chip" }, swatch(side.bound), side.bound) : "hidden");
  const bars = make("td", { class: "left wide", style: "min-width:130px" });
  for (const side of [a, b]) {
    const total = side ? pathCycles(side) : 0;
    const bar = make("div", { style: `height:10px;margin:2px 0;width:${(100 * total) / most}%` });
    if (total) {
      bar.append(stack(side.causes, total, "mini", false));
      bar.firstChild.style.minWidth = "3px";
    }
    bars.append(bar);
  }
  const told = why[0] === why[1] ? [`A and B: ${why[0]}`]
    : why.map((text, at) => (text ? `${NAMES[at]}: ${text}` : "")).filter(Boolean);
  return make("tbody", { class: "row pair" },
    make("tr", {}, make("td", { class: "left" }, String(number)),
      make("td", { class: "left name-cell" }, ...nameParts(name)), cycles(a), bound(a), cycles(b), bound(b),
      a && b ? ratioCell(a.cycles, b.cycles) : make("td", {}, "–"),
      make("td", { class: "wide" }, a && b ? signed(b.cycles - a.cycles) : "–"), bars),
    make("tr", { class: "why" }, make("td", { class: "left" }),
      make("td", { class: "left", colspan: "8" }, ...told.map((text) => make("div", {}, ...prose(text))))));
}

function showFigures() {
  const body = make("tbody");
  for (const [name, [title, text, worse]] of Object.entries(FIGURES)) {
    const [a, b] = DATA.sides.map(({ figures }) => figures[name]);
    const shown = (value) => make("td", {}, value === null ? "–" : text(value));
    body.append(make("tr", {}, make("th", { class: "left", scope: "row" }, title), shown(a), shown(b),
      ratioCell(a, b, worse)));
  }
  byId("figures").append(table(["Figure", "A", "B", "B / A"], [body]));
  const chips = DATA.sides.map(({ chip }) => chip || "an unknown chip");
  byId("chips").textContent = "Resources are those of the smallest ECP5 that has enough: " +
    (chips[0] === chips[1] ? `${chips[0]} for both.` : `${chips[0]} for A, ${chips[1]} for B.`);
}

function showDifferences() {
  const shown = (value) => make("td", { class: "name-cell", style: "font-weight:400" },
    ...(value === null ? ["–"] : breakable(String(value))));
  const rows = DATA.differences.map(({ name, a, b }) => make("tr", {},
    make("td", { class: "left name-cell" }, name.replaceAll("_", " ")), shown(a), shown(b)));
  byId("differences").append(rows.length
    ? table(["Setting", "A", "B"], [make("tbody", { class: "plain" }, ...rows)])
    : make("p", { class: "muted" }, "Nothing: network, machine, memory and version are equal."));
}

for (const show of [showSides, showCausesOfBoth, showLayersOfBoth, showFigures, showDifferences,
  showContents]) {
  show();
}
document.documentElement.dataset.ready = "true";
