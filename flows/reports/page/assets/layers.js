// The table of layers, each with its bar and its sentence.
function showLayers() {
  const most = Math.max(...DATA.layers.map((layer) => layer.path_cycles), 1);
  const told = new Map();
  const bodies = DATA.layers.map((layer, index) =>
    layerBody(layer, index, most, reasonOnce(layer.sentence, index + 1, told)));
  const { summary } = DATA;
  const added = DATA.layers.reduce((sum, layer) => sum + layer.added_cycles, 0);
  const path = DATA.layers.reduce((sum, layer) => sum + layer.path_cycles, 0);
  const wide = (text) => make("td", { class: "wide" }, text);
  bodies.push(make("tbody", {}, make("tr", { class: "total" },
    make("td", { class: "left" }), make("td", { class: "left" }, "total"),
    wide(""), make("td", {}, grouped(added)), wide(grouped(path)), wide(""),
    make("td", { class: "left" }), wide(millions(summary.macs)),
    make("td", {}, percent(summary.of_peak)), wide(bytes(summary.read_bytes)),
    wide(bytes(summary.written_bytes)), wide(grouped(summary.instructions)))));
  const only = (text) => ({ text, wide: true });
  const made = table(["#", "Layer", only("Operator"), "Cycles", only("On path"), only("By cause"),
    "Bound", only("MACs"), "Of peak", only("Read"), only("Written"), only("Instr.")], bodies, 2);
  made.querySelectorAll("th")[2].classList.add("left");
  for (const place of [5, 6]) made.querySelectorAll("th")[place].classList.add("left");
  byId("layers").append(made);
}

function layerBody(layer, index, most, why) {
  const bar = make("div", { style: `width:${Math.max(3, (100 * layer.path_cycles) / most)}%` },
    stack(layer.causes, Math.max(1, layer.path_cycles), "mini", false));
  bar.firstChild.style.minWidth = "0";
  const wide = (text) => make("td", { class: "wide" }, text);
  const name = make("td", { class: "left name-cell" }, layer.name);
  hovers(name, () => [make("b", {}, layer.full_name), make("div", {}, layer.schedule)]);
  const operator = make("td", { class: "left wide op-cell" }, layer.op.replaceAll("+", "+\u200b"));
  hovers(operator, () => [make("div", {}, layer.op)]);
  const read = wide(bytes(layer.read_bytes));
  hovers(read, () => Object.entries(layer.read).map(([what, size]) =>
    make("div", { class: "line" }, make("span", {}, what), make("span", {}, bytes(size)))));
  const bound = layer.bound
    ? make("span", { class: "chip" }, swatch(layer.bound), layer.bound)
    : "hidden";
  return make("tbody", { class: "row layer" },
    make("tr", {}, make("td", { class: "left" }, String(index + 1)), name,
      operator, make("td", {}, grouped(layer.added_cycles)),
      wide(grouped(layer.path_cycles)),
      make("td", { class: "left wide", style: "min-width:110px" }, bar),
      make("td", { class: "left" }, bound), wide(layer.macs ? millions(layer.macs) : "–"),
      make("td", {}, percent(layer.of_peak)), read, wide(bytes(layer.written_bytes)),
      wide(grouped(layer.instructions))),
    make("tr", { class: "why" }, make("td", { class: "left" }),
      make("td", { class: "left", colspan: "11" }, why)));
}
