// The frame around the pages: signing in, where one is, keys, what the daemon reports.
import { render } from 'preact';
import { signal, effect } from '@preact/signals';
import { Wire } from './wire.js';
import { html, Icon, Theirs, meet, now, sessionLink, time } from './parts.js';
import * as model from './model.js';
import { Terminals } from './terminals.js';
import { Session, Find } from './session.js';
import { Needs } from './needs.js';
import { Audit } from './audit.js';
import { Compare, Run, Runs } from './runs.js';
import { Start } from './start.js';
import { Policy } from './policy.js';

const PAGES = [['needs', 'Needs you', 'needs'], ['terminals', 'Terminals', 'grid'], ['runs', 'Runs', 'steps'], ['audit', 'Audit', 'log'], ['policy', 'Policy', 'rules']];
const PARTS = { run: 'runs', compare: 'runs', start: 'runs', session: 'terminals' };
const KEYS = [['1 2 3 4 5', 'go to Needs you, Terminals, Runs, Audit, Policy'], ['j k', 'next, previous'], ['Enter', 'open'], ['/', 'search what was printed'],
  ['t', 'take over, or give back'], ['r', 'commands, or the terminal itself'], ['v', 'replay'], ['Space + - ← → Home End', 'in a replay: play or pause; faster, slower; 5 seconds back, on; its beginning, its end'], ['y s a p f n l', 'answer a question: once, this session, always, all that begins like it, this folder; deny; later'], ['c', 'give work back with a comment'], ['n', 'on the runs: start one'],
  ['Ctrl+Shift+F6', 'leave the terminal while you type in it'], ['d', 'dark, light, as the system'], ['?', 'these keys']];

const RESTART = 'Where it has ended, start it again with ai-session console, and open the link that it prints.', MOST_LOSSES = 3;
const where = signal(route()), theme = signal(localStorage.theme ?? ''), dialog = signal(''), tabs = signal([]);
let token = '';

