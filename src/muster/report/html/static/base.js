// What everything else stands on: the data, elements, the theme, the tip, who is shown.
const DATA = JSON.parse(document.getElementById("numbers").textContent);
const METHODS = DATA.methods;
const SVG = "http://www.w3.org/2000/svg";

// An element with attributes and children; text is always text.
function make(tag, attributes = {}, ...children) {
  const e = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) e.setAttribute(name, value);
  e.append(...children);
  return e;
}
function draw(parent, tag, attributes = {}, text) {
  const e = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) e.setAttribute(name, value);
  if (text !== undefined) e.textContent = text;
  parent.append(e);
  return e;
}
const section = (name) => DATA.sections[name];
// "curves/loss" is the panel of that name in its section.
function numbersOf(name) {
  const [where, inner] = name.split("/");
  return inner === undefined ? section(where) : section(where)[inner];
}

function short(value, digits = 4) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (typeof value !== "number") return String(value);
  if (Number.isInteger(value) && Math.abs(value) < 1e15) return String(value);
  const size = Math.abs(value);
  return size >= 1e5 || size < 1e-4 ? value.toExponential(2) : String(+value.toPrecision(digits));
}

// Packed numbers: base64 of zlib, little end first.
const unpacked = new Map();
async function unpack(text, Type) {
  if (!unpacked.has(text)) {
    const raw = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
    const stream = new Blob([raw]).stream().pipeThrough(new DecompressionStream("deflate"));
    unpacked.set(text, new Response(stream).arrayBuffer());
  }
  return new Type(await unpacked.get(text));
}

// Everything that is drawn, and drawn again when the theme, the width or the choice changes.
const drawn = [];
function redraw(which = () => true) {
  for (const each of drawn) if (which(each)) each.again();
}
function keep(element, again) {
  const each = { element, again, width: 0 };
  drawn.push(each);
  new ResizeObserver(() => {
    const width = Math.round(element.clientWidth);
    if (width !== each.width) { each.width = width; again(); }
  }).observe(element);
}

// The theme: as the system has it, light, or dark. Where nothing may be kept, it is not.
const THEMES = ["auto", "light", "dark"];
const themeButton = document.getElementById("theme");
function theme(name) {
  const said = { auto: "as the system", light: "light", dark: "dark" }[name];
  if (name === "auto") document.documentElement.removeAttribute("data-theme");
  else document.documentElement.setAttribute("data-theme", name);
  themeButton.querySelector("span").textContent = `theme: ${said}`;
  try { localStorage.setItem("muster-theme", name); } catch { /* a page that may keep nothing */ }
  redraw();
}
let themed = "auto";
try { themed = localStorage.getItem("muster-theme") || "auto"; } catch { /* the same */ }
themeButton.addEventListener("click", () => {
  themed = THEMES[(THEMES.indexOf(themed) + 1) % THEMES.length];
  theme(themed);
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => redraw());
const colourOf = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// The tip next to the pointer, which is also what a screen reader is told.
const tip = document.getElementById("tip");
function tell(lines, x, y) {
  tip.replaceChildren(...lines.map((line) => make("div", {}, line)));
  tip.classList.add("on");
  const room = tip.getBoundingClientRect();
  const left = x + 14 + room.width > innerWidth ? x - 14 - room.width : x + 14;
  tip.style.left = `${Math.max(4, Math.min(left, innerWidth - room.width - 4))}px`;
  tip.style.top = `${Math.max(4, Math.min(y + 14, innerHeight - room.height - 4))}px`;
}
const hush = () => tip.classList.remove("on");
addEventListener("keydown", (event) => { if (event.key === "Escape") hush(); });

// Which methods are shown, in all charts.
const hidden = new Set();
let banded = true;
const isShown = (method) => !hidden.has(method);

// Which run is looked at, where a section is about a single one.
const picked = { method: 0, seed: 0, sort: "role" };
const pickListeners = [];
function pickAgain(change) {
  Object.assign(picked, change);
  for (const listener of pickListeners) listener();
}
// The run of a section that is nearest to what is picked.
function pickedIn(runs) {
  const wanted = [`${picked.method}/${picked.seed}`, `${picked.method}/0`, `0/${picked.seed}`];
  return wanted.find((name) => name in runs) || Object.keys(runs)[0];
}
const called = (name) => {
  const [m, s] = name.split("/").map(Number);
  return `${METHODS[m].label}, seed ${DATA.seeds[s]}`;
};
const roleOf = (code) => section("clients").roles[code];

// The order of the clients that is picked; without a table of them, as they are numbered.
function orderOf(name, n) {
  const order = Array.from({ length: n }, (_, k) => k);
  const clients = section("clients") && section("clients").runs[name];
  if (!clients) return order;
  const number = (column, down) => (a, b) =>
    (clients[column][b] === null) - (clients[column][a] === null)
      ? (clients[column][a] === null) - (clients[column][b] === null)
      : (down ? -1 : 1) * (clients[column][a] - clients[column][b]);
  const role = (a, b) => clients.role[a] - clients.role[b];
  const rules = {
    number: [],
    role: [role],
    name: [(a, b) => clients.client[a].localeCompare(clients.client[b], undefined, { numeric: true })],
    admission: [number("admitted", true)],
    gain: [number("gain", true)],
  }[picked.sort];
  return order.sort((a, b) => { for (const r of rules) { const c = r(a, b); if (c) return c; } return a - b; });
}
