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

function bytes(count) {
  if (count < 1000) return `${count} B`;
  if (count < 1e6) return `${(count / 1e3).toFixed(1)} kB`;
  return `${(count / 1e6).toFixed(2)} MB`;
}

function millions(count) {
  if (count >= 1e9) return `${(count / 1e9).toFixed(2)} G`;
  if (count >= 1e6) return `${(count / 1e6).toFixed(2)} M`;
  return count >= 1e4 ? `${(count / 1e3).toFixed(1)} k` : grouped(count);
}

const swatch = (name) => make("i", { class: "swatch", style: `background:${colour(name)}` });
const legendEntry = (name, text) => make("span", {}, swatch(name), text);

// The background of a ratio: orange above 1, blue below.
function ratioStyle(ratio) {
  const strength = Math.min(45, Math.abs(Math.log2(ratio)) * 55);
  const tint = ratio > 1.0005 ? "memory" : ratio < 0.9995 ? "compute" : "card";
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

function hovers(element, children) {
  element.addEventListener("pointermove", (event) => showTip(event, ...children()));
  element.addEventListener("pointerleave", hideTip);
}

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

function table(headings, bodies, left = 1) {
  const cells = headings.map((heading, index) => {
    const { text, wide } = typeof heading === "string" ? { text: heading } : heading;
    const classes = [index < left ? "left" : "", wide ? "wide" : ""].join(" ").trim();
    return make("th", classes ? { class: classes, scope: "col" } : { scope: "col" }, text);
  });
  return make("table", {}, make("thead", {}, make("tr", {}, ...cells)), ...bodies);
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
    make("div", { class: "value" }, value), make("div", { class: "more" }, more));
}
