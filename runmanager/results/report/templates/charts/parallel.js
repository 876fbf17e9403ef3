// The sweep at a glance: a line for each cell through its settings to what it measured; an axis can be brushed.

const MAX_SETTINGS = 7,
  MAX_LINES = 300,
  MAX_FADED = 100,
  MAX_TICKS = 6,
  CHARACTER_WIDTH = 6.5, // pixels of a character of a name, on average
  FADED = 0.12;

const parallelCoordinates = {
  isPossible: () => data.varying.length > 1 && data.cells.labels.length > 2 && parallelResults().length > 0,

  height: () => PLOT_HEIGHT,

  controls: () => [],

  draw(figure, colours) {
    const columns = [...data.varying.slice(0, MAX_SETTINGS), ...parallelResults()];
    const lines = parallelLines(columns),
      target = columns.at(-1);
    const reach = lines.map((line) => line.values.at(-1)),
      isBetterLow = data.better[target] === "min";
    const height = heightWithin(reach, needsLog(reach), isBetterLow);
    lines.sort((a, b) => a.isSelected - b.isSelected || height(a.values.at(-1)) - height(b.values.at(-1)));
    const drawn = [
      ...sampleEvenly(
        lines.filter((line) => !line.isSelected),
        MAX_FADED,
      ),
      ...sampleEvenly(
        lines.filter((line) => line.isSelected),
        MAX_LINES,
      ),
    ];
    const marked = new Set(markedRuns()),
      width = figure.width / columns.length;
    const count = lines.filter((line) => line.isSelected).length;
    const option = {
      ...baseOption(colours, ({ dataIndex }) => {
        const line = drawn[dataIndex];
        return tooltipLines([line.label, ...columns.map((name, index) => `${columnLabel(name)}: ${fieldText(line.values[index])}`)]);
      }),
      grid: undefined,
      parallel: {
        left: 40,
        right: 56,
        top: 48, // names of two lines
        bottom: 14,
        parallelAxisDefault: { realtime: false, areaSelectStyle: { width: 22, opacity: 0.25 } },
      },
      parallelAxis: columns.map((name, dim) => parallelAxis(colours, name, dim, lines, width)),
      series: [
        {
          type: "parallel",
          inactiveOpacity: 1,
          activeOpacity: 1,
          smooth: false,
          progressive: 0,
          data: drawn.map((line) => ({
            value: line.values.map((value) => (typeof value === "number" ? value : (value ?? "-"))),
            lineStyle: lineStyle(line, height, colours, marked),
          })),
        },
      ],
    };
    const omitted = data.cells.labels.length - lines.length;
    const sample = count > MAX_LINES ? ` (${MAX_LINES} of ${count}, at even steps of the outcome)` : "";
    const lacking = omitted ? ` Omitted: ${plural(omitted, "cell")} without a result.` : "";
    const colour = `coloured by ${columnLabel(target)}, better at the top`;
    const state = `Each line is a cell${sample}, ${colour}. Drag along an axis to select.${lacking}`;
    const runsOf = ({ dataIndex }) => drawn[dataIndex].runs;
    const csv = () => [["cell", ...columns], ...drawn.map(({ label, values }) => [label, ...values])];
    return { option, legend: [], height: PLOT_HEIGHT, state, columns, runsOf, csv };
  },

  // Limits are shown on their axes; a brushed axis becomes a limit.
  drawn(figure) {
    const {
      chart,
      drawn: { columns },
    } = figure;
    const found = limits();
    columns.forEach((name, dim) => {
      const limit = found.find(([column]) => column === name);
      const intervals = limit ? intervalsOf(limit, columnLevels(name)) : [];
      if (limit || figure.brushed?.has(name))
        chart.dispatchAction({ type: "axisAreaSelect", parallelAxisId: `axis${dim}`, intervals });
    });
    figure.brushed = new Set(found.map(([column]) => column));
  },

  listen(figure) {
    figure.chart.on("axisareaselected", (event) => {
      if (figure.isDrawing) return;
      const column = figure.drawn.columns[Number(String(event.parallelAxisId).replace("axis", ""))];
      if (column === undefined) return;
      setLimits(
        [column],
        event.intervals.map((interval) => limitOf(column, interval)),
      );
      setTimeout(refresh); // not while the library handles the brush
    });
  },
};

function parallelResults() {
  return [...new Set(["samples_per_second", data.outcome])].filter((name) => data.columns[name] !== undefined);
}

