// The heat map: every layer on every machine shown, by cycles or by what limits it.
const MOST_COLUMNS = 60;

function showHeat() {
  const names = DATA.networks.map(({ name }) => name);
  options(byId("heat-network"), names, names[0], (text) => text);
  byId("heat-network-label").hidden = names.length < 2;
  options(byId("heat-machines"), ["front", "all compiled"], "front", (text) => text);
  options(byId("heat-colour"), ["cycles", "limit"], "cycles");
  for (const id of ["heat-network", "heat-machines", "heat-colour"]) {
    byId(id).addEventListener("change", drawHeat);
  }
  byId("heat-legend").append(...LIMITS.map((name) => legendEntry(name, name)));
  VIEW.redraw.push(drawHeat);
  whenSized(byId("heat"), drawHeat);
  byId("heat").on?.("plotly_click", ({ points: [{ x }] }) => {
    choose(Number(byId("heat").dataset.order.split(",")[x]));
  });
}

function heatColumns() {
  const found = shownPoints().filter((point) => point.compiled && isSelected(point) &&
    (byId("heat-machines").value === "all compiled" || point.state === "front"));
  const [first] = DATA.objectives;
  found.sort((a, b) => valueOf(a, first) - valueOf(b, first) || a.index - b.index);
  byId("heat-note").textContent = found.length > MOST_COLUMNS
    ? `The first ${MOST_COLUMNS} of ${grouped(found.length)} machines are shown.` : "";
  return found.slice(0, MOST_COLUMNS);
}

function drawHeat() {
  const [target, network] = [byId("heat"), byId("heat-network").value];
  const [shown, layers] = [heatColumns(), DATA.layers[network]];
  const byLimit = byId("heat-colour").value === "limit";
  byId("heat-legend").hidden = !byLimit;
  target.dataset.order = shown.map((point) => point.index).join();
  const most = target.clientWidth < 720 ? 18 : 30;
  const short = (text) => shortened(joined(text), most);
  const wide = (target.clientWidth - 8 * most) / Math.max(1, shown.length);
  // Each column has its values by name; those that all columns share are left out.
  const names = VARIED.filter((name) => (VIEW.memory === ALL || MACHINE.includes(name)) &&
    (shown.length < 2 || new Set(shown.map((point) => point.chosen[name])).size > 1));
  const machine = (point) => {
    const text = names.map((name) => `${nameText(name)} ${point.chosen[name]}`).join("<br>") ||
      DATA.base.name;
    return isChosen(point) ? `<b>${text}</b>` : text;
  };
  const rows = layers.map((name, row) => {
    const cells = shown.map((point) => point.layers[network][row]);
    return { name, cells, fewest: Math.min(...cells.map((cell) => cell?.[0] || Infinity)) };
  });
  const each = (pick) => rows.map((row) => row.cells.map((cell, at) => pick(row, cell, at)));
  const ratio = ({ fewest }, cell) => (cell ? Math.max(1, cell[0] / fewest) : null);
  const trace = {
    type: "heatmap", xgap: 1, ygap: 1, hoverongaps: false, hoverinfo: "text",
    z: each((row, cell) => (!cell ? null : byLimit
      ? LIMITS.indexOf(cell[1]) : Math.log2(ratio(row, cell)))),
    text: each((row, cell) => (!cell ? "" : byLimit ? cell[1] : ratioText(ratio(row, cell)))),
    texttemplate: wide > 48 ? "%{text}" : "",
    textfont: { color: cssColour(byLimit ? "--on-colour" : "--ink") },
    hovertext: each((row, cell, at) => (!cell ? "" :
      `<b>${row.name}</b><br>${shown[at].label}<br>${grouped(cell[0])} cycles, ` +
      `${ratioText(ratio(row, cell))} the fewest<br>limit: ${cell[1]}`)),
  };
  const top = Math.max(1, ...each((row, cell) => Math.log2(ratio(row, cell) || 1)).flat());
  const steps = Array.from({ length: Math.floor(top) + 1 }, (_, step) => step);
  Object.assign(trace, byLimit
    ? { zmin: -0.5, zmax: LIMITS.length - 0.5, showscale: false,
      colorscale: LIMITS.flatMap((name, at) => [at, at + 1].map((end) =>
        [end / LIMITS.length, cssColour(`--${name}`)])) }
    : { zmin: 0, zmax: top,
      colorscale: [[0, cssColour("--stripe")], [1, cssColour("--heat")]],
      colorbar: { thickness: 10, outlinewidth: 0, tickvals: steps,
        ticktext: steps.map((step) => `${2 ** step}×`) } });
  const layout = look((of) => ({
    height: 110 + 14 * names.length + 24 * rows.length, margin: { l: 40, r: 8, t: 8, b: 40 },
    xaxis: { tickvals: shown.map((_, at) => at), ticktext: shown.map(machine),
      showticklabels: wide > 13, showgrid: false, zeroline: false, automargin: true,
      fixedrange: true },
    yaxis: { tickvals: rows.map((_, at) => at), ticktext: rows.map(({ name }) => short(name)),
      autorange: "reversed", showgrid: false, zeroline: false, automargin: true,
      fixedrange: true },
    plot_bgcolor: of("--card"),
  }));
  Plotly.react(target, [trace], layout, { responsive: false, displayModeBar: false });
}
