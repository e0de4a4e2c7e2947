// Draws the data, and redraws it when `tandem watch` has new data.
const state = {data: null, chosen: null, axis: 'step', smoothing: 0, window: null, cards: new Map(), drawn: ''};

// Short names: the last part of a path other than "run", or more parts if several runs would get the same name.
const shortNames = (runs) => {
  const parts = runs.map((run) => words(run.run).split('/').filter((part) => part !== ''));
  for (let take = 1; take < 20; ++take) {
    const names = parts.map((part) => part.slice(part.at(-1) === 'run' ? -take - 1 : -take).join('/') || 'run');
    if (new Set(names).size === names.length) return names;
  }
  return runs.map((run, i) => `${words(run.run)} (${i + 1})`);
};

const chosenRuns = () => {
  const runs = state.data.runs;
  const one = runs.find((run) => run.run === state.chosen);
  return one ? [one] : runs;
};

const drawNavigation = () => {
  const {runs} = state.data;
  byId('runs').hidden = runs.length < 2;
  const button = (name, key) => el('button', {type: 'button', 'aria-pressed': String(key === state.chosen), 'data-key': 'run ' + key,
    onclick: () => {
      state.chosen = key;
      state.window = null;
      draw();
    }}, name);
  byId('runs').replaceChildren(...(runs.length < 2 ? []
    : [button('All runs', null), ...runs.map((run) => button(run.shortName, run.run))]));
};

const drawCharts = () => {
  const runs = chosenRuns();
  const view = {axis: state.axis, window: state.window, several: runs.length > 1, changed: (window) => {
    state.window = window;
    for (const card of state.cards.values()) {
      card.view.window = window;
      card.zoom(window);
    }
  }};
  const charts = chartsOf(runs, state.axis, widths[state.smoothing]);
  const shape = JSON.stringify([runs.map((run) => run.run), charts.map((chart) => [chart.key, chart.curves.map((curve) => curve.name)])]);
  byId('curves').hidden = charts.length === 0;
  if (shape === state.drawn) {
    charts.forEach((chart) => {
      const card = state.cards.get(chart.key);
      card.view = view;
      card.update(chart);
    });
    return;
  }
  state.drawn = shape;
  for (const card of state.cards.values()) card.graph.destroy();
  state.cards = new Map(charts.map((chart) => [chart.key, new ChartCard(chart, view)]));
  byId('charts').replaceChildren(...[...state.cards.values()].map((card) => card.card));
  for (const card of state.cards.values()) card.draw();
};

const summaryOf = (runs) => {
  if (runs.length === 0) return 'There is no run here yet.';
  const made = moment(state.data.time);
  return runs.length > 1 ? `${runs.length} runs · read ${made}`
    : `step ${number(runs[0].step)} · last record ${moment(runs[0].last_record)} · read ${made}`;
};

const draw = () => {
  const focus = document.activeElement && document.activeElement.dataset ? document.activeElement.dataset.key : undefined;
  const runs = chosenRuns();
  const title = runs.length === 1 ? runs[0].shortName : 'Runs side by side';
  document.title = title + ' · Tandem';
  byId('title').textContent = title;
  byId('summary').textContent = summaryOf(runs);
  drawNavigation();
  byId('answers').hidden = runs.length === 0;
  byId('answers-body').replaceChildren(...(runs.length === 0 ? [] : [runs.length === 1 ? answersOfOne(runs[0]) : comparison(runs)]));
  drawCharts();
  byId('details').replaceChildren(...(runs.length === 1 ? detailsOf(runs[0]) : []));
  byId('footer').textContent = `Written by tandem ${words(state.data.tandem)} from what the run measured. Curves: dygraphs (MIT).`;
  if (focus) [...document.querySelectorAll('[data-key]')].find((element) => element.dataset.key === focus)?.focus();
};

const take = (data) => {
  const known = data && data.format === 'tandem report' && Array.isArray(data.runs);
  byId('problem').hidden = known;
  if (!known) {
    byId('problem').textContent = 'The data of this page is not a Tandem report.';
    return;
  }
  data.runs = data.runs.map(fields);
  const names = shortNames(data.runs);
  data.runs.forEach((run, i) => { run.shortName = names[i]; });
  state.data = data;
  draw();
};

const setControls = () => {
  byId('controls').addEventListener('submit', (event) => event.preventDefault());
  for (const radio of document.querySelectorAll('input[name=axis]')) {
    radio.addEventListener('change', () => {
      state.axis = radio.value;
      state.window = null;
      drawCharts();
    });
  }
  byId('smoothing').addEventListener('input', (event) => {
    state.smoothing = Math.max(0, Math.min(widths.length - 1, Number(event.target.value) || 0));
    byId('smoothing-value').textContent = state.smoothing === 0 ? 'off' : widths[state.smoothing] + ' points';
    drawCharts();
  });
  byId('whole').addEventListener('click', () => {
    state.window = null;
    drawCharts();
  });
  darkness.addEventListener('change', () => state.data && drawCharts());
  const print = (on) => () => {
    printing = on;
    for (const card of state.cards.values()) {
      card.plot.style.width = on ? '620px' : '';
      card.graph.resize();
    }
    if (state.data) drawCharts();
  };
  addEventListener('beforeprint', print(true));
  addEventListener('afterprint', print(false));
};

// Fetches the data whenever the server reports a change, and every few seconds while it cannot report.
const follow = () => {
  const live = byId('live');
  const query = location.search;  // the token, if there is one
  let version = '';
  let asking = false;
  let again = false;
  const say = (text, kind) => {
    if (live.textContent !== text) live.textContent = text;
    live.className = kind;
  };
  const ask = async () => {
    if (asking) {
      again = true;
      return;
    }
    asking = true;
    try {
      const answer = await fetch('data.json' + query, {headers: version ? {'If-None-Match': version} : {}, cache: 'no-store'});
      if (answer.ok) {
        version = answer.headers.get('ETag') || '';
        take(await answer.json());
      }
      if (answer.ok || answer.status === 304) say('● live', 'on');
      else say('● ' + (await answer.text()), 'off');
    } catch {
      say('● the server does not answer', 'off');
    }
    asking = false;
    if (again) {
      again = false;
      ask();
    }
  };
  ask();
  let source = null;
  const listen = () => {
    source = new EventSource('events' + query);
    source.addEventListener('changed', ask);
    source.addEventListener('error', () => {
      if (source.readyState === EventSource.CLOSED) source = null;
    });
  };
  listen();
  setInterval(() => {
    if (source === null) {
      ask();
      if (Math.random() < 0.1) listen();
    } else if (source.readyState !== EventSource.OPEN) {
      ask();
    }
  }, 5000);
};

setControls();
const embedded = JSON.parse(byId('data').textContent);
if (embedded === null) follow();
else take(embedded);
