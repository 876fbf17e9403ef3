"use strict";
// Sorting, filtering, copying and downloading of tables. Without this script all rows are shown, without controls.

const FIRST_ROWS = 50; // shown of a long table; filtering and sorting apply to all rows
const COLLATOR = new Intl.Collator("en", { numeric: true });
const COMPARISON = /^([^<>=!]+)(>=|<=|!=|==|=|>|<)(.*)$/;
const HOLDS = {
  "=": (order) => order === 0, "==": (order) => order === 0, "!=": (order) => order !== 0,
  "<": (order) => order < 0, "<=": (order) => order <= 0, ">": (order) => order > 0, ">=": (order) => order >= 0,
};

// The figures of a report replace these functions: they select rows too, and follow the filter.
const tables = { all: [], selects: () => true, filtered: (table) => table.show(), sorted: () => {} };

addTables();

function addTables() {
  tables.all = [...document.querySelectorAll(".table")].map(addControls);
}

function addControls(box) {
  const table = box.querySelector("table");
  const part = (name) => box.querySelector(`[data-part="${name}"]`);
  const headings = [...table.tHead.rows[0].cells];
  const titles = headings.map((heading) => heading.dataset.name ?? heading.textContent.trim());
  const names = titles.map((title) => title.toLowerCase());
  let entries = [...table.tBodies[0].rows].map(readRow), limit = FIRST_ROWS, order = null;

  function passing() {
    return entries.filter(part("filter") ? parseFilter(part("filter").value, names) : () => true);
  }

  function matching() {
    return passing().filter((entry) => tables.selects(entry.runs));
  }

  function show() {
    const found = matching(), shown = new Set(found.slice(0, limit));
    // An attribute that is set again costs as much as a new one.
    for (const entry of entries) if (entry.row.hidden === shown.has(entry)) entry.row.hidden = !shown.has(entry);
    part("all").hidden = shown.size === found.length;
    part("all").textContent = `Show all ${found.length.toLocaleString("en")}`;
    const hints = found.length ? [] : hintsForNoMatch(part("filter")?.value ?? "", names);
    part("count").textContent = [countText(entries.length, found.length, shown.size), ...hints].join("; ");
  }

  function sortBy(column, descending) {
    for (const heading of headings) heading.removeAttribute("aria-sort");
    headings[column].setAttribute("aria-sort", descending ? "descending" : "ascending");
    order = { title: titles[column], descending };
    entries = [...entries].sort((a, b) => compareFields(a.fields[column], b.fields[column], descending));
    table.tBodies[0].append(...entries.map((entry) => entry.row));
    show();
  }

  function showAll() {
    limit = Infinity;
    show();
  }

  const scroller = box.querySelector(".wide"), isWhole = () => limit === Infinity;
  const parts = { box, scroller, filter: part("filter"), titles };
  const made = { ...parts, passing, show, showAll, isWhole, sortBy, order: () => order };
  headings.forEach((heading, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...heading.childNodes);
    button.addEventListener("click", () => {
      const descending = heading.getAttribute("aria-sort") === "ascending";
      sortBy(column, descending);
      tables.sorted(made, titles[column], descending);
    });
    heading.append(button);
  });
  part("filter")?.addEventListener("input", () => tables.filtered(made));
  part("all").addEventListener("click", showAll);
  part("copy").addEventListener("click", async (event) => {
    const done = await copyText(asCsv(box, matching()));
    part("count").textContent = done ? "Copied as CSV." : "The browser does not allow copying here: download the CSV instead.";
    event.target.focus();
  });
  part("save").addEventListener("click", () => saveFile(asCsv(box, matching()), "text/csv", box.dataset.file));
  part("tools").hidden = false;
  fitColumns(box, headings);
  show();
  return made;
}

// A field is missing, a number in full precision, or a text.
function readField(cell) {
  const text = cell.textContent.trim(), exact = cell.dataset.value ?? text;
  return { text, missing: exact === "", number: exact === "" ? NaN : Number(exact) };
}

// `runs` are the places of a row's runs in the data of the figures; null for a row that no run selects.
function readRow(row) {
  const fields = [...row.cells].map(readField), runs = row.dataset.runs;
  const text = fields.map((field) => field.text).join("\n").toLowerCase();
  return { row, fields, text, runs: runs === undefined ? null : runs.split(" ").filter(Boolean).map(Number) };
}

// All words on one side of `or` must occur in a row; `batch_size>=1000` tests one column, as `--where` does.
function parseFilter(text, names) {
  const sides = text.split(/(?:^|\s)or(?=\s|$)/i).map((side) => splitWords(side).map((word) => parseWord(word, names)));
  const alternatives = sides.filter((conditions) => conditions.length); // a side may still be empty while typing
  return (entry) =>
    !alternatives.length || alternatives.some((conditions) => conditions.every((matches) => matches(entry)));
}

function splitWords(text) {
  const words = text.toLowerCase().replace(/\s*([<>=!]=?)\s*/g, "$1").split(/\s+/);
  return words.filter((word) => word && word !== "and");
}

function hintsForNoMatch(text, names) {
  const words = splitWords(text), columns = new Set(words.map((word) => COMPARISON.exec(word)?.[1] ?? names[0]));
  const unknown = [...columns].filter((name) => !names.includes(name)).map((name) => `column ${name} does not exist`);
  const unsupported = words.some((word) => /^(not|in)$|^\(/.test(word));
  return unsupported ? [...unknown, "only runmanager table --where supports not, in and parentheses"] : unknown;
}

function parseWord(word, names) {
  const [, name, sign, value] = COMPARISON.exec(word) ?? [];
  const column = names.indexOf(name);
  if (column < 0) return (entry) => entry.text.includes(word);
  if (value === "") return () => true; // still being typed
  return ({ fields }) => !fields[column].missing && HOLDS[sign](compareWithValue(fields[column], value));
}

function compareWithValue(field, value) {
  const number = Number(value);
  if (!Number.isNaN(field.number) && !Number.isNaN(number)) return field.number - number;
  return field.text.toLowerCase() === value ? 0 : field.text.toLowerCase() < value ? -1 : 1;
}

// Numbers come before texts; missing values come last in both directions.
function compareFields(a, b, descending) {
  if (a.missing || b.missing) return a.missing - b.missing;
  const areNumbers = [a, b].map((field) => !Number.isNaN(field.number));
  if (areNumbers[0] !== areNumbers[1]) return areNumbers[1] - areNumbers[0];
  const order = areNumbers[0] ? compareNumbers(a.number, b.number) : COLLATOR.compare(a.text, b.text);
  return descending ? -order : order;
}

function compareNumbers(a, b) {
  return a < b ? -1 : a > b ? 1 : 0; // not a difference: Infinity - Infinity is NaN
}

function countText(all, found, shown) {
  const [numAll, numFound, numShown] = [all, found, shown].map((count) => count.toLocaleString("en"));
  const rows = `${found < all ? `${numFound} of ` : ""}${numAll} row${all === 1 ? "" : "s"}`;
  return shown < found ? `${rows}; the first ${numShown} are shown` : rows;
}

// All columns in full precision, as in the file next to this page; a row of several runs has a line for each.
function asCsv(box, entries) {
  return [box.dataset.header, ...entries.map((entry) => entry.row.dataset.csv)].join("");
}

async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch { // not allowed on this page: the deprecated way may still work
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}

function saveFile(content, type, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([content], { type }));
  link.download = name;
  link.click();
  URL.revokeObjectURL(link.href);
}
