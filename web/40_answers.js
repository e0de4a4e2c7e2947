// The head of the page: every question with its answer, for one run or side by side.
const tones = {
  good: ['ended', 'flat', 'no', 'steady', 'as_planned', 'working', 'even', 'fine', 'complete', 'fits', 'ample',
    'steps_set_the_rate'],
  warn: ['silent', 'unclear', 'mixed', 'slowing_down', 'slow_data', 'evaluation_heavy', 'lowered', 'differs', 'skipped',
    'rolled_back', 'partly', 'hardly', 'slow_rank', 'network_sets_the_pace', 'much_dropped', 'many_unknown', 'filling',
    'disk_short'],
  bad: ['overfitting', 'both_worsen', 'worsening', 'diverged', 'not_learning', 'network_bound', 'spinning', 'damaged',
    'nearly_full'],
};
const toneOf = ({key, label}) => (key === 'nonfinite' && label === 'none' ? 'good'
  : Object.keys(tones).find((tone) => tones[tone].includes(label)) || '');

const named = {empty: 'not known', single: 'one rank', no_plan: 'no plan'};

const chip = (verdict) => el('span', {class: 'chip ' + toneOf(verdict)}, named[verdict.label] || spaced(verdict.label));

const figuresOf = (verdict) => Object.entries(fields(verdict.figures));
const figure = (value) => {
  const {value: amount, unit} = fields(value);
  return (Math.abs(amount) >= 1e8 ? tick(amount) : number(amount)) + (isNumber(amount) && words(unit) ? ' ' + unit : '');
};

const answer = (verdict) => el('div', {class: 'answer'},
  el('dt', {}, words(verdict.question)),
  el('dd', {},
    el('p', {class: 'line'}, chip(verdict), words(verdict.answer), ' ',
      el('span', {class: 'confidence'}, '· confidence ' + words(verdict.confidence))),
    figuresOf(verdict).length === 0 ? null : fold('numbers ' + verdict.key, 'Numbers behind it', () => table(
      words(verdict.question), ['number', 'value'], figuresOf(verdict).map(([name, value]) => [spaced(name), figure(value)])))));

const answersOfOne = (run) => el('dl', {class: 'answers'}, list(run.verdicts).map(answer));

// key -> [verdict of each run or nothing]
const aligned = (runs) => {
  const all = new Map();
  runs.forEach((run, i) => list(run.verdicts).forEach((verdict) => {
    if (!all.has(verdict.key)) all.set(verdict.key, []);
    all.get(verdict.key)[i] = verdict;
  }));
  return all;
};

const numbersTable = (runs, verdicts) => {
  const rows = [];
  for (const row of verdicts.values()) {
    const names = new Set(row.flatMap((verdict) => figuresOf(fields(verdict)).map(([name]) => name)));
    for (const name of names) {
      rows.push([spaced(name), ...runs.map((_, i) => (row[i] && fields(row[i].figures)[name] ? figure(row[i].figures[name]) : '–'))]);
    }
  }
  return table('Numbers of all runs', ['number', ...runs.map((run) => run.shortName)], rows);
};

// "section.key" -> value, read line by line: enough to show what differs.
const settingsOf = (run) => {
  const settings = new Map();
  let prefix = '';
  for (const line of words(run.config).split('\n')) {
    const head = /^\s*\[([^\]]+)\]\s*$/.exec(line);
    const entry = /^\s*([\w.-]+)\s*=\s*(.*)$/.exec(line);
    if (head) prefix = head[1] + '.';
    else if (entry) settings.set(prefix + entry[1], entry[2]);
  }
  return settings;
};

const differences = (runs) => {
  const all = runs.map(settingsOf);
  const names = [...new Set(all.flatMap((settings) => [...settings.keys()]))];
  const rows = names.filter((name) => new Set(all.map((settings) => settings.get(name))).size > 1)
    .map((name) => [name, ...all.map((settings) => settings.get(name) ?? '–')]);
  return rows.length === 0 ? el('p', {class: 'note'}, 'The runs have the same settings.')
    : table('Settings that differ', ['setting', ...runs.map((run) => run.shortName)], rows);
};

const lastOf = (run, name) => list(run.validations).map((row) => row[name]).filter(isNumber).pop();
const bestOf = (run, name, pick) => {
  const values = list(run.validations).map((row) => row[name]).filter(isNumber);
  return values.length === 0 ? undefined : pick(...values);
};

const comparison = (runs) => {
  const verdicts = aligned(runs);
  const names = runs.map((run) => run.shortName);
  const rows = [...verdicts.values()].map((row) => [words(row.find((verdict) => verdict).question),
    ...runs.map((_, i) => (row[i] ? el('div', {}, chip(row[i]), words(row[i].answer)) : '–'))]);
  return el('div', {},
    table('Runs at a glance', ['', ...names], [
      ['step', ...runs.map((run) => number(run.step))],
      ['last validation NLL (nats)', ...runs.map((run) => number(lastOf(run, 'nll')))],
      ['best validation NLL (nats)', ...runs.map((run) => number(bestOf(run, 'nll', Math.min)))],
      ['last BLEU', ...runs.map((run) => number(lastOf(run, 'bleu')))],
      ['best BLEU', ...runs.map((run) => number(bestOf(run, 'bleu', Math.max)))],
      ['last record', ...runs.map((run) => moment(run.last_record))],
    ]),
    el('div', {class: 'apart'}, table('Answers of all runs', ['question', ...names], rows, 'wide')),
    fold('all numbers', 'All numbers', () => numbersTable(runs, verdicts)),
    fold('differences', 'Settings that differ', () => differences(runs)));
};
