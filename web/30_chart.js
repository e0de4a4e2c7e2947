// One chart: its card, legend, curves, keyboard and table.
const palettes = {
  light: ['#0b62a4', '#b04a00', '#16794a', '#8338a8', '#b3202f', '#6b5a00', '#00707c', '#4d5662'],
  dark: ['#6cb4f8', '#ffab6b', '#6fd39b', '#d0a2ff', '#ff8f8f', '#e0c85c', '#5fd0da', '#b4bdc8'],
};
// Only what these charts need; dygraphs' own legend would write markup and inline styles.
Dygraph.PLUGINS = [Dygraph.Plugins.Axes, Dygraph.Plugins.Grid];
const dashes = [null, [7, 4], [2, 3], [9, 4, 2, 4]];
const darkness = matchMedia('(prefers-color-scheme: dark)');
let printing = false;
const palette = () => (darkness.matches && !printing ? palettes.dark : palettes.light);

class ChartCard {
  constructor(chart, view) {
    this.view = view;  // {axis, window, changed(window)}
    this.hidden = new Set();
    this.at = el('span', {class: 'at', 'aria-live': 'polite'});
    this.legend = el('div', {class: 'lines', role: 'group', 'aria-label': 'Curves of ' + chart.title});
    this.plot = el('div', {class: 'plot', tabindex: 0, role: 'img', onkeydown: (event) => this.key(event)});
    this.card = el('article', {class: 'chart'}, el('h3', {}, this.at, chart.title,
      chart.unit ? el('span', {class: 'unit'}, chart.unit) : null), this.legend, this.plot,
    el('p', {class: 'note'}, chart.note), fold('table ' + chart.key, 'Table', () => this.table()));
    if (view.several) chart.curves.forEach((curve) => curve.line > 0 && this.hidden.add(curve.name));
    this.chart = chart;
  }

  colour(curve) { return palette()[(this.view.several ? curve.run : curve.line) % palette().length]; }

  options() {
    const {chart, view} = this;
    const bands = !chart.stacked && chart.curves.some((curve) => curve.low);
    const grid = printing || !darkness.matches ? 'rgba(60,60,60,0.13)' : 'rgba(220,225,235,0.13)';
    const series = {};
    chart.curves.forEach((curve, i) => {
      const few = curve.x.length <= 60;
      series['c' + i] = {color: this.colour(curve), strokeWidth: 1.6, drawPoints: few && !chart.stacked, pointSize: 2.2,
        strokePattern: view.several ? dashes[curve.line % dashes.length] : null};
    });
    return {
      file: rowsOf(chart.curves, bands), labels: ['x', ...chart.curves.map((_, i) => 'c' + i)], series,
      visibility: chart.curves.map((curve) => !this.hidden.has(curve.name)), customBars: bands,
      stackedGraph: chart.stacked, fillAlpha: chart.stacked ? 0.55 : 0.16, connectSeparatedPoints: !chart.stacked,
      includeZero: chart.stacked, gridLineColor: grid, axisLineColor: grid, axisLabelFontSize: 12,
      axes: {x: {axisLabelFormatter: tick, pixelsPerLabel: 70}, y: {axisLabelFormatter: tick, axisLabelWidth: 54, pixelsPerLabel: 34}},
      highlightCircleSize: 3, dateWindow: this.window(view.window), animatedZooms: false, yRangePad: 6, xRangePad: 3,
    };
  }

  // Needs the card to be in the page.
  draw() {
    this.label();
    this.drawLegend();
    const options = this.options();
    if (this.graph) {
      this.graph.updateOptions(options);
      return;
    }
    const file = options.file;
    delete options.file;
    this.graph = new Dygraph(this.plot, file, {...options,
      highlightCallback: (event, x) => this.show(x), unhighlightCallback: () => this.show(null),
      zoomCallback: (low, high) => this.view.changed(this.whole(low, high) ? null : [low, high])});
  }

  whole(low, high) {
    const [first, last] = this.graph.xAxisExtremes();
    return low <= first && high >= last;
  }

  update(chart) {
    this.chart = chart;
    this.draw();
  }

  zoom(window) { this.graph.updateOptions({dateWindow: this.window(window)}); }

  // The range to show: all if null is asked for; a single place gets room on both sides.
  window(asked) {
    const ends = this.chart.curves.flatMap(({x}) => (x.length > 0 ? [x[0], x[x.length - 1]] : []));
    const first = Math.min(...ends);
    if (asked || ends.length === 0 || first < Math.max(...ends)) return asked;
    return first > 0 ? [0, 2 * first] : [first - 1, first + 1];
  }

