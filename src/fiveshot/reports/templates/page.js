"use strict";
// The page is complete without this script; it adds sorting and filtering of the tables of classes.
function sortValue(row, column) {
  const cell = row.cells[column];
  const value = cell.dataset.value ?? cell.textContent;
  return value !== "" && !Number.isNaN(Number(value)) ? Number(value) : value.toLowerCase();
}

function compare(a, b) {
  if (typeof a !== typeof b) return typeof a === "number" ? -1 : 1;
  return a < b ? -1 : a > b ? 1 : 0;
}

function sortBy(heading) {
  const table = heading.closest("table");
  const body = table.tBodies[0];
  const ascending = heading.getAttribute("aria-sort") !== "ascending";
  for (const other of heading.parentNode.cells) other.removeAttribute("aria-sort");
  heading.setAttribute("aria-sort", ascending ? "ascending" : "descending");
  const rows = [...body.rows].map((row) => [sortValue(row, heading.cellIndex), row]);
  rows.sort((a, b) => (ascending ? 1 : -1) * compare(a[0], b[0]));
  body.append(...rows.map((pair) => pair[1]));
}

for (const heading of document.querySelectorAll("table.sortable thead th")) {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = heading.textContent;
  button.addEventListener("click", () => sortBy(heading));
  heading.replaceChildren(button);
}

for (const field of document.querySelectorAll("input[data-filters]")) {
  field.closest("label").hidden = false;
  field.addEventListener("input", () => {
    const wanted = field.value.trim().toLowerCase();
    for (const row of document.getElementById(field.dataset.filters).tBodies[0].rows) {
      row.hidden = !row.cells[0].textContent.toLowerCase().includes(wanted);
    }
  });
}
