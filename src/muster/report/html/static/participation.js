// Participation: a canvas with one row per client and one column per round.
const STATE_COLOURS = ["--s-none", "--s-right", "--s-helper", "--s-silent", "--s-refused", "--s-failed", "--s-left"];
function participation(element) {
  const all = section("participation");
  const canvas = make("canvas", { "aria-hidden": "true" });
  const names = make("div", { class: "names", "aria-hidden": "true" });
  const below = make("div", { class: "below", "aria-hidden": "true" });
  const box = make("div", { class: "image" }, names, make("div", {}, canvas, below));
  element.append(box);
  let turn = 0;
  const redrawChart = async () => {
    const mine = ++turn, name = pickRun(all.runs), run = all.runs[name];
    const cells = await unpack(run.cells, Uint8Array);
    if (mine !== turn) return;
    const [n, rounds] = run.shape, order = clientOrder(name, n);
    const clients = section("clients") && section("clients").runs[name];
    const title = (k) => (clients ? clients.client[k] : String(k));
    const rowHeight = Math.max(1, Math.min(16, Math.floor(640 / n) || 1));
    const named = rowHeight >= 10;
    names.replaceChildren(...(named ? order.map((k) => make("div", {}, title(k))) : []));
    names.style.setProperty("--row", `${rowHeight}px`);
    const width = Math.max(100, element.clientWidth - (named ? names.offsetWidth + 6 : 0) - 2);
    below.replaceChildren(make("span", {}, "round 1"), make("span", {}, String(rounds)));
    below.style.width = `${width}px`;
    const palette = STATE_COLOURS.map((c) => rgb(cssColour(c)));
    paintCells(canvas, width, n * rowHeight, n, rounds, (row, t) => palette[run.kinds[cells[order[row] * rounds + t]][0]]);
    const moves = new Map(run.moves.map(([t, k, what]) => [`${k}/${t}`, what]));
    const read = (row, t, px, py) => {
      const k = order[row], [state, why] = run.kinds[cells[k * rounds + t]];
      const role = clients ? `, ${roleName(clients.role[k])}${clients.attacker.includes(k) ? ", attacker" : ""}` : "";
      const moved = moves.get(`${k}/${t + 1}`);
      showTip([`${title(k)}${role}`, `round ${t + 1}: ${all.states[state]}${why ? ` (${why})` : ""}`, ...(moved ? [moved] : [])], px, py);
    };
    addCellCursor(element, canvas, `${element.dataset.description}, ${runLabel(name)}`, n, rounds, read);
    legend(element.parentElement.querySelector(".legend"), run, cells, all.states);
  };
  pickListeners.push(redrawChart);
  drawOnResize(element, redrawChart);
}
// The meaning of the colours, how often each state occurred in this run, and why.
function legend(list, run, cells, states) {
  const often = new Array(run.kinds.length).fill(0);
  for (const code of cells) often[code]++;
  const items = states.map((title, state) => {
    const mine = run.kinds.map((kind, i) => [kind[1], often[i], kind[0]]).filter((k) => k[2] === state && k[1]);
    const total = mine.reduce((sum, k) => sum + k[1], 0);
    if (!total) return null;
    const whys = mine.filter((k) => k[0]).sort((a, b) => b[1] - a[1]).slice(0, 5).map((k) => `${k[0]} ${k[1]}`);
    return make("li", {}, make("span", { class: `swatch state${state}` }), `${title}: ${total}${whys.length ? ` (${whys.join(", ")})` : ""}`);
  });
  list.replaceChildren(...items.filter(Boolean));
}
TABLES.participation = async () => {
  const all = section("participation"), name = pickRun(all.runs), run = all.runs[name];
  const cells = await unpack(run.cells, Uint8Array), [n, rounds] = run.shape;
  const clients = section("clients") && section("clients").runs[name];
  const rows = clientOrder(name, n).map((k) => {
    const counts = new Array(all.states.length).fill(0);
    for (let t = 0; t < rounds; t++) counts[run.kinds[cells[k * rounds + t]][0]]++;
    return [clients ? clients.client[k] : String(k), clients ? roleName(clients.role[k]) : "", ...counts];
  });
  const whole = buildTable("participation", ["client", "role", ...all.states], rows);
  const save = make("button", { type: "button", class: "save" }, "Save every client and round as CSV");
  save.addEventListener("click", () => {
    const lines = [["client", "round", "what", "reason"]];
    for (let k = 0; k < n; k++) for (let t = 0; t < rounds; t++) {
      const [state, why] = run.kinds[cells[k * rounds + t]];
      if (state) lines.push([clients ? clients.client[k] : k, t + 1, all.states[state], why]);
    }
    saveAs("ledger.csv", csv(lines), "text/csv");
  });
  whole.append(save);
  return whole;
};
