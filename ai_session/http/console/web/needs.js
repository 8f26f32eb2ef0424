// What waits for the person's answer, one after the other, each whole.
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';
import { signal } from '@preact/signals';
import { html, Icon, Theirs, home, runLink, sessionLink, short, since, span } from './parts.js';
import { Diff } from './diff.js';
import { useKeys } from './session.js';
import * as model from './model.js';

const QUIET_MS = 1000; // what is typed for something else must not answer by accident
const COVERED = 260; // of a narrow window, by the buttons below
const CHOICES = { once: ['y', 'Allow once'], session: ['s', 'This session'], always: ['a', 'Always'], prefix: ['p', 'All that begins like it'], folder: ['f', 'This folder and below'] };
const DIGEST = / #[0-9a-f]{64}$/; // of what is meant to the letter; it says nothing to a person
const chosen = signal(''), answered = signal([]);

export function Needs() {
  const all = model.open.value, put = model.putOff.value, one = all.find(each => each.question_id === chosen.value) ?? all[0];
  const oldest = Math.min(...all.map(each => each.asked_at));
  return html`<section aria-labelledby="h-page"><div class="head"><h1 id="h-page">Needs you</h1>${all.length ? html`<span class="faint num">oldest ${since(oldest, model.now.value)}</span>` : ''}<span class="grow"></span>
      ${put ? html`<button class="btn bare" type="button" onClick=${() => { model.later.value = new Set(); }}>Show ${put} put off</button>` : ''}</div>
    ${one ? html`<div class="columns"><ul class="panel asks">${all.map(each => html`<${Ask} key=${each.question_id} one=${each} current=${each === one} />`)}</ul><${one.run ? RunQuestion : Card} key=${one.question_id} one=${one} at=${all.indexOf(one) + 1} of=${all.length} /></div>`
      : html`<div class="panel empty"><p>Nothing waits for your answer.</p><p class="soft">When an agent asks for something that its policy or its run leaves to you, it appears here, and in the title of this tab.</p></div>`}
    ${answered.value.length ? html`<div class="panel"><header><h2>Answered here</h2></header><ul class="rows">${answered.value.map(each => html`<li><span class=${`tag ${each.allowed ? '' : 'bad'}`}>${each.word}</span><code class="grow cut"><${Theirs}>${each.about}</${Theirs}></code></li>`)}</ul></div>` : ''}</section>`;
}

const nameOf = one => [...model.sessions.value.values()].map(each => each.value).find(each => model.about(one, each));
const first = text => { const lines = text.split('\n').filter(line => line.trim()); return (lines.find(line => line.startsWith('    ')) ?? lines[0] ?? '').trim(); }; // what is asked for stands indented

const Ask = ({ one, current }) => html`<li><button type="button" data-item aria-current=${current ? 'true' : undefined} onClick=${() => { chosen.value = one.question_id; }} onFocus=${() => { chosen.value = one.question_id; }}>
  <${Icon} name="needs" tone="warn" /><b class="cut">${one.run ? html`<${Theirs}>${one.agent}</${Theirs}> ${one.merges ? 'is done with' : 'asks in'} <${Theirs}>${one.task || short(one.run)}</${Theirs}>`
    : html`<${Theirs}>${one.client || 'a client'}</${Theirs}> asks${nameOf(one) ? html` in <${Theirs}>${nameOf(one).name}</${Theirs}>` : ''}`}</b><time class="faint num">${since(one.asked_at, model.now.value)}</time><code class="soft cut"><${Theirs}>${one.run ? called(one).replace(/\s+/g, ' ') : first(one.message)}</${Theirs}></code></button></li>`;

// Keys and the yes count once nothing was typed for a second, and the end of what is asked was in view.
function useCare(ready = true) {
  const [seen, see] = useState(false), [quiet, rest] = useState(false), end = useRef(), timer = useRef(), last = useRef(0), counts = useRef(false);
  const settle = () => {
    counts.current = performance.now() - last.current >= QUIET_MS;
    last.current = performance.now();
    rest(false); clearTimeout(timer.current); timer.current = setTimeout(() => rest(true), QUIET_MS);
  };
  useEffect(() => {
    if (!ready) return undefined;
    const watch = new IntersectionObserver(([entry]) => { if (entry.isIntersecting) see(true); }, { rootMargin: matchMedia('(max-width: 900px)').matches ? `0px 0px -${COVERED}px` : '0px' });
    watch.observe(end.current);
    return () => watch.disconnect();
  }, [ready]);
  useEffect(() => { settle(); return () => clearTimeout(timer.current); }, []);
  useLayoutEffect(() => {
    addEventListener('keydown', settle, true);
    return () => removeEventListener('keydown', settle, true);
  }, []);
  return { seen, quiet, counts, end };
}

const noted = (allowed, word, about) => { answered.value = [{ allowed, about, word }, ...answered.value].slice(0, 20); };
const putOff = one => { model.later.value = new Set([...model.later.value, one.question_id]); };

