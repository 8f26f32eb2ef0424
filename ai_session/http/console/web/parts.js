// What several pages show: icons, times, texts of others.
import { h } from 'preact';
import htm from 'htm';

export const html = htm.bind(h);

const SHAPES = {
  needs: '<path d="M7 .8 13.2 7 7 13.2.8 7Z" class="fill"/>', okay: 'm2.5 7.4 3 3 6-6.8', fail: 'm3 3 8 8m0-8-8 8',
  busy: 'M7 1.8A5.2 5.2 0 0 1 12.2 7', idle: 'M7 3a4 4 0 1 0 0 8 4 4 0 0 0 0-8', key: 'M1.5 3.5h11v7h-11zM4 8h6M4 5.6h.1M7 5.6h.1M10 5.6h.1',
  play: 'M4 2.500v9L11.500 7Z', pause: 'M4.500 2.500v9M9.500 2.500v9',
  log: 'M2 3.5h10M2 7h10M2 10.5h6', rules: 'M7 1.5 12 3.500v3.500c0 3-2.200 4.800-5 5.700-2.800-.9-5-2.700-5-5.700V3.500ZM4.800 7l1.600 1.600 2.900-3', steps: 'M1.500 5h4v4h-4zM8.500 1.500h4v4h-4zM8.500 8.500h4v4h-4zM5.500 7h1.500M7 7c0-2 0-3.500 1.500-3.500M7 7c0 2 0 3.500 1.500 3.500', grid: 'M2 2.5h4v4H2zM8 2.5h4v4H8zM2 8.500h4v3H2zM8 8.500h4v3H8z', back: 'M8.500 2.500 4 7l4.500 4.500', find: 'M6 2.500a3.500 3.500 0 1 0 0 7 3.500 3.500 0 0 0 0-7M8.700 8.700 12 12',
};

// Beside a word that says the same it is hidden from screen readers; alone it has a label.
export const Icon = ({ name, tone = '', label }) => html`<svg class=${`i ${tone} ${name === 'busy' ? 'turn' : ''}`} viewBox="0 0 14 14" role=${label ? 'img' : undefined} aria-label=${label} aria-hidden=${label ? undefined : 'true'}>
  ${name === 'needs' ? html`<path d="M7 .8 13.2 7 7 13.2.8 7Z" fill="currentColor" />` : name === 'busy' ? html`<circle cx="7" cy="7" r="5.2" class="ring" /><path d=${SHAPES.busy} />` : html`<path d=${SHAPES[name]} />`}</svg>`;

// A text that somebody else chose. It cannot turn the direction of what stands around it.
export const Theirs = ({ children, tag = 'bdi', ...rest }) => h(tag, { dir: 'auto', ...rest }, children);

export function span(seconds) {
  if (seconds === undefined || seconds === null || seconds < 0) return '';
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 10) return `${Number.isInteger(seconds) ? seconds : seconds.toFixed(1)} s`;
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} m ${String(Math.floor(seconds % 60)).padStart(2, '0')} s`;
  return minutes < 1440 ? `${Math.floor(minutes / 60)} h ${String(minutes % 60).padStart(2, '0')} m` : `${Math.floor(minutes / 1440)} d`;
}

// What the server tells has its times; a browser's clock that is another by seconds counts for nothing.
const NEAR_MS = 2000;
let ahead = 0;
export const now = () => Date.now() + ahead;
export function meet(seconds) {
  const by = seconds * 1000 - Date.now();
  ahead = Math.abs(by) < NEAR_MS ? 0 : by;
}

const clock = new Intl.DateTimeFormat('en-GB', { hour: '2-digit', minute: '2-digit', second: '2-digit' });
const day = new Intl.DateTimeFormat('en-GB', { day: 'numeric', month: 'short' });
export const time = seconds => {
  const at = new Date(seconds * 1000);
  return at.toDateString() === new Date(now()).toDateString() ? clock.format(at) : `${day.format(at)} ${clock.format(at)}`;
};

export const size = bytes => bytes < 1e3 ? `${bytes} B` : bytes < 1e6 ? `${(bytes / 1e3).toFixed(1)} kB` : `${(bytes / 1e6).toFixed(1)} MB`;
export const home = (path = '', own = sessionStorage.home) => own && (path === own || path.startsWith(`${own}/`)) ? `~${path.slice(own.length)}` : path;
export const sessionLink = (session_id, rest = '') => `#/session/${session_id}${rest}`;

// A time of day; of another day that day.
export const when = seconds => seconds ? time(seconds).replace(/:\d\d$/, '') : '';
export const runLink = (run, rest = '') => `#/run/${encodeURIComponent(run)}${rest}`;
export const short = run => run.slice(0, 12);
// How long ago something was, to the second.
export const since = (at, now) => span(Math.max(1, Math.floor(now / 1000 - at)));
