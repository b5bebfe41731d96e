// Paired differences as intervals against zero.
function forest(element) {
  const panel = panelData(element.dataset.name);
  const redrawChart = () => {
    const rows = panel.rows.filter((row) => isShown(row.method));
    const ends = rows.flatMap((r) => [r.value - (r.half || 0), r.value + (r.half || 0)]);
    let low = Math.min(0, ...ends), high = Math.max(0, ...ends);
    const room = 0.06 * (high - low) || 1;
    [low, high] = [low - room, high + room];
    const step = 34, height = 48 + step * rows.length;
    const several = new Set(panel.rows.map((r) => r.round)).size > 1;
    const f = frame(element, { height, x: [low, high], y: [rows.length, 0], left: 10, xTicks: linearTicks(low, high, Math.max(2, element.clientWidth / 80)), xTitle: "" });
    f.svg.querySelectorAll(".grid,.tick.end").forEach((e) => e.remove());
    draw(f.svg, "line", { x1: f.sx(0), x2: f.sx(0), y1: f.y1, y2: f.y0, class: "zero" });
    const better = panel.better === "left" ? "← better" : "better →";
    draw(f.svg, "text", { x: panel.better === "left" ? f.x0 : f.x1, y: height - 4, class: `tick ${panel.better === "left" ? "" : "end"}` }, better);
    rows.forEach((row, i) => {
      const m = METHODS[row.method], y = f.y1 + step * i + 24;
      draw(f.svg, "text", { x: f.x0, y: y - 10, class: "label" }, several ? `${m.label}, round ${row.round}` : m.label);
      if (row.half !== null) {
        const [a, b] = [f.sx(row.value - row.half), f.sx(row.value + row.half)];
        draw(f.svg, "line", { x1: a, x2: b, y1: y, y2: y, class: `line m${m.colour}` });
        for (const x of [a, b]) draw(f.svg, "line", { x1: x, x2: x, y1: y - 4, y2: y + 4, class: `line m${m.colour}` });
      }
      mark(f.svg, row.method, f.sx(row.value), y, row.clear, 5);
    });
    addCursor(element, element.dataset.description, () => rows.length,
      (px, py) => { const i = Math.floor((py - f.y1) / step); return i >= 0 && i < rows.length ? i : null; },
      (i, px, py) => {
        const r = rows[i];
        const sure = r.half === null ? "one seed: no interval" : r.clear ? "the interval excludes 0" : "the interval covers 0";
        showTip([`${METHODS[r.method].label}, round ${r.round}`, `${r.value > 0 ? "+" : ""}${short(r.value)}${r.half === null ? "" : ` ± ${short(r.half)}`}`, sure], px, py);
      }, () => {});
  };
  drawOnResize(element, redrawChart);
}