function route() {
  const [path, query = ''] = location.hash.replace(/^#\/?/, '').split('?'), [page = '', id = ''] = path.split('/');
  return { page: page || 'terminals', id: decoded(id), query: new URLSearchParams(query) };
}

function decoded(text) {
  try { return decodeURIComponent(text); } catch { return text; }
}

async function signIn() {
  const code = new URLSearchParams(location.hash.slice(1)).get('k');
  if (code) {
    history.replaceState(null, '', location.pathname);
    const answer = await fetch('/login', { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify({ code }) });
    if (!answer.ok) return { problem: `This link does not sign you in: ${(await answer.json()).error}.` };
    const { token, proof_key, scopes, home, tab } = await answer.json();
    Object.assign(sessionStorage, { token, proof_key, home, tab, scopes: JSON.stringify(scopes) });
  }
  return { token: sessionStorage.proof_key && sessionStorage.token, key: sessionStorage.proof_key, scopes: JSON.parse(sessionStorage.scopes ?? '[]') };
}

const request = (path, body) => asked(path, body).catch(() => { model.problem({ message: 'the console does not answer', suggestion: RESTART }); return {}; });
const asked = (path, body) => fetch(path, {
  method: body ? 'POST' : 'GET', body: body && JSON.stringify(body),
  headers: { Authorization: `Bearer ${token}`, ...(body && { 'Content-Type': 'application/json' }) },
}).then(answer => answer.ok ? answer.json() : {});

async function showTabs() {
  tabs.value = (await request('/tabs')).tabs ?? [];
  dialog.value = 'tabs';
}

async function signOut(tab) {
  await request('/sign-out', { tab });
  if (dialog.value) tabs.value = (await request('/tabs')).tabs ?? [];
}

function nextTheme() {
  theme.value = { '': 'dark', dark: 'light', light: '' }[theme.value];
  localStorage.theme = theme.value;
}

effect(() => { document.documentElement.dataset.theme = theme.value; });
effect(() => { const count = model.open.value.length; document.title = count ? `(${count}) ai-session` : 'ai-session'; });

const Count = ({ value, hot }) => value ? html`<span class=${`n ${hot ? 'hot' : ''}`}>${value}</span>` : null;
const total = name => name === 'needs' ? model.open.value.length : name === 'terminals' ? model.sessions.value.size : name === 'runs' ? (model.runs.value?.runs ?? []).filter(one => ['running', 'waiting_approval', 'queued'].includes(one.status)).length : 0;

const Nav = () => html`<nav class="nav" aria-label="Pages">
  ${PAGES.map(([name, title, icon]) => html`<a href=${`#/${name}`} aria-current=${(PARTS[where.value.page] ?? where.value.page) === name ? 'page' : undefined}><${Icon} name=${icon} tone=${name === 'needs' && total(name) ? 'warn' : ''} />${title}<${Count} value=${total(name)} hot=${name === 'needs'} /></a>`)}
  <h2>Sessions</h2>
  <div class="subs">${[...model.sessions.value.values()].slice(0, 40).map(one => html`<${Sub} key=${one.value.session_id} one=${one} />`)}</div>
  <footer>${model.policy.value && html`<span class="row"><span class="grow">Mode</span><span class="tag">${model.policy.value.mode}</span></span>`}
    <span class="row"><button class="btn bare" type="button" onClick=${showTabs}>Tabs</button><button class="btn bare" type="button" onClick=${nextTheme}>${{ '': 'Auto', dark: 'Dark', light: 'Light' }[theme.value]}</button></span></footer></nav>`;

const Sub = ({ one }) => {
  const { icon, tone, word } = model.standing(one.value), { session_id, name } = one.value;
  return html`<a class="sub" href=${sessionLink(session_id)} aria-current=${where.value.id === session_id ? 'page' : undefined}><${Icon} name=${icon} tone=${tone} label=${word} /><${Theirs} class="cut">${name}</${Theirs}></a>`;
};

const Dialog = ({ title, children }) => html`<dialog class="panel" aria-labelledby="h-dialog" ref=${element => element?.open || element?.showModal()} onClose=${() => { dialog.value = ''; }}>
  <header><h2 id="h-dialog" class="grow">${title}</h2><button class="btn bare" type="button" onClick=${() => { dialog.value = ''; }}>Close</button></header>${children}</dialog>`;

const Dialogs = () => dialog.value === 'keys' ? html`<${Dialog} title="Keys"><dl class="facts keys">${KEYS.map(([keys, what]) => html`<dt>${keys.split(' ').map(key => html`<kbd>${key}</kbd> `)}</dt><dd>${what}</dd>`)}</dl></${Dialog}>`
  : dialog.value === 'tabs' ? html`<${Dialog} title="Signed-in tabs"><ul class="rows">${tabs.value.map(one => html`<li><span class="grow"><bdi>${one.browser}</bdi> <span class="faint">since ${time(one.since)}${one.own ? ', this tab' : one.live ? '' : ', closed'}</span></span><button class="btn" type="button" onClick=${() => signOut(one.tab)}>Sign out</button></li>`)}</ul></${Dialog}>` : null;

const STATES = { connecting: 'Connecting', live: 'Live', lost: 'Reconnecting', 'signed-out': 'Signed out' };

const Page = () => {
  const { page, id, query } = where.value;
  if (model.link.value === 'signed-out') return html`<${Outside} problem="This tab was signed out." />`;
  return page === 'needs' ? html`<${Needs} />` : page === 'audit' ? html`<${Audit} query=${query} />` : page === 'policy' ? html`<${Policy} query=${query} />`
    : page === 'runs' ? html`<${Runs} />` : page === 'start' && model.may('approve') ? html`<${Start} />` : page === 'run' ? html`<${Run} key=${id} id=${id} query=${query} />` : page === 'compare' ? html`<${Compare} key=${id} id=${id} query=${query} />`
    : page === 'session' ? html`<${Session} key=${id} id=${id} query=${query} />` : html`<${Terminals} />`;
};

const App = () => html`<a class="skip" href="#main" onClick=${event => { event.preventDefault(); document.getElementById('main').focus(); }}>Skip to content</a>
  <nav class="brand" aria-label="Start"><a href="#/terminals"><svg viewBox="0 0 20 20" aria-hidden="true"><path d="M3 4.5A1.5 1.5 0 0 1 4.5 3h11A1.5 1.5 0 0 1 17 4.500v11a1.500 1.500 0 0 1-1.500 1.500h-11A1.500 1.500 0 0 1 3 15.500ZM6.500 7.500l2.700 2.500-2.700 2.500m4.500.3h2.800" /></svg>ai-session</a></nav>
  <header class="top"><${Find} where=${where.value} /><span class="grow"></span>
    ${!model.may('type') && html`<span class="tag">read-only</span>`}
    <span class=${`live ${model.link.value}`} role="status" title=${model.linkNote.value}>${STATES[model.link.value]}</span><button class="btn bare hide" type="button" onClick=${() => { dialog.value = 'keys'; }}>Keys <kbd>?</kbd></button></header>
  <${Nav} /><main id="main" tabindex="-1">${model.link.value === 'lost' && model.linkNote.value && html`<p class="panel said signs" role="status"><bdi>${model.linkNote.value}</bdi></p>`}<${Page} /></main><${Notice} /><${Dialogs} />`;

const Notice = () => model.notice.value && html`<div class="notice panel" role="alert"><span class="grow"><bdi>${model.notice.value.text}</bdi> <span class="soft"><bdi>${model.notice.value.advice}</bdi></span></span><button class="btn bare" type="button" onClick=${() => { model.notice.value = null; }}>Close</button></div>`;

const Outside = ({ problem }) => html`<section class="outside"><h1>ai-session</h1>${problem && html`<p>${problem}</p>`}<p class="soft">In the terminal where the console runs, press Enter for a new link, or start it with <code>ai-session console</code>.</p></section>`;

const typing = element => element?.matches?.('input, textarea, select, .xterm-helper-textarea');

addEventListener('keydown', event => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented || dialog.value || typing(event.target)) return;
  const go = { 1: '#/needs', 2: '#/terminals', 3: '#/runs', 4: '#/audit', 5: '#/policy' }[event.key];
  if (go) location.hash = go;
  else if (event.key === '?') dialog.value = 'keys';
  else if (event.key === 'd') nextTheme();
  else if (event.key === '/') document.querySelector('.find input')?.focus();
  else if ('jk'.includes(event.key)) step(event.key === 'j' ? 1 : -1);
  else return;
  event.preventDefault();
});

