// Elements and numbers. Text enters the page only here, and only as text.
const byId = (id) => document.getElementById(id);

const el = (tag, properties, ...children) => {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties || {})) {
    if (name === 'class') element.className = value;
    else if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, '');
    else if (value !== false && value !== undefined) element.setAttribute(name, String(value));
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined).map(
    (child) => (child instanceof Node ? child : document.createTextNode(String(child)))));
  return element;
};

const isNumber = (value) => typeof value === 'number' && Number.isFinite(value);
const list = (value) => (Array.isArray(value) ? value : []);
const words = (value) => (typeof value === 'string' ? value : '');
const fields = (value) => (value && typeof value === 'object' && !Array.isArray(value) ? value : {});
const spaced = (name) => words(name).replaceAll('_', ' ');

// A number with four significant digits; large counts in groups of three.
const number = (value) => {
  if (!isNumber(value)) return '–';
  const size = Math.abs(value);
  if (size >= 1e15 || (size > 0 && size < 1e-3)) return value.toExponential(3);
  if (Number.isInteger(value) || size >= 1e4) return Math.round(value).toLocaleString('en-US');
  return value.toLocaleString('en-US', {maximumSignificantDigits: size >= 1000 ? 5 : 4});
};

// A number short enough for an axis.
const tick = (value) => {
  if (!isNumber(value)) return '';
  const size = Math.abs(value);
  for (const [unit, letter] of [[1e12, 'T'], [1e9, 'G'], [1e6, 'M'], [1e3, 'k']]) {
    if (size >= unit) return String(Number((value / unit).toPrecision(4))) + letter;
  }
  if (size > 0 && size < 1e-3) return value.toExponential(1).replace('.0e', 'e');
  return String(Number(value.toPrecision(4)));
};

const duration = (seconds) => {
  if (!isNumber(seconds)) return '–';
  if (seconds < 100) return number(seconds) + ' s';
  const minutes = Math.round(seconds / 60);
  if (minutes < 100) return minutes + ' min';
  const hours = seconds / 3600;
  return hours < 100 ? hours.toFixed(1) + ' h' : (hours / 24).toFixed(1) + ' days';
};

const moment = (seconds) => {
  const date = new Date(isNumber(seconds) ? seconds * 1000 : NaN);
  return Number.isNaN(date.getTime()) ? '–' : date.toISOString().replace('T', ' ').slice(0, 16) + ' UTC';
};

// A table in a box of its own that scrolls. The first cell of a row is its heading.
const table = (caption, head, rows, kind) => el('div', {class: 'scroll', tabindex: 0, role: 'region', 'aria-label': caption},
  el('table', {class: kind || ''},
    el('thead', {}, el('tr', {}, head.map((name) => el('th', {scope: 'col'}, name)))),
    el('tbody', {}, rows.map((row) => el('tr', {}, row.map(
      (cell, i) => (i === 0 ? el('th', {scope: 'row'}, cell) : el('td', {}, cell))))))));

const section = (title, ...children) => el('section', {}, el('h2', {}, title), ...children);

// A fold whose content is made when it is opened; `key` keeps it open when the page is redrawn.
const opened = new Set();
const fold = (key, title, make) => {
  const details = el('details', {'data-key': key}, el('summary', {}, title));
  const fill = () => {
    if (details.open && details.childElementCount === 1) details.append(make());
    if (details.open) opened.add(key);
    else opened.delete(key);
  };
  details.addEventListener('toggle', fill);
  if (opened.has(key)) {
    details.open = true;
    fill();
  }
  return details;
};
