// What waits for the person's answer, one after the other, each whole.
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';
import { signal } from '@preact/signals';
import { html, Icon, Theirs, home, sessionLink, span } from './parts.js';
import { useKeys } from './session.js';
import * as model from './model.js';

const QUIET_MS = 1000; // what is typed for something else must not answer by accident
const COVERED = 260; // of a narrow window, by the buttons below
const CHOICES = { once: ['y', 'Allow once'], session: ['s', 'This session'], always: ['a', 'Always'], prefix: ['p', 'All that begins like it'], folder: ['f', 'This folder and below'] };
const DIGEST = / #[0-9a-f]{64}$/; // of what is meant to the letter; it says nothing to a person
const chosen = signal(''), answered = signal([]);

export function Needs() {
  const all = model.open.value, put = model.questions.value.length - all.length, one = all.find(each => each.question_id === chosen.value) ?? all[0];
  const oldest = Math.min(...all.map(each => each.asked_at));
  return html`<section aria-labelledby="h-page"><div class="head"><h1 id="h-page">Needs you</h1>${all.length ? html`<span class="faint num">oldest ${span(model.now.value / 1000 - oldest)}</span>` : ''}<span class="grow"></span>
      ${put ? html`<button class="btn bare" type="button" onClick=${() => { model.later.value = new Set(); }}>Show ${put} put off</button>` : ''}</div>
    ${one ? html`<div class="desk"><ul class="panel asks">${all.map(each => html`<${Ask} key=${each.question_id} one=${each} current=${each === one} />`)}</ul><${Card} key=${one.question_id} one=${one} at=${all.indexOf(one) + 1} of=${all.length} /></div>`
      : html`<div class="panel empty"><p>Nothing waits for your answer.</p><p class="soft">When an agent asks for something that its policy leaves to you, it stands here, and in the title of this tab.</p></div>`}
    ${answered.value.length ? html`<div class="panel"><header><h2>Answered here</h2></header><ul class="rows">${answered.value.map(each => html`<li><span class=${`tag ${each.allowed ? '' : 'bad'}`}>${each.word}</span><code class="grow cut"><${Theirs}>${each.about}</${Theirs}></code></li>`)}</ul></div>` : ''}</section>`;
}

const nameOf = one => [...model.sessions.value.values()].map(each => each.value).find(each => model.about(one, each));
const first = text => { const lines = text.split('\n').filter(line => line.trim()); return (lines.find(line => line.startsWith('    ')) ?? lines[0] ?? '').trim(); }; // what is asked for stands indented

const Ask = ({ one, current }) => html`<li><button type="button" data-item aria-current=${current ? 'true' : undefined} onClick=${() => { chosen.value = one.question_id; }} onFocus=${() => { chosen.value = one.question_id; }}>
  <${Icon} name="needs" tone="warn" /><b class="cut"><${Theirs}>${one.client || 'a client'}</${Theirs}> asks${nameOf(one) ? html` in <${Theirs}>${nameOf(one).name}</${Theirs}>` : ''}</b><time class="faint num">${span(model.now.value / 1000 - one.asked_at)}</time><code class="soft cut"><${Theirs}>${first(one.message)}</${Theirs}></code></button></li>`;

