// Placement of layers: estimated times on both sides, and the gain of moving a layer.
const PLACEMENT_KEYS = {
  "#": (row) => row.number, name: (row) => row.short, target: (row) => row.target,
  why: (row) => row.reason, accelerator: (row) => row.accelerator_us, host: (row) => row.host_us,
  transfer: (row) => row.transfer_us, moving: (row) => (row.gain_us === null ? null : -row.gain_us),
};

function showPlacement() {
  const card = byId("placement-card");
  if (!DATA.placement) {
    card.remove();
    return;
  }
  const { rows, total_us: total, costs, host } = DATA.placement;
  rows.forEach((row, index) => { row.number = index + 1; });
  const place = make("div", { class: "scroll" });
  const order = new Order("#", true, () => drawPlacement(), ["accelerator", "host", "transfer"]);
  const more = make("button");
  const shown = firstRows(more, rows.length, () => drawPlacement());
  const drawPlacement = () => {
    const sorted = order.sorted(rows, (row, key) => PLACEMENT_KEYS[key](row));
    const body = make("tbody", { class: "plain" }, ...shown(sorted).map(placementRow));
    replaceTable(place, table([{ text: "#", key: "#" }, { text: "Layer", key: "name" },
      { text: "Runs on", key: "target" }, { text: "Why", key: "why" },
      { text: "Accelerator", key: "accelerator" }, { text: "Host", key: "host" },
      { text: "Transfer", key: "transfer" }, { text: "Moving it", key: "moving" }], [body], 4, order));
  };
  drawPlacement();
  byId("placement").append(place, more,
    make("p", { class: "muted", style: "margin:10px 0 0" },
      `Estimated ${duration(total.sum)} a sample: ${duration(total.accelerator)} on the ` +
      `accelerator at ${costs.clock_mhz} MHz, ${duration(total.host)} on the host and ` +
      `${duration(total.transfer)} for transfers; ${duration(total.makespan)} where both sides ` +
      "work at once."),
    make("p", { class: "muted" }, `Host: ${host}. `, make("code", {}, "tilewright report --host"),
      " names another."));
}

const duration = (us) => (us === null ? "–" : us ? quantity(us / 1e6, "s") : "0");

function placementRow(row) {
  const moved = row.gain_us === null ? "–"
    : `${row.gain_us > 0 ? "−" : "+"}${duration(Math.abs(row.gain_us))}`;
  const name = make("td", { class: "left name-cell" }, ...nameParts(row.short));
  hovers(name, () => [make("b", {}, row.name), make("div", {}, row.op)]);
  return make("tr", {}, make("td", { class: "left" }, String(row.number)), name,
    make("td", { class: "left" }, row.target), make("td", { class: "text-cell" }, ...prose(row.reason)),
    make("td", {}, duration(row.accelerator_us)), make("td", {}, duration(row.host_us)),
    make("td", {}, duration(row.transfer_us)), make("td", {}, moved));
}