  label() {
    const parts = this.chart.curves.map((curve) => {
      const last = curve.mean.findLastIndex(isNumber);
      return curve.name + ' ' + number(curve.mean[last]) + ' at ' + this.place(curve.x[last]);
    });
    this.plot.setAttribute('aria-label', `${this.chart.title}, ${this.chart.unit}: ${parts.slice(0, 8).join('; ')}. ` +
      'The table below has the values.');
  }

  place(x) { return this.view.axis === 'hours' ? number(x) + ' h' : 'step ' + number(x); }

  drawLegend() {
    this.values = [];
    this.legend.replaceChildren(...this.chart.curves.map((curve, i) => {
      const value = el('span', {class: 'value'});
      const box = el('input', {type: 'checkbox', checked: !this.hidden.has(curve.name), onchange: () => {
        if (box.checked) this.hidden.delete(curve.name);
        else this.hidden.add(curve.name);
        this.graph.setVisibility(i, box.checked);
      }});
      this.values.push(value);
      return el('label', {}, box, this.swatch(curve), el('span', {}, curve.name), value);
    }));
    this.show(null);
  }

  swatch(curve) {
    const canvas = el('canvas', {class: 'swatch', width: 36, height: 8, 'aria-hidden': 'true'});
    canvas.style.width = '18px';
    canvas.style.height = '4px';
    const pen = canvas.getContext('2d');
    pen.strokeStyle = this.colour(curve);
    pen.lineWidth = 6;
    pen.setLineDash(((this.view.several && dashes[curve.line % dashes.length]) || []).map((part) => 2 * part));
    pen.beginPath();
    pen.moveTo(0, 4);
    pen.lineTo(36, 4);
    pen.stroke();
    return canvas;
  }

  // Shows the values at x, or the last ones if x is null.
  show(x) {
    this.cursor = x;
    this.at.textContent = x === null ? '' : this.place(x);
    this.chart.curves.forEach((curve, i) => {
      const at = x === null ? curve.mean.findLastIndex(isNumber) : nearest(curve.x, x);
      this.values[i].textContent = number(curve.mean[at]) +
        (x !== null && curve.low && curve.low[at] < curve.high[at]
          ? ` (${number(curve.low[at])} to ${number(curve.high[at])})` : '');
    });
  }

  key(event) {
    const [low, high] = this.graph.xAxisRange();
    const span = high - low;
    const rows = this.graph.numRows();
    const move = {ArrowLeft: -1, ArrowRight: 1, Home: -rows, End: rows}[event.key];
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (move !== undefined && rows > 0) {
      const stride = Math.abs(move) === 1 ? move * Math.max(1, Math.round(rows / 200)) * (event.shiftKey ? 10 : 1) : move;
      this.row = Math.max(0, Math.min(rows - 1, (this.row === undefined ? (move > 0 ? -1 : rows) : this.row) + stride));
      this.graph.setSelection(this.row);
      this.show(this.graph.getValue(this.row, 0));
    } else if (event.key === '+' || event.key === '=' || event.key === '-') {
      const middle = isNumber(this.cursor) ? this.cursor : (low + high) / 2;
      const factor = event.key === '-' ? 2 : 0.5;
      const [first, last] = this.graph.xAxisExtremes();
      const window = [Math.max(first, middle - (middle - low) * factor), Math.min(last, middle + (high - middle) * factor)];
      this.view.changed(span * factor >= last - first ? null : window);
    } else if (event.key === '0') {
      this.view.changed(null);
    } else if (event.key === 'Escape') {
      this.graph.clearSelection();
      this.show(null);
    } else {
      return;
    }
    event.preventDefault();
  }

  table() {
    const curves = this.chart.curves;
    const places = [...new Set(curves.flatMap((curve) => curve.x))].sort((a, b) => a - b);
    const stride = Math.max(1, Math.ceil(places.length / 40));
    const rows = places.filter((_, i) => (places.length - 1 - i) % stride === 0);
    const cell = (curve, x) => {
      const i = nearest(curve.x, x);
      return curve.x.length === 0 || Math.abs(curve.x[i] - x) > (places[places.length - 1] - places[0]) / rows.length
        ? '–' : number(curve.mean[i]);
    };
    return table(this.chart.title, [this.view.axis === 'hours' ? 'hours' : 'step', ...curves.map((curve) => curve.name)],
      rows.map((x) => [number(x), ...curves.map((curve) => cell(curve, x))]));
  }
}
