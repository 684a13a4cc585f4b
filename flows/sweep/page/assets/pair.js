// Two machines side by side: those that were clicked last, in a dot, a column or a row.
function choose(index) {
  VIEW.chosen = VIEW.chosen.includes(index)
    ? VIEW.chosen.filter((other) => other !== index) : [...VIEW.chosen, index].slice(-2);
  changed();
}

function showPair() {
  VIEW.redraw.push(drawPair);
  drawPair();
}

function drawPair() {
  const pair = VIEW.chosen.map((index) => POINTS[index]);
  byId("pair-note").hidden = pair.length === 2;
  if (pair.length < 2) {
    byId("pair").replaceChildren();
    return;
  }
  const [first, second] = pair;
  const names = pair.map((point) => [point.label, point.memory].filter(Boolean).join(", "));
  const settings = [...new Set(pair.flatMap((point) => Object.keys(settingsOf(point))))];
  const differing = settings.filter((name) =>
    settingsOf(first)[name] !== settingsOf(second)[name]);
  const parts = [
    ["State", [textRow("state", pair.map(({ state }) => state)),
      textRow(nameText("limit"), pair.map(limitText))]],
    ["Parameters that differ", differing.map((name) => textRow(nameText(name), pair.map((point) =>
      settingsOf(point)[name] ?? `${DATA.base.parameters[name] ?? "–"}`)))],
    ["Figures", FIGURES.map((name) => numberRow(nameText(name), pair.map((point) =>
      valueOf(point, name)), (value, at) => markedText(pair[at], name,
      bracketed(pair[at], name, figureText(name, value)))))],
    ...DATA.networks.map(({ name }) => [`Cycles of ${name} by layer, with what limits each`,
      DATA.layers[name].map((layer, row) => numberRow(layer, pair.map((point) =>
        point.layers[name]?.[row]?.[0] ?? null), (value, at) => (value === null ? "–"
        : `${grouped(value)} ${pair[at].layers[name][row][1]}`)))]),
  ];
  const bodies = parts.filter(([, rows]) => rows.length).map(([title, rows]) =>
    make("tbody", {}, make("tr", { class: "part" },
      make("th", { class: "left", colspan: "4" }, title)), ...rows));
  byId("pair").replaceChildren(table(["", ...names, "ratio"], bodies));
}

// Varied and followed parameters, and properties of main memory.
const settingsOf = (point) => ({ ...point.followed, ...point.chosen });

const bracketed = (point, name, text) =>
  (!point.compiled && ["cycles", "ms"].includes(name) && text !== "–" ? `(${text})` : text);

const textRow = (name, texts) => make("tr", {}, make("td", { class: "left" }, name),
  ...texts.map((text) => make("td", {}, `${text}`)), make("td", {}));

function numberRow(name, values, text) {
  const [first, second] = values;
  const told = values.every((value) => typeof value === "number") && first > 0;
  const ratio = make("td", {}, told ? ratioText(second / first) : "");
  if (told && second > 0) ratio.setAttribute("style", ratioStyle(second / first));
  return make("tr", {}, make("td", { class: "left" }, name),
    ...values.map((value, at) => make("td", {}, text(value, at))), ratio);
}
