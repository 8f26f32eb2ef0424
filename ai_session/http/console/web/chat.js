// A call inside a chat, where the client shows views (MCP Apps): its terminal, and what waits for a person. It only shows.
// All that it asks goes through the client, and so counts as the client's: an answer that was given here would be nobody's.
import { render } from 'preact';
import { html, Icon, Theirs, span } from './parts.js';
import { printed, visible } from './visible.js';

const PROTOCOL = '2026-01-26', FIRST_MS = 1000, LONGEST_MS = 5000, MOST_READS = 240, TAIL_LINES = 200, METHOD_NOT_FOUND = -32601;
const ENDED = new Set(['ready', 'exited', 'lost']);
const waiting = new Map();
let number = 0, given = {}, result = null, screen = null, ended = null, cancelled = false, may = false, over = false;
let reads = 0, delay = FIRST_MS, timer, seen = true, reading = false;

const send = message => parent.postMessage({ jsonrpc: '2.0', ...message }, '*');
const ask = (method, params) => new Promise((resolve, reject) => {
  waiting.set(++number, { resolve, reject });
  send({ id: number, method, params });
});

const known = () => ended ?? result?.structuredContent ?? {};
const session = () => String(given.session_id ?? '');
const failure = () => result?.isError ? result._meta?.['ai-session/error'] ?? { message: result.content?.[0]?.text ?? 'failed' } : null;
const live = () => !over && !ended && !failure() && !cancelled && (result ? known().status === 'running' : Boolean(given.session_id));

function standing() {
  const { status, exit_code } = known(), error = failure();
  if (cancelled) return ['idle', 'faint', 'cancelled'];
  if (error) return error.code === 'consent_needed' ? ['needs', 'warn', 'waits for a person'] : ['fail', 'bad', 'refused'];
  if (screen?.state === 'waiting_input' && live()) return ['key', 'warn', 'waits for input'];
  if (live()) return ['busy', 'busy', 'running'];
  if (status === 'finished') return exit_code ? ['fail', 'bad', `exit ${exit_code}`] : ['okay', 'faint', 'exit 0'];
  return ['idle', 'faint', visible(String(status ?? known().state ?? 'done'))];
}

// What was asked for, written out.
const called = () => typeof given.command === 'string' ? given.command
  : Object.entries(given).filter(([name]) => name !== 'session_id').map(([name, value]) => `${name} = ${typeof value === 'string' ? value : JSON.stringify(value)}`).join('\n');

function shown() {
  if (live() && screen) return screen.screen;
  const { output, screen: drawn, stderr } = known();
  return drawn ?? (output === undefined ? screen?.screen ?? '' : output + (stderr ?? ''));
}

const Question = ({ error }) => html`<div class="ask"><p><b>A person has to allow this first.</b> It is answered outside of this chat, in a terminal of yours or on the page Needs you of <code>ai-session console</code>, where it stands whole.</p>
  <p class="soft"><${Theirs}>${visible(String(error.message ?? ''))}</${Theirs}></p>${error.suggestion && html`<p class="soft"><${Theirs}>${visible(String(error.suggestion))}</${Theirs}></p>`}</div>`;

function View() {
  const [icon, tone, word] = standing(), error = failure(), text = printed(String(shown())).replace(/\n+$/, ''), what = called();
  return html`<article class="panel chat" aria-labelledby="h-call"><header><${Icon} name=${icon} tone=${tone} /><h1 id="h-call" class="grow cut"><${Theirs}>${visible(session()) || 'ai-session'}</${Theirs}></h1>
      <span class="faint num">${span(known().duration_seconds)}</span><span class=${`tag ${tone}`} role="status">${word}</span></header>
    ${what && html`<pre class="what" tabindex="0" role="region" aria-label="What was asked for"><${Theirs}>${visible(what, true)}</${Theirs}></pre>`}
    ${error && (error.code === 'consent_needed' ? html`<${Question} error=${error} />` : html`<p class="ask soft"><${Theirs}>${visible(String(error.message ?? ''))}</${Theirs}></p>`)}
    ${text && html`<pre class="shown" tabindex="0" role="region" aria-label="Terminal">${text.split('\n').map(line => html`<bdi dir="ltr">${line}${'\n'}</bdi>`)}</pre>`}</article>`;
}

