// Tables that can be sorted by any column and saved as CSV.
function saveAs(name, text, kind) {
  const link = make("a", { download: name });
  link.href = URL.createObjectURL(new Blob([text], { type: kind }));
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
// A cell of a CSV file. Text that a spreadsheet would read as a formula gets an apostrophe.
function csvCell(value) {
  let text = value === null || value === undefined ? "" : String(value);
  if (typeof value !== "number" && /^[=+\-@\t\r]/.test(text) && Number.isNaN(Number(text))) text = `'${text}`;
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
const csv = (rows) => rows.map((row) => row.map(csvCell).join(",")).join("\r\n") + "\r\n";

function tableCells(table) {
  return [...table.rows].map((row) => [...row.cells].map((cell) => {
    const text = cell.textContent.trim();
    return text === "–" ? "" : text;
  }));
}
function sortBy(table, i) {
  const heads = [...table.tHead.rows[0].cells];
  const up = heads[i].getAttribute("aria-sort") !== "ascending";
  heads.forEach((head) => head.removeAttribute("aria-sort"));
  heads[i].setAttribute("aria-sort", up ? "ascending" : "descending");
  const value = (row) => row.cells[i].textContent.trim();
  const rows = [...table.tBodies[0].rows];
  const number = (text) => parseFloat(text.replace("–", ""));
  rows.sort((a, b) => {
    const [x, y] = [value(a), value(b)], [p, q] = [number(x), number(y)];
    if (Number.isNaN(p) !== Number.isNaN(q)) return Number.isNaN(p) ? 1 : -1;
    return (up ? 1 : -1) * (Number.isNaN(p) ? x.localeCompare(y, undefined, { numeric: true }) : p - q);
  });
  table.tBodies[0].append(...rows);
}
function makeInteractive(table) {
  [...table.tHead.rows[0].cells].forEach((head, i) => {
    const button = make("button", { type: "button", class: "sort" }, head.textContent);
    button.addEventListener("click", () => sortBy(table, i));
    head.replaceChildren(button);
  });
  const name = `${table.dataset.csv.replaceAll(/[^\w-]+/g, "_")}.csv`;
  const button = make("button", { type: "button", class: "save" }, "Save as CSV");
  button.addEventListener("click", () => saveAs(name, csv(tableCells(table)), "text/csv"));
  table.parentElement.after(button);
}
// Build a table of numbers from the page's data.
function buildTable(name, head, rows) {
  const table = make("table", { "data-csv": name });
  const top = table.createTHead().insertRow();
  head.forEach((h) => top.append(make("th", { scope: "col" }, h)));
  const body = table.createTBody();
  for (const row of rows) {
    const line = body.insertRow();
    row.forEach((value, i) => {
      const cell = i === 0 ? make("th", { scope: "row" }) : make("td", typeof value === "number" ? { class: "number" } : {});
      cell.textContent = short(value, 5);
      line.append(cell);
    });
  }
  const wide = make("div", { class: "wide", tabindex: "0", role: "region", "aria-label": name }, table);
  const whole = make("div", {}, wide);
  makeInteractive(table);
  return whole;
}
// The tables of charts are built when they are opened, and again when another run is selected.
const TABLES = {};
function fillOnOpen(details) {
  const name = details.dataset.table;
  const fill = async () => {
    if (!details.open) return;
    const made = await TABLES[name.split("/")[0]](name);
    [...details.children].slice(1).forEach((old) => old.remove());
    details.append(made);
  };
  details.addEventListener("toggle", fill);
  pickListeners.push(fill);
}
