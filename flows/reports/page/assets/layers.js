// The table of layers, each with its bar and its sentence, and the layer that is chosen in all parts.
const chosen = { layer: null, told: [] };

function chooseLayer(index) {
  chosen.layer = index;
  for (const tell of chosen.told) tell(index);
}

// A long network begins with its slowest layers.
const layerOrder = new Order(...(DATA.layers.length > FIRST_ROWS ? ["cycles", false] : ["#", true]),
  () => drawLayerRows(), ["cycles", "path", "macs", "peak", "read", "written", "instructions"]);

const LAYER_KEYS = {
  "#": (layer) => layer.number, name: (layer) => layer.name, op: (layer) => layer.op,
  cycles: (layer) => layer.added_cycles, path: (layer) => layer.path_cycles,
  bound: (layer) => layer.bound, macs: (layer) => layer.macs || null,
  peak: (layer) => layer.of_peak, read: (layer) => layer.read_bytes,
  written: (layer) => layer.written_bytes, instructions: (layer) => layer.instructions,
};

const boundChip = (bound) =>
  (bound ? make("span", { class: "chip" }, swatch(bound), bound) : "hidden");

function showLayers() {
  DATA.layers.forEach((layer, index) => { layer.number = index + 1; });
  chosen.shown = firstRows(byId("layers-more"), DATA.layers.length, drawLayerRows);
  chosen.told.push(() => {
    for (const body of byId("layers").querySelectorAll("tbody.layer")) {
      markRow(body, Number(body.dataset.layer));
    }
  });
  drawLayerRows();
}

function markRow(body, index) {
  for (const row of body.rows) row.classList.toggle("chosen", index === chosen.layer);
}

function drawLayerRows() {
  const most = Math.max(...DATA.layers.map((layer) => layer.path_cycles), 1);
  const told = new Map();
  const sorted = layerOrder.sorted(DATA.layers, (layer, key) => LAYER_KEYS[key](layer));
  const bodies = chosen.shown(sorted).map((layer) =>
    layerBody(layer, most, reasonOnce(layer.sentence, layer.number, told)));
  const { summary } = DATA;
  const added = DATA.layers.reduce((sum, layer) => sum + layer.added_cycles, 0);
  const path = DATA.layers.reduce((sum, layer) => sum + layer.path_cycles, 0);
  const wide = (text) => make("td", { class: "wide" }, text);
  bodies.push(make("tbody", {}, make("tr", { class: "total" },
    make("td", { class: "left" }), make("td", { class: "left" }, "total"),
    wide(""), make("td", {}, grouped(added)), wide(grouped(path)), wide(""),
    make("td", { class: "left" }), wide(quantity(summary.macs)),
    make("td", {}, percent(summary.of_peak)), wide(bytes(summary.read_bytes)),
    wide(bytes(summary.written_bytes)), wide(grouped(summary.instructions)))));
  const only = (text, key, left) => ({ text, wide: true, key, left });
  replaceTable(byId("layers"), table([{ text: "#", key: "#" }, { text: "Layer", key: "name" },
    only("Operator", "op", true), { text: "Cycles", key: "cycles" }, only("On path", "path"),
    only("By cause", null, true), { text: "Bound", key: "bound", left: true },
    only("MACs", "macs"), { text: "Of peak", key: "peak" }, only("Read", "read"),
    only("Written", "written"), only("Instr.", "instructions")], bodies, 2, layerOrder));
}

function layerBody(layer, most, why) {
  const bar = make("div", { style: `width:${Math.max(3, (100 * layer.path_cycles) / most)}%` },
    stack(layer.causes, Math.max(1, layer.path_cycles), "mini", false));
  bar.firstChild.style.minWidth = "0";
  const wide = (...parts) => make("td", { class: "wide" }, ...parts);
  const link = make("a", { href: "#network-card" }, ...nameParts(layer.name));
  link.addEventListener("click", () => chooseLayer(layer.number - 1));
  const body = make("tbody", { class: "row layer", "data-layer": layer.number - 1 },
    make("tr", {}, make("td", { class: "left" }, String(layer.number)),
      make("td", { class: "left name-cell" }, link),
      make("td", { class: "left wide op-cell" }, ...breakable(layer.op)),
      make("td", {}, grouped(layer.added_cycles)), wide(grouped(layer.path_cycles)),
      make("td", { class: "left wide", style: "min-width:110px" }, bar),
      make("td", { class: "left" }, boundChip(layer.bound)),
      wide(layer.macs ? quantity(layer.macs) : "–"), make("td", {}, percent(layer.of_peak)),
      wide(bytes(layer.read_bytes)), wide(bytes(layer.written_bytes)),
      wide(grouped(layer.instructions))),
    make("tr", { class: "why" }, make("td", { class: "left" }),
      make("td", { class: "left", colspan: "11" }, ...prose(why))));
  markRow(body, layer.number - 1);
  return body;
}
