// One session: its commands as blocks, or the terminal itself; who types; a search in all that was printed.
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';
import { signal } from '@preact/signals';
import { html, Icon, Theirs, home, sessionLink, size, span, time } from './parts.js';
import * as model from './model.js';
import { auditLink } from './audit.js';
import { Replay } from './replay.js';
import { Thumbnail } from './terminals.js';

const TAIL_LINES = 12, MOST_CHARS = 200000, TYPE_SIZE = 13, NEAR_BYTES = 128 * 1024, MOST_TRIES = 8, END_PIXELS = 24;
const VIEWS = [['commands', 'Commands'], ['terminal', 'Terminal'], ['replay', 'Replay']];
const view = signal('commands'), who = signal(new Map());
const wire = () => window.wire;
const me = () => `the console, tab ${sessionStorage.tab}`;

export function Session({ id, query }) {
  const one = model.sessions.value.get(id), session = one?.value, mine = model.held.value.has(id), [more, setMore] = useState('');
  useEffect(() => {
    if (!session) return;
    load(id).then(setMore).catch(model.problem);
    learn().catch(() => {});
  }, [id, !session]);
  useEffect(() => { if (query.get('from') ?? query.get('clock')) view.value = 'replay'; else if (view.value === 'replay' && (query.get('at') ?? query.get('command'))) view.value = 'commands'; }, [query]);
  useKeys({ r: () => { view.value = view.value === 'commands' ? 'terminal' : 'commands'; }, v: () => { view.value = 'replay'; }, t: () => mine ? giveBack(id) : takeOver(id) }, [id, mine]);
  if (!session) return html`<${Closed} id=${id} />`;
  const { icon, tone, word, seconds } = model.standing(session);
  return html`<section class="session" aria-labelledby="h-page"><div class="head"><${Icon} name=${icon} tone=${tone} /><h1 id="h-page" class="cut"><${Theirs}>${session.name}</${Theirs}></h1>
      <span class=${`tag ${tone}`}>${word}${seconds === undefined || word.startsWith('exit') ? '' : ` ${span(seconds)}`}</span><span class="soft small-hide cut"><code><${Theirs}>${home(session.working_directory)}</${Theirs}></code>, ${session.shell}${session.cols ? `, ${session.cols} × ${session.rows}` : ''}</span><span class="grow"></span>
      <div class="views" role="group" aria-label="View">${VIEWS.map(([name, title]) => html`<button class="btn" type="button" aria-pressed=${view.value === name} onClick=${() => { view.value = name; }}>${title}</button>`)}<kbd class="small-hide">r</kbd></div></div>
    <${Lease} session=${session} mine=${mine} />
    ${view.value === 'replay' ? html`<${Replay} key=${id} session=${session} from=${query.get('from')} clock=${query.get('clock')} />` : view.value === 'terminal' ? html`<${Live} key=${id} session=${session} mine=${mine} />`
      : html`<div class="two"><${Blocks} session=${session} query=${query} more=${more} setMore=${setMore} /><${Outline} session=${session} /></div>`}</section>`;
}

// With a session its output is removed, so there is nothing to play; its records in the audit log stay.
const Closed = ({ id }) => model.link.value !== 'live' || !model.known.value ? html`<section aria-labelledby="h-page"><h1 id="h-page">Session</h1><div class="panel empty"><p class="soft">Loading the session</p></div></section>`
  : html`<section aria-labelledby="h-page"><div class="head"><h1 id="h-page">Session</h1><code class="faint cut"><${Theirs}>${id}</${Theirs}></code></div><div class="panel empty"><p>This session is closed. Its output was removed with it, so it cannot be replayed.</p><p><a href=${auditLink(id)}>What was done in it</a></p><p><a href="#/terminals">All terminals</a></p></div></section>`;

async function load(session_id, cursor) {
  const page = await wire().call('query_commands', { session_id, count: 50, ...(cursor && { cursor }) });
  model.merge(page.commands);
  return page.cursor ?? '';
}

// Who ran a command is what the audit log says of its call.
async function learn() {
  if (!model.may('look')) return;
  const { records } = await wire().call('query_audit', { event: 'tool.', count: 500 }), actors = new Map(), found = new Map(who.value);
  for (const one of records) if (one.event === 'tool.start') actors.set(one.seq, one.actor);
  for (const one of records) if (one.command_id && actors.has(one.start)) found.set(one.command_id, named(actors.get(one.start)));
  who.value = found;
}

export const named = actor => !actor ? '' : actor.agent || actor.client || actor.subject || (actor.kind === 'person' ? 'a person' : actor.kind);

