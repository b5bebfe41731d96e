// Each client before and after: hollow and filled marks joined by a line, a dash for its loss alone.
function gains(element) {
  const all = section("clients");
  const redrawChart = () => {
    const name = pickRun(all.runs), run = all.runs[name], n = run.client.length;
    const order = clientOrder(name, n);
    const values = [...run.before, ...run.after, ...run.alone].filter((v) => v !== null);
    if (!values.length) return;
    const low = Math.min(...values), high = Math.max(...values);
    const log = low > 0 && high > 50 * low;
    const pad = 0.04 * (high - low) || 0.1;
    const y = log ? [low / 1.15, high * 1.15] : [Math.max(low >= 0 ? 0 : -Infinity, low - pad), high + pad];
    const few = n * 26 < element.clientWidth;
    const f = frame(element, { height: 300, x: [-0.5, n - 0.5], y, log, xTicks: few ? [] : undefined, xTitle: few ? "" : "clients, in the selected order", yTitle: "", bottom: few ? 40 : 34 });
    order.forEach((k, i) => {
      const x = f.sx(i), role = run.role[k], r = n > 150 ? 1.5 : 3.5;
      const [b, a, alone] = [run.before[k], run.after[k], run.alone[k]];
      if (b !== null && a !== null) draw(f.inner, "line", { x1: x, x2: x, y1: f.sy(b), y2: f.sy(a), class: `gain ${a <= b ? "better" : "worse"}` });
      if (b !== null) draw(f.inner, "circle", { cx: x, cy: f.sy(b), r, class: `dot hollow role${role}` });
      if (alone !== null) draw(f.inner, "line", { x1: x - Math.max(2, 2 * r), x2: x + Math.max(2, 2 * r), y1: f.sy(alone), y2: f.sy(alone), class: "alone" });
      if (a !== null) draw(f.inner, role === 0 ? "circle" : "rect", role === 0 ? { cx: x, cy: f.sy(a), r, class: "dot role0" } : { x: x - r, y: f.sy(a) - r, width: 2 * r, height: 2 * r, class: `dot role${role}` });
      if (few) {
        const label = run.client[k], text = draw(f.svg, "text", { x, y: f.y0 + 14, class: "tick middle" }, label.length > 5 && n > 8 ? `${label.slice(0, 4)}…` : label);
        if (role === 0) text.classList.add("strong");
      }
    });
    addCursor(element, `${element.dataset.description}, ${runLabel(name)}`, () => n,
      (px) => { const i = Math.round(((px - f.x0) / (f.x1 - f.x0)) * n - 0.5); return i >= 0 && i < n ? i : null; },
      (i, px, py) => {
        const k = order[i];
        const lines = [`${run.client[k]}, ${roleName(run.role[k])}${run.attacker.includes(k) ? ", attacker" : ""}`, `loss ${short(run.before[k])} → ${short(run.after[k])}`];
        if (run.alone[k] !== null) lines.push(`alone ${short(run.alone[k])}`);
        if (run["test score"][k] !== null) lines.push(`test ${all.score} ${short(run["test score"][k])}`);
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
