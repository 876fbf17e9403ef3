"use strict";
// Tables that can be sorted, filtered and copied. Without this script every row is shown, and no control.

const FIRST_ROWS = 50; // of a long table; the filter looks at all of them
const COMPARISON = /^([^<>=!]+)(>=|<=|!=|==|=|>|<)(.*)$/;
const HOLDS = {
  "=": (order) => order === 0, "==": (order) => order === 0, "!=": (order) => order !== 0,
  "<": (order) => order < 0, "<=": (order) => order <= 0, ">": (order) => order > 0, ">=": (order) => order >= 0,
};

for (const box of document.querySelectorAll(".table")) enliven(box);

function enliven(box) {
  const table = box.querySelector("table");
  const find = (name) => box.querySelector(`[data-part="${name}"]`);
  const headings = [...table.tHead.rows[0].cells];
  const names = headings.map((heading) => heading.textContent.trim().toLowerCase());
  let entries = [...table.tBodies[0].rows].map(readRow);
  let limit = FIRST_ROWS;

  function matching() {
    const holds = find("filter") ? readFilter(find("filter").value, names) : () => true;
    return entries.filter(holds);
  }

  function show() {
    const kept = matching();
    const shown = new Set(kept.slice(0, limit));
    for (const entry of entries) entry.row.hidden = !shown.has(entry);
    find("all").hidden = shown.size === kept.length;
    find("all").textContent = `Show all ${kept.length.toLocaleString("en")}`;
    const causes = kept.length ? [] : causesOfNothing(find("filter")?.value ?? "", names);
    find("count").textContent = [counted(entries.length, kept.length, shown.size), ...causes].join("; ");
  }

  function sortBy(at) {
    const descending = headings[at].getAttribute("aria-sort") === "ascending";
    for (const heading of headings) heading.removeAttribute("aria-sort");
    headings[at].setAttribute("aria-sort", descending ? "descending" : "ascending");
    entries = [...entries].sort((a, b) => inOrder(a.fields[at], b.fields[at], descending));
    table.tBodies[0].append(...entries.map((entry) => entry.row));
    show();
  }

  headings.forEach((heading, at) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...heading.childNodes);
    button.addEventListener("click", () => sortBy(at));
    heading.append(button);
  });
  find("filter")?.addEventListener("input", show);
  find("all").addEventListener("click", () => { limit = Infinity; show(); });
  find("copy").addEventListener("click", async (event) => {
    const done = await copyText(asCsv(box, matching()));
    find("count").textContent = done ? "Copied as CSV." : "The browser does not let a page copy: download it instead.";
    event.target.focus();
  });
  find("save").addEventListener("click", () => saveText(asCsv(box, matching()), box.dataset.file));
  find("tools").hidden = false;
  show();
}

// A field is missing, a number in full precision, or the text that stands there.
function readField(cell) {
  const text = cell.textContent.trim(), whole = cell.dataset.value ?? text;
  return { text, missing: whole === "", number: whole === "" ? NaN : Number(whole) };
}

function readRow(row) {
  const fields = [...row.cells].map(readField);
  return { row, fields, text: fields.map((field) => field.text).join("\n").toLowerCase() };
}

// Words of one side of `or` must all stand in a row; `batch_size>=1000` asks one column, as `--where` of the command does.
function readFilter(text, names) {
  const sides = text.split(/(?:^|\s)or(?=\s|$)/i).map((side) => wordsOf(side).map((word) => readWord(word, names)));
  const asked = sides.filter((conditions) => conditions.length); // a side may still have to be typed
  return (entry) => !asked.length || asked.some((conditions) => conditions.every((holds) => holds(entry)));
}

function wordsOf(text) {
  const words = text.toLowerCase().replace(/\s*([<>=!]=?)\s*/g, "$1").split(/\s+/);
  return words.filter((word) => word && word !== "and");
}

function causesOfNothing(text, names) {
  const words = wordsOf(text), asked = new Set(words.map((word) => COMPARISON.exec(word)?.[1] ?? names[0]));
  const unknown = [...asked].filter((name) => !names.includes(name)).map((name) => `there is no column ${name}`);
  const foreign = words.some((word) => /^(not|in)$|^\(/.test(word));
  return foreign ? [...unknown, "not, in and brackets are for runmanager table --where"] : unknown;
}

function readWord(word, names) {
  const [, name, sign, wanted] = COMPARISON.exec(word) ?? [];
  const at = names.indexOf(name);
  if (at < 0) return (entry) => entry.text.includes(word);
  if (wanted === "") return () => true; // still being typed
  return ({ fields }) => !fields[at].missing && HOLDS[sign](orderOf(fields[at], wanted));
}

function orderOf(field, wanted) {
  const number = Number(wanted);
  if (!Number.isNaN(field.number) && !Number.isNaN(number)) return field.number - number;
  return field.text.toLowerCase() === wanted ? 0 : field.text.toLowerCase() < wanted ? -1 : 1;
}

// Missing values come last in either direction, numbers before words.
function inOrder(a, b, descending) {
  if (a.missing || b.missing) return a.missing - b.missing;
  const areNumbers = [a, b].map((field) => !Number.isNaN(field.number));
  if (areNumbers[0] !== areNumbers[1]) return areNumbers[1] - areNumbers[0];
  const order = areNumbers[0] ? compareNumbers(a.number, b.number) : a.text.localeCompare(b.text, "en", { numeric: true });
  return descending ? -order : order;
}

function compareNumbers(a, b) {
  return a < b ? -1 : a > b ? 1 : 0; // a difference of infinite ones is no number
}

function counted(all, kept, shown) {
  const [total, some, first] = [all, kept, shown].map((count) => count.toLocaleString("en"));
  const said = `${kept < all ? `${some} of ` : ""}${total} row${all === 1 ? "" : "s"}`;
  return shown < kept ? `${said}; the first ${first} are shown` : said;
}

// Full precision and every column, as in the file beside this page; a row of several runs is a line each.
function asCsv(box, entries) {
  return [box.dataset.header, ...entries.map((entry) => entry.row.dataset.csv)].join("");
}

async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch { // not allowed here: the way of older browsers
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}

function saveText(text, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
  link.download = name;
  link.click();
  URL.revokeObjectURL(link.href);
}
