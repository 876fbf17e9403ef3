// Linking figures and tables of the report, and `report.update`, which replaces what they show and keeps the view.

tables.selects = (runs) => runs === null || runs.some((run) => selected.has(run));
tables.filtered = (table) => {
  if (table !== resultsTable()) return table.show();
  changeView({ filter: table.filter.value });
  refresh();
};
tables.sorted = (table, title, descending) => {
  if (table === resultsTable()) changeView({ sort: `${descending ? "-" : ""}${title}` });
};

// Draw everything that depends on the view.
function refresh() {
  const marked = new Set(markedRuns());
  selectRuns(resultsTable()?.passing() ?? null);
  for (const table of tables.all) table.show();
  for (const row of document.querySelectorAll("tr[data-runs]")) {
    const isMarked = marked.size > 0 && row.dataset.runs.split(" ").some((run) => marked.has(Number(run)));
    row.classList.toggle("marked", isMarked);
  }
  showBar();
  showPanel();
  drawFigures();
}

// The table of results as the view has it.
function showView() {
  const table = resultsTable(), { filter = "", sort = "" } = view;
  if (table?.filter) table.filter.value = filter;
  const column = table?.titles.indexOf(sort.replace(/^-/, "")) ?? -1;
  if (column >= 0) table.sortBy(column, sort.startsWith("-"));
  refresh();
}

function openClickedRow(event) {
  const row = event.target.closest?.("tr[data-runs]");
  if (row?.dataset.runs && getSelection().isCollapsed && !event.target.closest("a, button")) markRuns(row.dataset.runs.split(" ").map(Number));
}

// A link within the page leaves the view in the address.
function followLink(event) {
  const link = event.target.closest?.('a[href^="#"]'), target = link && document.getElementById(link.hash.slice(1));
  if (!target || !Object.keys(view).length) return;
  event.preventDefault();
  target.scrollIntoView();
  target.focus({ preventScroll: true });
}

function onceSettled(act) {
  let timer = 0;
  return () => { clearTimeout(timer); timer = setTimeout(act, 100); };
}

const report = {
  // Show other data: an object or its JSON. `main` is the new markup of the page's <main>, if that changes too.
  update(given, main) {
    const scroll = scrollY;
    readData(typeof given === "string" ? given : JSON.stringify(given));
    const focused = main === undefined ? null : replaceMain(main);
    showView();
    restoreFocus(focused);
    scrollTo({ top: scroll, behavior: "instant" });
  },
};
window.report = report;

readData(document.getElementById("data").textContent);
readView();
addPanel();
addBar();
addFigures();
showView();
document.addEventListener("click", openClickedRow);
document.addEventListener("click", followLink);
addEventListener("hashchange", () => { readView(); showView(); });
addEventListener("resize", onceSettled(drawFigures));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawFigures);
