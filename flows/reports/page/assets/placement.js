// Placement of layers: estimated times on both sides, and the gain of moving a layer.
function showPlacement() {
  const card = byId("placement-card");
  if (!DATA.placement) {
    card.remove();
    return;
  }
  const { rows, total_us: total, costs, host } = DATA.placement;
  const time = (us) => (us === null ? "–" : us.toFixed(1));
  const change = (gain) => `${gain > 0 ? "−" : "+"}${time(Math.abs(gain))}`;
  const body = make("tbody", { class: "plain" });
  let before = "";
  for (const row of rows) {
    const reason = row.reason === before ? "″" : row.reason;
    before = row.reason;
    const moved = row.gain_us === null ? "–" : change(row.gain_us);
    const name = make("td", { class: "left name-cell" }, row.short);
    hovers(name, () => [make("b", {}, row.name), make("div", {}, row.op)]);
    body.append(make("tr", {}, name, make("td", { class: "left" }, row.target),
      make("td", { class: "left" }, reason), make("td", {}, time(row.accelerator_us)),
      make("td", {}, time(row.host_us)), make("td", {}, time(row.transfer_us)),
      make("td", {}, moved)));
  }
  const headings = ["Layer", "Runs on", "Why", "Accelerator", "Host", "Transfer", "Moving it"];
  byId("placement").append(table(headings, [body], 3),
    make("p", { class: "muted", style: "margin:10px 0 0" },
      `Estimated ${grouped(total.sum)} µs a sample: ${grouped(total.accelerator)} on the ` +
      `accelerator at ${costs.clock_mhz} MHz, ${grouped(total.host)} on the host and ` +
      `${grouped(total.transfer)} for transfers; ${grouped(total.makespan)} µs where both sides ` +
      "work at once."),
    make("p", { class: "muted" }, `Host: ${host}. “tilewright report --host” names another.`));
}
