// Runs, as the program tells them that carries them out: a list, one with its steps and attempts, two beside each other.
import { useEffect, useRef, useState } from 'preact/hooks';
import { html, Icon, Theirs, home, runLink, sessionLink, short, since, span, time, when } from './parts.js';
import { RunQuestion } from './needs.js';
import { Diff } from './diff.js';
import { auditLink } from './audit.js';
import { useKeys } from './session.js';
import * as model from './model.js';

const FOLDED_LINES = 14;
const NODE = { width: 172, height: 52, across: 64, down: 14, edge: 16 };
const wire = () => window.wire;

export const LOOKS = {
  queued: ['idle', 'faint', 'queued'], running: ['busy', 'busy', 'running'], waiting_approval: ['needs', 'warn', 'waits for you'], paused: ['idle', 'warn', 'paused'],
  blocked: ['fail', 'warn', 'blocked'], budget_exhausted: ['fail', 'warn', 'budget used up'], succeeded: ['okay', 'ok', 'done'], failed: ['fail', 'bad', 'failed'],
  cancelled: ['idle', 'faint', 'cancelled'], skipped: ['idle', 'faint', 'not begun'],
};
const look = status => LOOKS[status] ?? ['idle', 'faint', status];
const Tag = ({ status }) => { const [, tone, word] = look(status); return html`<span class=${`tag ${['ok', 'faint'].includes(tone) ? '' : tone}`}>${word}</span>`; };
const counted = (number, what) => `${number} ${what}${number === 1 ? '' : 's'}`;

export function Runs() {
  const { runs = [], workers = [] } = model.runs.value ?? {}, problem = model.runsProblem.value;
  const going = runs.filter(one => ['running', 'waiting_approval', 'queued'].includes(one.status)).length;
  useKeys(model.may('approve') ? { n: () => { location.hash = '#/start'; } } : {}, []);
  return html`<section aria-labelledby="h-page"><div class="head"><h1 id="h-page">Runs</h1><span class="faint num">${runs.length || ''}${going ? ` · ${going} going on` : ''}</span><span class="grow"></span>
      ${workers.length > 0 && html`<span class="faint small-hide">${counted(workers.length, 'worker')}</span>`}${model.may('approve') && !problem && html`<a class="btn main" href="#/start">Start a run <kbd>n</kbd></a>`}</div>
    ${problem ? html`<${Missing} problem=${problem} />` : !model.runs.value ? html`<div class="panel empty"><p class="soft">Loading runs</p></div>` : !runs.length ? html`<div class="panel empty"><p>There are no runs.</p>${model.runs.value.begin && html`<p class="soft">Begin one here, or in a terminal: <code><bdi>${model.runs.value.begin}</bdi></code></p>`}</div>`
      : html`<ul class="panel runs">${runs.map(one => html`<${Row} key=${one.run} one=${one} />`)}</ul>`}</section>`;
}

const Missing = ({ problem }) => html`<div class="panel empty"><p>Runs cannot be shown: <bdi>${problem.message}</bdi>.</p><p class="soft"><bdi>${problem.suggestion}</bdi></p><button class="btn" type="button" onClick=${() => model.refreshRuns()}>Ask again</button></div>`;

const Row = ({ one }) => {
  const [icon, tone] = look(one.status), seconds = one.seconds === '' ? model.now.value / 1000 - one.begun_at : one.seconds;
  return html`<li><a data-item href=${runLink(one.run)}><${Icon} name=${icon} tone=${tone} /><b class="cut"><${Theirs}>${one.name}</${Theirs}></b><code class="faint small-hide">${short(one.run)}</code>
    <span class="cut soft tasks"><bdi>${one.tasks}</bdi></span><span class="cut faint small-hide"><${Theirs}>${home(one.workspace)}</${Theirs}></span><time class="faint num">${when(one.begun_at)}</time><span class="num faint small-hide">${span(seconds)}</span><${Tag} status=${one.status} /></a></li>`;
};

