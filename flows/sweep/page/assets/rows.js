// The table of all points: sorted by a column, filtered by state, text and selection.
const MOST_ROWS = 500;
const WORDS = ["state", "limit"];
const ORDER = { name: DATA.objectives[0], rising: true };

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
  found.sort(byColumn);
  byId("shown").textContent = found.length > MOST_ROWS
    ? `first ${MOST_ROWS} of ${grouped(found.length)}` : `${grouped(found.length)} points`;
  const names = [...VARIED, "state", "limit",
    ...FIGURES.filter((name) => !VARIED.includes(name)), "unit"];
  const head = make("tr", {}, ...names.map(headingOf));
  const body = make("tbody", { class: "plain" },
    ...found.slice(0, MOST_ROWS).map((point) => rowOf(point, names)));
  byId("table").replaceChildren(make("table", {}, make("thead", {}, head), body));
}

function byColumn(a, b) {
  const [first, second] = [a, b].map((point) =>
    (ORDER.name === "state" ? Object.keys(DATA.states).indexOf(point.state)
      : ORDER.name === "unit" ? unitText(point)
        : ORDER.name === "limit" ? limitText(point) : valueOf(point, ORDER.name)));
  if (first === null || second === null) return (first === null) - (second === null);
  return ((first > second) - (first < second)) * (ORDER.rising ? 1 : -1) || a.index - b.index;
}

const unitText = (point) =>
  [...new Set(Object.values(point.unit))].join(", ").toUpperCase() || "–";

function headingOf(name) {
  const heading = make("th", { class: WORDS.includes(name) ? "sortable left" : "sortable",
    scope: "col", tabindex: "0" }, nameText(name));
  if (name === ORDER.name) {
    heading.setAttribute("aria-sort", ORDER.rising ? "ascending" : "descending");
  }
  const sort = () => {
    ORDER.rising = ORDER.name === name ? !ORDER.rising : true;
    ORDER.name = name;
    drawRows();
  };
  heading.addEventListener("click", sort);
  heading.addEventListener("keydown", (event) => {
    if (event.key === "Enter" || event.key === " ") { event.preventDefault(); sort(); }
  });
  return heading;
}

function rowOf(point, names) {
  const classes = [point.state === "front" ? "on-front" : "",
    isChosen(point) ? "chosen" : ""].join(" ").trim();
  const followed = Object.entries(point.followed).map(([name, value]) => `${name}=${value}`);
  const row = make("tr", { class: `point ${classes}`.trim() }, ...names.map((name) => {
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
    ...limitsOf(point).map(([name, share]) => tipLine(LIMIT_COLOURS[name].slice(2),
      `${name}: ${DATA.limits[name]}`, percent(share))),
    ...measuredTexts(point).map((text) => make("div", {}, text)),
    ...(point.error ? [make("div", {}, point.error)] : []),
  ]);
  row.addEventListener("click", () => {
    if (VIEW.memory !== ALL) {
      VIEW.memory = point.memory;
      byId("memory").value = point.memory;
    }
    choose(point.index);
  });
  return row;
}
