"use strict";

const read = (cell) => {
  if (cell.dataset.number !== undefined) return Number(cell.dataset.number);
  return cell.dataset.text === undefined ? null : cell.dataset.text;
};

// Numbers before words, and what is missing after both, whichever way the rest is sorted.
const compare = (a, b, sign) => {
  if (a === null || b === null) return (a === null) - (b === null);
  if (typeof a !== typeof b) return typeof a === "number" ? -1 : 1;
  return sign * (typeof a === "number" ? a - b : a.localeCompare(b));
};

const sort = (button) => {
  const heading = button.closest("th");
  const table = heading.closest("table");
  const sign = heading.getAttribute("aria-sort") === "ascending" ? -1 : 1;
  const rows = [...table.tBodies[0].rows];
  rows.sort((p, q) => compare(read(p.cells[heading.cellIndex]), read(q.cells[heading.cellIndex]), sign));
  table.querySelectorAll("th[aria-sort]").forEach((other) => other.setAttribute("aria-sort", "none"));
  heading.setAttribute("aria-sort", sign === 1 ? "ascending" : "descending");
  table.tBodies[0].append(...rows);
};

document.querySelectorAll("th[aria-sort] button").forEach((button) => {
  button.addEventListener("click", () => sort(button));
});
