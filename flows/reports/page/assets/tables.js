// What-if tables, counters and the glossary.
function ratioCell(cycles, isBase) {
  const ratio = cycles / DATA.summary.cycles;
  return make("td", {
    class: isBase ? "base" : "",
    style: ratioStyle(ratio),
  }, grouped(cycles), make("small", {}, isBase ? "this run" : ratioText(ratio)));
}

function showWhatIf() {
  const what = DATA.what_if;
  const body = make("tbody");
  what.latencies.forEach((latency, row) => {
    body.append(make("tr", {}, make("th", { class: "left", scope: "row" }, `${latency} cycles`),
      ...what.grid[row].map((cycles, column) => ratioCell(cycles,
        latency === what.base.latency && what.bandwidths[column] === what.base.bandwidth))));
  });
  const perCycle = (text) => {
    const [beats, cycles] = text.split("/").map(Number);
    return `${significant((what.bus_bytes * beats) / cycles)} B a cycle`;
  };
  byId("what-if").classList.add("heat");
  byId("what-if").append(table(["Latency", ...what.bandwidths.map(perCycle)], [body]));
  const machines = make("tbody");
  const names = [...new Set(what.machines.map((machine) => machine.name))];
  for (const name of names) {
    const own = what.machines.filter((machine) => machine.name === name);
    const now = DATA.configuration.parameters[name];
    const find = (pick) => own.find((machine) => pick(Number(machine.value)));
    const cell = (machine) => machine
      ? ratioCell(machine.cycles, false)
      : make("td", {}, "–");
    machines.append(make("tr", {}, make("th", { class: "left", scope: "row" }, name.replaceAll("_", " ")),
      cell(find((value) => value < now)), make("td", {}, String(now)),
      cell(find((value) => value > now))));
  }
  byId("what-if-machines").classList.add("heat");
  byId("what-if-machines").append(table(["Parameter", "half", "now", "twice"], [machines]));
}

function showCounters() {
  const { kept, names, units, fetched } = DATA.counters;
  if (kept === "none") {
    byId("counters").append(make("p", { class: "muted" },
      "This machine has no performance counters (parameter “counters”)."));
    return;
  }
  const body = make("tbody", { class: "plain" });
  for (const unit of units) {
    const cells = unit.values.map((value, index) => {
      const cell = make("td", {}, grouped(value));
      hovers(cell, () => [make("b", {}, `${unit.unit}_${names[index].toUpperCase()}`),
        make("div", {}, unit.texts[index])], true);
      return cell;
    });
    body.append(make("tr", {}, make("td", { class: "left name-cell" }, unit.unit), ...cells));
  }
  const text = (name) => name.replaceAll("_", " ");
  byId("counters").append(table(["Unit", ...names.map(text)], [body]),
    make("p", { class: "muted", style: "margin:10px 0 0" },
      `FETCH dispatched ${grouped(fetched)} instructions. ` + (kept === "all"
        ? "“wait0” to “wait2” count cycles spent waiting for a token of one of the other three " +
          "units; hover to see which."
        : "This machine has only basic counters (parameter “counters”).")));
}

function showWords() {
  const list = make("dl");
  const add = (name, look, text) => list.append(
    make("dt", {}, look ? legendEntry(look, name) : name), make("dd", {}, ...prose(text)));
  const sentence = (text) => `${text[0].toUpperCase()}${text.slice(1)}.`;
  for (const [cause, text] of Object.entries(DATA.causes)) {
    add(`Bound by ${cause}`, cause, sentence(text));
  }
  for (const wait of WAITS) {
    add(`Unit: ${WAIT_NAMES[wait]}`, waitColour(wait), sentence(DATA.waits[wait]));
  }
  add("Critical path", null, "The chain of causes from the end of the run back to its start. Its " +
    "steps leave no gap, so their cycles sum to those of the run.");
  add("Of peak", null, "The model's MACs divided by what the array could have done in these cycles.");
  add("Hidden", null, "The layer delays nothing: it runs beside others.");
  byId("words").append(list);
}