// One run, asked for again whenever something has changed.
export function Run({ id, query }) {
  const [run, show] = useState(null), [gone, lose] = useState(null), live = model.link.value === 'live';
  useEffect(() => {
    let current = true;
    if (live) wire().ask('runs.run', { run: id }).then(found => { if (current) { show(found); lose(null); } }, error => { if (current) lose(error); });
    return () => { current = false; };
  }, [id, live, model.runsChanged.value]);
  useKeys({ Escape: () => { location.hash = '#/runs'; } }, []);
  if (gone && (!run || gone.code === 'run_not_found')) return html`<section aria-labelledby="h-page"><div class="head"><h1 id="h-page">Run ${short(id)}</h1></div><${Missing} problem=${gone} /></section>`;
  if (!run) return html`<section aria-labelledby="h-page"><div class="head"><h1 id="h-page">Run ${short(id)}</h1></div><div class="panel empty"><p class="soft">Loading the run</p></div></section>`;
  const asked = model.runsAsked.value.filter(one => one.run === run.run && !one.answer), chosen = run.tasks.find(one => one.task === query.get('task')) ?? first(run), question = asked.find(one => one.task === chosen?.task) ?? asked[0];
  return html`<section aria-labelledby="h-page"><${Head} run=${run} /><${Budgets} run=${run} />
    ${run.error && html`<p class="panel said bad"><${Theirs}>${run.error}</${Theirs}></p>`}${run.notes.map(note => html`<p class="panel said"><${Theirs}>${note}</${Theirs}></p>`)}
    <${Graph} run=${run} chosen=${chosen} /><${Timeline} run=${run} chosen=${chosen} />
    ${question && html`<${RunQuestion} key=${question.question_id} one=${question} at=${asked.indexOf(question) + 1} of=${asked.length} here=${true} />`}
    ${chosen && html`<${Task} key=${chosen.task} run=${run} task=${chosen} view=${query.get('view') ?? 'happened'} call=${query.get('call')} />`}</section>`;
}

// What one wants to see first: what waits, then what failed, then what runs, then the last.
const first = ({ tasks }) => ['waiting_approval', 'failed', 'blocked', 'running'].map(status => tasks.find(one => one.status === status)).find(Boolean) ?? tasks.filter(one => one.attempts.length).at(-1) ?? tasks[0];
const over = run => !['queued', 'running', 'waiting_approval', 'paused'].includes(run.status);

function Head({ run }) {
  const [icon, tone, word] = look(run.status), others = (model.runs.value?.runs ?? []).filter(one => one.run !== run.run), [sure, ask] = useState(false);
  const waits = run.tasks.flatMap(task => task.attempts.flatMap(one => one.waits)).filter(one => !one.ended), asked = Math.min(...waits.map(one => one.began));
  const stuck = run.status === 'paused' || !over(run) && !model.runs.value?.workers?.length;
  const stop = how => wire().ask(`runs.${how}`, { run: run.run }).then(() => { ask(false); model.refreshRuns(); }, model.problem);
  return html`<div class="head run-head"><a class="btn bare" href="#/runs" aria-label="Back to all runs"><${Icon} name="back" /></a><${Icon} name=${icon} tone=${tone} label=${word} /><h1 id="h-page" class="cut"><${Theirs}>${run.name}</${Theirs}></h1><code class="faint">${short(run.run)}</code>
    ${run.status === 'waiting_approval' && waits.length > 0 ? html`<span class="tag warn num">waits for you ${since(asked, model.now.value)}</span>` : html`<${Tag} status=${run.status} />`}
    <span class="soft cut small-hide" title=${run.workspace}><${Theirs}>${home(run.workspace)}</${Theirs}>, since ${when(run.created_at)}${run.begun_by ? html` by <${Theirs}>${run.begun_by}</${Theirs}>` : ''}${run.ended_at ? `, took ${span(run.ended_at - run.created_at)}` : ''}</span><span class="grow"></span>
    <a class="btn small-hide" href=${auditLink(run.run)}>Audit</a>${others.length > 0 && html`<select class="small-hide" aria-label="Compare with another run" value="" onChange=${event => { if (event.target.value) location.hash = `#/compare/${encodeURIComponent(run.run)}?with=${encodeURIComponent(event.target.value)}`; }}><option value="">Compare with …</option>${others.map(one => html`<option value=${one.run}>${one.name} ${short(one.run)}, ${look(one.status)[2]}</option>`)}</select>`}
    ${model.may('approve') && !over(run) && (sure ? html`<button class="btn" type="button" onClick=${() => ask(false)}>Keep it</button><button class="btn no" type="button" onClick=${() => stop('cancel')}>Cancel the run now</button>`
      : html`${stuck && html`<button class="btn main" type="button" onClick=${() => stop('resume')}>Continue</button>`}${run.status !== 'paused' && html`<button class="btn" type="button" onClick=${() => stop('pause')}>Pause</button>`}<button class="btn no" type="button" onClick=${() => ask(true)}>Cancel …</button>`)}</div>`;
}

