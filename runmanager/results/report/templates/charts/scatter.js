// Any two columns of the runs against each other: a dot for each run; a dragged rectangle selects runs.

const MAX_TEXTS = 30, // values of a column of texts along an axis
  MAX_DOTS = 300; // of a series, above which its dots are one path

const scatterPlot = {
  isPossible: () => data.runs.length > 1 && scatterColumns().length > 1,

  height: () => PLOT_HEIGHT,

  controls() {
    const columns = scatterColumns().map((name) => [name, columnLabel(name)]),
      { x, y, colour } = scatterChoices();
    const colours = data.varying.filter((name) => columnLevels(name).length <= data.styles.series.length);
    return [
      { name: "scatter.x", label: "x", value: x, choices: columns },
      { name: "scatter.y", label: "y", value: y, choices: columns },
      {
        name: "scatter.colour",
        label: "Colour",
        value: colour,
        choices: [["none", "none"], ...colours.map((name) => [name, name])],
      },
      { name: "scatter.logx", label: "Log x", value: view["scatter.logx"] },
      { name: "scatter.logy", label: "Log y", value: view["scatter.logy"] },
    ];
  },

  draw(figure, colours) {
    const { x, y, colour } = scatterChoices(),
      off = new Set(listInView("scatter.off")),
      marked = new Set(markedRuns());
    const levels = colour === "none" ? [null] : columnLevels(colour);
    const isLogX = Boolean(view["scatter.logx"]),
      isLogY = Boolean(view["scatter.logy"]);
    const drawable = (value, isLog) => value !== null && (!isLog || value > 0);
    const has = (run) => drawable(data.columns[x].values[run], isLogX) && drawable(data.columns[y].values[run], isLogY);
    const byLevel = levels.map((level, index) => {
      const style = seriesStyle(index),
        name = level === null ? "" : `${colour}=${level}`;
      const ofLevel = (run) => level === null || String(data.columns[colour].values[run]) === String(level);
      const runs = off.has(name) ? [] : [...data.runs.keys()].filter((run) => ofLevel(run) && has(run));
      return { name, style, runs };
    });
    const series = [...byLevel.map(othersOf), ...byLevel.map(selectedOf), ...byLevel.map(markedOf(marked, colours))];
    const option = {
      ...baseOption(colours, ({ seriesIndex, dataIndex }) => {
        const run = series[seriesIndex].runs[dataIndex];
        return tooltipLines([
          data.runs[run],
          ...[x, y].map((name) => `${columnLabel(name)}: ${fieldText(data.columns[name].values[run])}`),
        ]);
      }),
      brush: {
        brushStyle: { borderColor: colours.text, color: "rgba(136,136,136,0.2)" },
        throttleType: "debounce",
        seriesIndex: [], // the brush sets limits, and colours nothing
      },
      xAxis: scatterAxis(colours, x, isLogX, BELOW),
      yAxis: scatterAxis(colours, y, isLogY, ABOVE(colours)),
      series: series.map(({ marker, runs, ...style }) => ({
        type: "scatter",
        ...symbolOf(marker),
        ...style,
        large: symbolOf(marker).symbolRotate === undefined, // a path of many dots has them upright
        largeThreshold: MAX_DOTS,
        data: runs.map((run) => [data.columns[x].values[run], data.columns[y].values[run]]),
      })),
    };
    const missing = data.runs.length - data.runs.filter((_, run) => has(run)).length;
    const lacking = missing
      ? ` ${plural(missing, "run")} without a value ${missing === 1 ? "is" : "are"} not drawn.`
      : "";
    const legend =
      levels[0] === null
        ? []
        : byLevel.map(({ name, style }) => ({ key: name, label: name, colour: style.colour, marker: style.marker }));
    return {
      option,
      legend,
      height: PLOT_HEIGHT,
      state: `Each dot is a run. Drag a rectangle to select.${lacking}`,
      x,
      y,
      runsOf: ({ seriesIndex, dataIndex }) => [series[seriesIndex].runs[dataIndex]],
    };
  },

  drawn({ chart }) {
    chart.dispatchAction({
      type: "takeGlobalCursor",
      key: "brush",
      brushOption: { brushType: "rect", brushMode: "single" },
    });
  },

  listen(figure) {
    figure.chart.on("brushEnd", ({ areas }) => {
      if (!areas.length) return;
      const { x, y } = figure.drawn,
        [[left, right], [top, bottom]] = areas[0].range;
      const corners = [
        [left, bottom],
        [right, top],
      ].map((point) => figure.chart.convertFromPixel({ gridIndex: 0 }, point));
      setLimits(
        [x, y],
        [x, y].map((column, place) =>
          limitOf(
            column,
            corners.map((corner) => corner[place]),
          ),
        ),
      );
      setTimeout(refresh); // not while the library handles the brush
    });
  },
};

function scatterColumns() {
  const isUseful = (name) =>
    columnLevels(name).length > 1 && (data.columns[name].numbers || columnLevels(name).length <= MAX_TEXTS);
  return remember("columns of the scatter", () => Object.keys(data.columns).filter(isUseful));
}

function scatterChoices() {
  const columns = scatterColumns(),
    numbers = columns.filter((name) => data.columns[name].numbers);
  const known = (name) => (columns.includes(name) ? name : undefined);
  const y =
    known(view["scatter.y"]) ?? known(data.outcome) ?? known("samples_per_second") ?? numbers.at(-1) ?? columns.at(-1);
  const x =
    known(view["scatter.x"]) ?? ["epoch_seconds", ...numbers, ...columns].find((name) => name !== y && known(name));
  const wanted = view["scatter.colour"],
    varies = data.varying.includes("device") ? "device" : "none";
  return { x, y, colour: wanted === "none" || data.varying.includes(wanted) ? wanted : varies };
}

function scatterAxis(colours, name, isLog, place) {
  const { numbers, values } = data.columns[name];
  if (numbers) return numberAxis(colours, { title: columnLabel(name), isLog, values, ...place });
  return textAxis(colours, { title: columnLabel(name), values: columnLevels(name), ...place });
}

// The dots of one style: of runs that are not selected, of selected ones, and of marked ones.
function othersOf({ style, runs }) {
  const others = runs.filter((run) => !selected.has(run));
  return { marker: style.marker, runs: others, symbolSize: 9, itemStyle: { color: GREY, opacity: 0.2 } };
}

function selectedOf({ style, runs }) {
  const inSelection = runs.filter((run) => selected.has(run));
  return { marker: style.marker, runs: inSelection, symbolSize: 9, itemStyle: { color: style.colour } };
}

function markedOf(marked, colours) {
  return ({ style, runs }) => ({
    marker: style.marker,
    runs: runs.filter((run) => selected.has(run) && marked.has(run)),
    symbolSize: 17,
    itemStyle: { color: style.colour, borderColor: colours.text, borderWidth: 2 },
  });
}
