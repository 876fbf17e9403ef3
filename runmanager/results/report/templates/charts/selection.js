// The bar above the figures: how many runs are selected, by which limits, and which run is open.

const bar = {};

function addBar() {
  const place = document.querySelector("#figures .figures");
  if (!place) return;
  bar.count = element("span", { role: "status", class: "selected" });
  bar.chips = element("ul", { class: "chips" });
  bar.run = element("select", {
    "aria-label": "Open a run",
    onfocus: listRuns,
    onpointerdown: listRuns,
    onchange: () => bar.run.value && markRuns([Number(bar.run.value)]),
  });
  bar.clear = element("button", { type: "button", onclick: clearSelection }, "Select all runs");
  const filter = resultsTable()?.filter;
  bar.filter = filter
    ? element("input", {
        type: "search",
        "aria-label": "Filter runs",
        autocomplete: "off",
        spellcheck: "false",
        oninput: () => {
          filter.value = bar.filter.value;
          tables.filtered(resultsTable());
        },
      })
    : null;
  bar.root = element(
    "div",
    { class: "selection", role: "group", "aria-label": "Selection of runs" },
    element(
      "div",
      { class: "tools" },
      ...(bar.filter ? [element("label", { class: "choice" }, element("span", {}, "Filter runs"), bar.filter)] : []),
      ...limitForm(),
      element("label", { class: "choice" }, element("span", {}, "Open a run"), bar.run),
      bar.clear,
    ),
    element("p", { class: "count" }, bar.count),
    bar.chips,
  );
  place.before(bar.root);
}

// A limit without a mouse: what a brush does.
function limitForm() {
  const columns = Object.keys(data.columns);
  const [low, high] = ["from", "to"].map((label) =>
    element("input", { type: "text", "aria-label": label, inputmode: "decimal", size: 7, autocomplete: "off" }),
  );
  const column = element(
    "select",
    { "aria-label": "Limit" },
    ...columns.map((name) => element("option", { value: name, title: name }, columnLabel(name))),
  );
  const values = element("select", { "aria-label": "value" });
  const range = [
    element("label", { class: "choice" }, element("span", {}, "from"), low),
    element("label", { class: "choice" }, element("span", {}, "to"), high),
  ];
  const value = element("label", { class: "choice" }, element("span", {}, "value"), values);
  const show = () => {
    const { numbers } = data.columns[column.value];
    for (const each of range) each.hidden = !numbers;
    value.hidden = numbers;
    if (!numbers)
      values.replaceChildren(...columnLevels(column.value).map((each) => element("option", { value: each }, each)));
  };
  const apply = () => {
    const bounds = [
      low.value.trim() === "" ? -Number.MAX_VALUE : Number(low.value),
      high.value.trim() === "" ? Number.MAX_VALUE : Number(high.value),
    ];
    const added = data.columns[column.value].numbers ? bounds : [[values.value]];
    if (added.some(Number.isNaN)) return;
    setLimits([column.value], [[column.value, ...added]]);
    refresh();
  };
  column.addEventListener("change", show);
  for (const input of [low, high])
    input.addEventListener("keydown", (event) => {
      if (event.key === "Enter") apply();
    });
  column.value = columns.find((name) => data.columns[name].numbers) ?? columns[0];
  show();
  return [
    element("label", { class: "choice" }, element("span", {}, "Limit"), column),
    ...range,
    value,
    element("button", { type: "button", onclick: apply }, "Apply limit"),
  ];
}

function showBar() {
  if (!bar.root?.isConnected) return;
  bar.count.textContent = `${selected.size.toLocaleString("en")} of ${plural(data.runs.length, "run")} selected`;
  bar.clear.disabled = selected.size === data.runs.length && !markedRuns().length;
  bar.chips.replaceChildren(
    ...limits().map((limit) => {
      const remove = element(
        "button",
        {
          type: "button",
          "aria-label": `Remove the limit ${limitText(limit)}`,
          onclick: () => {
            setLimits([limit[0]], []);
            refresh();
          },
        },
        "×",
      );
      return element("li", {}, limitText(limit), " ", remove);
    }),
  );
  listRuns(markedRuns().slice(0, 1));
  if (bar.filter && document.activeElement !== bar.filter) bar.filter.value = view.filter ?? "";
}

// All selected runs when the list is used; before that the marked one, as a long list takes time.
function listRuns(runs) {
  const [marked] = markedRuns(),
    listed = Array.isArray(runs) ? runs : [...selected];
  if (listed.length <= 1 && document.activeElement === bar.run) return listRuns(null);
  bar.run.replaceChildren(
    element("option", { value: "" }, "choose …"),
    ...listed.map((run) => element("option", { value: run }, data.runs[run])),
  );
  bar.run.value = marked === undefined ? "" : String(marked);
}

function clearSelection() {
  const filter = resultsTable()?.filter;
  if (filter) filter.value = "";
  changeView({ limits: "", filter: "", runs: "" });
  refresh();
}

function resultsTable() {
  return tables.all.find((table) => table.box.closest("#results"));
}
