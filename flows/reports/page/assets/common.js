// Helpers that all pages share: data, elements, numbers, colours, and the tooltip.
const DATA = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);

// An element: make("td", {class: "left"}, "text", child, ...). Text is never taken for markup.
function make(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function draw(name, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

const grouped = (number) => Math.round(number).toLocaleString("en-US");
const percent = (share) => (share === null ? "–" : `${(100 * share).toFixed(1)}%`);
const colour = (name) => `var(--${name})`;

const significant = (number) => number >= 100
  ? grouped(number)
  : Number(number.toPrecision(3)).toString();

// A number with three digits and the prefix that keeps it below a thousand: “8.50 mJ”, “116 kB”.
const PREFIXES = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""], [1e-3, "m"],
  [1e-6, "µ"], [1e-9, "n"]];

function scaled(number, factor) {
  const digits = (number / factor).toPrecision(3);
  return Number.isInteger(number) && factor === 1 ? String(number) : digits;
}

const prefixOf = (number) => {
  const rounded = Math.abs(Number(number.toPrecision(3)));
  return PREFIXES.find(([factor]) => rounded >= factor) || (number ? PREFIXES.at(-1) : [1, ""]);
};

function quantity(number, unit = "") {
  const [factor, prefix] = prefixOf(number);
  return `${scaled(number, factor)}\u00a0${prefix}${unit}`.trim();
}

// A range in one unit, that of its larger end: “5.00 to 8.50 mJ”.
function range(low, high, unit) {
  const [factor, prefix] = prefixOf(high);
  return `${scaled(low, factor)} to ${scaled(high, factor)}\u00a0${prefix}${unit}`;
}

const ratioText = (ratio) => `${ratio >= 100 ? grouped(ratio) : ratio.toPrecision(3)}×`;
const bytes = (count) => quantity(count, "B");

// Text with what stands between backticks as code.
const prose = (text) => text.split("`").map((part, at) => (at % 2 ? make("code", {}, part) : part));

// A name that may break after the marks that join its parts, and nowhere else.
const breakable = (text) => text.split(/(?<=[/_.+=,:;-])/).flatMap((part, at) =>
  (at ? [make("wbr"), part] : [part]));

// The name of layers that were joined, without what the later ones share with the first: a.conv + add.
function joined(name) {
  const [first, ...others] = name.split(" + ");
  return [first, ...others.map((other) => {
    let end = 0;
    for (let at = 0; at < other.length && other[at] === first[at]; at++) {
      if ("/.".includes(other[at])) end = at + 1;
    }
    return other.slice(end) || other;
  })].join(" + ");
}

// A text of at most some characters; the middle goes, since names of layers differ at their ends.
function shortened(text, most) {
  const head = Math.floor(most / 2);
  return text.length > most ? `${text.slice(0, head)}…${text.slice(head + 1 - most)}` : text;
}

const nameParts = (name) => breakable(joined(name));

