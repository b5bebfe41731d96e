// Shared state and helpers: the data, elements, the theme, the tooltip, the selection.
const DATA = JSON.parse(document.getElementById("numbers").textContent);
const METHODS = DATA.methods;
const SVG = "http://www.w3.org/2000/svg";

// Create an element with attributes and children; text is never parsed as HTML.
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
// "curves/loss" is the panel "loss" of the section "curves".
function panelData(name) {
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

// Packed numbers: little-endian, zlib, base64.
const unpacked = new Map();
async function unpack(text, Type) {
  if (!unpacked.has(text)) {
    const raw = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
    const stream = new Blob([raw]).stream().pipeThrough(new DecompressionStream("deflate"));
    unpacked.set(text, new Response(stream).arrayBuffer());
  }
  return new Type(await unpacked.get(text));
}
// Rows of numbers, each `low + code * step`; null where one is missing.
async function decode(packed, wide) {
  const codes = await unpack(packed.codes, Uint16Array);
  return Array.from({ length: codes.length / wide }, (_, i) => Array.from({ length: wide }, (_, t) => {
    const code = codes[i * wide + t];
    return code === 65535 ? null : packed.low + code * packed.step;
  }));
}

// All charts; they are redrawn when the theme, the width or the selection changes.
const charts = [];
function redraw(which = () => true) {
  for (const each of charts) if (which(each)) each.redrawChart();
}
function drawOnResize(element, redrawChart) {
  const each = { element, redrawChart, width: 0 };
  charts.push(each);
  new ResizeObserver(() => {
    const width = Math.round(element.clientWidth);
    if (width !== each.width) { each.width = width; redrawChart(); }
  }).observe(element);
}

// The theme: that of the system, light, or dark; stored if the page may store anything.
const THEMES = ["auto", "light", "dark"];
const themeButton = document.getElementById("theme");
function theme(name) {
  const label = { auto: "system", light: "light", dark: "dark" }[name];
  if (name === "auto") document.documentElement.removeAttribute("data-theme");
  else document.documentElement.setAttribute("data-theme", name);
  themeButton.querySelector("span").textContent = `theme: ${label}`;
  try { localStorage.setItem("muster-theme", name); } catch { /* storage is not allowed */ }
  redraw();
}
let currentTheme = "auto";
try { currentTheme = localStorage.getItem("muster-theme") || "auto"; } catch { /* storage is not allowed */ }
themeButton.addEventListener("click", () => {
  currentTheme = THEMES[(THEMES.indexOf(currentTheme) + 1) % THEMES.length];
  theme(currentTheme);
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => redraw());
const cssColour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// The tooltip next to the pointer, which screen readers read as well.
const tip = document.getElementById("tip");
function showTip(lines, x, y) {
  tip.replaceChildren(...lines.map((line) => make("div", {}, line)));
  tip.classList.add("on");
  const room = tip.getBoundingClientRect();
  const left = x + 14 + room.width > innerWidth ? x - 14 - room.width : x + 14;
  tip.style.left = `${Math.max(4, Math.min(left, innerWidth - room.width - 4))}px`;
  tip.style.top = `${Math.max(4, Math.min(y + 14, innerHeight - room.height - 4))}px`;
}
const hideTip = () => tip.classList.remove("on");
addEventListener("keydown", (event) => { if (event.key === "Escape") hideTip(); });

// The methods shown in all charts.
const hidden = new Set();
let showBands = true;
const isShown = (method) => !hidden.has(method);

// The selected run, for sections about a single one.
const picked = { method: 0, seed: 0, sort: "role" };
const pickListeners = [];
function changePick(change) {
  Object.assign(picked, change);
  for (const listener of pickListeners) listener();
}
// The run of a section that is nearest to the selection.
function pickRun(runs) {
  const wanted = [`${picked.method}/${picked.seed}`, `${picked.method}/0`, `0/${picked.seed}`];
  return wanted.find((name) => name in runs) || Object.keys(runs)[0];
}
const runLabel = (name) => {
  const [m, s] = name.split("/").map(Number);
  return `${METHODS[m].label}, seed ${DATA.seeds[s]}`;
};
const roleName = (code) => section("clients").roles[code];

// The selected order of the clients; by number if there is no table of them.
function clientOrder(name, n) {
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
