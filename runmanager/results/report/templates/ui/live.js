"use strict";
// Keeps a page of `runmanager ui` up to date: it asks for what has changed, and puts that in place of what is shown.
{
  const PAUSE = 700, PAUSE_AFTER_FAILURE = 3000; // milliseconds
  const CONTROLS = "a, button, input, select, [tabindex]";
  const main = document.querySelector("main");
  const live = document.getElementById("live"); // missing on a page that only says what is wrong
  const served = new Map(); // the HTML of each part, as it was before the page's own script changed it

  for (const [name, part] of partsOf(main)) served.set(name, part.outerHTML);
  removeTokenFromAddress();
  if (live) {
    document.addEventListener("visibilitychange", () => { if (!document.hidden) ask(); });
    setTimeout(askAgain, PAUSE);
  }

  // The cookie has the token by now; a copied address should not.
  function removeTokenFromAddress() {
    const address = new URL(location.href);
    if (!address.searchParams.has("token")) return;
    address.searchParams.delete("token");
    history.replaceState(history.state, "", address);
  }

  async function askAgain() {
    const answered = document.hidden || await ask();
    setTimeout(askAgain, answered ? PAUSE : PAUSE_AFTER_FAILURE);
  }

  // Whether the server has answered.
  async function ask() {
    const address = new URL(location.href);
    address.hash = "";
    address.searchParams.set("seen", live.dataset.version);
    address.searchParams.set("drawn", live.dataset.drawn);
    try {
      const answer = await fetch(address, { cache: "no-store", redirect: "error" });
      if (answer.status === 200) show(new DOMParser().parseFromString(await answer.text(), "text/html"));
      else if (answer.status === 403) say("The server was started again: open the address that it printed.");
      else if (answer.status === 404) say("This sweep is gone: it was moved or removed. The page shows it as it was.");
      else if (answer.status !== 204) say(`The server could not answer (status ${answer.status}); it is asked again.`);
      return answer.ok;
    } catch {
      say("The server does not answer: it has ended, or the connection is down. The page shows the last state.");
      return false;
    }
  }

  function say(text) {
    if (live.textContent !== text) live.textContent = text;
    live.dataset.version = ""; // so that the next answer is shown
  }

  // The parts of a page by their names: those without an id are numbered.
  function partsOf(parent) {
    const parts = new Map();
    for (const part of parent.children) {
      let name = part.id || `${part.localName}.${part.className}`;
      while (parts.has(name)) name += "+";
      parts.set(name, part);
    }
    return parts;
  }

  function show(page) {
    const fresh = page.querySelector("main"), kind = fresh.dataset.part;
    if (main.dataset.part === "message" && !kind) return location.reload(); // the page has scripts of its own
    const shown = partsOf(main), next = partsOf(fresh);
    if (kind === "message") for (const name of next.keys()) if (name !== "live") next.delete(name);
    let last = null, hasNewFigures = false;
    for (const [name, part] of next) {
      const html = part.outerHTML;
      let here = shown.get(name);
      if (here === live) {
        if (live.textContent !== part.textContent) live.textContent = part.textContent; // a screen reader reads it out
        Object.assign(live.dataset, part.dataset);
      } else if (!here) {
        here = document.importNode(part, true);
        last ? last.after(here) : main.prepend(here);
        here.querySelectorAll(".table").forEach(control);
        hasNewFigures ||= name === "figures";
      } else if (served.get(name) !== html) {
        const keepsFigures = name === "figures" && hasSameFigures(here, part);
        if (keepsFigures) replaceDrawings(here, part);
        else here = replaced(here, part);
        hasNewFigures ||= name === "figures" && !keepsFigures;
      }
      served.set(name, html);
      last = here;
    }
    if (kind) return; // no whole page
    for (const [name, part] of shown) if (!next.has(name)) { part.remove(); served.delete(name); }
    const contents = document.querySelector(".contents ul"), listed = page.querySelector(".contents ul");
    if (contents && listed && contents.textContent !== listed.textContent) contents.replaceWith(document.importNode(listed, true));
    if (globalThis.report) updateReport(page, hasNewFigures);
  }

  // Sorting and filtering, of the page's own script.
  function control(box) {
    const made = addControls(box);
    if (globalThis.report) tables.all = [...tables.all.filter((table) => table.box.isConnected), made];
  }

  // The figures that a script draws, from the page's data.
  function updateReport(page, hasNewFigures) {
    if (hasNewFigures) {
      addBar();
      addFigures();
    }
    const given = page.getElementById("data");
    if (given) report.update(given.textContent);
  }

  function hasSameFigures(there, part) {
    const [before, after] = [there, part].map((each) => [...each.querySelectorAll("figure")].map((figure) => figure.dataset.figure));
    return Boolean(globalThis.report) && before.join() === after.join();
  }

  // What stands for the figures of scripts without them, and on paper.
  function replaceDrawings(there, part) {
    const figures = [...there.querySelectorAll("figure")];
    part.querySelectorAll("figure").forEach((fresh, index) => {
      for (const selector of [".drawing", "figcaption"]) {
        const now = fresh.querySelector(selector), before = figures[index].querySelector(selector);
        if (now && before) before.replaceWith(document.importNode(now, true));
        else if (now) figures[index].querySelector("figcaption").before(document.importNode(now, true));
      }
      figures[index].classList.toggle("scripted", fresh.classList.contains("scripted"));
    });
    there.classList.toggle("scripted", part.classList.contains("scripted"));
  }

  // What a reader has typed, sorted, scrolled and focused stays.
  function replaced(there, part) {
    const here = document.importNode(part, true);
    const focus = [...there.querySelectorAll(CONTROLS)].indexOf(document.activeElement);
    const states = [...there.querySelectorAll(".table")].map(stateOf);
    const choices = [...there.querySelectorAll("select")].map((select) => select.value);
    there.replaceWith(here);
    here.querySelectorAll(".table").forEach((box, index) => {
      control(box);
      if (states[index]) restore(box, states[index]);
    });
    here.querySelectorAll("select").forEach((select, index) => { select.value = choices[index] ?? select.value; });
    if (focus >= 0) here.querySelectorAll(CONTROLS)[focus]?.focus({ preventScroll: true });
    return here;
  }

  function stateOf(box) {
    const sorted = box.querySelector("th[aria-sort]"), wide = box.querySelector(".wide");
    return {
      filter: box.querySelector('[data-part="filter"]')?.value ?? "",
      sorted: sorted?.textContent,
      clicks: sorted?.getAttribute("aria-sort") === "descending" ? 2 : 1,
      showsAll: [...box.querySelectorAll("tbody tr")].filter((row) => !row.hidden).length > 50,
      left: wide.scrollLeft,
      top: wide.scrollTop,
    };
  }

  function restore(box, state) {
    const filter = box.querySelector('[data-part="filter"]'), wide = box.querySelector(".wide");
    const heading = [...box.querySelectorAll("th")].find((each) => each.textContent === state.sorted);
    for (let click = 0; heading && click < state.clicks; click++) heading.querySelector("button")?.click();
    if (state.showsAll) box.querySelector('[data-part="all"]')?.click();
    if (filter && state.filter) {
      filter.value = state.filter;
      filter.dispatchEvent(new Event("input"));
    }
    wide.scrollTo({ left: state.left, top: state.top, behavior: "instant" });
  }
}
