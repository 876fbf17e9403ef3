// Learning curves of any metric over epoch, step, time or samples: of each run, or mean and range of a group.

const X_LABELS = { epoch: "epoch", step: "step", seconds: "seconds since the run's start", samples: "samples" };
const MAX_COLOURED = 12,
  MAX_GREY = 200,
  MAX_MARKERS = 8,
  INTERPOLATED_POINTS = 60;

const learningCurves = {
  isPossible: () => data.curves.length > 0,

  height: () => PLOT_HEIGHT,

  controls() {
    const metrics = Object.keys(data.metrics),
      { metric } = curveChoices();
    const axes = Object.keys(X_LABELS).filter((name) =>
      data.curves.some((curve) => name in curve.x && metric in curve.y),
    );
    const hasSeeds = data.cells.labels.length < data.runs.length;
    const groups = [...(hasSeeds ? [["seeds", "all seeds together"]] : []), ["run", "each run"]];
    return [
      { name: "curves.metric", label: "Metric", value: metric, choices: metrics.map((name) => [name, data.metrics[name]]) },
      { name: "curves.x", label: "Over", value: curveChoices().x, choices: axes.map((name) => [name, X_LABELS[name]]) },
      {
        name: "curves.group",
        label: "Group by",
        value: curveChoices().group,
        choices: [...groups, ...data.varying.map((name) => [`setting:${name}`, name])],
      },
      { name: "curves.logx", label: "Log x", value: view["curves.logx"] },
      { name: "curves.logy", label: "Log y", value: view["curves.logy"] },
    ];
  },

  draw(figure, colours) {
    const { metric, x, group } = curveChoices(),
      isLogX = Boolean(view["curves.logx"]),
      isLogY = Boolean(view["curves.logy"]);
    const curves = groupedCurves(metric, x, group, isLogX, isLogY),
      off = new Set(listInView("curves.off"));
    const coloured = curves
      .slice(0, MAX_COLOURED)
      .map((curve, rank) => ({
        ...curve,
        ...seriesStyle(rank),
        rank,
        isBest: rank === 0 && Boolean(data.better[metric]),
      }));
    const marked = new Set(markedRuns()),
      isMarked = (curve) => curve.runs.some((run) => marked.has(run));
    const others = curves.slice(MAX_COLOURED);
    const grey = [
      ...sampleEvenly(
        others.filter((curve) => !isMarked(curve)),
        MAX_GREY,
      ),
      ...others.filter(isMarked),
    ];
    const shown = coloured.filter((curve) => !off.has(curve.label)).reverse();
    const drawn = [...grey, ...shown].map((curve) => ({ ...curve, isMarked: isMarked(curve) }));
    drawn.sort((a, b) => a.isMarked - b.isMarked);
    const extents = drawn.map(extentOf);
    const line = ({ points }) =>
      `${data.metrics[metric]}: ${shortNumber(points.at(-1)[1])} at ${X_LABELS[x].split(" ")[0]} ${shortNumber(points.at(-1)[0])}`;
    const option = {
      ...baseOption(colours, ({ dataIndex }) => {
        const curve = drawn[dataIndex],
          near = nearestPoint(figure, curve);
        const range = near && near.length > 2 ? ` (${shortNumber(near[2])} to ${shortNumber(near[3])})` : "";
        const here = near && `${shortNumber(near[1])}${range} at ${X_LABELS[x].split(" ")[0]} ${shortNumber(near[0])}`;
        const count = curve.runs.length > 1 ? `mean of ${plural(curve.runs.length, "run")}` : null;
        return tooltipLines([curve.label, here ?? null, `last: ${line(curve)}`, count]);
      }),
      xAxis: numberAxis(colours, {
        title: X_LABELS[x],
        isLog: isLogX,
        values: extents.flatMap((extent) => extent.slice(0, 2)),
        ...BELOW,
        ...(isLogX || x === "seconds" ? {} : { minInterval: 1 }),
        splitLine: { show: false },
      }),
      yAxis: numberAxis(colours, {
        title: data.metrics[metric],
        isLog: isLogY,
        values: extents.flatMap((extent) => extent.slice(2)),
        ...ABOVE(colours),
      }),
      series: [
        {
          type: "custom",
          encode: { x: [0, 1], y: [2, 3] },
          data: extents,
          renderItem: (params, api) => curveElements(drawn[params.dataIndex], api, colours),
        },
      ],
    };
    const legend = coloured.map((curve) => ({
      key: curve.label,
      label: curve.label,
      colour: curve.colour,
      dash: curve.dash,
      marker: curve.marker,
    }));
    return {
      option,
      legend,
      height: PLOT_HEIGHT,
      state: curveState(metric, x, group, curves, grey),
      runsOf: ({ dataIndex }) => drawn[dataIndex].runs,
    };
  },
};

