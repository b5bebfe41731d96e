// Draw all charts and connect all controls.
const CHARTS = { lines, forest, participation, helpers, gains, band, bars };
for (const element of document.querySelectorAll(".chart")) CHARTS[element.dataset.chart](element);
for (const table of document.querySelectorAll("table[data-csv]")) if (!table.closest(".lazy")) makeInteractive(table);
for (const details of document.querySelectorAll("details.lazy")) fillOnOpen(details);

// Switch methods on and off in all charts at once.
for (const group of document.querySelectorAll(".switches")) {
  METHODS.forEach((method, i) => {
    const button = make("button", { type: "button", class: `switch m${method.colour}`, "aria-pressed": "true" });
    const sample = document.createElementNS(SVG, "svg");
    for (const [name, value] of Object.entries({ width: 34, height: 12, "aria-hidden": "true" })) sample.setAttribute(name, value);
    draw(sample, "line", { x1: 0, x2: 34, y1: 6, y2: 6, class: `line m${method.colour}`, "stroke-dasharray": method.dashes });
    mark(sample, i, 17, 6, true, 3.5);
    button.append(sample, method.label);
    button.addEventListener("click", () => {
      if (hidden.has(i)) hidden.delete(i); else hidden.add(i);
      button.setAttribute("aria-pressed", String(isShown(i)));
      redraw((each) => ["lines", "forest"].includes(each.element.dataset.chart));
    });
    group.append(button);
  });
  if (DATA.seeds.length > 1) {
    const bands = make("button", { type: "button", class: "switch", "aria-pressed": "true" }, "intervals");
    bands.addEventListener("click", () => {
      showBands = !showBands;
      bands.setAttribute("aria-pressed", String(showBands));
      redraw((each) => each.element.dataset.chart === "lines");
    });
    group.append(bands);
  }
}

// Select the run of a section, and the order of its clients.
function choice(title, options, value, change) {
  const select = make("select");
  for (const [key, label] of options) select.append(make("option", { value: key }, label));
  select.value = String(value());
  select.addEventListener("change", () => change(select.value));
  pickListeners.push(() => { select.value = String(value()); });
  return make("label", {}, `${title} `, select);
}
const hasGains = section("clients") && Object.values(section("clients").runs).some((run) => run.gain.some((v) => v !== null));
for (const place of document.querySelectorAll(".pick")) {
  if (METHODS.length > 1 && !place.dataset.seeds) {
    place.append(choice("method", METHODS.map((m, i) => [i, m.label]), () => picked.method, (v) => changePick({ method: Number(v) })));
  }
  if (DATA.seeds.length > 1) {
    place.append(choice("seed", DATA.seeds.map((s, i) => [i, s]), () => picked.seed, (v) => changePick({ seed: Number(v) })));
  }
  if (place.dataset.sorts) {
    place.append(choice("sorted by", ["role", "name", "admission", "gain", "number"].filter((s) => s !== "gain" || hasGains).map((s) => [s, s]), () => picked.sort, (v) => changePick({ sort: v })));
  }
  const shown = make("span", { class: "note" });
  const runs = section(place.closest("section").id).runs;
  const update = () => {
    const name = pickRun(runs), wanted = `${picked.method}/${picked.seed}`;
    shown.textContent = name === wanted || place.dataset.seeds ? "" : `no data for this selection; showing ${runLabel(name)}`;
  };
  pickListeners.push(update);
  update();
  place.append(shown);
}
for (const button of document.querySelectorAll("button[data-save]")) {
  button.addEventListener("click", () => saveAs(button.dataset.save, document.getElementById("config").textContent, "text/plain"));
}
theme(currentTheme);
// Print in the light theme, with charts as wide as the paper.
addEventListener("beforeprint", () => { document.documentElement.setAttribute("data-print", ""); redraw(); });
addEventListener("afterprint", () => { document.documentElement.removeAttribute("data-print"); redraw(); });
document.documentElement.setAttribute("data-ready", "");