const AMOUNTS = { seconds: ['Time', span], calls: ['Calls', String], tokens: ['Tokens', number => new Intl.NumberFormat('en-GB', { notation: 'compact' }).format(number)], dollars: ['Money', number => `$${number.toFixed(2)}`] };
const Budgets = ({ run }) => run.budgets.length > 0 && html`<dl class="panel budgets">${run.budgets.map(({ name, used, most }) => {
  const [title, shown] = AMOUNTS[name] ?? [name, String], now = name === 'seconds' && !run.ended_at ? model.now.value / 1000 - run.created_at : used;
  return html`<div><dt>${title}</dt><dd class="num"><b>${shown(Math.max(0, now))}</b>${most ? html`<span class="faint"> of ${shown(most)}</span>` : ''}${most ? html`<meter min="0" max=${most} high=${most * 0.8} value=${Math.min(now, most)} aria-label=${`${title} used`}></meter>` : ''}</dd></div>`;
})}</dl>`;

// Columns by how many steps must be done before; in a column each stands near those that it needs.
export function layout(tasks) {
  const byName = new Map(tasks.map(one => [one.task, one])), depths = new Map(), rows = new Map(), columns = [];
  const depth = (one, seen = new Set()) => {
    if (depths.has(one.task) || seen.has(one.task)) return depths.get(one.task) ?? 0;
    seen.add(one.task);
    const found = Math.max(-1, ...one.needs.filter(name => byName.has(name)).map(name => depth(byName.get(name), seen))) + 1;
    depths.set(one.task, found);
    return found;
  };
  for (const one of tasks) (columns[depth(one)] ??= []).push(one);
  const tall = Math.max(1, ...columns.map(column => column.length));
  for (const column of columns) {
    const height = one => { const known = one.needs.filter(name => rows.has(name)); return known.length ? known.reduce((sum, name) => sum + rows.get(name), 0) / known.length : column.indexOf(one); };
    const heights = new Map(column.map(one => [one, height(one)]));
    column.sort((one, other) => heights.get(one) - heights.get(other));
    column.forEach((one, at) => rows.set(one.task, at + (tall - column.length) / 2));
  }
  const position = one => ({ x: NODE.edge + depths.get(one.task) * (NODE.width + NODE.across), y: NODE.edge + rows.get(one.task) * (NODE.height + NODE.down) });
  const nodes = tasks.map(one => ({ one, ...position(one) })), at = new Map(nodes.map(node => [node.one.task, node]));
  const edges = nodes.flatMap(to => to.one.needs.filter(name => at.has(name)).map(name => ({ from: at.get(name), to })));
  return { nodes, edges, width: 2 * NODE.edge + columns.length * (NODE.width + NODE.across) - NODE.across, height: 2 * NODE.edge + tall * (NODE.height + NODE.down) - NODE.down };
}

