// Axes: scales and round tick values.
function linearTicks(low, high, most) {
  if (!(high > low)) return [low];
  const raw = (high - low) / Math.max(1, most), power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((s) => s * power).find((s) => s >= raw * 0.999);
  const ticks = [];
  for (let t = Math.ceil(low / step - 1e-9) * step; t <= high + step * 1e-9; t += step) ticks.push(Math.abs(t) < step * 1e-6 ? 0 : +t.toPrecision(12));
  return ticks;
}
function logTicks(low, high) {
  const ticks = [];
  for (let p = Math.floor(Math.log10(low)); p <= Math.ceil(Math.log10(high)); p++) {
    for (const s of high / low > 1e3 ? [1] : [1, 2, 5]) if (s * 10 ** p >= low && s * 10 ** p <= high) ticks.push(s * 10 ** p);
  }
  return ticks;
}
// The frame of a chart: an SVG of the available width, with scales and axes.
function frame(element, { height, x, y, log = false, xTitle = "", yTitle = "", left = 52, bottom = 34, xTicks, xNames }) {
  const width = Math.max(200, element.clientWidth), top = 8, right = 10;
  element.replaceChildren();
  const svg = draw(element, "svg", { width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
  const [x0, x1, y0, y1] = [left, width - right, height - bottom, top];
  const toScale = (v) => (log ? Math.log10(Math.max(v, 1e-300)) : v);
  const spanX = x[1] - x[0] || 1, spanY = toScale(y[1]) - toScale(y[0]) || 1;
  const sx = (v) => x0 + ((v - x[0]) / spanX) * (x1 - x0);
  const sy = (v) => Math.min(y0 + 400, Math.max(y1 - 400, y0 + ((toScale(v) - toScale(y[0])) / spanY) * (y1 - y0)));
  for (const t of log ? logTicks(y[0], y[1]) : linearTicks(y[0], y[1], height / 45)) {
    draw(svg, "line", { x1: x0, x2: x1, y1: sy(t), y2: sy(t), class: "grid" });
    draw(svg, "text", { x: x0 - 6, y: sy(t) + 4, class: "tick end" }, short(t));
  }
  for (const t of xTicks || linearTicks(x[0], x[1], (x1 - x0) / 70).filter((v) => Number.isInteger(v))) {
    draw(svg, "line", { x1: sx(t), x2: sx(t), y1: y0, y2: y0 + 4, class: "axis" });
    draw(svg, "text", { x: sx(t), y: y0 + 16, class: "tick middle" }, xNames ? xNames[t] : short(t));
  }
  draw(svg, "line", { x1: x0, x2: x1, y1: y0, y2: y0, class: "axis" });
  draw(svg, "text", { x: x1, y: y0 + 30, class: "tick end" }, xTitle);
  if (yTitle) draw(svg, "text", { x: 4, y: 12, class: "tick" }, yTitle);
  const id = `clip${frame.count = (frame.count || 0) + 1}`;
  const clip = draw(svg, "clipPath", { id });
  draw(clip, "rect", { x: x0 - 5, y: y1 - 4, width: x1 - x0 + 10, height: y0 - y1 + 8 });
  const inner = draw(svg, "g", { "clip-path": `url(#${id})` });
  return { svg, inner, sx, sy, x0, x1, y0, y1, width, height };
}
// The markers of methods, for readers who cannot distinguish colours.
const MARKS = {
  o: (r) => `M${-r},0a${r},${r} 0 1,0 ${2 * r},0a${r},${r} 0 1,0 ${-2 * r},0`,
  s: (r) => `M${-r},${-r}h${2 * r}v${2 * r}h${-2 * r}z`,
  "^": (r) => `M0,${-1.2 * r}L${1.1 * r},${r}H${-1.1 * r}z`,
  D: (r) => `M0,${-1.3 * r}L${1.3 * r},0L0,${1.3 * r}L${-1.3 * r},0z`,
  v: (r) => `M0,${1.2 * r}L${1.1 * r},${-r}H${-1.1 * r}z`,
  P: (r) => `M${-r / 2},${-r}h${r}v${r / 2}h${r / 2}v${r}h${-r / 2}v${r / 2}h${-r}v${-r / 2}h${-r / 2}v${-r}h${r / 2}z`,
};
function mark(parent, method, x, y, filled = true, r = 4) {
  const m = METHODS[method];
  return draw(parent, "path", { d: MARKS[m.marker](r), transform: `translate(${x},${y})`, class: `mark m${m.colour}${filled ? "" : " hollow"}` });
}
// Pointer and arrow keys over a chart call `at(i, x, y)` with the selected one of n positions.
function addCursor(element, label, count, place, at, off) {
  element.tabIndex = 0;
  element.setAttribute("role", "group");
  element.setAttribute("aria-roledescription", "chart");
  element.setAttribute("aria-label", `${label}. Use the arrow keys to read it.`);
  let now = -1;
  element.onpointermove = (event) => {
    const box = element.getBoundingClientRect();
    const i = place(event.clientX - box.left, event.clientY - box.top);
    if (i === null) return element.onpointerleave();
    now = i;
    at(i, event.clientX, event.clientY);
  };
  element.onpointerleave = () => { hideTip(); off(); };
  element.onblur = element.onpointerleave;
  element.onkeydown = (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity, PageUp: -10, PageDown: 10 }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    now = Math.max(0, Math.min(count() - 1, now + step));
    const box = element.getBoundingClientRect();
    at(now, box.left + box.width / 2, box.top + 20);
  };
}
