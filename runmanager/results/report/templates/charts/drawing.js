// What all figures draw with: the page's colours, marks, axes, tooltips, legends.

const GREY = "#888888";
const DASHES = { solid: [], dashed: [6, 3], dotted: [2, 2] };
const PLOT_HEIGHT = 340;
const LOG_FROM = 20; // ratio of the largest value to the smallest above which a linear scale hides small differences

function theme() {
  const style = getComputedStyle(document.documentElement),
    isDark = matchMedia("(prefers-color-scheme: dark)").matches;
  const colour = (name) => style.getPropertyValue(name).trim();
  const shades = isDark ? data.styles.shadesOnDark : data.styles.shades;
  return { text: colour("--text"), page: colour("--page"), line: colour("--line"), faint: colour("--faint"), shades };
}

function seriesStyle(index) {
  return data.styles.series[index % data.styles.series.length];
}

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== false && value !== undefined) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children);
  return made;
}

// Each line is a text, the first one in bold. Elements, not markup: a text from a run is shown as it is.
function tooltipLines(lines) {
  const [first, ...others] = lines.filter((line) => line !== null);
  return element("div", {}, element("b", {}, first), ...others.map((line) => element("div", {}, line)));
}

function baseOption(colours, formatter) {
  return {
    animation: false,
    textStyle: { color: colours.text, fontFamily: "system-ui, sans-serif" },
    grid: { left: 12, right: 24, top: 30, bottom: 34, containLabel: true },
    tooltip: {
      trigger: "item",
      confine: true,
      transitionDuration: 0,
      showDelay: 0,
      formatter,
      backgroundColor: colours.page,
      borderColor: colours.line,
      textStyle: { color: colours.text, fontSize: 13 },
      extraCssText: "max-width: min(24rem, 80vw); white-space: normal; overflow-wrap: anywhere;",
    },
  };
}

// `values` are those that a log axis must hold: its ticks are round numbers, not only powers of ten.
function numberAxis(colours, { title, isLog = false, values = [], ...others }) {
  const known = values.filter((value) => value !== null && value > 0);
  const ticks = isLog && known.length ? logTicks(Math.min(...known), Math.max(...known)) : null;
  const range = ticks && { min: Math.min(...known) / 1.02, max: Math.max(...known) * 1.02 };
  return {
    type: isLog ? "log" : "value",
    name: title,
    scale: true,
    ...range,
    axisTick: ticks ? { customValues: ticks } : {},
    nameTextStyle: { color: colours.text },
    axisLabel: {
      color: colours.text,
      formatter: shortNumber,
      hideOverlap: true,
      ...(ticks && { customValues: ticks }),
    },
    axisLine: { show: true, lineStyle: { color: colours.text } },
    splitLine: { lineStyle: { color: colours.line, opacity: 0.6 } },
    ...others,
  };
}

function textAxis(colours, { title, values, ...others }) {
  return {
    ...numberAxis(colours, { title }),
    type: "category",
    data: values,
    scale: undefined,
    axisLabel: { color: colours.text, overflow: "truncate" },
    ...others,
  };
}

function logTicks(low, high) {
  const first = Math.floor(Math.log10(low)),
    last = Math.ceil(Math.log10(high));
  const decades = Array.from({ length: last - first + 1 }, (_, index) => 10 ** (first + index));
  const steps = high < 1000 * low ? [1, 2, 5] : [1];
  const round = decades.flatMap((decade) => steps.map((step) => Number((step * decade).toPrecision(12))));
  return (high < 5 * low ? evenTicks(low, high) : round).filter((tick) => tick >= low && tick <= high);
}

// About five round numbers at equal steps.
function evenTicks(low, high) {
  const rough = (high - low) / 5,
    size = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].find((each) => each * size >= rough) * size,
    first = Math.ceil(low / step);
  return Array.from({ length: Math.floor(high / step) - first + 1 }, (_, index) =>
    Number(((first + index) * step).toPrecision(12)),
  );
}

const BELOW = { nameLocation: "middle", nameGap: 28 };
const ABOVE = (colours) => ({ nameLocation: "end", nameTextStyle: { color: colours.text, align: "left" } });