function Card({ one, at, of }) {
  const { seen, quiet, counts, end } = useCare(), [reason, explain] = useState(''), session = nameOf(one), signs = (one.answer ?? 'unsigned') !== 'unsigned';
  const allows = scope => model.may('approve') && seen && !signs && one.scopes.includes(scope);
  const answer = async (allowed, scope = 'once') => {
    try {
      await window.wire.ask(allowed ? 'approve' : 'reject', { question_id: one.question_id, reason, ...(allowed && { scope }) });
      noted(allowed, allowed ? CHOICES[scope][1].toLowerCase() : 'denied', first(one.message));
      model.questions.value = model.questions.value.filter(each => each.question_id !== one.question_id);
    } catch (error) {
      model.problem(error);
      model.refreshQuestions().catch(() => {});
    }
  };
  const put = () => putOff(one), keys = { l: put };
  if (model.may('approve')) {
    keys.n = () => counts.current && answer(false);
    for (const [scope, [key]] of Object.entries(CHOICES)) if (allows(scope)) keys[key] = () => counts.current && answer(true, scope);
  }
  useKeys(keys, [quiet, seen, reason]);
  const left = one.expires_at - model.now.value / 1000;
  return html`<article class=${`panel card ${quiet ? "quiet" : ""}`} aria-labelledby="h-card"><div class="row"><h2 id="h-card" class="grow">Allow this?</h2><span class="faint num">${at} of ${of}</span></div>
    <div class="cmd" tabindex="0" role="region" aria-label="What is asked"><${Theirs} tag="pre">${one.message}</${Theirs}><span class="end" ref=${end}></span></div>
    <dl class="facts"><dt>Asked by</dt><dd><${Theirs}>${one.client || 'a client'}</${Theirs}>${session ? html`, in <a href=${sessionLink(session.session_id)}><${Theirs}>${session.name}</${Theirs}></a>` : ''}</dd>
      ${one.directory && html`<dt>From</dt><dd><code><${Theirs}>${home(one.directory)}</${Theirs}></code></dd>`}<dt>Rule</dt><dd><code>${one.rule}</code></dd>
      ${one.detail && html`<dt>“Always” is</dt><dd><code><${Theirs}>${one.detail.replace(DIGEST, '')}</${Theirs}></code></dd>`}${one.prefix && html`<dt>“Begins like”</dt><dd><code><${Theirs}>${one.prefix}</${Theirs}> …</code></dd>`}${one.folder && html`<dt>“Folder” is</dt><dd><code><${Theirs}>${home(one.folder)}</${Theirs}></code></dd>`}
      <dt>Waits</dt><dd class="num">${left > 0 ? `for another ${span(left)}` : 'no longer'}</dd></dl>
    ${signs && html`<p class="signs">${one.answer === 'signed' ? html`A yes is to be signed, in a terminal: <code>ai-session approve ${one.question_id}</code>` : html`A yes from this console does not count as a person’s: no terminal of your own started it, or the agent that asks did. In a terminal of yours: <code>ai-session approve ${one.question_id}</code>`}</p>`}
    ${model.may('approve') && html`<label class="reason"><span class="faint">Reason, recorded and sent to the client</span><input maxlength="500" value=${reason} onInput=${event => explain(event.target.value)} /></label>`}
    ${!seen && html`<p class="faint">Read to the end to allow it.</p>`}
    <div class="acts">${model.may('approve') && !signs && one.scopes.map(scope => html`<button class=${`btn ${scope === 'once' ? 'main' : ''}`} type="button" disabled=${!allows(scope)} onClick=${() => answer(true, scope)}>${CHOICES[scope][1]} <kbd>${CHOICES[scope][0]}</kbd></button>`)}
      <span class="grow small-hide"></span><button class="btn bare" type="button" onClick=${put}>Later <kbd>l</kbd></button>${model.may('approve') && html`<button class="btn no" type="button" onClick=${() => answer(false)}>Deny <kbd>n</kbd></button>`}</div></article>`;
}

const WIDER = { once: ['y', 'Allow once'], command: ['s', 'This call, whole run'], tool: ['a', 'This tool, whole run'], run: ['p', 'All calls, whole run'] };

// What is asked for, written out.
const called = one => one.merges ? one.question : [one.question ?? one.tool, ...one.arguments.map(({ name, value }) => `    ${name} = ${value.replaceAll('\n', '\n        ')}`)].join('\n');

