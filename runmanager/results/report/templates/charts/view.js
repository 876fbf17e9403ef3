// What the reader has chosen: one view for all figures and tables, which the address of the page holds.

let data = null; // the page's data block, replaced by `report.update`
let view = {}; // strings by name; what has its default is left out
let selected = new Set(); // the places of the runs that pass the filter and all limits

const WHOLE_FORMAT = new Intl.NumberFormat("en", { maximumSignificantDigits: 12 }),
  SHORT_FORMAT = new Intl.NumberFormat("en", { maximumSignificantDigits: 4 });

let remembered = new Map(); // what was derived from the data alone

function readData(text) {
  data = JSON.parse(text);
  remembered = new Map();
}

function remember(key, make) {
  if (!remembered.has(key)) remembered.set(key, make());
  return remembered.get(key);
}

function readView() {
  const words = location.hash.slice(1);
  if (words.includes("=")) view = Object.fromEntries(new URLSearchParams(words));
}

function changeView(changes) {
  for (const [name, value] of Object.entries(changes)) {
    if (value === "" || value === null) delete view[name];
    else view[name] = value;
  }
  const words = new URLSearchParams(view).toString();
  history.replaceState(null, "", words ? `#${words}` : location.pathname + location.search);
}

// Lists in the view are JSON; an address that was typed wrong has none.
function listInView(name) {
  try {
    const found = JSON.parse(view[name] ?? "[]");
    return Array.isArray(found) ? found : [];
  } catch {
    return [];
  }
}

function setList(name, values) {
  changeView({ [name]: values.length ? JSON.stringify(values) : "" });
}

// A limit is [column, lowest, highest], or [column, values] for a column of texts.
function limits() {
  return listInView("limits").filter((limit) => Array.isArray(limit) && data.columns[limit[0]] !== undefined);
}

function setLimits(columns, added) {
  setList("limits", [...limits().filter(([column]) => !columns.includes(column)), ...added]);
}

function isWithin(limit, run) {
  const [column, low, high] = limit,
    value = data.columns[column].values[run];
  if (Array.isArray(low)) return low.includes(String(value));
  return value !== null && value >= low && value <= high;
}

function limitText([column, low, high]) {
  if (Array.isArray(low)) return `${columnLabel(column)}: ${low.join(", ")}`;
  return `${columnLabel(column)}: ${shortNumber(low)} to ${shortNumber(high)}`;
}

function selectRuns(rows) {
  const passing = rows === null ? data.runs.keys() : rows.flatMap((entry) => entry.runs ?? []);
  const found = limits();
  selected = new Set([...passing].filter((run) => found.every((limit) => isWithin(limit, run))));
}

// The runs that were clicked: drawn above the others, and described in the panel.
function markedRuns() {
  const names = new Set(listInView("runs"));
  return [...data.runs.keys()].filter((run) => names.has(data.runs[run]));
}

// The settings of a run that differ between runs, seeds included; its name where these do not tell runs apart.
function runLabel(run) {
  const labels = remember("labels of runs", () => {
    const found = data.runs.map((_, place) => {
      const seeds = data.seeds.map((name) => `${name}=${fieldText(data.columns[name].values[place])}`);
      return [...(data.varying.length ? [data.cells.labels[data.cells.ofRun[place]]] : []), ...seeds].join(", ");
    });
    return new Set(found).size < found.length || found.includes("") ? data.runs : found;
  });
  return labels[run];
}

function isPruned(run) {
  return data.columns.reason?.values[run] === "pruned";
}

function isFinished(run) {
  return data.columns.status?.values[run] === "finished" && !isPruned(run);
}

// The runs that a mean is of: the finished ones, or all if none has finished.
function countedRuns(runs) {
  const finished = runs.filter(isFinished);
  return finished.length ? finished : runs;
}

function shortNumber(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "N/A";
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e12)) return String(Number(value.toPrecision(4)));
  return (size >= 1000 && Number.isInteger(value) ? WHOLE_FORMAT : SHORT_FORMAT).format(value);
}

function fieldText(value) {
  return typeof value === "number" ? shortNumber(value) : (value ?? "N/A");
}

function plural(count, word) {
  return `${count.toLocaleString("en")} ${word}${count === 1 ? "" : "s"}`;
}

// At most `limit` items at even steps, the first and the last included.
function sampleEvenly(items, limit) {
  if (items.length <= limit) return items;
  return Array.from({ length: limit }, (_, index) => items[Math.round((index * (items.length - 1)) / (limit - 1))]);
}
