// The details of a run: its settings, what it said, the end of its log, its command.

const panel = { root: null, name: null, body: null, opener: null };

function addPanel() {
  panel.name = element("h2", { id: "run-name", tabindex: "-1" });
  panel.body = element("div", { class: "details" });
  const close = element("button", { type: "button", onclick: () => markRuns([]) }, "Close");
  panel.root = element(
    "section",
    { class: "panel", "aria-labelledby": "run-name", hidden: true },
    close,
    panel.name,
    panel.body,
  );
  panel.root.addEventListener("keydown", (event) => {
    if (event.key === "Escape") markRuns([]);
  });
  document.body.append(panel.root);
}

// A click marks the runs in every figure and table; a single one, or the one chosen among several, is described.
function markRuns(runs) {
  if (runs.length && panel.root.hidden) panel.opener = document.activeElement;
  setList(
    "runs",
    runs.map((run) => data.runs[run]),
  );
  refresh();
  if (runs.length) panel.name.focus({ preventScroll: true });
  else panel.opener?.focus({ preventScroll: true });
}

function showPanel() {
  const runs = markedRuns(),
    key = JSON.stringify(runs);
  panel.root.hidden = !runs.length;
  if (!runs.length || (panel.shown === key && panel.of === data)) return;
  Object.assign(panel, { shown: key, of: data });
  panel.name.textContent = runs.length === 1 ? data.runs[runs[0]] : plural(runs.length, "run");
  panel.body.replaceChildren(...(runs.length === 1 ? runDetails(runs[0]) : [runList(runs)]));
}

function runList(runs) {
  return element(
    "ul",
    {},
    ...runs.map((run) =>
      element("li", {}, element("button", { type: "button", onclick: () => markRuns([run]) }, data.runs[run])),
    ),
  );
}

function runDetails(run) {
  const column = (name) => data.columns[name]?.values[run] ?? null,
    details = data.details.runs[run];
  const reason = column("reason") ? ` (${column("reason")})` : "",
    message = details?.message ? `: ${details.message}` : "";
  const status = `${column("status")}${reason}${message}`;
  const measured = Object.keys(data.columns).filter(
    (name) => !data.columns[name].setting && !["status", "reason"].includes(name) && column(name) !== null,
  );
  const parts = [element("p", { class: `word ${column("status")}` }, status)];
  parts.push(...section("Results", pairsList(measured.map((name) => [columnLabel(name), fieldText(column(name)), name]))));
  if (!details) {
    const settings = Object.keys(data.columns).filter((name) => data.columns[name].setting && column(name) !== null);
    return [...parts, ...section("Settings", pairsList(settings.map((name) => [name, String(column(name))])))];
  }
  const texts = (places) => places.map((place) => data.details.texts[place]);
  parts.push(...section("Settings", pairsList(Object.entries(details.settings))));
  if (details.said.length)
    parts.push(
      ...section("What it said", element("ul", {}, ...texts(details.said).map((text) => element("li", {}, text)))),
    );
  if (details.error) parts.push(...section("End of its error", textBlock(details.error, "error")));
  if (details.log) parts.push(...section("End of its log", textBlock(details.log, "log")));
  if (details.command !== null)
    parts.push(...section("Its command", textBlock(texts([details.command])[0], "command")));
  parts.push(
    ...section(
      "To see all of it",
      textBlock(`runmanager show ${shellWord(`${data.folder}/runs/${details.folder}`)}`, "show"),
    ),
  );
  const shared = element(
    "details",
    {},
    element("summary", {}, "Settings that all runs share"),
    pairsList(Object.entries(data.details.settings)),
  );
  return [...parts, shared];
}

function section(title, content) {
  return [element("h3", {}, title), content];
}

function pairsList(pairs) {
  return element("dl", {}, ...pairs.flatMap(([name, text, title]) => [element("dt", { title }, name), element("dd", {}, text)]));
}

function textBlock(text, name) {
  return element("pre", { tabindex: "0", role: "region", "aria-label": name }, text);
}

function shellWord(text) {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\"'\"'")}'`;
}
