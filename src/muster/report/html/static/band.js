// F(w) with its band, and the loss each client reports in each round.
function band(element) {
  const all = section("band");
  let turn = 0;
  const redrawChart = async () => {
    const mine = ++turn, name = pickRun(all.runs), run = all.runs[name];
    const losses = await decode(run.loss, run.x.length);
    if (mine !== turn) return;
    const clients = section("clients").runs[name];
    const edge = run.x.map((_, i) => (run.f[i] === null ? null : [run.f[i] - (run.eps[i] || 0), run.f[i] + (run.eps[i] || 0)]));
    const seen = [...losses.flat(), ...edge.filter(Boolean).flat()].filter((v) => v !== null);
    const inside = edge.filter(Boolean).flat();
    const low = Math.max(0, Math.min(...seen)), most = Math.max(...seen);
    // Where some losses are far off, the axis shows the band and its surroundings.
    const usual = inside.sort((a, b) => a - b)[Math.floor(0.75 * inside.length)] || most;
    const high = Math.min(most, 4 * usual);
    const f = frame(element, { height: 300, x: [run.x[0], run.x[run.x.length - 1]], y: [low, high * 1.03], xTitle: "round" });
    const there = run.x.map((x, i) => [x, edge[i]]).filter((p) => p[1]);
    if (there.length) {
      const path = [...there.map(([x, e]) => `${f.sx(x)},${f.sy(e[1])}`), ...there.reverse().map(([x, e]) => `${f.sx(x)},${f.sy(e[0])}`)];
      draw(f.inner, "path", { d: `M${path.join("L")}z`, class: "epsband" });
    }
    const line = (values, kind) => {
      let d = "", on = false;
      values.forEach((v, i) => { if (v === null) { on = false; return; } d += `${on ? "L" : "M"}${f.sx(run.x[i]).toFixed(1)},${f.sy(v).toFixed(1)}`; on = true; });
      draw(f.inner, "path", { d, class: kind });
    };
    losses.forEach((values, i) => line(values, `loss role${clients ? clients.role[run.clients[i]] : 1}`));
    line(run.f, "reference");
    const above = losses.filter((v) => v.some((x) => x !== null && x > high)).length;
    if (above) draw(f.svg, "text", { x: f.x1, y: 14, class: "tick end" }, `${above} ${above === 1 ? "client is" : "clients are"} above this axis`);
    const cursor = draw(f.svg, "line", { y1: f.y1, y2: f.y0, class: "cursor" });
    addCursor(element, `${element.dataset.description}, ${runLabel(name)}`, () => run.x.length,
      (px) => { const i = Math.round(((px - f.x0) / (f.x1 - f.x0)) * (run.x.length - 1)); return i >= 0 && i < run.x.length ? i : null; },
      (i, px, py) => {
        cursor.setAttribute("x1", f.sx(run.x[i])); cursor.setAttribute("x2", f.sx(run.x[i])); cursor.classList.add("on");
        const count = countInBand(run, losses, i);
        showTip([`round ${run.x[i]}`, `F(w) ${short(run.f[i])}, eps ${short(run.eps[i])}`, `${count[0]} of ${count[1]} drawn clients in the band`], px, py);
      }, () => cursor.classList.remove("on"));
  };
  pickListeners.push(redrawChart);
  drawOnResize(element, redrawChart);
}
function countInBand(run, losses, i) {
  const reported = losses.map((values) => values[i]).filter((v) => v !== null);
  return [reported.filter((v) => Math.abs(v - run.f[i]) <= run.eps[i]).length, reported.length];
}
TABLES.band = async () => {
  const all = section("band"), run = all.runs[pickRun(all.runs)], losses = await decode(run.loss, run.x.length);
  const rows = run.x.map((t, i) => [t, run.f[i], run.eps[i], ...countInBand(run, losses, i)]);
  return buildTable("band", ["round", "F(w)", "eps", "clients in the band", "clients that reported a loss"], rows);
};
