// Parallel coordinates of the compiled machines; ranges on the axes select among all parts.
function showParallel() {
  VIEW.redraw.push(() => {
    if (VIEW.memory !== byId("parallel").dataset.memory) drawParallel();
  });
  whenSized(byId("parallel"), drawParallel);
}

// Milliseconds and the lanes' product say the same as another axis.
const isRedundant = (name) => !DATA.objectives.includes(name) &&
  (name === "ms" || (name === "macs_per_cycle" && MACHINE.includes("lanes")));

function drawParallel() {
  const target = byId("parallel");
  const lines = shownPoints().filter((point) => point.compiled);
  target.dataset.memory = VIEW.memory;
  VIEW.selected = null;
  const figures = FIGURES.filter((name) => !VARIED.includes(name) && !isRedundant(name));
  const names = [...VARIED, ...figures]
    .filter((name) => new Set(lines.map((point) => valueOf(point, name))).size > 1);
  const room = Math.max(2, Math.floor(target.clientWidth / 85));
  const dimensions = names.slice(0, room).map((name) => dimensionOf(name, lines));
  const trace = {
    type: "parcoords", dimensions,
    line: {
      color: lines.map((point) => Number(point.state === "front")), cmin: 0, cmax: 1,
      colorscale: [[0, cssColour("--hidden")], [1, cssColour("--accent")]],
    },
    rangefont: { color: "rgba(0,0,0,0)" },  // the ends are ticks
    labelside: "top",
  };
  Plotly.react(target, [trace],
    look(() => ({ height: 330, margin: { l: 46, r: 46, t: 46, b: 22 } })),
    { responsive: false, displayModeBar: false });
  if (!target.dataset.listens) {
    target.dataset.listens = "yes";
    target.on("plotly_restyle", () => {
      select(target.data[0].dimensions, shownPoints().filter((point) => point.compiled));
    });
  }
}

// An axis with few values has them at equal distances.
const FEW_VALUES = 8;

function dimensionOf(name, lines) {
  const varied = VARIED.includes(name);
  const text = (point) => (varied ? point.chosen[name] : figureText(name, valueOf(point, name)));
  const ordered = [...lines].sort((a, b) => {
    const [first, second] = [valueOf(a, name), valueOf(b, name)];
    return (first > second) - (first < second) || text(a).localeCompare(text(b));
  });
  const texts = [...new Set(ordered.map(text))];
  if (!varied && texts.length > FEW_VALUES) {
    const values = lines.map((point) => valueOf(point, name));
    const [low, high] = [Math.min(...values), Math.max(...values)];
    const ticks = [0, 1, 2, 3, 4].map((step) => low + (step * (high - low)) / 4);
    const tick = (value) => (name === "of_peak" ? percent(value)
      : figureText(name, Number(value.toPrecision(3))));
    return { label: nameText(name), values, tickvals: ticks, ticktext: ticks.map(tick) };
  }
  return {
    label: nameText(name),
    values: lines.map((point) => texts.indexOf(text(point))),
    tickvals: texts.map((_, rank) => rank),
    ticktext: texts,
  };
}

function select(dimensions, lines) {
  const limited = dimensions.filter((dimension) => dimension.constraintrange);
  const inside = (value, range) => (Array.isArray(range[0])
    ? range.some(([low, high]) => value >= low && value <= high)
    : value >= range[0] && value <= range[1]);
  const kept = lines.filter((_, line) => limited.every((dimension) =>
    inside(dimension.values[line], dimension.constraintrange)));
  VIEW.selected = limited.length ? new Set(kept.map((point) => point.index)) : null;
  changed();
}
