"use strict";
// Tables that are wider than the page: the columns that matter least are hidden, and a button shows them.

const wholeTables = new Set(); // the files of the tables of which the reader wants every column
let numTables = 0;

function fitColumns(box, headings) {
  const scroller = box.querySelector(".wide"), button = box.querySelector('[data-part="columns"]');
  const spare = box.dataset.spare.split(" ").filter(Boolean).map(Number);
  const style = document.createElement("style"), number = String(numTables++);
  let width = null;
  box.dataset.number = number;
  box.append(style);

  function hide(columns) {
    const cells = columns.map((column) => `[data-number="${number}"] tr > :nth-child(${column + 1})`);
    style.textContent = cells.length ? `@media screen { ${cells.join()} { display: none; } }` : "";
  }

  function fit() {
    hide([]);
    const hidden = [], isWhole = wholeTables.has(box.dataset.file);
    let excess = scroller.scrollWidth - scroller.clientWidth;
    button.hidden = !spare.length || excess <= 0;
    for (const column of spare) {
      if (isWhole || excess <= 0) break;
      excess -= headings[column].offsetWidth;
      hidden.push(column);
    }
    hide(hidden);
    button.textContent = isWhole ? "Show fewer columns" : `Show ${hidden.length} more column${hidden.length === 1 ? "" : "s"}`;
    button.title = isWhole ? "" : hidden.map((column) => headings[column].textContent.trim()).join(", ");
  }

  button.addEventListener("click", () => {
    if (!wholeTables.delete(box.dataset.file)) wholeTables.add(box.dataset.file);
    fit();
  });
  new ResizeObserver(() => {
    if (width === scroller.clientWidth) return;
    width = scroller.clientWidth;
    fit();
  }).observe(scroller);
}