const curve = ({ from, to }) => { const x = from.x + NODE.width, y = from.y + NODE.height / 2, u = to.x, v = to.y + NODE.height / 2, half = (u - x) / 2; return `M${x} ${y}C${x + half} ${y} ${u - half} ${v} ${u} ${v}`; };

function Graph({ run, chosen }) {
  const planned = run.tasks.filter(one => one.planned);
  if (!planned.length) return null;
  const { nodes, edges, width, height } = layout(planned);
  return html`<div class="panel"><header><h2 class="grow">Steps</h2><span class="faint small-hide">${edges.length ? 'an arrow leads to what needs it' : ''}</span></header>
    <div class="wide" tabindex="0" role="region" aria-label="Steps"><div class="graph" style=${{ width: `${width}px`, height: `${height}px` }}><svg viewBox=${`0 0 ${width} ${height}`} width=${width} height=${height} aria-hidden="true"><defs><marker id="tip" viewBox="0 0 6 6" refX="5.500" refY="3" markerWidth="6" markerHeight="6" orient="auto"><path d="M0 0 6 3 0 6Z" /></marker></defs>${edges.map(edge => html`<path class=${`arrow ${edge.from.one.status === 'succeeded' ? 'on' : ''}`} d=${curve(edge)} marker-end="url(#tip)" />`)}</svg>
      ${nodes.map(({ one, x, y }) => {
    const [icon, tone, word] = look(one.status), detail = nodeDetail(one);
    return html`<a key=${one.task} data-item class=${`node ${tone} ${one.attempts.length || over(run) ? '' : 'ahead'}`} href=${runLink(run.run, `?task=${encodeURIComponent(one.task)}`)} aria-current=${one === chosen ? 'true' : undefined} style=${{ left: `${x}px`, top: `${y}px`, width: `${NODE.width}px`, height: `${NODE.height}px` }}><${Icon} name=${icon} tone=${tone} label=${word} /><b class="cut"><${Theirs}>${one.task}</${Theirs}></b><span class="cut num">${detail}</span>${one.attempts.length > 0 && one.needs.length > 0 && html`<span class="heard">needs ${one.needs.join(', ')}</span>`}</a>`;
  })}</div></div></div>`;
}

function nodeDetail(task) {
  const last = task.attempts.at(-1), wait = last?.waits.find(one => !one.ended);
  if (wait && task.status === 'waiting_approval') return `waits ${since(wait.began, model.now.value)} for you`;
  if (!last) return task.needs.length ? `needs ${task.needs.join(', ')}` : look(task.status)[2];
  const again = last.attempt > 1 ? `, attempt ${last.attempt}` : '';
  return `${span((last.ended || model.now.value / 1000) - last.began)}${again}`;
}

const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400];
const BARS = { failed: 'bad', blocked: 'warn', budget_exhausted: 'warn', succeeded: 'ok', cancelled: 'faint' };

