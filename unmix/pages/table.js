// Sorts a table by the column whose heading is pressed; the page is whole without it.
for (const button of document.querySelectorAll("th button")) button.addEventListener("click", () => {
  const cell = button.closest("th"), body = cell.closest("table").tBodies[0], down = cell.ariaSort === "ascending" ? -1 : 1;
  for (const other of cell.parentNode.cells) other.removeAttribute("aria-sort");
  cell.ariaSort = down > 0 ? "ascending" : "descending";
  const value = row => row.cells[cell.cellIndex].dataset.value ?? row.cells[cell.cellIndex].textContent;
  const compare = (a, b) => isNaN(a) || isNaN(b) || a === "" || b === "" ? a.localeCompare(b) : a - b;
  body.append(...[...body.rows].sort((a, b) => down * compare(value(a), value(b))));
});
