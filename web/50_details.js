// The part below the curves: validations, time, samples, events, settings, environment.
const validations = (run) => {
  const rows = list(run.validations);
  if (rows.length === 0) return null;
  const stride = Math.max(1, Math.ceil(rows.length / 40));
  const shown = rows.filter((_, i) => (rows.length - 1 - i) % stride === 0).reverse();
  return section('Validations', table('Validations, the newest first',
    ['step', 'NLL (nats)', 'training sample', 'perplexity', 'BLEU', 'BLEU, 95 %', 'chrF', 'seconds'],
    shown.map((row) => [number(row.step), number(row.nll), number(row.train_nll), number(Math.exp(row.nll ?? NaN)),
      number(row.bleu), isNumber(row.bleu_low) && isNumber(row.bleu_high)
        ? `${number(row.bleu_low)} to ${number(row.bleu_high)}` : '–', number(row.chrf), number(row.seconds)])),
  words(run.bleu_signature) ? el('p', {class: 'note'}, 'BLEU ' + run.bleu_signature) : null);
};

const timeSplit = (run) => {
  const parts = Object.entries(fields(run.seconds)).filter(([, seconds]) => isNumber(seconds) && seconds > 0);
  const all = parts.reduce((sum, [, seconds]) => sum + seconds, 0);
  if (!(all > 0)) return null;
  const bar = (share) => {
    const element = el('span', {class: 'bar', 'aria-hidden': 'true'});
    element.style.width = Math.round(160 * share) + 'px';
    return element;
  };
  return section('Where the time went', table('Where the time went', ['part', 'time', 'ms a step', 'share', ''],
    parts.map(([name, seconds]) => [name, duration(seconds), number(1000 * seconds / run.steps),
      (100 * seconds / all).toFixed(1) + ' %', bar(seconds / all)])));
};

// Every sample sentence with its translations, the newest first.
const samples = (run) => {
  const byIndex = new Map();
  for (const sample of list(run.samples)) {
    const key = sample.index + '\n' + sample.source;
    if (!byIndex.has(key)) byIndex.set(key, []);
    byIndex.get(key).unshift(sample);
  }
  if (byIndex.size === 0) return null;
  const entry = (name, text) => [el('dt', {}, name), el('dd', {dir: 'auto'}, words(text))];
  const translations = (all) => el('dl', {}, all.flatMap((sample) => entry('step ' + number(sample.step), sample.translation)));
  return section('Sample translations over time', [...byIndex.entries()].map(([key, all]) => el('article', {class: 'sample'},
    el('dl', {}, entry('source', all[0].source), entry('reference', all[0].reference)),
    translations(all.slice(0, 3)),
    all.length > 3 ? fold('sample ' + key, `${all.length - 3} earlier`, () => translations(all.slice(3))) : null)));
};

const events = (run) => {
  const all = list(run.events);
  return all.length === 0 ? null : section('Events', table('Events, the newest first', ['step', 'time', 'event', 'details'],
    all.slice(-40).reverse().map((event) => [number(event.step), moment(event.time), words(event.event), words(event.details)])));
};

const environment = (run) => section('Environment and versions', el('dl', {class: 'facts'},
  list(run.environment).flatMap((fact) => [el('dt', {}, words(fact.name)), el('dd', {}, words(fact.value))])),
words(fields(run.reading).notes) ? el('p', {class: 'note'}, run.reading.notes) : null);

const settings = (run) => (words(run.config) ? section('Settings',
  fold('config', 'config.toml', () => el('pre', {tabindex: 0}, run.config))) : null);

const detailsOf = (run) => [validations(run), timeSplit(run), samples(run), events(run), environment(run), settings(run)]
  .filter((part) => part !== null);