export async function takeOver(session, force = false) {
  if (!model.may('type')) return;
  try {
    const taken = await wire().ask('take_over', { session, who: me(), force });
    model.held.value = new Set([...model.held.value, taken.session_id]);
    view.value = 'terminal';
  } catch (error) {
    if (error.code === 'session_taken_over' && !force && confirm(`${error.message}.\n\nTake it over from them?`)) return takeOver(session, true);
    if (error.code !== 'session_taken_over') model.problem(error);
  }
}

export async function giveBack(session_id) {
  model.held.value = new Set([...model.held.value].filter(id => id !== session_id));
  try { await wire().ask('release', { session_id }); } catch (error) { model.problem(error); }
}

function Lease({ session, mine }) {
  const { session_id, typing_by, state } = session, over = state === 'exited' || state === 'lost';
  if (over) return null;
  const typist = mine ? html`<b>You are typing.</b> <span class="soft small-hide">Nobody else can type here until you give it back. <kbd>Ctrl+Shift+F6</kbd> leaves the terminal.</span>`
    : typing_by ? html`<b><${Theirs}>${typing_by}</${Theirs}> is typing.</b> <span class="soft small-hide">You are watching; others wait until it is given back.</span>`
    : html`<b>You are watching.</b> <span class="soft small-hide">The size stays the session’s own. Once you take over, nobody else can type here.</span>`;
  return html`<div class=${`lease ${mine ? 'you' : ''}`}><${Icon} name="key" tone=${mine || typing_by ? 'busy' : 'faint'} /><span class="grow">${typist}</span>
    ${model.may('type') && (mine ? html`<button class="btn" type="button" onClick=${() => giveBack(session_id)}>Give back <kbd>t</kbd></button>` : html`<button class="btn main" type="button" onClick=${() => takeOver(session_id)}>Take over <kbd>t</kbd></button>`)}</div>`;
}

function Blocks({ session, query, more, setMore }) {
  const all = model.commandsOf(session.session_id).value, element = useRef(), [target, aim] = useState(null), at = query.get('at'), line = query.get('line'), named = query.get('command');
  // At its end it stays at its end, whatever comes or is loaded, until somebody scrolls up.
  const content = useRef(), end = useRef(!at && !named);
  const toEnd = () => { if (end.current && element.current) element.current.scrollTop = element.current.scrollHeight; };
  useEffect(() => {
    const grown = new ResizeObserver(toEnd);
    grown.observe(content.current);
    return () => grown.disconnect();
  }, []);
  useLayoutEffect(toEnd, [all]); // where the oldest goes as a new one comes, the size stays the same
  const scrolled = ({ target }) => { end.current = target.scrollHeight - target.scrollTop - target.clientHeight < END_PIXELS; };
  useEffect(() => { if (at !== null || named) end.current = false; if (at !== null) jump(session.session_id, Number(at), line ?? '').then(aim).catch(model.problem); else if (named) aim({ command_id: named, line: '' }); }, [at, line, named]);
  const earlier = async () => { try { setMore(await load(session.session_id, more)); } catch (error) { model.problem(error); } };
  return html`<div class="panel blocks" ref=${element} onScroll=${scrolled} role="region" aria-label="Commands" tabindex="0"><div ref=${content}>
    ${more && html`<button class="more" type="button" onClick=${earlier}>Earlier commands</button>`}
    ${target?.lost && html`<p class="lost soft">This line was not printed by a command: <code><bdi>${line}</bdi></code></p>`}
    ${all.map(one => html`<${Block} key=${one.command_id} one=${one} target=${target?.command_id === one.command_id ? target : null} />`)}
    ${!all.length && html`<p class="empty soft">No command has run yet. What is typed by hand shows in the terminal itself: <kbd>r</kbd></p>`}</div></div>`;
}

