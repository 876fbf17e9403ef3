// The figures of the page: their controls, legends and drawing, each only when it is on the screen.

const DRAWERS = { curves: learningCurves, parallel: parallelCoordinates, scatter: scatterPlot, speedups, throughput };
const figures = new Map(); // by name: the element, its parts, the chart, and what was drawn last

let observer = null;

function addFigures() {
  observer?.disconnect();
  for (const figure of figures.values()) figure.chart?.dispose();
  figures.clear();
  observer = new IntersectionObserver(drawVisible);
  for (const found of document.querySelectorAll("figure[data-figure]")) {
    const drawer = DRAWERS[found.dataset.figure];
    if (drawer) addFigure(found, drawer);
  }
}

function addFigure(found, drawer) {
  const name = found.dataset.figure,
    part = (tag, className) => element(tag, { class: className });
  const figure = {
    name,
    drawer,
    element: found,
    tools: part("div", "tools"),
    box: part("div", "chart"),
    legend: part("ul", "legend"),
    state: part("p", "note state"),
    isVisible: false,
    isDirty: true,
  };
  figure.box.setAttribute("aria-hidden", "true"); // the drawing of the file stays for screen readers
  const holder = part("div", "interactive");
  holder.append(copyMenu(figure), figure.tools, figure.box, figure.legend, figure.state);
  const title = found.querySelector("h3");
  if (title) title.after(holder);
  else found.prepend(holder);
  figures.set(name, figure);
  observer.observe(holder);
}

function drawVisible(entries) {
  for (const { target, isIntersecting } of entries) {
    const figure = figures.get(target.closest("figure").dataset.figure);
    figure.isVisible = isIntersecting;
    if (isIntersecting && figure.isDirty) drawFigure(figure);
  }
}

// The first figure in the window is drawn at once, the next ones one after another, so that the page answers in
// between; the others when they are scrolled to.
function drawFigures() {
  for (const figure of figures.values()) {
    figure.element.classList.toggle("charted", figure.drawer.isPossible());
    figure.isDirty = true;
    // The page does not jump when a figure is drawn for the first time.
    if (!figure.chart && figure.drawer.isPossible()) figure.box.style.height = `${figure.drawer.height(figure)}px`;
  }
  drawNext();
}

function drawNext() {
  const waiting = [...figures.values()].filter((figure) => figure.isDirty && figure.isVisible);
  if (waiting.length) drawFigure(waiting[0]);
  if (waiting.length > 1) setTimeout(drawNext);
}

function drawFigure(figure) {
  figure.isDirty = false;
  const width = figure.box.clientWidth;
  if (!figure.drawer.isPossible() || !width) return;
  figure.width = width;
  showControls(figure);
  const colours = theme(),
    drawn = figure.drawer.draw(figure, colours);
  figure.drawn = drawn;
  figure.box.style.height = `${drawn.height}px`;
  if (!figure.chart) startChart(figure);
  figure.isDrawing = true;
  if (figure.size !== `${width} ${drawn.height}`) figure.chart.resize({ width, height: drawn.height });
  figure.size = `${width} ${drawn.height}`;
  figure.chart.dispatchAction({ type: "hideTip" }); // its element is about to be replaced
  figure.chart.setOption(drawn.option, { notMerge: true });
  figure.drawer.drawn?.(figure);
  figure.isDrawing = false;
  showLegend(figure, drawn.legend, colours);
  figure.state.textContent = drawn.state ?? "";
}

function startChart(figure) {
  figure.chart = echarts.init(figure.box, null, { renderer: "svg" });
  figure.chart.on("click", (event) => {
    if (event.componentType === "series") markRuns(figure.drawn.runsOf(event));
  });
  figure.chart.getZr().on("mousemove", (event) => {
    figure.pointer = [event.offsetX, event.offsetY];
  });
  figure.drawer.listen?.(figure);
}

// Controls are kept while the reader uses them: only their choices and values change.
function showControls(figure) {
  const wanted = figure.drawer.controls();
  const names = wanted.map((control) => control.name).join();
  if (figure.controlNames !== names) {
    figure.controlNames = names;
    figure.tools.replaceChildren(...wanted.map(controlElement));
  }
  for (const control of wanted) {
    const input = figure.tools.querySelector(`[name="${control.name}"]`);
    if (!control.choices) {
      input.checked = Boolean(control.value);
      continue;
    }
    const texts = JSON.stringify(control.choices);
    if (input.dataset.choices !== texts) {
      input.dataset.choices = texts;
      input.replaceChildren(...control.choices.map(([value, text]) => element("option", { value, title: value === text ? undefined : value }, text)));
    }
    input.value = control.value;
  }
}

function controlElement({ name, label, choices }) {
  const figure = [...figures.values()].find((each) => name.startsWith(`${each.name}.`));
  const input = choices
    ? element("select", { name, "aria-label": label })
    : element("input", { name, type: "checkbox" });
  input.addEventListener("change", () => {
    changeView({ [name]: choices ? input.value : input.checked ? "1" : "" });
    drawFigure(figure);
  });
  return element("label", { class: choices ? "choice" : "check" }, element("span", {}, label), input);
}

function showLegend(figure, items, colours) {
  const name = `${figure.name}.off`,
    off = new Set(listInView(name)),
    key = JSON.stringify([items, [...off], colours.page]);
  if (figure.legendKey === key) return;
  figure.legendKey = key;
  const focused = figure.legend.contains(document.activeElement) ? document.activeElement.dataset.key : null;
  figure.legend.replaceChildren(
    ...items.map((item) => {
      const sample = element("span", { class: "swatch" });
      sample.innerHTML = `<svg width="28" height="14" aria-hidden="true">${swatch(item, colours.page)}</svg>`;
      const button = element(
        "button",
        {
          type: "button",
          "aria-pressed": String(!off.has(item.key)),
          "data-key": item.key,
          onclick: () => switchSeries(figure, name, item.key),
        },
        sample,
        item.label,
      );
      return element("li", {}, button);
    }),
  );
  if (focused !== null)
    [...figure.legend.querySelectorAll("button")].find((button) => button.dataset.key === focused)?.focus();
}

function switchSeries(figure, name, key) {
  const off = listInView(name);
  setList(name, off.includes(key) ? off.filter((each) => each !== key) : [...off, key]);
  drawFigure(figure);
}
