// Learning curves over epoch, step, time or samples: a panel for each quantity, of each run, or mean and range of a group.

const X_LABELS = { epoch: "epoch", step: "step", seconds: "seconds since the run's start", samples: "samples" };
const MAX_PANELS = 12,
  MIN_PANEL_WIDTH = 300,
  PANEL_HEIGHT = 260,
  MAX_COLOURED = 12,
  MAX_GREY = 200, // of all panels
  MAX_MARKERS = 8,
  INTERPOLATED_POINTS = 60;
const SMOOTHINGS = ["0.5", "0.8", "0.95"]; // the share of the points before

const learningCurves = {
  isPossible: () => data.curves.length > 0,

  height: ({ box }) => panelPlaces(curveChoices().panels.length, box.clientWidth).height,

  controls() {
    const { metric, x, group, smoothing, panels } = curveChoices();
    const choices = data.panels.map(({ names, title }) => [names[0], title]);
    const hasSeeds = data.cells.labels.length < data.runs.length;
    const groups = [...(hasSeeds ? [["seeds", "all seeds together"]] : []), ["run", "each run"]];
    return [
      { name: "curves.metric", label: "Metric", value: metric, choices: [...(choices.length > 1 ? [["", "all"]] : []), ...choices] },
      { name: "curves.x", label: "Over", value: x, choices: axesOf(panels).map((name) => [name, X_LABELS[name]]) },
      {
        name: "curves.group",
        label: "Group by",
        value: group,
        choices: [...groups, ...data.varying.map((name) => [`setting:${name}`, name])],
      },
      { name: "curves.smooth", label: "Smoothing", value: smoothing, choices: [["", "none"], ...SMOOTHINGS.map((share) => [share, share])] },
      { name: "curves.logx", label: "Log x", value: view["curves.logx"] },
      { name: "curves.logy", label: "Log y", value: view["curves.logy"] },
    ];
  },

  draw(figure, colours) {
    const choices = curveChoices(),
      { group, panels } = choices,
      places = panelPlaces(panels.length, figure.width);
    const ranked = rankedGroups(choices),
      coloured = ranked.slice(0, MAX_COLOURED).map((each, rank) => ({ ...each, ...seriesStyle(rank), rank })),
      off = new Set(listInView("curves.off")),
      marked = new Set(markedRuns());
    const isMarked = ({ runs }) => runs.some((run) => marked.has(run)),
      others = ranked.slice(MAX_COLOURED);
    const grey = [
      ...sampleEvenly(
        others.filter((each) => !isMarked(each)),
        Math.ceil(MAX_GREY / panels.length),
      ),
      ...others.filter(isMarked),
    ];
    const groups = [...grey, ...coloured.filter(({ label }) => !off.has(label)).reverse()].map((each) => ({
      ...each,
      isMarked: isMarked(each),
    }));
    const drawn = panels.map((panel) => panelCurves(panel, groups, choices));
    const options = drawn.map((curves, index) => panelOption(panels[index], curves, index, choices, colours));
    const option = {
      ...baseOption(colours, ({ seriesIndex, dataIndex }) => curveTooltip(figure, drawn[seriesIndex][dataIndex], seriesIndex)),
      grid: places.grids,
      xAxis: options.map(({ xAxis }) => xAxis),
      yAxis: options.map(({ yAxis }) => yAxis),
      series: options.map(({ series }) => series),
    };
    return {
      option,
      legend: coloured.map(({ label, colour, marker }) => ({ key: label, label, colour, dash: "solid", marker })),
      height: places.height,
      state: curveState(choices, ranked, grey),
      runsOf: ({ seriesIndex, dataIndex }) => drawn[seriesIndex][dataIndex].runs,
      csv: () => [
        [group === "run" ? "run" : "group", "metric", "over", "at", "value", "lowest", "highest"],
        ...drawn.flat().flatMap(({ label, name, x, points }) => points.map((point) => [label, name, x, ...point])),
      ],
    };
  },
};