function Timeline({ run, chosen }) {
  const rows = run.tasks.filter(one => one.attempts.length || one.planned), end = run.ended_at || model.now.value / 1000;
  const from = Math.min(run.created_at, ...rows.flatMap(task => task.attempts.map(one => one.began))), whole = Math.max(end - from, 0.001);
  if (!rows.length || !run.created_at) return null;
  const step = STEPS.find(one => whole / one <= (matchMedia('(max-width: 900px)').matches ? 3 : 6)) ?? 86400, offset = at => `${Math.min(100, Math.max(0, 100 * (at - from) / whole))}%`;
  const extent = (began, ended) => ({ left: offset(began), width: `${Math.max(0, Math.min(100, 100 * ((ended || end) - began) / whole))}%` });
  const ticks = []; for (let at = Math.ceil(from / step) * step; at < end; at += step) ticks.push(at);
  return html`<div class="panel"><header><h2 class="grow">Timeline</h2><span class="faint key"><i class="bar wait"></i>waiting for a person</span></header><ol class="timeline">
    <li class="axis" aria-hidden="true"><span></span><span class="track">${ticks.map(at => html`<span class=${(at - from) / whole > 0.9 ? 'tick last' : 'tick'} style=${{ left: offset(at) }}>${step < 60 ? time(at) : time(at).slice(0, -3)}</span>`)}</span></li>
    ${rows.map(task => html`<li key=${task.task} class=${task === chosen ? 'here' : ''}><a class=${`cut ${task.planned ? '' : 'part'}`} href=${runLink(run.run, `?task=${encodeURIComponent(task.task)}`)}><${Theirs}>${task.task}</${Theirs}></a>
      <span class="track" role="img" aria-label=${spokenRow(task)}>${ticks.map(at => html`<i class="rule" style=${{ left: offset(at) }}></i>`)}${task.attempts.map(one => html`<i class=${`bar ${BARS[one.status] ?? 'busy'}`} style=${extent(one.began, one.ended)}></i>${one.waits.map(wait => html`<i class="bar wait" style=${extent(wait.began, wait.ended || one.ended)}></i>`)}`)}</span></li>`)}</ol></div>`;
}

// A row in words, for who does not see it.
const spokenRow = task => task.attempts.map(one => {
  const now = model.now.value / 1000, waited = one.waits.reduce((sum, wait) => sum + (wait.ended || one.ended || now) - wait.began, 0);
  return `attempt ${one.attempt} by ${one.agent}: ${look(one.status)[2]}, ${span((one.ended || now) - one.began)}${waited ? `, of which it waited ${span(waited)} for a person` : ''}`;
}).join('; ') || 'not begun';

const VIEWS = [['happened', 'What happened'], ['transcript', 'Transcript'], ['diff', 'Changes']];

function Task({ run, task, view, call }) {
  const link = name => runLink(run.run, `?task=${encodeURIComponent(task.task)}&view=${name}`), state = `${task.status} ${task.attempts.length}`;
  return html`<div class="panel task"><header><${Icon} name=${look(task.status)[0]} tone=${look(task.status)[1]} /><h2 class="cut"><${Theirs}>${task.task}</${Theirs}></h2><${Tag} status=${task.status} /><span class="grow"></span>
      <nav class="views" aria-label="About this step">${VIEWS.map(([name, title]) => html`<a class="btn" href=${link(name)} aria-current=${view === name ? 'page' : undefined}>${title}</a>`)}</nav></header>
    ${view === 'transcript' ? html`<${Transcript} run=${run.run} task=${task.task} call=${call} />` : view === 'diff' ? html`<div class="body"><${Changes} run=${run.run} task=${task.task} state=${state} /></div>` : html`<${Happened} task=${task} />`}</div>`;
}

const Happened = ({ task }) => html`<div class="body"><dl class="facts">${task.text && html`<dt>To do</dt><dd class="text"><${Theirs}>${task.text}</${Theirs}></dd>`}${task.agent && html`<dt>Agent</dt><dd><${Theirs}>${task.agent}</${Theirs}></dd>`}
    ${task.needs.length > 0 && html`<dt>Needs</dt><dd><${Theirs}>${task.needs.join(', ')}</${Theirs}></dd>`}${task.gates.length > 0 && html`<dt>Gates</dt><dd>${task.gates.map(gate => html`<code class="gate"><${Theirs}>${gate}</${Theirs}></code>`)}</dd>`}${task.reviewers.length > 0 && html`<dt>Reviewed by</dt><dd><${Theirs}>${task.reviewers.join(', ')}</${Theirs}></dd>`}
    ${task.summary && html`<dt>Came to</dt><dd class="text"><${Theirs}>${task.summary}</${Theirs}></dd>`}</dl>
  ${task.answer && task.answer !== task.summary && html`<${Folded} text=${task.answer} name="Answer" />`}
  ${!task.attempts.length && html`<p class="soft">It has not begun.</p>`}
  ${task.attempts.map(one => html`<${Attempt} key=${one.execution} one=${one} />`)}</div>`;