function curveChoices() {
  const metrics = Object.keys(data.metrics),
    wanted = view["curves.metric"];
  const preferred = metrics.includes(data.outcome) ? data.outcome : metrics[0];
  const metric = metrics.includes(wanted) ? wanted : preferred;
  const axes = Object.keys(X_LABELS).filter((name) =>
    data.curves.some((curve) => name in curve.x && metric in curve.y),
  );
  const group = view["curves.group"] ?? (data.cells.labels.length < data.runs.length ? "seeds" : "run");
  return { metric, group, x: axes.includes(view["curves.x"]) ? view["curves.x"] : axes[0] };
}

function curveState(metric, x, group, curves, grey) {
  if (!curves.length) return `No selected run has several values of ${data.metrics[metric]}.`;
  const isRanked = Boolean(data.better[metric]),
    first = `${isRanked ? "the" : "the first"} ${MAX_COLOURED}${isRanked ? " best" : ""}`;
  const best = isRanked
    ? "The best is the thick one, with a star."
    : "Which is the best is not known: no direction was declared.";
  const others =
    curves.length > MAX_COLOURED
      ? ` (${first} of ${curves.length.toLocaleString("en")} in colour, ${grey.length.toLocaleString("en")} in grey)`
      : "";
  const mean = group === "run" ? "" : ": mean and range over the finished runs of a group";
  const thinned = data.curvesAreThinned ? ` Each curve has ${data.curvePoints} of its points, at even steps.` : "";
  const label = data.metrics[metric],
    start = label === metric ? label : label[0].toUpperCase() + label.slice(1);
  return `${start} by ${X_LABELS[x]}${others}${mean}. ${best}${thinned}`;
}

// The curves of the selected runs in groups, the best last value first.
function groupedCurves(metric, x, group, isLogX, isLogY) {
  const key = JSON.stringify([metric, x, isLogX, isLogY]);
  const byRun = remember(`curves ${key}`, () => pointsByRun(metric, x, isLogX, isLogY));
  const groups = new Map();
  for (const run of byRun.keys()) {
    const label = selected.has(run) ? groupOf(run, group) : null;
    if (label === null) continue;
    if (!groups.has(label)) groups.set(label, []);
    groups.get(label).push(run);
  }
  const curves = [...groups].map(([label, members]) => {
    const runs = countedRuns(members),
      isFinal = runs.some(isFinished);
    const points = runs.length > 1 ? meanPoints(runs.map((run) => byRun.get(run))) : byRun.get(runs[0]);
    return { label, runs, isFinal, points };
  });
  const sign = { max: -1, min: 1 }[data.better[metric]] ?? 0;
  const last = (curve) => curve.points.findLast(([, value]) => value !== null)[1];
  return curves
    .filter((curve) => curve.points.length > 1)
    .sort((a, b) => b.isFinal - a.isFinal || sign * (last(a) - last(b)));
}

// The points of each run's curve that can be drawn on these axes; runs with fewer than two are left out.
function pointsByRun(metric, x, isLogX, isLogY) {
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
}

function groupOf(run, group) {
  if (group === "run") return data.runs[run];
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

function curveElements(curve, api, colours) {
  const isColoured = curve.rank !== undefined,
    isBest = curve.isBest;
  const colour = curve.isMarked && !isColoured ? colours.text : (curve.colour ?? GREY);
  const lineWidth = curve.isMarked ? 4 : isBest ? 2.6 : isColoured ? 1.3 : 0.8;
  const style = {
    stroke: colour,
    fill: "none",
    lineWidth,
    lineDash: DASHES[curve.dash ?? "solid"],
    opacity: (isColoured && !curve.runs.every(isPruned)) || curve.isMarked ? 1 : 0.35,
  };
  const emphasis = { style: { lineWidth: lineWidth + 1.5, opacity: 1, stroke: isColoured ? colour : colours.text } };
  const children = [];
  if (isColoured && curve.points[0].length > 2) {
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
    if (!isColoured) continue;
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

function nearestPoint(figure, { points }) {
  if (!figure.pointer) return null;
  const at = figure.chart.convertFromPixel({ gridIndex: 0 }, figure.pointer)[0];
  const known = points.filter(([, value]) => value !== null);
  return known.reduce((best, point) => (Math.abs(point[0] - at) < Math.abs(best[0] - at) ? point : best), known[0]);
}
