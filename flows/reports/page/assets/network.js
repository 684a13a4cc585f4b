// The network as a graph coloured by what binds each layer, and the layer that is chosen in it.
const KIND_TEXT = { host: "runs on the host", input: "input", output: "output" };

function showNetwork() {
  byId("graph-legend").append(...CAUSES.map((cause) => legendEntry(cause, `bound by ${cause}`)),
    make("span", {}, "grey: on the host, or hidden behind others"));
  byId("graph").append(networkGraph());
  chosen.told.push(showChosen);
  const slowest = [...DATA.layers.keys()].reduce((a, b) =>
    (DATA.layers[b].added_cycles > DATA.layers[a].added_cycles ? b : a), 0);
  if (DATA.layers.length) showChosen(chosen.layer = slowest, true);
}

function networkGraph() {
  const { boxes, paths, left, width, height } = DATA.graph;
  const svg = draw("svg", { viewBox: `${left} 0 ${width} ${height}`, width, height, role: "group",
    "aria-label": "The network's layers in their order" });
  svg.append(draw("marker", { id: "arrow", viewBox: "0 0 8 8", refX: 8, refY: 4, markerWidth: 7,
    markerHeight: 7, orient: "auto" }, draw("path", { d: "M0 0L8 4L0 8z", fill: "var(--muted)" })));
  for (const [path, last] of paths) {
    svg.append(draw("path", { d: path, class: "edge", ...(last ? { "marker-end": "url(#arrow)" } : {}) }));
  }
  const most = Math.max(1, ...DATA.layers.map((layer) => layer.added_cycles));
  for (const box of boxes) svg.append(boxOf(box, most));
  svg.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 }[event.key];
    const at = Number(event.target.closest("[data-layer]")?.dataset.layer ?? NaN);
    if (Number.isNaN(at)) return;
    if (event.key === "Enter" || event.key === " ") chooseLayer(at);
    else if (step) chooseLayer(Math.max(0, Math.min(DATA.layers.length - 1, at + step)));
    else return;
    event.preventDefault();
    byId("graph").querySelector(`[data-layer="${chosen.layer}"]`).focus();
  });
  return svg;
}

function boxOf(box, most) {
  const layer = DATA.layers[box.layer];
  const [x, inner] = [box.x - box.width / 2, box.width - 16];
  const about = layer ? `${layer.bound ? `bound by ${layer.bound}` : "hidden"}, ` +
    `${grouped(layer.added_cycles)} cycles` : KIND_TEXT[box.kind];
  const group = draw("g", { class: "box", ...(layer ? { role: "button", tabindex: -1,
    "data-layer": box.layer, "aria-pressed": "false", "aria-label": `${box.name}: ${about}` } : {}) },
  draw("rect", { x, y: box.top, width: box.width, height: box.height, rx: 5,
    ...(layer ? {} : { "stroke-dasharray": "4 3" }) }),
  draw("rect", { class: "bar", x: x + 1, y: box.top + 1, width: 6, height: box.height - 2, rx: 3,
    style: `fill:${layer?.bound ? colour(layer.bound) : "var(--muted)"}` }),
  draw("text", { x: x + 14, y: box.top + 16 },
    fitted(joined(box.name), inner, 7.1, layer ? box.layer + 1 : "")),
  draw("text", { x: x + 14, y: box.top + 31, class: "small" }, cut(layer ? about : box.text, inner / 5.8)));
  if (layer) {
    group.append(draw("rect", { class: "bar", x: x + 14, y: box.top + box.height - 8, height: 4, rx: 2,
      width: Math.max(1, (layer.added_cycles / most) * (box.width - 24)),
      style: `fill:${layer.bound ? colour(layer.bound) : "var(--muted)"}` }));
    group.addEventListener("click", () => { chooseLayer(box.layer); group.focus(); });
  }
  hovers(group, () => [make("b", {}, box.name), make("div", {}, about),
    make("div", {}, layer ? layer.op : box.text)]);
  return group;
}

const cut = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

// Shows the layer in the graph, beside it, and in the timeline.
function showChosen(index, atStart = false) {
  for (const box of byId("graph").querySelectorAll("[data-layer]")) {
    const own = Number(box.dataset.layer) === index;
    box.setAttribute("aria-pressed", own);
    box.setAttribute("tabindex", own ? 0 : -1);
    if (own) keepInSight(byId("graph"), box);
  }
  const layer = DATA.layers[index];
  const total = Math.max(1, layer.path_cycles);
  const facts = [["Operator", [...breakable(layer.op)]],
    ["Cycles", [`${grouped(layer.added_cycles)}, ` +
      `${percent(layer.added_cycles / DATA.summary.cycles)} of the run`]],
    ["Of peak", [percent(layer.of_peak)]],
    ["Read", [Object.entries(layer.read).map(([what, size]) => `${bytes(size)} of ${what}`).join(", ") ||
      "nothing"]],
    ["Written", [bytes(layer.written_bytes)]],
    ["Instructions", [grouped(layer.instructions)]],
    ["Full name", [...breakable(layer.full_name)]]];
  byId("layer-detail").replaceChildren(
    make("h3", {}, `${index + 1}  `, ...nameParts(layer.name)),
    make("p", {}, boundChip(layer.bound), " ", make("a", { href: "#timeline-card" },
      "its instructions in the timeline")),
    stack(layer.causes, total, "stack", true),
    make("div", { class: "legend" }, ...CAUSES.filter((cause) => layer.causes[cause]).map((cause) =>
      legendEntry(cause, `${cause}: ${grouped(layer.causes[cause])} cycles`))),
    make("p", {}, ...prose(layer.sentence)),
    make("dl", {}, ...facts.flatMap(([name, parts]) =>
      [make("dt", {}, name), make("dd", {}, ...parts)])),
    make("h3", { style: "margin-top:14px" }, "Schedule"),
    make("pre", { tabindex: "0", "aria-label": "Schedule" }, layer.schedule || "none"));
  if (!atStart) showInTimeline(index);
}

function keepInSight(region, element) {
  const [outer, inner] = [region.getBoundingClientRect(), element.getBoundingClientRect()];
  if (inner.top < outer.top || inner.bottom > outer.bottom) {
    region.scrollTop += inner.top - outer.top - outer.height / 3;
  }
  if (inner.left < outer.left || inner.right > outer.right) {
    region.scrollLeft += inner.left - outer.left - outer.width / 3;
  }
}