// A text as a regular expression that finds it.
const literal = text => text.replace(/[!-/:-@[-^`{-~]/g, '\\$&');

// Which block printed a line that lies at an offset of the log or shortly after it.
async function jump(session_id, at, line) {
  const near = () => model.commandsOf(session_id).value.filter(one => (one.end_offset ?? Infinity) > at && one.start_offset <= at + NEAR_BYTES);
  let cursor = await load(session_id);
  while (cursor && !near().some(one => one.start_offset <= at)) cursor = await load(session_id, cursor);
  const pattern = literal(line.trim().slice(0, 200));
  for (const one of near().slice(0, MOST_TRIES)) {
    if (line.includes(one.command.split('\n')[0])) return { command_id: one.command_id, line: '' };
    const { output } = await wire().call('read_output', { session_id, command_id: one.command_id, pattern });
    if (output?.trim()) return { command_id: one.command_id, line: line.trim() };
  }
  return { lost: true };
}

const TONES = { running: 'busy', finished: '' };

function Block({ one, target }) {
  const [output, show] = useState(null), [whole, all] = useState(false), element = useRef(), running = one.status === 'running', failed = Boolean(one.exit_code) || !['running', 'finished'].includes(one.status);
  useEffect(() => {
    if (running) return undefined;
    const seen = new IntersectionObserver(([entry]) => {
      if (!entry.isIntersecting) return;
      seen.disconnect();
      read(one, whole || Boolean(target)).then(show).catch(model.problem);
    }, { rootMargin: '400px' });
    seen.observe(element.current);
    return () => seen.disconnect();
  }, [one.command_id, running, whole, Boolean(target)]);
  useLayoutEffect(() => { if (target && output) (element.current.querySelector('mark') ?? element.current).scrollIntoView({ block: 'center' }); }, [target, output]);
  const folded = output && !output.whole && output.more;
  return html`<article ref=${element} id=${one.command_id} data-item tabindex="-1" class=${running ? 'b-busy' : failed ? 'b-bad' : ''} aria-current=${target ? 'true' : undefined}>
    <div class="row"><h2 class="grow"><${Theirs}>${one.command}</${Theirs}></h2><span class="faint small-hide"><bdi>${who.value.get(one.command_id) ?? ''}</bdi></span><a class="faint num from" href=${sessionLink(one.session_id, `?from=${one.command_id}`)} aria-label=${`Replay from ${time(one.started_at)}`}><time>${time(one.started_at)}</time></a><a class="faint from" href=${auditLink(one.command_id)} aria-label="Its audit record" title="Its audit record"><${Icon} name="log" /></a>
      <span class=${`num ${running ? 'busy' : 'faint'}`}>${span(running ? model.now.value / 1000 - one.started_at : one.duration_seconds)}</span><span class=${`tag ${failed ? 'bad' : TONES[one.status] ?? ''}`}>${running ? 'running' : one.status === 'finished' ? `exit ${one.exit_code}` : one.status}</span></div>
    ${running ? html`<${Thumbnail} id=${one.session_id} rows=${16} cols=${240} />` : output?.text && html`${folded && html`<button class="more" type="button" onClick=${() => all(true)}>Show what comes before</button>`}<pre><${Marked} text=${output.text} line=${target?.line} /></pre>`}</article>`;
}

async function read({ session_id, command_id }, whole) {
  const found = await wire().call('read_output', { session_id, command_id, max_output_chars: whole ? MOST_CHARS : 6000, ...(!whole && { tail_lines: TAIL_LINES + 1 }) });
  const lines = (found.output ?? '').replace(/\n+$/, '').split('\n'), more = !whole && lines.length > TAIL_LINES;
  return { text: (more ? lines.slice(-TAIL_LINES) : lines).join('\n'), more, whole };
}

const Marked = ({ text, line }) => {
  const at = line ? text.indexOf(line) : -1;
  return at < 0 ? text : html`${text.slice(0, at)}<mark>${line}</mark>${text.slice(at + line.length)}`;
};

const Outline = ({ session }) => {
  const all = model.commandsOf(session.session_id).value, last = all.at(-1);
  return html`<aside class="panel aside" aria-label="Outline"><header><h2 class="grow">Commands</h2><span class="faint num">${all.length}</span></header>
    <ol class="outline">${all.slice(-200).reverse().map(one => {
    const running = one.status === 'running', failed = one.exit_code || !['running', 'finished'].includes(one.status);
    return html`<li key=${one.command_id}><a href=${sessionLink(session.session_id, `?command=${one.command_id}`)}><${Icon} name=${running ? 'busy' : failed ? 'fail' : 'okay'} tone=${running ? 'busy' : failed ? 'bad' : 'faint'} label=${running ? 'running' : failed ? 'failed' : 'done'} /><code class="cut"><${Theirs}>${one.command}</${Theirs}></code><span class="faint num">${span(running ? model.now.value / 1000 - one.started_at : one.duration_seconds)}</span></a></li>`;
  })}</ol>
    <dl class="facts"><dt>Box</dt><dd><bdi>${session.sandbox ?? ''}</bdi></dd>${last?.cwd && html`<dt>Directory</dt><dd><code><${Theirs}>${home(last.cwd)}</${Theirs}></code></dd>`}<dt>Terminal</dt><dd>${session.backend}</dd>${session.end !== undefined && html`<dt>Log</dt><dd class="num">${size(session.end)}</dd>`}</dl></aside>`;
};

// The terminal itself, at the session's size, or at this page's while one types.
function Live({ session, mine }) {
  const element = useRef(), live = useRef(null);
  useEffect(() => {
    let closed = false;
    import('./emulator.js').then(lib => { if (!closed && element.current) live.current = start(lib, session, element.current); live.current?.own(model.held.value.has(session.session_id)); });
    return () => { closed = true; live.current?.close(); };
  }, [session.session_id]);
  useEffect(() => { live.current?.own(mine); }, [mine]);
  return html`<div class=${`panel live-terminal ${mine ? 'you' : ''}`} role="region" aria-label=${`Terminal of ${session.name}`}><div class="screen" ref=${element}></div></div>`;
}

function start(lib, { session_id, rows = 24, cols = 80 }, element) {
  let mine = false, started = false, sized = false;
  const term = lib.emulator({ rows, cols, scrollback: 5000, disableStdin: true, fontSize: TYPE_SIZE, screenReaderMode: localStorage.screenReader === 'on' });
  const fit = () => {
    const { clientWidth: width, clientHeight: height } = element;
    const screen = element.querySelector('.xterm-screen');
    if (!width || !screen?.offsetHeight) return;
    const tall = screen.offsetHeight / term.rows / term.options.fontSize; // of a row, by the size of its type
    if (mine) {
      term.options.fontSize = TYPE_SIZE;
      const wanted = { cols: Math.max(20, Math.floor((width - 16) / (TYPE_SIZE * lib.ADVANCE))), rows: Math.max(5, Math.floor(height / Math.ceil(TYPE_SIZE * tall))) };
      window.wire.ask('resize', { session_id, ...wanted }).catch(() => {});
    } else {
      lib.fit(term, element, () => !mine);
    }
  };
  term.open(element);
  term.attachCustomKeyEventHandler(event => {
    if (!(event.ctrlKey && event.shiftKey && event.key === 'F6')) return true;
    if (event.type === 'keydown') { term.blur(); document.querySelector('.lease .btn')?.focus(); }
    return false;
  });
  term.onData(text => { if (mine) window.wire.type(session_id, text); });
  const stream = window.wire.stream(session_id, (facts, bytes, done) => {
    if (facts.rows && (facts.rows !== term.rows || facts.cols !== term.cols)) { sized = true; term.resize(facts.cols, facts.rows); if (!mine) fit(); }
    if (facts.event === 'screen') {
      if (started && !sized) term.reset(); // something was left out; at another size just what is in view is drawn anew
      [started, sized] = [true, false];
    }
    if (facts.event === 'ended') term.write(`\r\n\x1b[0;2m${facts.text}\x1b[0m\r\n`);
    if (bytes) term.write(bytes, done); else done();
  });
  const leave = lib.follow(term, element, fit);
  element.terminal = term;
  return {
    own(now) { mine = now; term.options.disableStdin = !now; fit(); if (now) term.focus(); else term.blur(); },
    close() { leave(); stream.close(); term.dispose(); },
  };
}

// A search in all that the session printed, or all sessions; what is chosen is shown where it was printed.
export function Find({ where }) {
  const [text, write] = useState(''), [found, show] = useState(null), here = where.page === 'session' ? model.sessions.value.get(where.id)?.value : null, session_id = here?.session_id;
  useEffect(() => { show(null); }, [where]);
  const search = async event => {
    event.preventDefault();
    if (!text.trim()) return show(null);
    show({ busy: true, lines: [] });
    try { show(await wire().call('query_output', { pattern: `(?i)${literal(text)}`, count: 100, ...(session_id && { session_id }) })); } catch (error) { show(null); model.problem(error); }
  };
  const leave = event => { if (event.key === 'Escape') { show(null); event.target.blur(); } };
  return html`<form class="find" role="search" onSubmit=${search} onKeyDown=${leave}><${Icon} name="find" tone="faint" /><input type="search" value=${text} onInput=${event => write(event.target.value)} placeholder=${here ? `Search what ${here.name} printed` : 'Search what was printed'} aria-label="Search what was printed" maxlength="300" /><kbd class="hide">/</kbd>
    ${found && html`<div class="found panel" role="region" aria-label="Lines found" tabindex="-1">${found.busy ? html`<p class="soft">Searching</p>` : !found.lines.length ? html`<p class="soft">Nothing that was printed matches.</p>`
      : html`<ul>${found.lines.map(one => html`<li><a href=${sessionLink(one.session_id, `?at=${one.offset}&line=${encodeURIComponent(one.line.trim().slice(0, 300))}`)}>${!here && html`<b class="cut"><${Theirs}>${one.name}</${Theirs}></b>`}<code class="cut"><${Theirs}>${one.line}</${Theirs}></code></a></li>`)}</ul>`}${found.cursor && html`<p class="faint">There are more; search for something longer.</p>`}</div>`}</form>`;
}

export function useKeys(keys, inputs) {
  useLayoutEffect(() => {
    const press = event => {
      if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches?.('input, textarea, select') || document.querySelector('dialog[open]') || !(event.key in keys)) return;
      event.preventDefault();
      keys[event.key](event);
    };
    addEventListener('keydown', press);
    return () => removeEventListener('keydown', press);
  }, inputs);
}