function Card({ one, at, of }) {
  const [seen, see] = useState(false), [quiet, rest] = useState(false), [reason, explain] = useState(''), end = useRef(), timer = useRef(), last = useRef(0), counts = useRef(false), session = nameOf(one), signs = (one.answer ?? 'unsigned') !== 'unsigned';
  const settle = () => {
    counts.current = performance.now() - last.current >= QUIET_MS;
    last.current = performance.now();
    rest(false); clearTimeout(timer.current); timer.current = setTimeout(() => rest(true), QUIET_MS);
  };
  useEffect(() => {
    const watch = new IntersectionObserver(([entry]) => { if (entry.isIntersecting) see(true); }, { rootMargin: matchMedia('(max-width: 900px)').matches ? `0px 0px -${COVERED}px` : '0px' });
    watch.observe(end.current);
    settle();
    return () => { watch.disconnect(); clearTimeout(timer.current); };
  }, []);
  useLayoutEffect(() => {
    addEventListener('keydown', settle, true);
    return () => removeEventListener('keydown', settle, true);
  }, []);
  const allows = scope => model.may('approve') && seen && !signs && one.scopes.includes(scope);
  const answer = async (allowed, scope = 'once') => {
    try {
      await window.wire.ask(allowed ? 'approve' : 'reject', { question_id: one.question_id, reason, ...(allowed && { scope }) });
      answered.value = [{ allowed, about: first(one.message), word: allowed ? CHOICES[scope][1].toLowerCase() : 'denied' }, ...answered.value].slice(0, 20);
      model.questions.value = model.questions.value.filter(each => each.question_id !== one.question_id);
    } catch (error) {
      model.problem(error);
      model.refreshQuestions().catch(() => {});
    }
  };
  const put = () => { model.later.value = new Set([...model.later.value, one.question_id]); };
  const keys = { l: put };
  if (model.may('approve')) {
    keys.n = () => counts.current && answer(false);
    for (const [scope, [key]] of Object.entries(CHOICES)) if (allows(scope)) keys[key] = () => counts.current && answer(true, scope);
  }
  useKeys(keys, [quiet, seen, reason]);
  const left = one.expires_at - model.now.value / 1000;
  return html`<article class=${`panel card ${quiet ? "quiet" : ""}`} aria-labelledby="h-card"><div class="row"><h2 id="h-card" class="grow">Allow this?</h2><span class="faint num">${at} of ${of}</span></div>
    <div class="cmd" tabindex="0" aria-label="What is asked"><${Theirs} tag="pre">${one.message}</${Theirs}><span class="end" ref=${end}></span></div>
    <dl class="facts"><dt>Asked by</dt><dd><${Theirs}>${one.client || 'a client'}</${Theirs}>${session ? html`, in <a href=${sessionLink(session.session_id)}><${Theirs}>${session.name}</${Theirs}></a>` : ''}</dd>
      ${one.directory && html`<dt>From</dt><dd><code><${Theirs}>${home(one.directory)}</${Theirs}></code></dd>`}<dt>Rule</dt><dd><code>${one.rule}</code></dd>
      ${one.detail && html`<dt>“Always” is</dt><dd><code><${Theirs}>${one.detail.replace(DIGEST, '')}</${Theirs}></code></dd>`}${one.prefix && html`<dt>“Begins like”</dt><dd><code><${Theirs}>${one.prefix}</${Theirs}> …</code></dd>`}${one.folder && html`<dt>“Folder” is</dt><dd><code><${Theirs}>${home(one.folder)}</${Theirs}></code></dd>`}
      <dt>Waits</dt><dd class="num">${left > 0 ? `for another ${span(left)}` : 'no longer'}</dd></dl>
    ${signs && html`<p class="signs">${one.answer === 'signed' ? html`A yes is to be signed, in a terminal: <code>ai-session approve ${one.question_id}</code>` : html`A yes from this console does not count as a person’s: no terminal of your own started it, or the agent that asks did. In a terminal of yours: <code>ai-session approve ${one.question_id}</code>`}</p>`}
    ${model.may('approve') && html`<label class="reason"><span class="faint">Reason, recorded and told to the client</span><input maxlength="500" value=${reason} onInput=${event => explain(event.target.value)} /></label>`}
    ${!seen && html`<p class="faint">Read to the end to allow it.</p>`}
    <div class="acts">${model.may('approve') && !signs && one.scopes.map(scope => html`<button class=${`btn ${scope === 'once' ? 'main' : ''}`} type="button" disabled=${!allows(scope)} onClick=${() => answer(true, scope)}>${CHOICES[scope][1]} <kbd>${CHOICES[scope][0]}</kbd></button>`)}
      <span class="grow small-hide"></span><button class="btn bare" type="button" onClick=${put}>Later <kbd>l</kbd></button>${model.may('approve') && html`<button class="btn no" type="button" onClick=${() => answer(false)}>Deny <kbd>n</kbd></button>`}</div></article>`;
}
