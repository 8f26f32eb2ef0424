// xterm.js as the console uses it: it answers no questions of programs, follows no links by itself, and has our colours.
import './strict.js';
import { Terminal } from '/vendor/xterm.mjs';
import { UnicodeGraphemesAddon } from '/vendor/addon-unicode-graphemes.mjs';

const NAMES = ['black', 'red', 'green', 'yellow', 'blue', 'magenta', 'cyan', 'white'];
const bright = name => 'bright' + name[0].toUpperCase() + name.slice(1);
export const ADVANCE = 0.6; // of JetBrains Mono: a character's width by its size

export function emulator(options) {
  const term = new Terminal({
    allowProposedApi: true, fontFamily: '"JetBrains Mono", monospace', cursorBlink: false, lineHeight: 1.2,
    minimumContrastRatio: 4.5, theme: theme(), linkHandler: { activate: (_, link) => offer(link), allowNonHttpProtocols: false }, ...options,
  });
  term.loadAddon(new UnicodeGraphemesAddon());
  term.unicode.activeVersion = '15-graphemes';
  mute(term.parser);
  return term;
}

// The daemon answers what programs ask of a terminal. A page that answered too would type into the shell, even for what
// was printed long ago; and nothing that is printed reaches the clipboard.
function mute(parser) {
  const swallow = () => true;
  for (const final of ['c', 'n']) for (const prefix of ['', '>', '=', '?']) parser.registerCsiHandler({ prefix: prefix || undefined, final }, swallow);
  for (const prefix of ['', '?']) parser.registerCsiHandler({ prefix: prefix || undefined, intermediates: '$', final: 'p' }, swallow);
  for (const [prefix, final] of [['>', 'q'], ['?', 'u']]) parser.registerCsiHandler({ prefix, final }, swallow);
  parser.registerCsiHandler({ final: 't' }, swallow);
  parser.registerDcsHandler({ intermediates: '$', final: 'q' }, swallow);
  for (const id of [4, 10, 11, 12]) parser.registerOscHandler(id, data => data.includes('?'));
  parser.registerOscHandler(52, swallow);
}

// A link of a terminal's output may say one thing and lead to another, so the address is shown first.
function offer(link) {
  const url = address(link);
  if (url && confirm(`Open this address?\n\n${url.href}`)) open(url.href, '_blank', 'noopener,noreferrer');
}

export function address(link) {
  try {
    const url = new URL(link);
    return ['http:', 'https:'].includes(url.protocol) ? url : undefined;
  } catch { return undefined; }
}

export function theme() {
  const style = getComputedStyle(document.documentElement), probe = document.body.appendChild(document.createElement('i'));
  const colour = name => {
    probe.style.color = `var(--${name})`;
    const [r, g, b] = getComputedStyle(probe).color.match(/[\d.]+/g).map(Number);
    return `#${[r, g, b].map(part => Math.round(part).toString(16).padStart(2, '0')).join('')}`;
  };
  const found = { background: colour('term'), foreground: colour('text'), cursor: colour('text'), cursorAccent: colour('term'), selectionBackground: colour('select') };
  for (const name of NAMES) found[name] = found[bright(name)] = colour(`t-${name}`);
  probe.remove();
  return style && found;
}

// As large as its element allows without a change of its rows and columns. A row's height is known only once it was drawn.
const LEAST_SIZE = 7, MOST_SIZE = 14;
export function fit(term, element, still = () => true) {
  const shrink = () => {
    const screen = element.querySelector('.xterm-screen');
    if (!still() || !screen || screen.offsetHeight <= element.clientHeight || term.options.fontSize <= LEAST_SIZE) return;
    term.options.fontSize -= 0.5;
    requestAnimationFrame(shrink);
  };
  if (!element.clientWidth) return;
  term.options.fontSize = Math.min(Math.max(Math.floor(2 * (element.clientWidth - 16) / (term.cols * ADVANCE)) / 2, LEAST_SIZE), MOST_SIZE);
  requestAnimationFrame(shrink);
}

// Calls fitted whenever the element has another size, and keeps the theme's colours, until what it returns is called.
export function follow(term, element, fitted) {
  const observer = new ResizeObserver(fitted), scheme = matchMedia('(prefers-color-scheme: dark)'), recolour = () => { term.options.theme = theme(); };
  const chosen = new MutationObserver(recolour);
  observer.observe(element);
  scheme.addEventListener('change', recolour);
  chosen.observe(document.documentElement, { attributeFilter: ['data-theme'] });
  return () => { observer.disconnect(); chosen.disconnect(); scheme.removeEventListener('change', recolour); };
}

// The last rows of a screen that show something, each as pieces of one style.
export function lastRows(term, most, cols) {
  const buffer = term.buffer.active, cursor = buffer.baseY + buffer.cursorY;
  let last = buffer.baseY + term.rows - 1;
  while (last > cursor && !buffer.getLine(last)?.translateToString(true)) last--;
  const rows = [];
  for (let y = Math.max(0, last - most + 1); y <= last; y++) rows.push(pieces(buffer.getLine(y), cols, y === cursor ? buffer.cursorX : -1));
  return rows;
}

function pieces(line, cols, cursor) {
  const found = [];
  for (let x = 0; line && x < Math.min(cols, line.length); x++) {
    const cell = line.getCell(x);
    if (!cell.getWidth()) continue;
    const style = [];
    if (x === cursor || cell.isInverse()) style.push('inv');
    if (cell.isBold()) style.push('bold');
    if (cell.isDim()) style.push('dim');
    if (cell.isFgPalette() && cell.getFgColor() < 16) style.push(`t-${NAMES[cell.getFgColor() % 8]}`);
    else if (!cell.isFgDefault()) style.push('t-other');
    const name = style.join(' '), before = found[found.length - 1], text = cell.isInvisible() ? ' ' : cell.getChars() || ' ';
    if (before?.name === name) before.text += text;
    else found.push({ name, text });
  }
  while (found.length && !found[found.length - 1].name && !found[found.length - 1].text.trim()) found.pop();
  return found;
}