function draw() {
  const old = document.querySelector('.shown'), atEnd = !old || old.scrollHeight - old.scrollTop - old.clientHeight < 24;
  render(html`<${View} />`, document.body);
  const now = document.querySelector('.shown');
  if (now && atEnd) now.scrollTop = now.scrollHeight;
  plan();
}

// A command that runs is looked at while it is in view, ever more seldom, and not for ever: each look is a call.
function plan() {
  if (timer || reading || !may || !seen || document.hidden || !live() || reads >= MOST_READS) return;
  timer = setTimeout(read, delay);
}

async function read() {
  timer = undefined;
  reading = true;
  reads++;
  delay = Math.min(delay * 1.2, LONGEST_MS);
  try {
    const found = await ask('tools/call', { name: 'read_screen', arguments: { session_id: session() } });
    if (found.isError) over = Boolean(result);
    else {
      screen = found.structuredContent ?? null;
      if (result && ENDED.has(screen?.state)) await finish();
    }
  } catch { delay = LONGEST_MS; }
  reading = false;
  draw();
}

async function finish() {
  const found = await ask('tools/call', { name: 'read_output', arguments: { session_id: session(), command_id: known().command_id, tail_lines: TAIL_LINES } });
  if (found.isError) over = true;
  else if (found.structuredContent?.status !== 'running') ended = found.structuredContent;
}

function dress({ theme } = {}) { if (['light', 'dark'].includes(theme)) document.documentElement.dataset.theme = theme; }

const HEARD = {
  'ui/notifications/tool-input': ({ arguments: all }) => { given = all ?? {}; },
  'ui/notifications/tool-result': sent => { result = sent ?? {}; },
  'ui/notifications/tool-cancelled': () => { cancelled = true; },
  'ui/notifications/host-context-changed': dress,
};
const ANSWERED = { ping: () => ({}), 'ui/resource-teardown': () => { over = true; return {}; } };

addEventListener('message', ({ source, data }) => {
  if (source !== parent || data?.jsonrpc !== '2.0') return;
  const { id, method, params, error } = data;
  if (method === undefined) {
    const { resolve, reject } = waiting.get(id) ?? {};
    waiting.delete(id);
    if (error) reject?.(new Error(error.message)); else resolve?.(data.result ?? {});
    return;
  }
  if (id !== undefined) return send(Object.hasOwn(ANSWERED, method) ? { id, result: ANSWERED[method]() } : { id, error: { code: METHOD_NOT_FOUND, message: 'Method not found' } });
  if (!Object.hasOwn(HEARD, method)) return;
  HEARD[method](params ?? {});
  draw();
});
document.addEventListener('visibilitychange', plan);

ask('ui/initialize', { protocolVersion: PROTOCOL, appInfo: { name: 'ai-session', version: document.documentElement.dataset.version }, appCapabilities: { availableDisplayModes: ['inline', 'fullscreen'] } })
  .then(({ hostContext, hostCapabilities }) => {
    dress(hostContext);
    may = Boolean(hostCapabilities?.serverTools);
    send({ method: 'ui/notifications/initialized' });
    new IntersectionObserver(([entry]) => { seen = entry.isIntersecting; plan(); }).observe(document.body);
    new ResizeObserver(() => { const { width, height } = document.documentElement.getBoundingClientRect(); send({ method: 'ui/notifications/size-changed', params: { width: Math.ceil(width), height: Math.ceil(height) } }); }).observe(document.body);
    draw();
  }, () => {});