function parallelLines(columns) {
  const runsOfCell = data.cells.labels.map(() => []);
  data.cells.ofRun.forEach((cell, run) => runsOfCell[cell].push(run));
  return runsOfCell
    .map((all, cell) => {
      const inSelection = all.filter((run) => selected.has(run)),
        runs = (inSelection.length ? inSelection : all).filter(isFinished);
      const values = columns.map((name) =>
        data.columns[name].setting ? data.columns[name].values[all[0]] : meanOf(name, runs),
      );
      return {
        label: data.cells.labels[cell],
        runs: inSelection.length ? inSelection : all,
        values,
        isSelected: inSelection.length > 0,
        results: columns.map((name, index) => data.columns[name].setting || values[index] !== null),
      };
    })
    .filter((line) => line.results.every(Boolean));
}

function meanOf(name, runs) {
  const known = runs.map((run) => data.columns[name].values[run]).filter((value) => value !== null);
  return known.length ? known.reduce((sum, value) => sum + value, 0) / known.length : null;
}

// A function from a value to its share of the axis, 1 for the best.
function heightWithin(values, isLog, isBetterLow) {
  const scaled = (value) => (isLog ? Math.log(value) : value);
  const low = scaled(Math.min(...values)),
    high = scaled(Math.max(...values));
  return (value) => {
    const share = high > low ? (scaled(value) - low) / (high - low) : 0.5;
    return isBetterLow ? 1 - share : share;
  };
}

function parallelAxis(colours, name, dim, lines, width) {
  const { numbers, setting } = data.columns[name];
  const values = lines.map((line) => line.values[dim]).filter((value) => value !== null);
  const isLog = numbers && (setting ? isLogSpaced(values) : needsLog(values));
  const common = {
    dim,
    id: `axis${dim}`,
    name: inLines(columnLabel(name), Math.max(8, Math.floor((width - 8) / CHARACTER_WIDTH))),
    nameTextStyle: { color: colours.text, overflow: "truncate", width: Math.max(48, width - 8), lineHeight: 15 },
    axisLine: { lineStyle: { color: colours.text } },
    axisLabel: {
      color: colours.text,
      backgroundColor: colours.page,
      padding: [0, 2],
      formatter: numbers ? shortNumber : (text) => shortened(text, 14),
    },
  };
  if (!numbers) return { ...common, type: "category", data: levelsOf(values) };
  const levels = levelsOf(values),
    [min, max] = [levels[0], levels.at(-1)];
  const axis = { ...common, type: isLog ? "log" : "value", inverse: !setting && data.better[name] === "min" };
  if (min === max) {
    const only = { customValues: [min] };
    return { ...axis, scale: true, axisTick: only, axisLabel: { ...common.axisLabel, ...only } };
  }
  const ticks = setting && levels.length <= MAX_TICKS ? levels : isLog ? logTicks(min, max) : evenTicks(min, max);
  return {
    ...axis,
    min,
    max,
    axisTick: { customValues: ticks },
    axisLabel: { ...common.axisLabel, customValues: ticks },
  };
}

// The text in lines of at most so many characters, broken after spaces and underscores; a long word stays whole.
function inLines(text, characters) {
  const lines = [""];
  for (const word of text.match(/[^ _]*[ _]*/g)) {
    if (lines.at(-1) && (lines.at(-1) + word).trimEnd().length > characters) lines.push("");
    lines[lines.length - 1] += word;
  }
  return lines.map((line) => line.trimEnd()).join("\n");
}

function shortened(text, characters) {
  if (text.length <= characters) return text;
  const half = characters >> 1;
  return `${text.slice(0, half)}…${text.slice(half - characters + 1)}`;
}

function lineStyle(line, height, colours, marked) {
  if (!line.isSelected) return { color: GREY, opacity: FADED, width: 0.8 };
  if (line.runs.some((run) => marked.has(run))) return { color: colours.text, opacity: 1, width: 4 };
  const shade = Math.min(colours.shades.length - 1, Math.floor(height(line.values.at(-1)) * colours.shades.length));
  return { color: colours.shades[shade], opacity: 1, width: 0.8 + (0.8 * shade) / colours.shades.length };
}

// A brush over a column of texts covers their places on the axis.
function limitOf(column, interval) {
  const { numbers } = data.columns[column],
    low = Math.min(...interval),
    high = Math.max(...interval);
  if (numbers) return [column, Number(low.toPrecision(4)), Number(high.toPrecision(4))];
  return [column, columnLevels(column).filter((_, place) => place >= low - 0.5 && place <= high + 0.5)];
}

function intervalsOf([, low, high], levels) {
  if (!Array.isArray(low)) return [[low, high]];
  const places = low.map((value) => levels.indexOf(value)).filter((place) => place >= 0);
  return places.length ? [[Math.min(...places), Math.max(...places)]] : [];
}