// What is drawn: one panel that was chosen, or all; and by which metric groups are ranked.
function curveChoices() {
  const wanted = data.panels.find(({ names }) => names.includes(view["curves.metric"])),
    all = data.panels.slice(0, MAX_PANELS),
    panels = wanted ? [wanted] : all;
  const hasOutcome = all.some(({ names }) => names.includes(data.outcome)),
    lead = wanted ? wanted.names[0] : hasOutcome ? data.outcome : all[0].names[0];
  const axes = axesOf(panels),
    smoothing = SMOOTHINGS.find((share) => share === view["curves.smooth"]) ?? "";
  return {
    panels,
    lead,
    metric: panels.length > 1 ? "" : panels[0].names[0],
    group: view["curves.group"] ?? (data.cells.labels.length < data.runs.length ? "seeds" : "run"),
    x: axes.includes(view["curves.x"]) ? view["curves.x"] : axes[0],
    smoothing,
    isLogX: Boolean(view["curves.logx"]),
    isLogY: Boolean(view["curves.logy"]),
  };
}

function axesOf(panels) {
  return Object.keys(X_LABELS).filter((name) => panels.some((panel) => axisOf(panel, name) === name));
}

// A metric that files have by step is drawn so beside others by epoch.
function axisOf({ names }, wanted) {
  const known = remember(`axes of ${names[0]}`, () =>
    Object.keys(X_LABELS).filter((axis) => data.curves.some(({ x, y }) => axis in x && names.some((name) => name in y))),
  );
  return known.includes(wanted) ? wanted : known[0];
}

function panelPlaces(count, width) {
  const most = Math.max(1, Math.min(3, Math.floor(width / MIN_PANEL_WIDTH))),
    rows = Math.ceil(count / most),
    columns = Math.ceil(count / rows),
    share = width / columns,
    single = Math.max(PLOT_HEIGHT, Math.min(width / 2, 0.6 * innerHeight)),
    tall = count === 1 ? single : PANEL_HEIGHT;
  const grids = Array.from({ length: count }, (_, index) => ({
    left: 12 + share * (index % columns),
    top: 30 + tall * Math.floor(index / columns),
    width: share - 36,
    height: tall - 64,
    containLabel: true,
  }));
  return { grids, height: tall * rows };
}

function panelCurves(panel, groups, { x, isLogX, isLogY, smoothing }) {
  const axis = axisOf(panel, x);
  const curves = panel.names.flatMap((name, place) => {
    const byRun = pointsByRun(name, axis, isLogX, isLogY);
    const shown = place ? groups.filter(({ rank }) => rank !== undefined) : groups;
    return shown.flatMap((each) => {
      const points = groupPoints(each.runs, byRun);
      if (points.length < 2) return [];
      const smooth = smoothing ? smoothed(points, Number(smoothing)) : points;
      return [{ ...each, name, place, x: axis, points: smooth, last: points.at(-1), dash: data.styles.dashes[place] }];
    });
  });
  return curves.sort((a, b) => b.place - a.place).sort((a, b) => a.isMarked - b.isMarked);
}

function panelOption(panel, curves, index, { x, lead, isLogX, isLogY }, colours) {
  const extents = curves.map(extentOf),
    axis = axisOf(panel, x);
  return {
    xAxis: numberAxis(colours, {
      title: X_LABELS[axis],
      isLog: isLogX,
      values: extents.flatMap((extent) => extent.slice(0, 2)),
      gridIndex: index,
      ...BELOW,
      ...(isLogX || axis === "seconds" ? {} : { minInterval: 1 }),
      splitLine: { show: false },
    }),
    yAxis: numberAxis(colours, {
      title: panel.title,
      isLog: isLogY,
      values: extents.flatMap((extent) => extent.slice(2)),
      gridIndex: index,
      ...ABOVE(colours),
    }),
    series: {
      type: "custom",
      xAxisIndex: index,
      yAxisIndex: index,
      encode: { x: [0, 1], y: [2, 3] },
      data: extents,
      renderItem: ({ dataIndex }, api) => curveElements(curves[dataIndex], api, colours, lead),
    },
  };
}

function curveTooltip(figure, curve, index) {
  const near = nearestPoint(figure, curve, index),
    at = ([place]) => `at ${X_LABELS[curve.x].split(" ")[0]} ${shortNumber(place)}`;
  const range = near && near.length > 2 ? ` (${shortNumber(near[2])} to ${shortNumber(near[3])})` : "";
  const count = curve.runs.length > 1 ? `mean of ${plural(curve.runs.length, "run")}` : null;
  return tooltipLines([
    curve.label,
    near && `${data.metrics[curve.name]}: ${shortNumber(near[1])}${range} ${at(near)}`,
    `last: ${shortNumber(curve.last[1])} ${at(curve.last)}`,
    count,
  ]);
}

