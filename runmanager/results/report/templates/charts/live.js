// Newer markup of the page's <main>, shown without disturbing the reader: figures, focus and scrolling stay.

function replaceMain(markup) {
  const main = document.querySelector("main"), next = element("template");
  next.innerHTML = markup;
  const places = tablePlaces(), focused = focusPlace();
  const kept = main.querySelector("#figures"), given = next.content.querySelector("#figures");
  if (kept && given && figureNames(kept) === figureNames(given)) {
    for (const figure of given.querySelectorAll("figure")) renewFigure(kept.querySelector(`[data-figure="${figure.dataset.figure}"]`), figure);
    const parts = [...next.content.children], at = parts.indexOf(given); // the section is not moved: that would end a click
    for (const part of [...main.childNodes]) if (part !== kept) part.remove();
    kept.before(...parts.slice(0, at));
    kept.after(...parts.slice(at + 1));
    addTables();
  } else {
    main.replaceChildren(...next.content.childNodes);
    addTables();
    addBar();
    addFigures();
  }
  restoreTables(places);
  return focused;
}

function figureNames(part) {
  return [...part.querySelectorAll("figure")].map((figure) => figure.dataset.figure).join();
}

// What a figure has from its file: the drawing and the caption.
function renewFigure(old, figure) {
  for (const part of [".drawing", "figcaption"]) {
    const [before, after] = [old, figure].map((each) => each.querySelector(part));
    if (before && after && before.innerHTML !== after.innerHTML) before.replaceWith(after);
  }
}

function tableKey(table) {
  return table.box.closest("section[id]")?.id;
}

function tablePlaces() {
  return new Map(tables.all.map((table) => [tableKey(table), { left: table.scroller.scrollLeft, top: table.scroller.scrollTop, isWhole: table.isWhole(), words: table.filter?.value ?? "", order: table.order() }]));
}

function restoreTables(places) {
  for (const table of tables.all) {
    const place = places.get(tableKey(table));
    if (!place) continue;
    if (table.filter) table.filter.value = place.words;
    if (place.isWhole) table.showAll();
    if (place.order && table.titles.includes(place.order.title)) table.sortBy(table.titles.indexOf(place.order.title), place.order.descending);
    table.show();
    table.scroller.scrollTo(place.left, place.top);
  }
}

// The control of a table that has the focus: its section, what it is, and the caret.
function focusPlace() {
  const active = document.activeElement, id = active?.closest?.("main section[id]")?.id;
  if (!id || id === "figures") return null;
  const all = [...document.getElementById(id).querySelectorAll("a, button, input, [tabindex]")];
  return { id, place: all.indexOf(active), caret: active.selectionStart };
}

function restoreFocus(focused) {
  if (!focused) return;
  const found = document.getElementById(focused.id)?.querySelectorAll("a, button, input, [tabindex]")[focused.place];
  found?.focus({ preventScroll: true });
  if (typeof focused.caret === "number") found?.setSelectionRange?.(focused.caret, focused.caret);
}
