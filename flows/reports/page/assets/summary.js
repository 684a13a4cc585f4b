// The heading, the headline figures, and the bar of where the cycles went.
function showSummary() {
  const { summary, configuration, memory, measured } = DATA;
  byId("network").textContent = DATA.network;
  byId("date").textContent = DATA.date;
  const rate = Number(DATA.roofline.bytes_per_cycle.toFixed(2));
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
    figure("Time", `${significant(ms)} ms`,
      `at ${DATA.clock_mhz} MHz; ${significant(1000 / ms)} inferences per second` +
      (host ? ", without the host's time" : "")),
    figure("Of peak", percent(summary.of_peak),
      `${millions(summary.macs)} MACs; the array does ${summary.peak} per cycle`),
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
  const { resources, energy_j, gops_per_watt, device } = efficiency;
  const span = (low, high) => `${significant(low)} to ${significant(high)}`;
  return [
    figure("Speed", `${significant(efficiency.gops)} GOPS`,
      `${significant(1000 * efficiency.gops_per_lut)} per 1,000 LUT of about ` +
      `${grouped(resources.lut)}, ${significant(efficiency.gops_per_multiplier)} per multiplier ` +
      `of ${resources.multipliers} (${device})`),
    figure("Energy, estimated", `${span(1e6 * energy_j.least, 1e6 * energy_j.greatest)} µJ`,
      `per sample at 45 nm; ${span(...gops_per_watt)} GOPS per watt`),
  ];
}

function showCauses() {
  const { causes, rows } = DATA.path;
  const total = DATA.summary.cycles;
  const legend = make("div", { class: "legend" });
  for (const cause of CAUSES) {
    legend.append(legendEntry(cause, `${cause}: ${grouped(causes[cause])} cycles`));
  }
  byId("causes").append(stack(causes, total, "stack", true), legend);
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