function Attempt({ one }) {
  const own = [...model.sessions.value.values()].map(each => each.value).filter(each => (each.owner ?? '').split('/').includes(one.owner));
  return html`<section class="attempt" aria-label=${`Attempt ${one.attempt}`}><div class="row"><h3>Attempt ${one.attempt}</h3><span class="soft">by <${Theirs}>${one.agent}</${Theirs}></span><${Tag} status=${one.status} /><span class="faint num">${when(one.began)}, ${span((one.ended || model.now.value / 1000) - one.began)}</span></div>
    ${one.summary && html`<p class=${`text ${one.status === 'failed' ? 'bad' : 'soft'}`}><${Theirs}>${one.summary}</${Theirs}></p>`}
    ${!own.length && one.ended > 0 && html`<p class="row terminals"><span class="faint">Its terminals are closed, and their output removed:</span><a href=${auditLink(one.execution)}>what was done in them</a></p>`}
    ${own.length > 0 && html`<p class="row terminals"><span class="faint">Terminals</span>${own.map(each => html`<a class="btn" href=${sessionLink(each.session_id)}><${Icon} name="grid" /><${Theirs}>${each.name}</${Theirs}></a>`)}</p>`}
    <ol class="events">${one.happened.map(event => html`<li><time class="faint num">${event.at ? time(event.at) : ''}</time>${event.event === 'gate.failed' ? html`<div class="grow"><b class="bad">A gate did not hold</b><${Folded} text=${event.said} name="What the gate said" /></div>` : html`<span class=${`grow ${['approval.asked', 'approval.answered'].includes(event.event) ? 'warn' : ''}`}><${Theirs}>${event.said}</${Theirs}></span>`}</li>`)}</ol></section>`;
}

// A text of many lines, of which the last are shown until all are asked for.
function Folded({ text, name }) {
  const [whole, all] = useState(false), lines = text.replace(/\n+$/, '').split('\n'), folded = !whole && lines.length > FOLDED_LINES;
  return html`<div class="folded">${folded && html`<button class="more" type="button" onClick=${() => all(true)}>Show ${lines.length - FOLDED_LINES} lines before</button>`}<pre role="group" aria-label=${name}><${Theirs}>${(folded ? lines.slice(-FOLDED_LINES) : lines).join('\n')}</${Theirs}></pre></div>`;
}

function useAsked(method, params, inputs) {
  const [found, show] = useState(null), [problem, fail] = useState(null);
  useEffect(() => {
    let current = true;
    wire().ask(method, params).then(answer => { if (current) { show(answer); fail(null); } }, error => { if (current) fail(error); });
    return () => { current = false; };
  }, inputs);
  return [found, problem];
}

function Transcript({ run, task, call }) {
  const [found, problem] = useAsked('runs.transcript', { run, task }, [run, task, model.runsChanged.value]), element = useRef();
  useEffect(() => { if (call) element.current?.querySelector('[aria-current]')?.scrollIntoView({ block: 'center' }); }, [call, Boolean(found)]);
  if (problem) return html`<p class="body bad"><bdi>${problem.message}</bdi></p>`;
  if (!found) return html`<p class="body soft">Reading</p>`;
  return html`<div class="body" ref=${element}>${!found.attempts.length && html`<p class="soft">It has not begun.</p>`}${found.attempts.map(one => html`<section class="attempt" aria-label=${`${one.task}, attempt ${one.attempt}`}><div class="row"><h3><${Theirs}>${one.task}</${Theirs}>, attempt ${one.attempt}</h3><span class="soft">by <${Theirs}>${one.agent}</${Theirs}></span></div>
    <ol class="events">${one.entries.map(entry => html`<li aria-current=${call && entry.call === call ? 'true' : undefined}><time class="faint num">${entry.at ? time(entry.at) : ''}</time><div class="grow"><${Entry} entry=${entry} /></div></li>`)}</ol></section>`)}</div>`;
}