function curveState({ panels, lead, x, group, smoothing }, ranked, grey) {
  if (!ranked.length) return `No selected run has several values of ${data.metrics[lead]}.`;
  const isRanked = Boolean(data.better[lead]),
    first = `${isRanked ? "the" : "the first"} ${MAX_COLOURED}${isRanked ? " best" : ""}`;
  const best = isRanked
    ? `The best by ${data.metrics[lead]} is the thick one, with a star.`
    : "Which is the best is not known: no direction was declared.";
  const others =
    ranked.length > MAX_COLOURED
      ? ` (${first} of ${ranked.length.toLocaleString("en")} in colour, ${grey.length.toLocaleString("en")} in grey)`
      : "";
  const mean = group === "run" ? "" : ": mean and range over the finished runs of a group",
    more = data.panels.length - MAX_PANELS;
  const notes = [
    `By ${X_LABELS[x]}${others}${mean}.`,
    best,
    data.curvesAreThinned ? `Each curve has ${data.curvePoints} of its points, at even steps.` : null,
    smoothing ? "Lines are smoothed; the last values are not." : null,
    panels.length > 1 && more > 0 ? `${plural(more, "more metric")} can be chosen.` : null,
  ];
  return notes.filter(Boolean).join(" ");
}

// The groups of the selected runs that have curves, the best last value of the leading metric first.
function rankedGroups({ panels, lead, x, group, isLogX, isLogY }) {
  const ofLead = panels.find(({ names }) => names.includes(lead)),
    byRun = pointsByRun(lead, axisOf(ofLead, x), isLogX, isLogY);
  const hasCurves = new Set(data.curves.filter(({ y }) => panels.some(({ names }) => names.some((name) => name in y))).map(({ run }) => run));
  const groups = new Map();
  for (const run of hasCurves) {
    const label = selected.has(run) ? groupOf(run, group) : null;
    if (label === null) continue;
    if (!groups.has(label)) groups.set(label, []);
    groups.get(label).push(run);
  }
  const sign = { max: -1, min: 1 }[data.better[lead]] ?? 0;
  const found = [...groups].map(([label, members]) => {
    const runs = countedRuns(members),
      last = groupPoints(runs, byRun).findLast(([, value]) => value !== null)?.[1];
    return { label, runs, isFinal: runs.some(isFinished), last };
  });
  const has = ({ last }) => last !== undefined;
  return (panels.length > 1 ? found : found.filter(has)).sort(
    (a, b) => has(b) - has(a) || b.isFinal - a.isFinal || sign * (a.last - b.last) || 0,
  );
}

// Of the runs that have the metric: one curve as it is, of several their mean.
function groupPoints(runs, byRun) {
  const curves = runs.map((run) => byRun.get(run)).filter(Boolean);
  return curves.length > 1 ? meanPoints(curves) : (curves[0] ?? []);
}

// A moving mean that weighs each point before by `share` of the next one's weight, without a pull to the first value.
function smoothed(points, share) {
  let sums = [0, 0, 0],
    weight = 0;
  return points.map(([at, ...values]) => {
    if (values[0] === null) return [at, ...values];
    weight = share * weight + 1;
    sums = values.map((value, place) => share * sums[place] + value);
    return [at, ...sums.map((sum) => sum / weight)];
  });
}

// The points of each run's curve that can be drawn on these axes; runs with fewer than two are left out.
function pointsByRun(metric, x, isLogX, isLogY) {
  return remember(`curves ${JSON.stringify([metric, x, isLogX, isLogY])}`, () => {
    const byRun = new Map();
    for (const curve of data.curves) {
      if (!(metric in curve.y) || !(x in curve.x)) continue;
      const xs = data.xs[curve.x[x]];
      const points = curve.y[metric]
        .map((value, index) => [xs[index], isLogY && value <= 0 ? null : value])
        .filter(([at]) => !isLogX || at > 0);
      if (points.filter(([, value]) => value !== null).length > 1) byRun.set(curve.run, points);
    }
    return byRun;
  });
}

function groupOf(run, group) {
  if (group === "run") return runLabel(run);
  if (group === "seeds") return data.cells.labels[data.cells.ofRun[run]];
  const name = group.replace(/^setting:/, ""),
    value = data.columns[name]?.values[run];
  return value === null || value === undefined ? null : `${name}=${value}`;
}

