// Curves as the charts draw them: from the tables of one or several runs.
const widths = [1, 3, 5, 11, 21, 51, 101];  // points averaged at each position of the smoothing slider

// Mean over the neighbours on both sides, so that nothing is shifted.
const smoothed = (values, width) => {
  if (width <= 1) return values;
  const half = Math.floor(width / 2);
  return values.map((value, i) => {
    if (!isNumber(value)) return null;
    let sum = 0;
    let count = 0;
    for (let j = Math.max(0, i - half); j <= Math.min(values.length - 1, i + half); ++j) {
      if (isNumber(values[j])) {
        sum += values[j];
        ++count;
      }
    }
    return sum / count;
  });
};

// {name, x, mean, low, high}: points without a place on the axis are left out; low and high may be null.
const curveOf = (run, line, axis, width) => {
  const from = fields(fields(run.tables)[line.table]);
  const column = fields(fields(from.columns)[line.column]);
  const places = list(from[axis]);
  const mean = smoothed(list(column.mean), width);
  const curve = {name: words(line.name), x: [], mean: [], low: null, high: null};
  const banded = width <= 1 && Array.isArray(column.low) && Array.isArray(column.high);
  const kept = [];
  places.forEach((x, i) => {
    if (isNumber(x) && (kept.length === 0 || x > places[kept[kept.length - 1]])) kept.push(i);
  });
  curve.x = kept.map((i) => places[i]);
  curve.mean = kept.map((i) => (isNumber(mean[i]) ? mean[i] : null));
  if (banded) {
    curve.low = kept.map((i) => (isNumber(column.low[i]) ? column.low[i] : null));
    curve.high = kept.map((i) => (isNumber(column.high[i]) ? column.high[i] : null));
  }
  return curve;
};

// The sum of a stack's parts, so that runs can be compared in one chart.
const totalOf = (curves) => {
  const first = curves[0];
  const mean = first.mean.map((_, i) => curves.reduce((sum, curve) => sum + (curve.mean[i] || 0), 0));
  return {name: 'all parts', x: first.x, mean, low: null, high: null};
};

// [{key, title, unit, note, stacked, curves}], the charts of all `runs` with a curve for each line and run.
const chartsOf = (runs, axis, width) => {
  const charts = new Map();
  for (const run of runs) {
    for (const chart of list(run.charts)) {
      const key = words(chart.key);
      if (!charts.has(key)) {
        charts.set(key, {key, title: words(chart.title), unit: words(chart.unit), note: words(chart.note),
          stacked: chart.stacked === true && runs.length === 1, curves: []});
      }
      let curves = list(chart.lines).map((line) => curveOf(run, line, axis, width));
      if (runs.length > 1 && chart.stacked === true && curves.length > 0) curves = [totalOf(curves)];
      curves.forEach((curve, i) => {
        curve.line = i;
        curve.run = runs.indexOf(run);
        if (runs.length > 1) curve.name = words(run.shortName) + ': ' + curve.name;
        if (curve.mean.some(isNumber)) charts.get(key).curves.push(curve);
      });
    }
  }
  return [...charts.values()].filter((chart) => chart.curves.length > 0);
};

// Rows for dygraphs, one for each x of any curve; with `bands` each value is [low, mean, high].
const rowsOf = (curves, bands) => {
  const places = [...new Set(curves.flatMap((curve) => curve.x))].sort((a, b) => a - b);
  const at = new Map(places.map((x, i) => [x, i]));
  const rows = places.map((x) => [x, ...curves.map(() => (bands ? [null, null, null] : null))]);
  curves.forEach((curve, c) => curve.x.forEach((x, i) => {
    const mean = curve.mean[i];
    if (mean === null) return;
    rows[at.get(x)][c + 1] = bands ? [curve.low ? curve.low[i] : mean, mean, curve.high ? curve.high[i] : mean] : mean;
  }));
  return rows;
};

// Index of the place nearest to x.
const nearest = (places, x) => {
  let low = 0;
  let high = places.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (places[middle] <= x) low = middle;
    else high = middle;
  }
  return Math.abs(places[high] - x) < Math.abs(places[low] - x) ? high : low;
};
