// Tables: drawn from their data, sorted by a click on a header, a stretch of rows at a time.

const FIRST_ROWS = 20;
const MORE_ROWS = 200;
const PRINTED_ROWS = 500; // of a table; what is left out is told beneath it

const tables = [];

function startTable(element) {
  const data = tableOf(element.id);
  const rows = Array.from({ length: data.rows }, (_, row) => row);
  const table = { element, data, rows, shown: Math.min(FIRST_ROWS, data.rows), sorted: null };
  const drawn = document.createElement("table");
  drawn.append(headOf(table), document.createElement("tbody"));
  element.querySelector(".scroll").append(drawn);
  element.querySelector(".more").addEventListener("click", () => {
    table.shown = Math.min(table.shown + MORE_ROWS, data.rows);
    fill(table);
  });
  element.querySelector("button[data-format]").addEventListener("click", () => {
    saveText(csvOf(data, table.rows), `${element.dataset.name}.csv`, "text/csv");
  });
  fill(table);
  tables.push(table);
}

function showForPrint() {
  for (const table of tables) fill({ ...table, shown: Math.max(table.shown, Math.min(PRINTED_ROWS, table.data.rows)) });
}

function showAgain() {
  tables.forEach(fill);
}

function headOf(table) {
  const head = document.createElement("thead");
  const line = head.insertRow();
  for (const column of table.data.columns) {
    const header = document.createElement("th");
    const button = document.createElement("button");
    header.scope = "col";
    header.className = column.numeric ? "number" : "";
    header.setAttribute("aria-sort", "none");
    button.type = "button";
    button.textContent = column.name;
    button.addEventListener("click", () => sort(table, column, header));
    header.append(button);
    line.append(header);
  }
  return head;
}

function sort(table, column, header) {
  const descending = header.getAttribute("aria-sort") === "ascending";
  for (const other of header.parentElement.children) other.setAttribute("aria-sort", "none");
  header.setAttribute("aria-sort", descending ? "descending" : "ascending");
  const sign = descending ? -1 : 1;
  table.rows.sort((a, b) => compareCells(cell(column, a), cell(column, b), sign));
  fill(table);
}

// What is missing stands last, whichever way the column is sorted.
function compareCells(a, b, sign) {
  if (a === null || b === null) return (a === null) - (b === null);
  return sign * (typeof a === "number" ? a - b : a.localeCompare(b, undefined, { numeric: true }));
}

function fill(table) {
  const { element, data, rows, shown } = table;
  const body = document.createElement("tbody");
  for (const row of rows.slice(0, shown)) {
    const line = body.insertRow();
    for (const column of data.columns) fillCell(line.insertCell(), column, cell(column, row));
  }
  element.querySelector("tbody").replaceWith(body);
  element.querySelector(".more").hidden = shown >= data.rows;
  element.querySelector(".extent").textContent = extentOf(data, shown);
}

function fillCell(drawn, column, value) {
  drawn.className = column.numeric ? "number" : value?.length > 40 ? "long" : "";
  drawn.textContent = value === null ? "–" : column.numeric ? numberText(value) : value;
}

function numberText(value) {
  return Number.isInteger(value) ? String(value) : String(Number(value.toPrecision(4)));
}

function extentOf(data, shown) {
  const count = (n) => n.toLocaleString("en");
  if (data.rows < data.total) {
    const held = `this page holds the first ${count(data.rows)}, the folder of the run has all`;
    return `${count(shown)} rows of ${count(data.total)}; ${held}.`;
  }
  return shown < data.total ? `${count(shown)} rows of ${count(data.total)}` : `${count(data.total)} rows`;
}
