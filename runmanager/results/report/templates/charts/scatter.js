// Any two columns of the runs against each other: a dot for each run; a dragged rectangle selects runs.

const MAX_TEXTS = 30, // values of a column of texts along an axis
  MAX_DOTS = 300; // of a series, above which its dots are one path

const scatterPlot = {
  isPossible: () => data.runs.length > 1 && scatterColumns().length > 1,

  height: () => PLOT_HEIGHT,

  controls() {
    const columns = scatterColumns().map((name) => [name, columnLabel(name)]),
      { x, y, colour } = scatterChoices();
    return [
      { name: "scatter.x", label: "x", value: x, choices: columns },
      { name: "scatter.y", label: "y", value: y, choices: columns },
      {
        name: "scatter.colour",
        label: "Colour",
        value: colour,
        choices: [["none", "none"], ...colouringSettings().map((name) => [name, name])],
      },
      { name: "scatter.logx", label: "Log x", value: view["scatter.logx"] },
      { name: "scatter.logy", label: "Log y", value: view["scatter.logy"] },
    ];
  },

  draw(figure, colours) {
    const { x, y, colour } = scatterChoices(),
      off = new Set(listInView("scatter.off")),
      marked = new Set(markedRuns());
    const isLogX = Boolean(view["scatter.logx"]),
      isLogY = Boolean(view["scatter.logy"]);
    const drawable = (value, isLog) => value !== null && (!isLog || value > 0);
    const has = (run) => drawable(data.columns[x].values[run], isLogX) && drawable(data.columns[y].values[run], isLogY);
    const byLevel = colourClasses(colour, colours).map((each) => ({
      ...each,
      runs: off.has(each.name) ? [] : [...data.runs.keys()].filter((run) => each.includes(run) && has(run)),
    }));
    const series = [...byLevel.map(othersOf), ...byLevel.map(selectedOf), ...byLevel.map(markedOf(marked, colours))];
    const option = {
      ...baseOption(colours, ({ seriesIndex, dataIndex }) => {
        const run = series[seriesIndex].runs[dataIndex];
        return tooltipLines([
          runLabel(run),
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
    const legend = byLevel
      .filter(({ name }) => name)
      .map(({ name, style }) => ({ key: name, label: name, colour: style.colour, marker: style.marker }));
    const dots = byLevel.flatMap(({ runs }) => runs),
      columns = colour === "none" ? [x, y] : [x, y, colour];
    return {
      option,
      legend,
      height: PLOT_HEIGHT,
      csv: () => [
        ["run", ...columns],
        ...dots.map((run) => [runLabel(run), ...columns.map((name) => data.columns[name].values[run])]),
      ],
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
    settings = colouringSettings();
  return { x, y, colour: wanted === "none" || settings.includes(wanted) ? wanted : mattersMost(settings, x, y) };
}

function colouringSettings() {
  return data.varying.filter((name) => data.columns[name].numbers || columnLevels(name).length <= data.styles.series.length);
}

// The setting, other than x, that explains most of the differences in y.
function mattersMost(settings, x, y) {
  const others = settings.filter((name) => name !== x);
  return remember(`colour of ${x}, ${y}`, () => others.sort((a, b) => explained(b, y) - explained(a, y))[0] ?? "none");
}

// The share of the variance of y's ranks between the classes of a setting, less what chance would give as many.
function explained(setting, y) {
  const { values } = data.columns[y],
    ranks = new Map(columnLevels(y).map((level, place) => [String(level), place]));
  const known = [...data.runs.keys()].filter((run) => values[run] !== null),
    rank = (run) => ranks.get(String(values[run]));
  const classes = colourClasses(setting, theme())
    .map(({ includes }) => known.filter(includes).map(rank))
    .filter((found) => found.length);
  const mean = (all) => all.reduce((sum, each) => sum + each, 0) / all.length,
    squares = (all, centre) => all.reduce((sum, each) => sum + (each - centre) ** 2, 0);
  const whole = squares(classes.flat(), mean(classes.flat())),
    within = classes.reduce((sum, found) => sum + squares(found, mean(found)), 0);
  return whole && known.length > classes.length ? 1 - (within / (known.length - classes.length)) / (whole / (known.length - 1)) : 0;
}

// Dots of one colour: those of a value; of many numbers, those of a range, from light to dark as better in other figures.
function colourClasses(setting, { shades }) {
  if (setting === "none") return [{ name: "", style: seriesStyle(0), includes: () => true }];
  const levels = columnLevels(setting),
    values = data.columns[setting].values;
  if (levels.length <= data.styles.series.length)
    return levels.map((level, index) => ({
      name: `${setting}=${level}`,
      style: seriesStyle(index),
      includes: (run) => values[run] !== null && String(values[run]) === String(level),
    }));
  return shades.map((colour, index) => {
    const edge = (place) => levels[Math.round(((levels.length - 1) * place) / shades.length)],
      isLast = index === shades.length - 1;
    const [low, high] = [edge(index), edge(index + 1)];
    return {
      name: `${setting} ${shortNumber(low)} to ${shortNumber(high)}`,
      style: { colour, marker: "o" },
      includes: (run) => values[run] !== null && values[run] >= low && (values[run] < high || isLast),
    };
  });
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