// Mean, lowest and highest value over the points that all curves have; between the points of curves that have others.
function meanPoints(curves) {
  const known = curves.map((points) => points.filter(([, value]) => value !== null));
  const byX = known.map((points) => new Map(points));
  const shortest = Math.min(...known.map((points) => points.length));
  const common = known[0].map(([at]) => at).filter((at) => byX.every((values) => values.has(at)));
  if (2 * common.length >= shortest)
    return common.map((at) =>
      summary(
        at,
        byX.map((values) => values.get(at)),
      ),
    );
  const first = Math.max(...known.map((points) => points[0][0])),
    last = Math.min(...known.map((points) => points.at(-1)[0]));
  if (!(first < last)) return [];
  return Array.from({ length: INTERPOLATED_POINTS }, (_, index) => {
    const at = first + ((last - first) * index) / (INTERPOLATED_POINTS - 1);
    return summary(
      at,
      known.map((points) => interpolated(points, at)),
    );
  });
}

function summary(at, values) {
  return [at, values.reduce((sum, value) => sum + value, 0) / values.length, Math.min(...values), Math.max(...values)];
}

function interpolated(points, at) {
  let low = 0,
    high = points.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (points[middle][0] <= at) low = middle;
    else high = middle;
  }
  const [[x0, y0], [x1, y1]] = [points[low], points[high]];
  return x1 === x0 ? y1 : y0 + (y1 - y0) * Math.min(1, Math.max(0, (at - x0) / (x1 - x0)));
}

function extentOf({ points }) {
  const xs = points.map(([x]) => x),
    ys = points.flatMap((point) => point.slice(1)).filter((value) => value !== null);
  return [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
}

function curveElements(curve, api, colours, lead) {
  const isColoured = curve.rank !== undefined,
    isFirst = curve.place === 0, // the others of its panel are thin and dashed
    isBest = curve.rank === 0 && curve.name === lead && Boolean(data.better[lead]);
  const colour = curve.isMarked && !isColoured ? colours.text : (curve.colour ?? GREY);
  const lineWidth = curve.isMarked ? 4 : isBest ? 2.6 : isColoured && isFirst ? 1.3 : 0.8;
  const style = {
    stroke: colour,
    fill: "none",
    lineWidth,
    lineDash: DASHES[curve.dash],
    opacity: (isColoured && !curve.runs.every(isPruned)) || curve.isMarked ? 1 : 0.35,
  };
  const emphasis = { style: { lineWidth: lineWidth + 1.5, opacity: 1, stroke: isColoured ? colour : colours.text } };
  const children = [];
  if (isColoured && isFirst && curve.points[0].length > 2) {
    const edge = (place) => curve.points.map((point) => api.coord([point[0], point[place]]));
    children.push({
      type: "polygon",
      silent: true,
      shape: { points: [...edge(2), ...edge(3).reverse()] },
      style: { fill: colour, opacity: 0.2 },
    });
  }
  for (const piece of unbroken(curve.points)) {
    const points = piece.map(([x, y]) => api.coord([x, y]));
    children.push({ type: "polyline", shape: { points }, style, emphasis });
    if (!isColoured || !isFirst) continue;
    const step = Math.max(1, Math.floor(curve.points.length / MAX_MARKERS));
    for (let index = 0; index < points.length; index += step)
      children.push({ ...mark(curve.marker, points[index], 6, colour), silent: true });
  }
  const end = curve.points.findLast(([, value]) => value !== null);
  if (isBest) children.push({ ...mark("*", api.coord(end), 12, colour), silent: true });
  return { type: "group", children };
}

// The parts of a curve between its missing values.
function unbroken(points) {
  const pieces = [[]];
  for (const point of points) {
    if (point[1] === null) pieces.push([]);
    else pieces.at(-1).push(point);
  }
  return pieces.filter((piece) => piece.length);
}

function nearestPoint(figure, { points }, gridIndex) {
  if (!figure.pointer) return null;
  const at = figure.chart.convertFromPixel({ gridIndex }, figure.pointer)[0];
  const known = points.filter(([, value]) => value !== null);
  return known.reduce((best, point) => (Math.abs(point[0] - at) < Math.abs(best[0] - at) ? point : best), known[0]);
}
