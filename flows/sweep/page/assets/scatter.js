// The scatter plot: two figures of every machine with the chosen memory.
const SCATTER_CONFIG = {
  responsive: true, displaylogo: false, displayModeBar: innerWidth > 720,
  modeBarButtons: [["zoom2d", "pan2d", "resetScale2d", "toImage"]],
};

const AXIS_UNITS = { ms: " (ms)", energy_uj: " (µJ)", clock_mhz: " (MHz)", ram_bits: " (bit)" };

function options(select, names, chosen, text = nameText) {
  select.replaceChildren(...names.map((name) => {
    const option = make("option", { value: name }, text(name));
    option.selected = name === chosen;
    return option;
  }));
}

function showScatter() {
  const axes = [...FIGURES, ...VARIED.filter((name) => !FIGURES.includes(name))];
  const [up, across] = DATA.objectives;
  options(byId("across"), axes, across || "macs_per_cycle");
  options(byId("up"), axes, up);
  options(byId("colour"), ["state", "limit", ...VARIED], "state");
  const memories = [...new Set(POINTS.map((point) => point.memory))];
  options(byId("memory"), [...memories, ALL], VIEW.memory, (text) => text);
  byId("memory-label").hidden = memories.length < 2;
  byId("logarithmic").checked = true;
  byId("memory").addEventListener("change", (event) => {
    VIEW.memory = event.target.value;
    changed();
  });
  for (const id of ["across", "up", "colour", "logarithmic"]) {
    byId(id).addEventListener("change", drawScatter);
  }
  VIEW.redraw.push(drawScatter);
  drawScatter();
  byId("scatter").on("plotly_click", ({ points: [{ customdata }] }) => {
    choose(customdata);
    document.querySelector("tr.chosen")?.scrollIntoView({ block: "center", behavior: "smooth" });
  });
}

function drawScatter() {
  const [across, up] = [byId("across").value, byId("up").value];
  const type = byId("logarithmic").checked ? "log" : "linear";
  const places = shownPoints()
    .map((point) => ({ point, x: valueOf(point, across), y: valueOf(point, up) }))
    .filter(({ point, x, y }) => hasPlace(point) && x !== null && y !== null);
  const axis = (name) => (of) => ({
    title: { text: nameText(name) + (AXIS_UNITS[name] || "") }, type: places.every((p) => typeof p.x === "number") ? type : "-",
    gridcolor: of("--grid"), zeroline: false, exponentformat: "SI", linecolor: of("--line"), automargin: true,
  });
  const layout = look((of) => ({
    modebar: { bgcolor: "rgba(0,0,0,0)", color: of("--muted"), activecolor: of("--accent") },
    height: 440, margin: { l: 56, r: 12, t: 8, b: 44 },
    legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0 },
    xaxis: axis(across)(of), yaxis: axis(up)(of), hovermode: "closest",
  }));
  Plotly.react("scatter", [bestLine(places), ...groups(places, across, up)], layout,
    SCATTER_CONFIG);
}

// The compiled points that no other one beats on the two axes, joined by steps.
function bestLine(places) {
  const sorted = places.filter(({ point }) => point.compiled)
    .sort((a, b) => a.x - b.x || a.y - b.y);
  const best = [];
  for (const place of sorted) {
    if (!best.length || place.y < best[best.length - 1].y) best.push(place);
  }
  return {
    type: "scatter", mode: "lines", x: best.map((p) => p.x), y: best.map((p) => p.y),
    line: { shape: "hv", color: cssColour("--accent"), width: 1.5, dash: "dot" },
    hoverinfo: "skip", showlegend: false,
  };
}

const WHEEL = ["--GEMM", "--LOAD", "--VECTOR", "--dispatch", "--latency", "--STORE", "--other-1",
  "--other-2", "--other-3", "--hidden"];

function groups(places, across, up) {
  const by = byId("colour").value;
  const key = ({ point }) => (by === "state" ? point.state
    : by === "limit" ? limitsOf(point)[0]?.[0] || "not compiled" : point.chosen[by]);
  const keys = [...new Set(places.map(key))];
  if (by === "state") keys.sort((a, b) => (a === "front") - (b === "front"));
  return keys.map((name, number) => {
    const mine = places.filter((place) => key(place) === name);
    const paint = cssColour(by === "state" ? MARKS[name][1]
      : by === "limit" ? `--${LIMITS.includes(name) ? name : "muted"}` : WHEEL[number % WHEEL.length]);
    return {
      type: "scatter", mode: "markers", showlegend: true, name: by === "state" || by === "limit" ? name : `${nameText(by)} ${name}`,
      x: mine.map((p) => p.x), y: mine.map((p) => p.y),
      customdata: mine.map(({ point }) => point.index),
      marker: {
        color: paint,
        symbol: mine.map(({ point }) => MARKS[point.state][0]),
        size: mine.map(({ point }) => (isChosen(point) ? 18
          : point.state === "front" ? 11 : 8)),
        opacity: mine.map(({ point }) => (isSelected(point) ? 0.95 : 0.12)),
        line: { width: mine.map(({ point }) => (point.compiled ? 1 : 2)),
          color: mine.map(({ point }) => (point.compiled ? cssColour("--card") : paint)) },
      },
      hovertemplate: mine.map(({ point, x, y }) =>
        `<b>${point.label}</b><br>${nameText(up)} ${point.compiled ? "" : "at least "}` +
        `${figureText(up, y)}<br>${nameText(across)} ${figureText(across, x)}<br>` +
        `${point.state}${point.compiled ? `, limited by ${limitText(point)}` : ""}<extra></extra>`),
    };
  });
}
