// The heading, the headline figures, and the bar of where the cycles went.
function showSummary() {
  const { summary, configuration, memory, measured } = DATA;
  byId("network").textContent = DATA.network;
  byId("date").textContent = DATA.date;
  const rate = significant(DATA.roofline.bytes_per_cycle);
  byId("machine").textContent =
    `${configuration.sentence}. Main memory: latency ${memory.latency_cycles} cycles, ` +
    `${rate} bytes per cycle in each direction, ${memory.outstanding_bursts} open bursts.` +
    (DATA.made_for_memory ? "" : ` The program was made for another memory: ${DATA.program_for}.`);
  byId("measured").textContent = measured === null
    ? "Times come from the exact timing model."
    : measured.equal
      ? `Measured on the RTL. The timing model gives the same start and retirement for all ` +
        `${grouped(measured.instructions)} instructions.`
      : "The RTL's times differ from the timing model's. This page shows the model's.";
  const host = summary.host_steps ? `, ${summary.host_steps} steps on the host` : "";
  const largest = CAUSES.reduce((a, b) => (DATA.path.causes[b] > DATA.path.causes[a] ? b : a));
  const share = DATA.path.causes[largest] / summary.cycles;
  const moved = summary.read_bytes + summary.written_bytes + summary.program_bytes;
  const ms = summary.accelerator_ms;
  byId("cards").append(
    figure("Cycles", grouped(summary.cycles), `${DATA.layers.length} layers${host}`),
    figure("Time", quantity(ms / 1e3, "s"),
      `at ${DATA.clock_mhz} MHz; ${significant(1000 / ms)} inferences per second` +
      (host ? ", without the host's time" : "")),
    figure("Of peak", percent(summary.of_peak),
      `${quantity(summary.macs)} MACs; the array does ${summary.peak} per cycle`),
    ...efficiencyFigures(summary.efficiency),
    figure("Bound by", largest, `${percent(share)} of the critical path`),
    figure("Bytes moved", bytes(moved),
      `${bytes(summary.read_bytes)} read, ${bytes(summary.written_bytes)} written, ` +
      `${bytes(summary.program_bytes)} program`),
    figure("Instructions", grouped(summary.instructions),
      `one every ${(summary.cycles / summary.instructions).toFixed(0)} cycles`),
  );
  byId("made").textContent =
    `Made by Tilewright ${DATA.version} for device “${DATA.device}”, configuration ` +
    `${configuration.name} (${configuration.hash}), on ${DATA.date}.`;
}

function efficiencyFigures(efficiency) {
  if (!efficiency) return [];
  const { resources, energy_j, gops_per_watt, chip } = efficiency;
  const ops = (gops, unit) => quantity(1e9 * gops, unit);
  return [
    figure("Speed", ops(efficiency.gops, "op/s"),
      `${ops(1000 * efficiency.gops_per_lut, "op/s")} per 1,000 LUT of about ` +
      `${quantity(resources.lut)}, ${ops(efficiency.gops_per_multiplier, "op/s")} per multiplier ` +
      `of ${resources.multipliers} (${chip}${efficiency.outdated?.length
        ? ", measured before the hardware's sources changed" : ""})`),
    figure("Energy, estimated", range(energy_j.least, energy_j.greatest, "J"),
      `per sample at 45 nm; ${range(...gops_per_watt.map((gops) => 1e9 * gops), "op/s")} per watt`),
  ];
}

// Where to look first: the fewest layers that take most of the cycles, and how many each cause binds.
const MOST_NAMED = 3;

function slowestText() {
  const slowest = [...DATA.layers.keys()].sort((a, b) =>
    DATA.layers[b].added_cycles - DATA.layers[a].added_cycles);
  const link = (at) => {
    const made = make("a", { href: "#network-card" }, ...nameParts(DATA.layers[at].name));
    made.addEventListener("click", () => chooseLayer(at));
    return made;
  };
  const named = slowest.slice(0, MOST_NAMED);
  const share = named.reduce((sum, at) => sum + DATA.layers[at].added_cycles, 0) /
    Math.max(1, DATA.summary.cycles);
  const counts = [...CAUSES, null].map((cause) =>
    [cause, DATA.layers.filter((layer) => layer.bound === cause).length]).filter(([, n]) => n);
  const bound = counts.map(([cause, count], at) =>
    `${count}${at ? "" : ` of ${DATA.layers.length} layers`} ${count > 1 || !at ? "are" : "is"} ` +
    (cause ? `bound by ${cause}` : "hidden behind others")).join(", ");
  return ["Look first at ", ...named.flatMap((at, place) =>
    [...(place ? [place === named.length - 1 ? " and " : ", "] : []), link(at)]),
  `: ${percent(share)} of the cycles. ${bound}.`];
}

function showCauses() {
  const { causes, rows } = DATA.path;
  const total = DATA.summary.cycles;
  const legend = make("div", { class: "legend" });
  for (const cause of CAUSES) {
    legend.append(legendEntry(cause, `${cause}: ${grouped(causes[cause])} cycles`));
  }
  byId("causes").append(stack(causes, total, "stack", true), legend);
  byId("slowest").append(...slowestText());
  const body = make("tbody", { class: "plain" });
  for (const row of rows) {
    const share = row.cycles / total;
    const bar = make("span", { class: "share" },
      make("i", { style: `width:${100 * share}%;background:${colour(row.cause)}` }));
    body.append(make("tr", {},
      make("td", { class: "left" }, row.unit === "start" ? "start-up" : row.unit),
      make("td", { class: "left" }, row.does === "work" ? "work" : WAIT_NAMES[row.does]),
      make("td", { class: "left" }, make("span", { class: "chip" }, swatch(row.cause), row.cause)),
      make("td", {}, grouped(row.cycles)), make("td", {}, percent(share)),
      make("td", { class: "left wide" }, bar)));
  }
  byId("path-table").append(
    table(["Unit", "Does", "Cause", "Cycles", "Share", { text: "", wide: true }], [body], 3));
}
