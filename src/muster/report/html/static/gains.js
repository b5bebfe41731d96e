// Each client's gain over training alone with its interval against zero; where that is not known,
// its training loss: hollow, the first it measured; filled, the last.
function gains(element) {
  const all = section("clients");
  const redrawChart = () => {
    const name = pickRun(all.runs), run = all.runs[name], n = run.client.length;
    const order = clientOrder(name, n), known = run.gain.some((v) => v !== null);
    const ends = known
      ? run.gain.flatMap((v, k) => (v === null ? [] : [v - (run["± 95 %"][k] || 0), v + (run["± 95 %"][k] || 0)])).concat(0)
      : [...run["first training loss"], ...run["last training loss"]].filter((v) => v !== null);
    if (!ends.length) return;
    const low = Math.min(...ends), high = Math.max(...ends);
    const log = !known && low > 0 && high > 50 * low;
    const pad = 0.04 * (high - low) || 0.1;
    const y = log ? [low / 1.15, high * 1.15] : [!known && low >= 0 ? Math.max(0, low - pad) : low - pad, high + pad];
    const few = n * 26 < element.clientWidth;
    const f = frame(element, { height: 300, x: [-0.5, n - 0.5], y, log, xTicks: few ? [] : undefined, xTitle: few ? "" : "clients, in the selected order", yTitle: "", bottom: few ? 40 : 34 });
    if (known) draw(f.svg, "line", { x1: f.x0, x2: f.x1, y1: f.sy(0), y2: f.sy(0), class: "zero" });
    order.forEach((k, i) => {
      const x = f.sx(i), role = run.role[k], r = n > 150 ? 1.5 : 3.5;
      const spot = (v, hollow) => draw(f.inner, role === 0 ? "circle" : "rect", role === 0 ? { cx: x, cy: f.sy(v), r, class: `dot role0${hollow}` } : { x: x - r, y: f.sy(v) - r, width: 2 * r, height: 2 * r, class: `dot role${role}${hollow}` });
      const span = (a, b, better) => draw(f.inner, "line", { x1: x, x2: x, y1: f.sy(a), y2: f.sy(b), class: `gain ${better ? "better" : "worse"}` });
      if (known) {
        const [v, half] = [run.gain[k], run["± 95 %"][k]];
        if (v !== null && half !== null) span(v - half, v + half, v >= 0);
        if (v !== null) spot(v, half !== null && Math.abs(v) > half ? "" : " hollow");
      } else {
        const [b, a] = [run["first training loss"][k], run["last training loss"][k]];
        if (b !== null && a !== null) span(b, a, a <= b);
        if (b !== null) spot(b, " hollow");
        if (a !== null) spot(a, "");
      }
      if (few) {
        const label = run.client[k], text = draw(f.svg, "text", { x, y: f.y0 + 14, class: "tick middle" }, label.length > 5 && n > 8 ? `${label.slice(0, 4)}…` : label);
        if (role === 0) text.classList.add("strong");
      }
    });
    addCursor(element, `${element.dataset.description}, ${runLabel(name)}`, () => n,
      (px) => { const i = Math.round(((px - f.x0) / (f.x1 - f.x0)) * n - 0.5); return i >= 0 && i < n ? i : null; },
      (i, px, py) => {
        const k = order[i], half = run["± 95 %"][k], rows = run["test rows"][k];
        const lines = [`${run.client[k]}, ${roleName(run.role[k])}${run.attacker.includes(k) ? ", attacker" : ""}`];
        if (run.gain[k] !== null) lines.push(`gain ${run.gain[k] > 0 ? "+" : ""}${short(run.gain[k])}${half === null ? "" : ` ± ${short(half)}`} over alone`);
        if (run["test score"][k] !== null) lines.push(`test ${all.score} ${short(run["test score"][k])}${run["alone test score"][k] === null ? "" : `, alone ${short(run["alone test score"][k])}`} in this seed`);
        if (rows !== null) lines.push(`${rows} test rows${all.points && rows ? `: one is ${short(100 / rows, 3)} points` : ""}`);
        lines.push(`training loss ${short(run["first training loss"][k])} → ${short(run["last training loss"][k])}`);
        lines.push(`admitted in ${run.admitted[k]} of ${run.asked[k]} rounds in which it was asked`);
        showTip(lines, px, py);
      }, () => {});
  };
  pickListeners.push(redrawChart);
  drawOnResize(element, redrawChart);
}
TABLES.clients = () => {
  const all = section("clients"), name = pickRun(all.runs), run = all.runs[name];
  const columns = all.columns.filter((c) => run[c].some((v) => v !== null));
  const value = (c, k) => (c === "role" ? `${roleName(run.role[k])}${run.attacker.includes(k) ? ", attacker" : ""}` : c === "useful" ? (run[c][k] === null ? null : run[c][k] ? "yes" : "no") : run[c][k]);
  const head = columns.map((c) => c.replace("score", all.score));
  return buildTable("clients", head, clientOrder(name, run.client.length).map((k) => columns.map((c) => value(c, k))));
};
