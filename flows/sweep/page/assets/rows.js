// The table of all points: sorted by a column, filtered by state, text and selection.
const MOST_ROWS = 500;
const WORDS = ["state", "limit"];
const ORDER = new Order(DATA.objectives[0], true, () => drawRows());

function showRows() {
  const states = Object.keys(DATA.states).filter((state) => DATA.counts[state]);
  options(byId("state"), ["all points", ...states], "all points", (text) => text);
  byId("state").addEventListener("change", drawRows);
  byId("search").addEventListener("input", drawRows);
  VIEW.redraw.push(drawRows);
  drawRows();
}

function drawRows() {
  const state = byId("state").value;
  const words = byId("search").value.toLowerCase().split(/\s+/).filter(Boolean);
  const found = POINTS.filter((point) => {
    const text = [point.label, point.memory, point.state, point.hash, limitText(point)]
      .join(" ").toLowerCase();
    return (state === "all points" || point.state === state) && isSelected(point) &&
      words.every((word) => text.includes(word));
  });
  const sorted = ORDER.sorted(found, keyOf);
  byId("shown").textContent = found.length > MOST_ROWS
    ? `first ${MOST_ROWS} of ${grouped(found.length)}` : `${grouped(found.length)} points`;
  const names = [...VARIED, "state", "limit",
    ...FIGURES.filter((name) => !VARIED.includes(name)), "unit"];
  const headings = names.map((name) => ({ text: nameText(name), key: name, left: WORDS.includes(name) }));
  const body = make("tbody", { class: "plain" },
    ...sorted.slice(0, MOST_ROWS).map((point) => rowOf(point, names)));
  replaceTable(byId("table"), table(headings, [body], 0, ORDER));
}

const keyOf = (point, name) => (name === "state" ? Object.keys(DATA.states).indexOf(point.state)
  : name === "unit" ? unitText(point) : name === "limit" ? limitText(point) : valueOf(point, name));

const unitText = (point) =>
  [...new Set(Object.values(point.unit))].join(", ").toUpperCase() || "–";

function rowOf(point, names) {
  const classes = [point.state === "front" ? "on-front" : "",
    isChosen(point) ? "chosen" : ""].join(" ").trim();
  const followed = Object.entries(point.followed).map(([name, value]) => `${name}=${value}`);
  const row = make("tr", { class: `point ${classes}`.trim(), "data-point": point.index }, ...names.map((name) => {
    if (name === "state") return make("td", { class: "left" }, point.state);
    if (name === "unit") return make("td", {}, unitText(point));
    if (name === "limit") return make("td", { class: "left" }, limitText(point));
    if (VARIED.includes(name)) return make("td", {}, point.chosen[name]);
    const value = valueOf(point, name);
    const bound = !point.compiled && (name === "cycles" || name === "ms") && value !== null;
    return make("td", { class: point.compiled ? "" : "faint" },
      bound ? `(${figureText(name, value)})` : markedText(point, name, figureText(name, value)));
  }));
  hovers(row, () => [
    make("b", {}, `${point.label} ${point.hash}`),
    ...(followed.length ? [make("div", {}, `with ${followed.join(", ")}`)] : []),
    ...DATA.networks.map(({ name }) => make("div", {},
      `${name}: ${figureText("cycles", point.cycles[name])} cycles, lower bound ` +
      `${figureText("cycles", point.bound[name])}`)),
    ...limitsOf(point).map(([name, share]) => tipLine(name,
      `${name}: ${DATA.limits[name]}`, percent(share))),
    ...measuredTexts(point).map((text) => make("div", {}, text)),
    ...(point.error ? [make("div", {}, point.error)] : []),
  ]);
  const pick = make("button", { class: "link", type: "button", "aria-pressed": isChosen(point),
    title: "Choose this machine" });
  pick.append(...row.cells[0].childNodes);
  row.cells[0].append(pick);
  row.addEventListener("click", () => {
    if (VIEW.memory !== ALL) {
      VIEW.memory = point.memory;
      byId("memory").value = point.memory;
    }
    const held = row.contains(document.activeElement);
    choose(point.index);
    if (held) byId("table").querySelector(`[data-point="${point.index}"] button`)?.focus();
  });
  return row;
}