// Black or white, whichever can be read better on a colour as #rrggbb.
function readableOn(hex) {
  const [red, green, blue] = [1, 3, 5].map((at) => {
    const part = parseInt(hex.slice(at, at + 2), 16) / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.18 ? "#10151b" : "#ffffff";
}

const swatch = (name) => make("i", { class: "swatch", style: `background:${colour(name)}` });
const legendEntry = (name, text) => make("span", {}, swatch(name), text);

// The background of a ratio: stronger the further it is from 1.
function ratioStyle(ratio) {
  const strength = Math.min(100, 20 + Math.abs(Math.log2(ratio)) * 80);
  const tint = ratio > 1.0005 ? "worse" : ratio < 0.9995 ? "better" : "card";
  return `background:color-mix(in srgb, ${colour(tint)} ${strength.toFixed(0)}%, var(--stripe))`;
}

// Distances between marks on an axis: 1, 2 or 5 times a power of ten.
function niceStep(range, marks) {
  const rough = range / Math.max(1, marks);
  const power = 10 ** Math.floor(Math.log10(rough));
  return Math.max(1, [1, 2, 5, 10].find((each) => each * power >= rough) * power);
}

const tip = byId("tip");

function showTip(event, ...children) {
  tip.replaceChildren(...children);
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  const left = Math.min(event.clientX + 14, innerWidth - box.width - 8);
  const below = event.clientY + 18;
  const top = below + box.height > innerHeight ? event.clientY - box.height - 12 : below;
  tip.style.left = `${Math.max(8, left)}px`;
  tip.style.top = `${Math.max(8, top)}px`;
}

const hideTip = () => { tip.hidden = true; };
const tipLine = (name, text, value) =>
  make("div", { class: "line" }, legendEntry(name, text), make("span", {}, value));

// A tip for the mouse. What it tells stands elsewhere too, or `focusable` lets the keyboard reach it.
function hovers(element, children, focusable = false) {
  element.addEventListener("pointermove", (event) => showTip(event, ...children()));
  element.addEventListener("pointerleave", hideTip);
  if (!focusable) return;
  element.tabIndex = 0;
  element.addEventListener("focus", () => {
    const { left, bottom } = element.getBoundingClientRect();
    showTip({ clientX: left, clientY: bottom - 14 }, ...children());
  });
  element.addEventListener("blur", hideTip);
}
addEventListener("keydown", (event) => { if (event.key === "Escape") hideTip(); });

// Calls again whenever the element's width changes.
function whenSized(element, redraw) {
  let width = 0;
  const check = () => {
    const now = Math.floor(element.clientWidth);
    if (now && now !== width) redraw((width = now));
  };
  new ResizeObserver(check).observe(element);
  check();
}

// A table; headings are texts or {text, wide, left, key}, of which those with a key sort the table.
function table(headings, bodies, left = 1, order = null) {
  const cells = headings.map((heading, index) => {
    const { text, wide, left: aligned, key } = typeof heading === "string"
      ? { text: heading } : heading;
    const classes = [index < left || aligned ? "left" : "", wide ? "wide" : ""].join(" ").trim();
    const cell = make(text ? "th" : "td", text ? { scope: "col" } : {}, ...(order && key ? [] : [text]));
    if (classes) cell.className = classes;
    if (order && key) order.heading(cell, text, key);
    return cell;
  });
  return make("table", {}, make("thead", {}, make("tr", {}, ...cells)), ...bodies);
}

// The order of a table's rows. A click on a heading sorts by it, another one turns the order round;
// keys of `falling` begin with the largest.
class Order {
  constructor(key, rising, redraw, falling = []) {
    Object.assign(this, { key, rising, redraw, falling });
  }

  heading(cell, text, key) {
    const button = make("button", { type: "button" }, text);
    button.addEventListener("click", () => {
      this.rising = this.key === key ? !this.rising : !this.falling.includes(key);
      this.key = key;
      this.redraw();
    });
    if (key === this.key) cell.setAttribute("aria-sort", this.rising ? "ascending" : "descending");
    cell.append(button);
  }

  // Rows sorted by value(row, key); those without a value come last.
  sorted(rows, value) {
    const keyed = rows.map((row, at) => ({ row, at, value: value(row, this.key) ?? null }));
    keyed.sort((a, b) => {
      if (a.value === null || b.value === null) {
        return (a.value === null) - (b.value === null) || a.at - b.at;
      }
      const way = this.rising ? 1 : -1;
      return way * ((a.value > b.value) - (a.value < b.value)) || a.at - b.at;
    });
    return keyed.map(({ row }) => row);
  }
}

// The rows with which a long table begins, and a button that shows the others as well.
const FIRST_ROWS = 30;

function firstRows(button, total, redraw) {
  let all = false;
  const tell = () => {
    button.textContent = all ? `Show the first ${FIRST_ROWS} rows` : `Show all ${total} rows`;
  };
  button.hidden = total <= FIRST_ROWS;
  button.addEventListener("click", () => { all = !all; tell(); redraw(); });
  tell();
  return (rows) => (all ? rows : rows.slice(0, FIRST_ROWS));
}

// Redraws that keep the focus on the heading that was pressed.
function replaceTable(place, made) {
  const headings = [...place.querySelectorAll("th button")];
  const at = headings.indexOf(document.activeElement);
  place.replaceChildren(made);
  if (at >= 0) place.querySelectorAll("th button")[at]?.focus();
}

// The contents bar; and scrolling regions, which the keyboard reaches as well.
function showContents() {
  const sections = [...document.querySelectorAll("main > section[id], main .columns > section[id]")]
    .filter((section) => section.querySelector("h2") && !section.hidden);
  const links = new Map(sections.map((section) => {
    const heading = section.querySelector("h2");
    heading.id = `${section.id}-heading`;
    section.setAttribute("aria-labelledby", heading.id);
    return [section, make("a", { href: `#${section.id}` }, heading.textContent)];
  }));
  byId("contents").append(make("ul", {}, ...[...links.values()].map((link) => make("li", {}, link))));
  const mark = () => {
    const passed = sections.filter((section) => section.getBoundingClientRect().top < 90);
    const atEnd = innerHeight + scrollY >= document.documentElement.scrollHeight - 2;
    const now = atEnd && scrollY ? sections.at(-1) : passed.at(-1);
    for (const [section, link] of links) {
      if (section === now) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
    }
  };
  addEventListener("scroll", mark, { passive: true });
  mark();
  for (const region of document.querySelectorAll(".scroll")) {
    const title = region.closest("section")?.querySelector("h2")?.textContent || "Table";
    for (const [name, value] of [["tabindex", "0"], ["role", "group"], ["aria-label", `${title}: table`]]) {
      region.setAttribute(name, value);
    }
  }
}

// A sentence; where an earlier layer has the same reason, the share and that layer's number.
function reasonOnce(sentence, number, told) {
  const [, share, reason] = sentence.match(/^(\d+%) (of its critical path .*)$/) || [];
  if (!reason) return sentence;
  if (told.has(reason)) return `${share}, as layer ${told.get(reason)}.`;
  told.set(reason, number);
  return sentence;
}

function figure(name, value, more) {
  return make("div", { class: "figure" }, make("div", { class: "name" }, name),
    make("div", { class: "value" }, value), make("div", { class: "more" }, ...prose(more)));
}
