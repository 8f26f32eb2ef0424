// A run begun from the page: what is to be done is chosen or said, checked and shown as it would be done, then started.
import { useEffect, useRef, useState } from 'preact/hooks';
import { html, Icon, Theirs, home, runLink } from './parts.js';
import { useKeys } from './session.js';
import * as model from './model.js';

const WORDS = 'words', CONFIGURED = 'configured';
const wire = () => window.wire;
const counted = (number, what) => `${number} ${what}${number === 1 ? '' : 's'}`;

export function Start() {
  const [there, show] = useState(null), [what, choose] = useState(''), [words, write] = useState(''), [name, call] = useState(''), [found, check] = useState(null), [problem, fail] = useState(null), [busy, wait] = useState(false), latest = useRef(0), button = useRef(), live = model.link.value === 'live';
  useKeys({ Escape: () => { location.hash = '#/runs'; } }, []);
  useEffect(() => {
    if (live) wire().ask('runs.beginnings').then(found => { show(found); choose(found.tasks ? CONFIGURED : found.takes_words ? WORDS : found.plans[0]?.file ?? WORDS); }, fail);
  }, [live]);
  useEffect(() => { button.current?.focus(); }, [found]);
  const changed = then => value => { latest.current++; check(null); fail(null); then(value); };
  const asked = () => what === WORDS ? { words } : what === CONFIGURED ? {} : { file: what };
  const ready = there && (what !== WORDS || words.trim());
  const ask = async (method, params, then) => {
    const mine = ++latest.current;
    wait(true);
    try { const answer = await wire().ask(method, params); if (mine === latest.current) then(answer); } catch (error) { if (mine === latest.current) fail(error); } finally { wait(false); }
  };
  const look = event => { event?.preventDefault(); if (ready && !busy) { fail(null); check(null); ask('runs.check', asked(), check); } };
  const start = () => { if (!busy) { fail(null); ask('runs.start', { ...asked(), name, digest: found.digest }, ({ run }) => { model.refreshRuns(); location.hash = runLink(run); }); } };
  return html`<section aria-labelledby="h-page"><div class="head"><a class="btn bare" href="#/runs" aria-label="Back to all runs"><${Icon} name="back" /></a><h1 id="h-page">Start a run</h1>${there && html`<span class="soft cut">in <code><${Theirs}>${home(there.directory)}</${Theirs}></code>${there.configuration ? html`, by <code><${Theirs}>${home(there.configuration)}</${Theirs}></code>` : ', without a configuration'}</span>`}</div>
    ${there && html`<form class="panel card" onSubmit=${look}><label class="reason"><span class="faint">What is to be done</span><select value=${what} onChange=${event => changed(choose)(event.target.value)}>
        ${there.tasks > 0 && html`<option value=${CONFIGURED}>The configuration’s ${counted(there.tasks, 'task')}</option>`}<option value=${WORDS}>A task in words</option>${there.plans.map(one => html`<option value=${one.file}>${one.file}, ${counted(one.tasks, 'task')}</option>`)}</select></label>
      ${what === WORDS && html`<label class="reason"><span class="faint">The task</span><textarea rows="4" maxlength="20000" value=${words} onInput=${event => changed(write)(event.target.value)}></textarea></label>`}
      <label class="reason"><span class="faint">Name of the run; may be left out</span><input maxlength="63" value=${name} onInput=${event => changed(call)(event.target.value)} /></label>
      <div class="acts"><button class=${`btn ${found ? '' : 'main'}`} type="submit" disabled=${!ready || busy}>Check</button>${found && !found.problems.length && html`<button class="btn main" type="button" disabled=${busy} ref=${button} onClick=${start}>Start</button>`}<span class="soft" role="status">${busy ? 'One moment' : found && !found.problems.length ? 'Nothing has been started yet.' : ''}</span></div></form>`}
    ${problem && html`<p class="panel said bad" role="alert"><bdi>${problem.message}</bdi>${problem.suggestion && html` <span class="soft"><bdi>${problem.suggestion}</bdi></span>`}</p>`}
    ${!there && !problem && html`<div class="panel empty"><p class="soft">Loading what can be started</p></div>`}
    ${found && html`<${Checked} found=${found} />`}</section>`;
}

const Checked = ({ found }) => html`${found.problems.map(one => html`<p class="panel said bad"><${Theirs}>${one}</${Theirs}></p>`)}${found.notes.map(one => html`<p class="panel said signs"><${Theirs}>${one}</${Theirs}></p>`)}
  ${found.tasks.length > 0 && html`<div class="panel"><header><h2 class="grow">What would be done</h2><span class="faint cut">work in <${Theirs}>${home(found.workspace)}</${Theirs}></span></header>
    <ol class="rows checked">${found.tasks.map(one => html`<li key=${one.task}><span class="tag" aria-label=${`Stage ${one.stage}`}>${one.stage}</span><div class="grow"><p><b><${Theirs}>${one.task}</${Theirs}></b> <span class="soft">by <${Theirs}>${one.agents.join(' or ')}</${Theirs}>, ${one.steps ? counted(one.steps, 'step') : 'as its brain decides'}${one.needs.length ? html`, needs <${Theirs}>${one.needs.join(', ')}</${Theirs}>` : ''}</span></p>
      ${one.text && html`<p class="text soft"><${Theirs}>${one.text}</${Theirs}></p>`}${one.gates.map(gate => html`<p class="soft">gate <code><${Theirs}>${gate}</${Theirs}></code></p>`)}</div></li>`)}</ol></div>`}`;
