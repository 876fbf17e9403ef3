// Rows of dots with whiskers: the effect of each compared pair, and the throughput of each run.

const MAX_ROWS = 24,
  ROW_HEIGHT = 28,
  CHARACTER = 6.2, // the usual width of one in labels, in pixels
  TICK = 70; // pixels for a number below the axis

const speedups = {
  isPossible: () => data.pairs !== null && data.pairs.rows.length > 1,

  height: () => rowsHeight(data.pairs.rows.length),

  controls: () => [],

  draw(figure, colours) {
    const { rows, effect, label, limits } = data.pairs,
      isDifference = effect === "difference",
      off = new Set(listInView("speedups.off"));
    const inSelection = rows.filter((row) => row.runs.some((run) => selected.has(run)) && !off.has(row.verdict));
    const drawn = sampleEvenly(inSelection, MAX_ROWS),
      noEffect = isDifference ? 0 : 1;
    const dots = drawn.map((row, at) => ({
      ...row,
      at,
      style: data.styles.verdicts[row.verdict],
      isHollow: data.styles.verdicts[row.verdict].isHollow,
    }));
    const option = {
      ...intervalOption(
        figure,
        colours,
        drawn.map((row) => row.label),
        {
          title: label,
          isLog: !isDifference,
          values: [noEffect, ...dots.flatMap((dot) => [dot.low, dot.value, dot.high])].map((value) =>
            value === null ? null : Math.min(limits[1], Math.max(limits[0], value)),
          ),
        },
        ({ dataIndex }) => {
          const row = dots[dataIndex];
          return tooltipLines([
            row.label,
            `${effect} ${shortNumber(row.value)}, 95% interval ${shortNumber(row.low)} to ${shortNumber(row.high)}`,
            row.verdict,
          ]);
        },
      ),
      series: [intervalSeries(dots, colours, noEffect)],
    };
    const legend = Object.entries(data.styles.verdicts)
      .filter(([verdict]) => rows.some((row) => row.verdict === verdict))
      .map(([verdict, style]) => ({
        key: verdict,
        label: verdict,
        ...style,
      }));
    const sample = inSelection.length > MAX_ROWS ? ` (${MAX_ROWS} of ${inSelection.length}, at even steps)` : "";
    return {
      option,
      legend,
      height: rowsHeight(drawn.length),
      state: `The ${effect} of each pair${sample} with its 95% interval.`,
      csv: () => [
        ["compared", effect, "ci_low", "ci_high", "verdict"],
        ...drawn.map(({ label, value, low, high, verdict }) => [label, value, low, high, verdict]),
      ],
      runsOf: ({ dataIndex }) => dots[dataIndex].runs,
    };
  },
};

const throughput = {
  isPossible: () => data.rates.some((rate) => rate !== null),

  height: () => rowsHeight(data.cells.labels.length),

  controls: () => [],

  draw(figure, colours) {
    const off = new Set(listInView("throughput.off")),
      devices = columnLevels("device");
    const deviceOf = (run) => String(data.columns.device?.values[run] ?? "");
    const styleOf = (run) => seriesStyle(Math.max(0, devices.indexOf(deviceOf(run))));
    const byCell = new Map();
    for (const run of data.runs.keys()) {
      const cell = data.cells.ofRun[run];
      if (data.rates[run] !== null && selected.has(run) && !off.has(deviceOf(run)))
        byCell.set(cell, [...(byCell.get(cell) ?? []), run]);
    }
    const meanRate = (runs) => runs.reduce((sum, run) => sum + data.rates[run][1], 0) / runs.length;
    const rows = [...byCell].sort((a, b) => meanRate(b[1]) - meanRate(a[1])),
      drawn = rows.slice(0, MAX_ROWS);
    const dots = drawn.flatMap(([, runs], at) =>
      runs.map((run, index) => ({
        at: at + 0.5 * ((index + 0.5) / runs.length - 0.5),
        runs: [run],
        style: styleOf(run),
        low: data.rates[run][0],
        value: data.rates[run][1],
        high: data.rates[run][2],
      })),
    );
    const isLog = dots.length > 0 && needsLog(dots.map((dot) => dot.value));
    const labels = drawn.map(([cell]) => data.cells.labels[cell]);
    const option = {
      ...intervalOption(
        figure,
        colours,
        labels,
        {
          title: "samples per second",
          isLog,
          ...(isLog ? { values: dots.flatMap((dot) => [dot.low, dot.high]) } : { min: 0 }),
        },
        ({ dataIndex }) => {
          const {
            runs: [run],
            low,
            value,
            high,
          } = dots[dataIndex];
          return tooltipLines([
            runLabel(run),
            `${shortNumber(value)} samples per second`,
            `quartiles ${shortNumber(low)} to ${shortNumber(high)}`,
          ]);
        },
      ),
      series: [intervalSeries(dots, colours, null)],
    };
    const legend =
      devices.length > 1
        ? devices.map((device, index) => ({ key: device, label: device, ...seriesStyle(index), dash: undefined }))
        : [];
    const top = rows.length > MAX_ROWS ? ` (the ${MAX_ROWS} fastest of ${rows.length} cells)` : "";
    return {
      option,
      legend,
      height: rowsHeight(drawn.length),
      csv: () => [
        ["run", "samples_per_second", "lower_quartile", "upper_quartile"],
        ...dots.map(({ runs: [run], value, low, high }) => [runLabel(run), value, low, high]),
      ],
      state: `Throughput of each run${top}: the median of its measured epochs, with whiskers to their quartiles.`,
      runsOf: ({ dataIndex }) => dots[dataIndex].runs,
    };
  },
};