const Entry = ({ entry }) => entry.kind === 'thought' ? html`<b><${Theirs}>${entry.model || 'the model'}</${Theirs}></b>${entry.text && html`<${Folded} text=${entry.text} name="What the model said" />`}${entry.calls.map(call => html`<p class="soft">asks for <code><${Theirs}>${call.tool} ${JSON.stringify(call.arguments)}</${Theirs}></code></p>`)}`
  : entry.kind === 'call' ? html`<div class="row"><b class="cut"><${Theirs}>${entry.agent} ${entry.tool || entry.step}</${Theirs}></b><span class=${`tag ${entry.status === 'succeeded' || entry.status === 'ok' ? '' : 'bad'}`}>${entry.status}${entry.exit_code === undefined || entry.exit_code === null ? '' : `, exit ${entry.exit_code}`}</span><span class="faint num">${span(entry.seconds)}</span>${entry.call && html`<a class="faint from" href=${auditLink(entry.call)} aria-label="Its audit record" title="Its audit record"><${Icon} name="log" /></a>`}</div>${entry.command && html`<pre class="typed"><${Theirs}>${entry.command}</${Theirs}></pre>`}${entry.message && html`<p class="bad"><${Theirs}>${entry.message}</${Theirs}></p>`}${entry.answer && html`<${Folded} text=${entry.answer} name="Answer" />`}`
  : html`<span class=${entry.kind === 'trouble' ? 'bad' : 'soft'}><${Theirs}>${entry.said}</${Theirs}></span>`;

const Changes = ({ run, task, state }) => {
  const [found, problem] = useAsked('runs.diff', { run, task }, [run, task, state]);
  return problem ? html`<p class="bad"><bdi>${problem.message}</bdi></p>` : !found ? html`<p class="soft">Reading</p>` : html`<${Diff} found=${found} />`;
};

// Where two runs came to something else.
export function Compare({ id, query }) {
  const other = query.get('with') ?? '', [found, problem] = useAsked('runs.compare', { one: id, other }, [id, other]);
  const text = (value, what) => what === 'status' && value in LOOKS ? LOOKS[value][2] : typeof value === 'string' ? value : JSON.stringify(value);
  return html`<section aria-labelledby="h-page"><div class="head"><a class="btn bare" href=${runLink(id)} aria-label="Back to the run"><${Icon} name="back" /></a><h1 id="h-page">Two runs</h1></div>
    ${problem ? html`<${Missing} problem=${problem} />` : !found ? html`<div class="panel empty"><p class="soft">Comparing</p></div>` : !found.differences.length ? html`<div class="panel empty"><p>The results are the same.</p><p class="soft">Status, agents, attempts, summaries and results of all their steps are alike.</p></div>`
      : html`<div class="panel wide" tabindex="0" role="region" aria-label="Differences"><table class="compare"><thead><tr><th scope="col">Step</th><th scope="col">What</th><th scope="col"><a href=${runLink(found.a)}>${short(found.a)}</a></th><th scope="col"><a href=${runLink(found.b)}>${short(found.b)}</a></th></tr></thead>
        <tbody>${found.differences.map(one => html`<tr><td><${Theirs}>${one.task || 'the run'}</${Theirs}></td><td><${Theirs}>${one.what}</${Theirs}></td><td class="text"><${Theirs}>${text(one.a, one.what)}</${Theirs}></td><td class="text"><${Theirs}>${text(one.b, one.what)}</${Theirs}></td></tr>`)}</tbody></table></div>`}</section>`;
}
