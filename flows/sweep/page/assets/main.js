// The heading, the headline figures, the glossary, and all parts in the order of the page.
const listed = (names) => (names.length > 1
  ? `${names.slice(0, -1).join(", ")} and ${names[names.length - 1]}` : names.join(""));

function showHeading() {
  byId("date").textContent = DATA.date;
  byId("networks").textContent = DATA.networks.map(({ name, weight }) =>
    (weight === 1 ? name : `${weight} × ${name}`)).join(" + ");
  const limits = DATA.where.length ? ` where ${DATA.where.join(" and ")}` : "";
  byId("question").textContent =
    `Which machine has the smallest ${listed(DATA.objectives.map(nameText))}${limits}? ` +
    `Varied: ${listed(DATA.vary.map(nameText)) || "nothing"}. ` +
    `Everything else is as in ${DATA.base.name}, or follows.`;
  byId("verdict").append(...prose(DATA.verdict.replace("verdict: ", "").replace(" nearest: ",
    ". Nearest: ").replace(" it needs ", "; it needs ")));
  const memories = new Set(POINTS.map((point) => point.memory)).size;
  const notices = [];
  if (DATA.interrupted) {
    notices.push("The sweep was interrupted: machines that are not reached are missing from the " +
      "front.");
  }
  if (DATA.search) {
    notices.push(`The front is that of the ${grouped(DATA.evaluated)} machines that the search ` +
      `${DATA.search.method} compiled.`);
  }
  if (DATA.outdated.length) {
    notices.push(`${listed(DATA.outdated.map(nameText))}: of machines measured before the ` +
      "hardware's sources changed.");
  }
  if (memories > 1) notices.push("Each main memory has a front of its own.");
  byId("notice").textContent = notices.join(" ");
  const { counts } = DATA;
  const count = (state) => counts[state] || 0;
  if (DATA.build) {
    const { chip, tools, seeds } = DATA.build;
    const by = Object.entries(tools).map(([name, version]) => `${name} ${version}`);
    byId("measured").textContent = ` Figures with * were measured on ${chip} by ` +
      `${listed(by)}${seeds.length ? `, the clock as the median over seeds ${seeds.join(", ")}` : ""}.`;
  }
  byId("cards").append(
    figure("Points", grouped(POINTS.length), DATA.rejected
      ? `${grouped(DATA.rejected)} more rejected by a rule of the machine` : "all combinations are legal"),
    figure("On the front", grouped(count("front")), "no other machine beats them"),
    figure("Ruled out", grouped(count("ruled out")),
      "by their certified lower bound, not compiled"),
    figure("Excluded", grouped(count("excluded")), DATA.excluded || "by a condition"),
    figure("Failed", grouped(count("failed")), "the compiler or a tool rejects them"),
    figure("Programs", grouped(DATA.compiled + DATA.reused),
      DATA.compiled ? `${grouped(DATA.compiled)} compiled now, in ${quantity(DATA.seconds, "s")}`
        : DATA.reused ? "all known from earlier" : "none was compiled"),
  );
  byId("made").textContent = `Made by Tilewright ${DATA.version} on ${DATA.date}. ` +
    `Cycles are exact; milliseconds are cycles at ${DATA.own_clock
      ? "the clock of each machine" : `${DATA.clock_mhz} MHz`}` +
    `${DATA.build?.seeds.length ? ", or at the measured clock." : "."}`;
}

function showWords() {
  const list = make("dl");
  const sentence = (text) => `${text[0].toUpperCase()}${text.slice(1)}.`;
  for (const [name, text] of Object.entries(DATA.figures)) {
    list.append(make("dt", {}, nameText(name)), make("dd", {}, ...prose(sentence(text))));
  }
  for (const [state, text] of Object.entries(DATA.states)) {
    if (DATA.counts[state]) {
      list.append(make("dt", {}, state), make("dd", {}, ...prose(sentence(text))));
    }
  }
  list.append(make("dt", {}, nameText("unit")), make("dd", {}, "The unit that determines the " +
    "lower bound: no program can take fewer cycles, because this unit has so much work."));
  list.append(make("dt", {}, nameText("limit")), make("dd", {}, "What takes most cycles of the " +
    "exact critical path of the compiled program. A layer is hidden if no part of it is there."));
  for (const [limit, text] of Object.entries(DATA.limits)) {
    list.append(make("dt", {}, legendEntry(limit, `Limit: ${limit}`)), make("dd", {}, ...prose(sentence(text))));
  }
  byId("words").append(list);
}

// Without a compiled machine there is nothing to show but bounds.
function hideEmpty() {
  if (POINTS.some((point) => point.compiled)) return;
  for (const id of ["parallel-card", "heat-card", "pair-card"]) byId(id).hidden = true;
}

for (const show of [hideEmpty, showHeading, showScatter, showParallel, showHeat, showPair, showRows, showWords,
  showContents]) show();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  drawParallel();
  changed();
});
document.documentElement.dataset.ready = "true";
