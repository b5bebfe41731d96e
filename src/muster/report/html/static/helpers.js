// Helpers: their share of each step above, and below a row for each helper and a column for each round.
const NOT_ASKED = 0, SILENT = 3, FAILED = 5, LEFT = 6; // states of the participation
const percent = (share) => (share === null ? "–" : `${share > 0 && share < 0.0995 ? +(100 * share).toPrecision(2) : Math.round(100 * share)} %`);
// What happened to a helper in a round: [state, reason], if the page has it.
async function helperEvents(name, run) {
  const told = section("participation") && section("participation").runs[name];
  const cells = told && await unpack(told.cells, Uint8Array);
  return (row, t) => (told && row < run.helpers.length ? told.kinds[cells[run.helpers[row] * told.shape[1] + run.x[t] - 1]] : null);
}
const helperTitle = (name, run, row) => {
  const clients = section("clients") && section("clients").runs[name], k = run.helpers[row];
  return k === undefined ? `${run.rest} others, mean` : clients ? clients.client[k] : String(k);
};
function helpers(element) {
  const all = section("helpers");
  let turn = 0;
  const redrawChart = async () => {
    const mine = ++turn, name = pickRun(all.runs), run = all.runs[name], wide = run.x.length;
    const [weight, event] = await Promise.all([decode(run.weight, wide), helperEvents(name, run)]);
    if (mine !== turn) return;
    element.parentElement.querySelector(".said").textContent = (Object.keys(all.runs).length > 1 ? `${runLabel(name)}: ` : "") + run.text;
    const titles = weight.map((_, row) => helperTitle(name, run, row));
    const left = Math.round(Math.min(150, 0.3 * element.clientWidth, Math.max(62, 14 + 5.6 * Math.max(...titles.map((s) => s.length)))));
    const f = frame(element, { height: run.helped ? 132 : 116, x: [-0.5, wide - 0.5], y: [0, 1], left, bottom: run.helped ? 26 : 10, xTicks: [] });
    drawShares(f, run);
    const rowHeight = Math.max(10, Math.min(18, Math.floor(640 / weight.length)));
    const canvas = make("canvas", { "aria-hidden": "true" });
    const names = make("div", { class: "names", "aria-hidden": "true" }, ...titles.map((title) => make("div", {}, title)));
    names.style.setProperty("--row", `${rowHeight}px`);
    names.style.minWidth = names.style.maxWidth = `${left - 6}px`;
    const below = make("div", { class: "below", "aria-hidden": "true" }, make("span", {}, "round 1"), make("span", {}, String(run.x[wide - 1])));
    element.append(make("div", { class: "image" }, names, make("div", {}, canvas, below)));
    const most = Math.max(...weight.flat().filter((v) => v !== null), 1e-12);
    const [from, to, none, silent, failed, unasked] = ["--heat0", "--heat1", "--s-none", "--s-silent", "--s-refused", "--paper"].map((c) => rgb(cssColour(c)));
    const strength = (share) => blend(from, to, 0.15 + 0.85 * Math.sqrt(share));
    paintCells(canvas, f.x1 - f.x0, weight.length * rowHeight, weight.length, wide, (row, t) => {
      const w = weight[row][t], [state] = event(row, t) || [];
      if (w > 0) return strength(w / most);
      if (state === SILENT || state === FAILED) return state === SILENT ? silent : failed;
      return w === null || state === NOT_ASKED || state === LEFT ? unasked : none;
    });
    const describe = (row, t, px, py) => {
      const w = weight[row][t], [state, why] = event(row, t) || [];
      const what = state === undefined ? "" : section("participation").states[state];
      const zero = why || what ? `: ${why || what}` : "";
      const own = row < run.helpers.length ? (w > 0 ? `counted for ${percent(w)} of the step` : `did not count${zero}`) : `counted for ${percent(w * run.rest)} together`;
      showTip([titles[row], `round ${run.x[t]}: ${own}`, ...describeRound(run, t)], px, py);
    };
    addCellCursor(element, canvas, `${element.dataset.description}, ${runLabel(name)}`, weight.length, wide, describe);
    f.svg.onpointermove = f.svg.onpointerdown = (event) => {
      const t = Math.floor(((event.clientX - f.svg.getBoundingClientRect().left - f.x0) / (f.x1 - f.x0)) * wide);
      if (t >= 0 && t < wide) showTip([`round ${run.x[t]}`, ...describeRound(run, t)], event.clientX, event.clientY);
    };
    f.svg.onpointerleave = canvas.onpointerleave;
    helperLegend(element.parentElement.querySelector(".legend"), run, weight, event, most, strength);
  };
  pickListeners.push(redrawChart);
  drawOnResize(element, redrawChart);
}
// The shares of the step as columns, and which model was deployed.
function drawShares(f, run) {
  const wide = run.x.length, step = (f.x1 - f.x0) / wide;
  const columns = (which, from, to) => run.x.map((_, t) => t).filter(which).map((t) => `M${(f.x0 + t * step).toFixed(2)},${from(t).toFixed(2)}h${step.toFixed(2)}V${to(t).toFixed(2)}h${(-step).toFixed(2)}z`).join("");
  const moved = (t) => run.share[t] !== null, edge = (t) => f.sy(run.share[t]);
  draw(f.svg, "path", { d: columns(moved, () => f.y1, edge), class: "share state1" });
  draw(f.svg, "path", { d: columns(moved, edge, () => f.y0), class: "share state2" });
  if (!run.helped) return;
  draw(f.svg, "text", { x: f.x0 - 6, y: f.y0 + 20, class: "tick end" }, "deployed");
  for (const [helped, state] of [[false, 1], [true, 2]]) {
    draw(f.svg, "path", { d: columns((t) => run.helped[t] === helped, () => f.y0 + 11, () => f.y0 + 20), class: `share state${state}` });
  }
}
function describeRound(run, t) {
  const share = run.share[t];
  const deployed = run.helped ? [`deployed: the ${run.helped[t] ? "helped model" : "model trained alone"}`] : [];
  return [share === null ? "no reply counted" : `all helpers ${percent(share)}, priority clients ${percent(1 - share)}`, ...deployed];
}
function helperLegend(list, run, weight, event, most, strength) {
  const hex = (colour) => `rgb(${colour.map(Math.round).join()})`;
  const scale = make("span", { class: "scale" });
  scale.style.background = `linear-gradient(to right, ${hex(strength(0))}, ${hex(strength(1))})`;
  const cells = weight.flatMap((values, row) => values.map((w, t) => [w, (event(row, t) || [])[0]]));
  const some = (state) => cells.some(([w, s]) => !(w > 0) && s === state);
  const items = [
    ["state1", "priority clients' share of the step"], ["state2", "helpers' share"],
    ...(cells.some(([w, s]) => w === 0 && s !== SILENT && s !== FAILED) ? [["unhelpful", "replied, did not count"]] : []),
    ...(some(SILENT) ? [["state3", "silent by choice"]] : []), ...(some(FAILED) ? [["state4", "failed"]] : []),
    ...(some(NOT_ASKED) || some(LEFT) ? [["unasked", "not asked"]] : []),
  ];
  list.replaceChildren(...items.map(([kind, text]) => make("li", {}, make("span", { class: `swatch ${kind}` }), text)));
  list.children[1].after(make("li", {}, "a helper's share: 0", scale, percent(most)));
}
TABLES.helpers = async () => {
  const all = section("helpers"), name = pickRun(all.runs), run = all.runs[name];
  const rows = run.mean.map((mean, row) => [helperTitle(name, run, row), mean, run.counted[row], run.rounds]);
  return buildTable("helpers", ["helper", "mean share of the step", "rounds in which it counted", "rounds"], rows);
};