function rowsHeight(count) {
  return 84 + ROW_HEIGHT * Math.min(MAX_ROWS, Math.max(2, count));
}

function intervalOption(figure, colours, labels, axis, formatter) {
  const longest = CHARACTER * (1 + Math.max(0, ...labels.map((label) => label.length))),
    width = Math.round(Math.min(260, 0.4 * figure.width, longest)),
    plotWidth = figure.width - width - 36;
  return {
    ...baseOption(colours, formatter),
    grid: { left: 12, right: 24, top: 10, bottom: 46, containLabel: true },
    xAxis: numberAxis(colours, {
      ...axis,
      ...BELOW,
      nameTextStyle: { color: colours.text, lineHeight: 15, verticalAlign: "top" },
      title: wrapped(axis.title, Math.floor(plotWidth / CHARACTER)),
      splitNumber: Math.max(2, Math.min(5, Math.floor(plotWidth / TICK))),
      ...(!axis.isLog && { axisLabel: { color: colours.text, formatter: shortNumber } }),
    }),
    yAxis: textAxis(colours, {
      title: "",
      values: labels,
      inverse: true,
      axisLabel: {
        color: colours.text,
        interval: 0,
        fontSize: 11,
        lineHeight: 13,
        formatter: (text) => twoLines(text, Math.floor(width / CHARACTER)),
      },
      splitLine: { show: false },
    }),
  };
}

// Words on lines of at most so many characters.
function wrapped(text, characters) {
  const lines = [""];
  for (const word of text.split(" ")) {
    const longer = `${lines.at(-1)} ${word}`.trim();
    if (longer.length <= characters || !lines.at(-1)) lines.splice(-1, 1, longer);
    else lines.push(word);
  }
  return lines.map((line) => shortened(line, characters)).join("\n");
}

// A label of several settings, such as `lr=0.1, batch_size=100`, on two lines of at most so many characters.
function twoLines(text, characters) {
  if (text.length <= characters) return text;
  const parts = text.split(", "),
    lengthOf = (count) => Math.abs(2 * parts.slice(0, count).join(", ").length - text.length);
  const count = parts.reduce((best, _, index) => (lengthOf(index) < lengthOf(best) ? index : best), 1);
  const lines = [parts.slice(0, count), parts.slice(count)].filter((line) => line.length);
  return lines.map((line) => shortened(line.join(", "), characters)).join(",\n");
}

// `noEffect` is the value of a line to compare with, or null; around it each row has the band of its tolerance.
function intervalSeries(dots, colours, noEffect) {
  const marked = new Set(markedRuns());
  return {
    type: "custom",
    clip: true,
    encode: { x: [0, 1, 2], y: 3 },
    data: dots.map(({ low, high, at }) => [low ?? noEffect, high ?? noEffect, noEffect ?? low, Math.round(at)]),
    renderItem(params, api) {
      const dot = dots[params.dataIndex],
        isMarked = dot.runs.some((run) => marked.has(run));
      const [, row] = api.coord([dot.value, Math.round(dot.at)]),
        band = Math.abs(api.size([0, 1])[1]);
      const y = row + (dot.at - Math.round(dot.at)) * band,
        x = (value) => api.coord([value, 0])[0];
      const colour = isMarked ? colours.text : dot.style.colour,
        stroke = { stroke: colour, lineWidth: isMarked ? 2.5 : 1.4 };
      const line = (x1, y1, x2, y2, style = stroke) => ({ type: "line", shape: { x1, y1, x2, y2 }, style });
      const ends = [dot.low, dot.high].filter((value) => value !== null).map(x);
      const children = [];
      if (dot.tolerance) {
        const left = x(noEffect - dot.tolerance),
          right = x(noEffect + dot.tolerance);
        children.push({
          type: "rect",
          silent: true,
          shape: { x: left, y: row - band / 2, width: right - left, height: band },
          style: { fill: GREY, opacity: 0.25 },
        });
      }
      if (noEffect !== null)
        children.push({
          ...line(x(noEffect), row - band / 2, x(noEffect), row + band / 2, { stroke: GREY, lineWidth: 1 }),
          silent: true,
        });
      if (ends.length === 2)
        children.push(line(ends[0], y, ends[1], y), ...ends.map((end) => line(end, y - 3, end, y + 3)));
      children.push(
        mark(dot.style.marker, [x(dot.value), y], isMarked ? 12 : 8, colour, dot.isHollow ? colours.page : colour),
      );
      return { type: "group", children };
    },
  };
}
