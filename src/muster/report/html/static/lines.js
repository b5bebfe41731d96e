// Mean curves of a measure over the rounds, with bands.
function lines(element) {
  const panel = panelData(element.dataset.name);
  const redrawChart = () => {
    const series = panel.series.filter((s) => isShown(s.method) && s.y.length);
    const all = panel.series.flatMap((s) => s.x);
    const limits = series.length === panel.series.length && showBands ? panel.limits : fitLimits(series, panel);
    const f = frame(element, { height: 230, x: [Math.min(...all), Math.max(...all)], y: limits, log: panel.log, xTitle: panel.along || "round", xNames: panel.ticks });
    const bands = showBands && series.length <= 6;
    for (const s of series) {
      const m = METHODS[s.method];
      const there = s.x.map((x, i) => [x, s.y[i], s.half[i]]).filter((p) => p[1] !== null);
      if (bands && there.some((p) => p[2] !== null)) {
        const top = panel.share ? 1 : Infinity, floor = there.every((p) => p[1] >= 0) ? 0 : -Infinity;
        const edge = (sign) => there.map(([x, y, h]) => `${f.sx(x).toFixed(1)},${f.sy(Math.min(Math.max(y + sign * (h || 0), Math.min(y, floor)), Math.max(y, top))).toFixed(1)}`);
        draw(f.inner, "path", { d: `M${[...edge(1), ...edge(-1).reverse()].join("L")}z`, class: `band m${m.colour}` });
      }
    }
    series.forEach((s, order) => {
      const m = METHODS[s.method];
      const there = s.x.map((x, i) => [x, s.y[i]]).filter((p) => p[1] !== null);
      const d = there.map(([x, y]) => `${f.sx(x).toFixed(1)},${f.sy(y).toFixed(1)}`).join("L");
      draw(f.inner, "path", { d: `M${d}`, class: `line m${m.colour}`, "stroke-dasharray": m.dashes });
      const every = Math.max(1, there.length / 6);
      for (let i = (every * order) / series.length; i < there.length; i += every) {
        const [x, y] = there[Math.floor(i)];
        mark(f.inner, s.method, f.sx(x), f.sy(y), true, 3.5);
      }
    });
    const cursor = draw(f.svg, "line", { y1: f.y1, y2: f.y0, class: "cursor" });
    const longest = panel.series.reduce((a, b) => (a.x.length > b.x.length ? a : b));
    const nearest = (px) => {
      let best = 0;
      longest.x.forEach((x, i) => { if (Math.abs(f.sx(x) - px) < Math.abs(f.sx(longest.x[best]) - px)) best = i; });
      return best;
    };
    addCursor(element, element.dataset.description, () => longest.x.length,
      (px) => nearest(px),
      (i, px, py) => {
        const t = longest.x[i];
        cursor.setAttribute("x1", f.sx(t)); cursor.setAttribute("x2", f.sx(t)); cursor.classList.add("on");
        showTip([panel.ticks ? `${panel.along} ${panel.ticks[t]}` : `round ${t}`, ...series.map((s) => {
          const j = s.x.indexOf(t);
          const half = j >= 0 && s.half[j] !== null ? ` ± ${short(s.half[j], 3)}` : "";
          return `${METHODS[s.method].label}: ${j < 0 ? "–" : short(s.y[j])}${half}`;
        })], px, py);
      },
      () => cursor.classList.remove("on"));
  };
  drawOnResize(element, redrawChart);
}
// The axis limits of the shown curves: their later rounds, and bands up to twice the means' span.
function fitLimits(series, panel) {
  const late = series.flatMap((s) => s.y.map((y, i) => [y, (showBands && s.half[i]) || 0]).slice(Math.floor(s.y.length / 4))).filter((p) => p[0] !== null);
  if (!late.length) return panel.limits;
  let low = Math.min(...late.map((p) => p[0])), high = Math.max(...late.map((p) => p[0]));
  const span = high - low || Math.abs(high) * 0.1 || 0.1;
  low = Math.max(low - 2 * span, Math.min(...late.map(([y, h]) => y - h)), low >= 0 ? 0 : -Infinity);
  high = Math.min(high + 2 * span, Math.max(...late.map(([y, h]) => y + h)), panel.share ? 1 : Infinity);
  if (panel.log) return [Math.min(...late.map((p) => p[0])) * 0.8, high * 1.2];
  return [low - 0.05 * span, high + 0.05 * span];
}
for (const folder of ["curves", "appeal", "attackers", "costs"]) {
  TABLES[folder] = (name) => {
    const panel = panelData(name);
    const rounds = [...new Set(panel.series.flatMap((s) => s.x))].sort((a, b) => a - b);
    const head = [panel.along || "round", ...panel.series.flatMap((s) => [METHODS[s.method].label, "± 95 %"])];
    const rows = rounds.map((t) => [panel.ticks ? panel.ticks[t] : t, ...panel.series.flatMap((s) => {
      const i = s.x.indexOf(t);
      return i < 0 ? [null, null] : [s.y[i], s.half[i]];
    })]);
    return buildTable(panel.name, head, rows);
  };
}