// A question of a run: whether a call is made, or work is merged, which is shown whole.
export function RunQuestion({ one, at, of, here }) {
  const [work, show] = useState(null), ready = !one.merges || Boolean(work), { seen, quiet, counts, end } = useCare(ready), [reason, explain] = useState(''), field = useRef(), waiting = useRef(false);
  const whole = !one.merges || work?.tasks?.every(task => !task.error && !task.left_out), mine = one.answers.includes('once');
  useEffect(() => { if (one.merges) window.wire.ask('runs.diff', { run: one.run, task: one.task }).then(show, error => show({ tasks: [{ task: one.task, error }] })); }, [one.question_id]);
  const allows = scope => model.may('approve') && seen && whole && one.answers.includes(scope);
  const decide = async (method, params, allowed, word) => {
    if (waiting.current) return;
    waiting.current = true;
    try {
      const { next } = await window.wire.ask(`runs.${method}`, params);
      noted(allowed, word, called(one).split('\n')[0]);
      if (next) model.notice.value = { text: 'Your answer is kept. No worker executes the run now.', advice: `On its page: Continue. In a terminal: ${next}` };
      model.runsAsked.value = model.runsAsked.value.filter(each => each.question_id !== one.question_id);
    } catch (error) { model.problem(error); } finally { waiting.current = false; model.refreshRuns(); }
  };
  const yes = scope => one.merges ? decide('accept', { run: one.run, task: one.task, reason }, true, 'accepted') : decide('answer', { question: one.id, approved: true, scope, reason }, true, WIDER[scope][1].toLowerCase());
  const no = () => decide('answer', { question: one.id, approved: false, reason }, false, one.merges ? 'refused' : 'denied');
  const back = () => { if (reason.trim()) decide('return', { run: one.run, task: one.task, comment: reason }, false, 'given back'); else field.current.focus(); };
  const put = () => putOff(one), keys = here ? {} : { l: put };
  if (model.may('approve')) {
    if (mine || one.answer_with) keys.n = () => counts.current && no();
    if (one.answers.includes('return')) keys.c = () => counts.current && back();
    for (const [scope, [key]] of Object.entries(WIDER)) if (allows(scope)) keys[key] = () => counts.current && yes(scope);
  }
  useKeys(keys, [quiet, seen, reason, work]);
  const title = one.merges ? 'Merge this work?' : 'Allow this call?';
  return html`<article class=${`panel card ${quiet ? 'quiet' : ''}`} aria-labelledby="h-card"><div class="row"><${Icon} name="needs" tone="warn" /><h2 id="h-card" class="grow">${title}</h2><span class="faint num">${at} of ${of}</span></div>
    <div class="cmd" tabindex="0" role="region" aria-label="What is asked">${!one.merges ? html`<${Theirs} tag="pre">${called(one)}</${Theirs}>` : work ? html`<${Diff} found=${work} />` : html`<p class="soft">Reading what was changed</p>`}${ready && html`<span class="end" ref=${end}></span>`}</div>
    <dl class="facts"><dt>Asked by</dt><dd><${Theirs}>${one.agent}</${Theirs}>${one.task && html`, in step <a href=${runLink(one.run, `?task=${encodeURIComponent(one.task)}`)}><${Theirs}>${one.task}</${Theirs}></a>`}</dd>
      <dt>Run</dt><dd><a href=${runLink(one.run)}><code>${short(one.run)}</code></a></dd>${one.merges && html`<dt>Changes</dt><dd><${Theirs}>${one.question}</${Theirs}></dd>`}${one.asked_at ? html`<dt>Asked</dt><dd class="num">${since(one.asked_at, model.now.value)} ago</dd>` : ''}</dl>
    ${one.answer_with && html`<p class="signs">Its server takes the yes itself. In a terminal of yours: <code><bdi>${one.answer_with}</bdi></code></p>`}
    ${one.merges && work && !whole && html`<p class="signs">Not all of it can be shown here, so it is not accepted here.</p>`}
    ${model.may('approve') && html`<label class="reason"><span class="faint">${one.merges ? 'Comment, sent to the agent where you return or refuse the work' : 'Reason, recorded and sent to the agent'}</span><input ref=${field} maxlength="2000" value=${reason} onInput=${event => explain(event.target.value)} /></label>`}
    ${mine && !seen && html`<p class="faint">Read to the end to ${one.merges ? 'accept' : 'allow'} it.</p>`}
    <div class="acts">${model.may('approve') && one.answers.filter(scope => scope in WIDER).map(scope => html`<button class=${`btn ${scope === 'once' ? 'main' : ''}`} type="button" disabled=${!allows(scope)} onClick=${() => yes(scope)}>${one.merges ? 'Accept' : WIDER[scope][1]} <kbd>${WIDER[scope][0]}</kbd></button>`)}
      ${model.may('approve') && one.answers.includes('return') && html`<button class="btn" type="button" onClick=${back}>Return with the comment <kbd>c</kbd></button>`}
      <span class="grow small-hide"></span>${!here && html`<button class="btn bare" type="button" onClick=${put}>Later <kbd>l</kbd></button>`}${model.may('approve') && (mine || one.answer_with) && html`<button class="btn no" type="button" onClick=${no}>${one.merges ? 'Refuse' : 'Deny'} <kbd>n</kbd></button>`}</div></article>`;
}