function step(by) {
  const items = [...document.querySelectorAll('main [data-item]')];
  if (!items.length) return;
  const at = items.findIndex(item => item.contains(document.activeElement));
  items[Math.min(Math.max(at + by, 0), items.length - 1)].focus();
}

addEventListener('hashchange', () => {
  if (location.hash.startsWith('#k=')) return location.reload();
  where.value = route();
});

const found = await signIn();
where.value = route();
token = found.token;
if (!token) {
  document.body.classList.add('alone');
  render(html`<${Outside} problem=${found.problem} />`, document.body);
} else {
  model.scopes.value = found.scopes;
  const wire = new Wire(token, found.key, {
    async ready(hello) {
      if (hello) meet(hello.now);
      model.now.value = now();
      try {
        await wire.ask('changes');
        await model.refresh();
      } catch (error) { model.problem(error); }
    },
    event(facts) {
      if (facts.event === 'changes') model.changed(facts.changes);
      else if (facts.event === 'runs') { if (facts.what === 'changed') model.runsHaveChanged(); else model.runsProblem.value = { message: 'the program that reports runs has ended', suggestion: '' }; }
      else if (facts.event === 'cursor_expired') this.ready();
      else if (facts.event === 'taken_over') {
        model.held.value = new Set([...model.held.value].filter(id => id !== facts.session_id));
        model.notice.value = { text: `${facts.typing_by} has taken the session over.`, advice: 'You are watching.' };
      }
    },
    state(word, note = '') {
      model.link.value = word;
      model.linkNote.value = note || (word === 'lost' && wire.tries >= MOST_LOSSES ? `The console does not answer. ${RESTART}` : '');
      if (word !== 'live') model.held.value = new Set(); // what a connection held ends with it
      if (word === 'signed-out') sessionStorage.clear();
    },
  });
  model.use(wire);
  window.wire = wire;
  setInterval(() => { if (!document.hidden) model.now.value = now(); }, 1000);
  render(html`<${App} />`, document.body);
}
