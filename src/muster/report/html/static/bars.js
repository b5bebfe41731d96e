// Rows per client: stacked bars with one colour per class; a heat map for many clients or classes.
function bars(element) {
  const all = section("data");
  let turn = 0;
  const redrawChart = async () => {
    const mine = ++turn, name = `0/${picked.seed}` in all.runs ? `0/${picked.seed}` : Object.keys(all.runs)[0];
    const run = all.runs[name], rows = await unpack(run.rows, Uint32Array), [n, classes] = run.shape;
    if (mine !== turn) return;
    const sum = (k) => { let s = 0; for (let c = 0; c < classes; c++) s += rows[k * classes + c]; return s; };
    const order = clientOrder(pickRun((section("clients") || all).runs), n);
    const describe = (i, px, py) => {
      const k = order[i];
      const held = all.classes.map((c, j) => [c, rows[k * classes + j]]).filter((p) => p[1]).sort((a, b) => b[1] - a[1]);
      const more = held.length > 8 ? [`… and ${held.length - 8} more classes`] : [];
      showTip([`${run.clients[k]}: ${sum(k)} rows`, ...held.slice(0, 8).map(([c, v]) => `${c}: ${v}`), ...more], px, py);
    };
    if (n <= 60 && all.colours.length) drawBars(element, run, rows, order, sum, all, describe);
    else drawHeatMap(element, run, rows, order, sum, describe);
  };
  pickListeners.push(redrawChart);
  drawOnResize(element, redrawChart);
}
function drawBars(element, run, rows, order, sum, all, describe) {
  const [n, classes] = run.shape, top = Math.max(...order.map(sum), 1), few = n * 26 < element.clientWidth;
  const f = frame(element, { height: 280, x: [-0.5, n - 0.5], y: [0, top * 1.03], xTicks: few ? [] : undefined, xTitle: few ? "" : "clients" });
  const wide = Math.max(1, ((f.x1 - f.x0) / n) * 0.84);
  order.forEach((k, i) => {
    let floor = 0;
    for (let c = 0; c < classes; c++) {
      const v = rows[k * classes + c];
      if (!v) continue;
      draw(f.inner, "rect", { x: f.sx(i) - wide / 2, width: wide, y: f.sy(floor + v), height: Math.max(0.5, f.sy(floor) - f.sy(floor + v)), fill: all.colours[c], class: "bar" });
      floor += v;
    }
    if (few) draw(f.svg, "text", { x: f.sx(i), y: f.y0 + 14, class: "tick middle" }, run.clients[k].length > 5 && n > 8 ? `${run.clients[k].slice(0, 4)}…` : run.clients[k]);
  });
  const list = make("ul", { class: "legend" });
  all.classes.forEach((c, i) => {
    const swatch = make("span", { class: "swatch" });
    swatch.style.background = all.colours[i];
    list.append(make("li", {}, swatch, c));
  });
  if (classes > 1) element.append(list);
  addCursor(element, element.dataset.description, () => n,
    (px) => { const i = Math.round(((px - f.x0) / (f.x1 - f.x0)) * n - 0.5); return i >= 0 && i < n ? i : null; }, describe, () => {});
}
function drawHeatMap(element, run, rows, order, sum, describe) {
  const [n, classes] = run.shape, width = Math.max(200, element.clientWidth), height = Math.max(60, Math.min(360, classes * 12));
  const canvas = make("canvas", { "aria-hidden": "true" });
  element.replaceChildren(canvas);
  const [from, to] = [rgb(cssColour("--heat0")), rgb(cssColour("--heat1"))];
  const totals = order.map(sum), most = Math.max(...totals, 1);
  paintCells(canvas, width, height, classes, n, (c, i) => {
    const share = classes > 1 ? rows[order[i] * classes + c] / (totals[i] || 1) : totals[i] / most;
    return blend(from, to, Math.sqrt(share));
  }, false);
  addCursor(element, element.dataset.description, () => n,
    (px) => { const i = Math.floor((px / width) * n); return i >= 0 && i < n ? i : null; }, describe, () => {});
}
TABLES.data = async () => {
  const all = section("data"), run = all.runs[`0/${picked.seed}`] || Object.values(all.runs)[0];
  const rows = await unpack(run.rows, Uint32Array), classes = run.shape[1];
  return buildTable("data", ["client", ...all.classes], run.clients.map((c, k) => [c, ...Array.from(rows.slice(k * classes, (k + 1) * classes))]));
};
