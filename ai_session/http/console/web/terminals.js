// All sessions, each with the last lines of its screen as they come.
import { useEffect, useRef, useState } from 'preact/hooks';
import { html, Icon, Theirs, home, sessionLink, span } from './parts.js';
import * as model from './model.js';

const ROWS = 9, COLS = 90, DRAW_MS = 120;
const ORDER = { warn: 0, busy: 1, bad: 2, faint: 3 };

export function Terminals() {
  const all = [...model.sessions.value.values()], standings = new Map(all.map(one => [one, model.standing(one.peek())]));
  const running = all.filter(one => standings.get(one).tone === 'busy').length;
  all.sort((one, other) => ORDER[standings.get(one).tone] - ORDER[standings.get(other).tone]);
  return html`<section aria-labelledby="h-page"><div class="head"><h1 id="h-page">Terminals</h1><span class="faint num">${model.known.value ? all.length : ''}${running ? ` · ${running} running` : ''}</span></div>
    ${all.length ? html`<ul class="terms">${all.map(one => html`<${Card} key=${one.value.session_id} one=${one} />`)}</ul>` : model.known.value && html`<${Empty} />`}</section>`;
}

const Empty = () => html`<div class="panel empty"><p>No session is open.</p><p class="soft">Agents open them; you can too: <code>ai-session new build</code></p></div>`;

function Card({ one }) {
  const session = one.value, { icon, tone, word, seconds } = model.standing(session), mine = model.held.value.has(session.session_id);
  const side = ['running', 'waits for input'].includes(word) ? span(seconds) : word;
  return html`<li><a class=${`panel term ${mine ? 'you' : ''}`} data-item href=${sessionLink(session.session_id)}>
    <header><${Icon} name=${icon} tone=${tone} label=${side === word ? undefined : word} /><b class="grow cut"><${Theirs}>${session.name}</${Theirs}></b><span class=${`num cut side ${tone === 'faint' ? 'faint' : tone}`}><bdi>${side}</bdi></span></header>
    <${Thumbnail} id=${session.session_id} /><footer><span class="cut grow"><${Theirs}>${home(session.working_directory)}</${Theirs}></span><span class="cut">${session.shell}</span></footer></a></li>`;
}

// Drawn while it is in view, some times a second at most.
export function Thumbnail({ id, rows = ROWS, cols = COLS }) {
  const [lines, show] = useState([]), element = useRef();
  useEffect(() => {
    let close = () => {};
    const seen = new IntersectionObserver(([entry]) => {
      close();
      close = entry.isIntersecting ? follow(id, rows, cols, show) : () => {};
    });
    seen.observe(element.current);
    return () => { seen.disconnect(); close(); };
  }, [id]);
  return html`<pre ref=${element} aria-hidden="true">${lines.map(line => html`<span>${line.map(piece => html`<span class=${piece.name}>${piece.text}</span>`)}</span>`)}</pre>`;
}

function follow(id, rows, cols, show) {
  let term, stream, timer, closed = false, lib;
  const draw = () => { timer = undefined; if (!closed) show(lib.lastRows(term, rows, cols)); };
  import('./emulator.js').then(found => {
    lib = found;
    if (closed) return;
    term = lib.emulator({ rows: 24, cols: 80, scrollback: 0 });
    stream = window.wire.stream(id, (facts, bytes, done) => {
      if (closed) return;
      if (facts.rows && (facts.rows !== term.rows || facts.cols !== term.cols)) term.resize(facts.cols, facts.rows);
      if (facts.event === 'screen') term.reset();
      if (!bytes) return done();
      term.write(bytes, () => { done(); timer ??= setTimeout(draw, DRAW_MS); });
    });
  });
  return () => { closed = true; clearTimeout(timer); stream?.close(); term?.dispose(); };
}