// A mark of the static figures as an element of a custom series; a hollow one is filled with the page.
function mark(marker, [x, y], size, colour, fill = colour) {
  const style = { fill, stroke: colour, lineWidth: 1.2 },
    r = size / 2;
  const polygon = (points) => ({
    type: "polygon",
    shape: { points: points.map(([dx, dy]) => [x + dx * r, y + dy * r]) },
    style,
  });
  if (marker === "o") return { type: "circle", shape: { cx: x, cy: y, r: 0.9 * r }, style };
  if (marker === "s")
    return polygon([
      [-0.85, -0.85],
      [0.85, -0.85],
      [0.85, 0.85],
      [-0.85, 0.85],
    ]);
  if (marker === "D" || marker === "d")
    return polygon([
      [0, -1.2],
      [1, 0],
      [0, 1.2],
      [-1, 0],
    ]);
  if (marker === "*") return polygon(starPoints());
  const turn = { "^": 0, ">": 1, v: 2, "<": 3 }[marker] ?? 0;
  return polygon(
    [
      [0, -1.1],
      [1, 0.9],
      [-1, 0.9],
    ].map((point) => turned(point, turn)),
  );
}

function turned([x, y], quarters) {
  return quarters === 0 ? [x, y] : turned([-y, x], quarters - 1);
}

function starPoints() {
  return Array.from({ length: 10 }, (_, index) => {
    const angle = (Math.PI * index) / 5,
      reach = index % 2 ? 0.5 : 1.25;
    return [reach * Math.sin(angle), -reach * Math.cos(angle)];
  });
}

// The same mark as the symbol of a scatter plot.
function symbolOf(marker) {
  const known = { o: "circle", s: "rect", "^": "triangle", D: "diamond", d: "diamond" }[marker];
  if (known) return { symbol: known };
  return { symbol: "triangle", symbolRotate: { v: 180, "<": 90, ">": -90 }[marker] ?? 0 };
}

// A line and a mark as SVG, for the legend on the page and in a saved figure.
function swatch({ colour, dash, marker, isHollow }, page) {
  const parts = [];
  if (dash)
    parts.push(
      `<path d="M0 7H28" stroke="${colour}" stroke-width="1.6" stroke-dasharray="${DASHES[dash].join(" ")}"/>`,
    );
  if (marker) {
    const { type, shape } = mark(marker, [14, 7], 8, colour);
    const style = `fill="${isHollow ? page : colour}" stroke="${colour}"`;
    const points = shape.points?.map((point) => point.map((each) => each.toFixed(2)).join(",")).join(" ");
    if (type === "circle") parts.push(`<circle cx="14" cy="7" r="${shape.r}" ${style}/>`);
    else parts.push(`<polygon points="${points}" ${style}/>`);
  }
  return parts.join("");
}

// Whether the steps between numbers are more even on a log scale than on a linear one.
function isLogSpaced(values) {
  const ordered = [...new Set(values)].sort((a, b) => a - b);
  if (ordered.length < 2 || ordered[0] <= 0) return false;
  if (ordered.length < 3) return ordered.at(-1) >= 10 * ordered[0];
  return evenness(ordered.map(Math.log)) > evenness(ordered);
}

function evenness(ordered) {
  const steps = ordered.slice(1).map((value, index) => value - ordered[index]);
  return Math.min(...steps) / Math.max(...steps);
}

function needsLog(values) {
  const low = Math.min(...values),
    high = Math.max(...values);
  return low > 0 && LOG_FROM * low < high;
}

// What a column is called for people; its own name is that of commands and of the address.
function columnLabel(name) {
  return data.columns[name]?.label ?? name;
}

function columnLevels(name) {
  return remember(`levels of ${name}`, () => levelsOf(data.columns[name]?.values ?? []));
}

// The distinct values of a column, numbers by size and texts in their order.
function levelsOf(values) {
  const known = [...new Set(values.filter((value) => value !== null))];
  return known.every((value) => typeof value === "number") ? known.sort((a, b) => a - b) : known.map(String).sort();
}
