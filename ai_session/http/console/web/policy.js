// What is allowed, asked about and denied, for whom and by which rule; what was answered for longer; the box of new sessions.
import { useEffect, useRef, useState } from 'preact/hooks';
import { html, Icon, Theirs, home, time } from './parts.js';
import * as model from './model.js';

const DECISIONS = { allow: ['', 'allowed'], ask: ['warn', 'asked'], deny: ['bad', 'denied'] };
const SELECTORS = ['tools', 'effects', 'commands', 'paths', 'domains', 'principals', 'clients', 'agents'];
const SCOPES = { session: 'this session', always: 'always', prefix: 'all that begins like it', folder: 'this folder and below' };
const GIB = 1 << 30;
const wire = () => window.wire;
const Verdict = ({ verdict }) => html`<span class=${`tag ${DECISIONS[verdict]?.[0] ?? ''}`}>${DECISIONS[verdict]?.[1] ?? verdict}</span>`;
const Folder = ({ path }) => html`<code><${Theirs}>${home(path)}</${Theirs}></code>`;

export function Policy({ query }) {
  const [found, show] = useState(null), [problem, fail] = useState(null), live = model.link.value === 'live', mode = model.policy.value?.mode, command = query.get('command') ?? '', client = query.get('client') ?? '', agent = query.get('agent') ?? '';
  useEffect(() => {
    let current = true;
    if (live) wire().ask('explain', { ...(command && { command, client, agent }) }).then(answer => { if (current) { show(answer); fail(null); } }, error => { if (current) fail(error); });
    return () => { current = false; };
  }, [live, mode, command, client, agent]);
  return html`<section aria-labelledby="h-page"><div class="head"><h1 id="h-page">Policy</h1>${found && html`<span class="tag">${found.mode}</span>${found.mode !== found.configured_mode ? html`<span class="soft">configured is ${found.configured_mode}</span>` : ''}`}</div>
    ${problem && html`<p class="panel said bad" role="alert"><bdi>${problem.message}</bdi> <span class="soft"><bdi>${problem.suggestion}</bdi></span></p>`}
    ${!found ? !problem && html`<div class="panel empty"><p class="soft">Loading the policy</p></div>` : html`<${Try} found=${found} command=${command} client=${client} agent=${agent} />
    <${Rules} found=${found} chosen=${query.get('rule')} /><${Mode} found=${found} /><${Answers} /><${Box} found=${found} />`}</section>`;
}

// A command is judged, and nothing is done.
function Try({ found, command, client, agent }) {
  const judged = found.judged?.command === command ? found.judged : null;
  const ask = event => {
    event.preventDefault();
    const { command, client, agent } = event.target.elements, next = new URLSearchParams();
    for (const field of [command, client, agent]) if (field.value.trim()) next.set(field.name, field.value.trim());
    location.hash = `#/policy?${next}`;
  };
  return html`<div class="panel"><header><h2 class="grow">Try a command</h2><span class="faint">judged only, never run</span></header><form class="try" onSubmit=${ask}>
      <label class="reason grow"><span class="faint">Command line</span><input name="command" key=${`c${command}`} defaultValue=${command} maxlength="4000" spellcheck="false" autocomplete="off" /></label>
      <label class="reason"><span class="faint">Client, if any</span><input name="client" key=${`k${client}`} defaultValue=${client} maxlength="200" /></label><label class="reason"><span class="faint">Agent, if any</span><input name="agent" key=${`a${agent}`} defaultValue=${agent} maxlength="200" /></label><button class="btn" type="submit">Judge</button></form>
    ${judged && html`<div role="status"><ul class="rows verdicts">${judged.decisions.map(one => html`<li><span class="who">${one.who === 'you' ? 'You' : 'A client'}, ${one.where}</span><${Verdict} verdict=${one.verdict} /><span class="grow soft">by <code>${one.rule}</code>${one.reason && html`: <${Theirs}>${one.reason}</${Theirs}>`}</span></li>`)}</ul>
      <p class="faint try-read">Read as ${judged.plain ? 'plain words' : html`no plain words (<bdi>${judged.obscure}</bdi>)`}${judged.commands.length ? html`: ${judged.commands.map((words, at) => html`${at ? '; ' : ''}<code><${Theirs}>${words.join(' ')}</${Theirs}></code>`)}` : ''}${found.hooks.length ? '. The program that decides, below, is not asked.' : ''}</p></div>`}</div>`;
}

const about = rule => SELECTORS.filter(name => rule[name]?.length).map(name => [name, rule[name].map(one => Array.isArray(one) ? one.join(' ') : one).join(', ')]);

function Rules({ found, chosen }) {
  const element = useRef();
  useEffect(() => { element.current?.querySelector('[aria-current]')?.scrollIntoView({ block: 'center' }); }, [chosen]);
  return html`<div class="panel"><header><h2 class="grow">Rules</h2><span class="faint small-hide">in the order in which they count: a denial before a question before leave</span></header>
    ${found.hooks.map(hook => html`<p class="said">Before each call, besides: <code><${Theirs}>${hook}</${Theirs}></code>, which can only tighten.</p>`)}
    ${!found.rules.length ? html`<p class="said soft">There are none: the mode decides.</p>` : html`<ol class="rows rules" ref=${element}>${found.rules.map((rule, at) => html`<li key=${rule.id} aria-current=${rule.id === chosen ? 'true' : undefined}><span class="faint num">${at + 1}</span><${Verdict} verdict=${rule.decision} /><div class="grow"><p><b>${rule.id}</b> <span class="faint"><${Theirs}>${home(rule.file)}${rule.line ? `:${rule.line}` : ''}</${Theirs}></span></p>
      <p>${about(rule).map(([name, values], at) => html`${at ? '; ' : ''}<span class="faint">${name}</span> <code><${Theirs}>${values}</${Theirs}></code>`)}</p>${rule.reason && html`<p class="soft"><${Theirs}>${rule.reason}</${Theirs}></p>`}</div></li>`)}</ol>`}
    ${found.rules.some(rule => !rule.line) && html`<p class="said faint">No line: the daemon has not read the changed file (ai-session daemon restart), or its rules are written in one list.</p>`}</div>`;
}

const Mode = ({ found }) => html`<div class="panel"><header><h2 class="grow">Where no rule decides</h2><span class="faint">mode ${found.mode}</span></header>
  <table class="mode"><thead><tr><th scope="col">To</th><th scope="col">A client</th><th scope="col">You</th></tr></thead><tbody>${found.defaults.map(one => html`<tr><td>${one.what}</td><td><${Verdict} verdict=${one.mcp} /></td><td><${Verdict} verdict=${one.person} /></td></tr>`)}</tbody></table></div>`;

// Answers for more than one call; each can be taken back.
function Answers() {
  const grants = model.grants.value, [busy, wait] = useState('');
  const revoke = async one => {
    wait(one.grant_id);
    try { await wire().ask('reject', { question_id: one.grant_id }); await model.refreshQuestions(); } catch (error) { model.problem(error); } finally { wait(''); }
  };
  return html`<div class="panel"><header><h2 class="grow">Remembered answers</h2><span class="faint num">${grants.length || ''}</span></header>
    ${!grants.length ? html`<p class="said soft">No answer counts for more than its own call.</p>` : html`<ul class="rows answers">${grants.map(one => html`<li key=${one.grant_id}><div class="grow"><p><code><${Theirs}>${one.what}</${Theirs}></code></p><p class="faint">${SCOPES[one.scope] ?? one.scope}, since ${time(one.at)}${one.expires_at ? `, until ${time(one.expires_at)}` : ''}${one.by ? html`, by <${Theirs}>${one.by}</${Theirs}>` : ''}</p></div>${model.may('approve') && html`<button class="btn no" type="button" disabled=${busy === one.grant_id} aria-label=${`Revoke: ${one.what}`} onClick=${() => revoke(one)}>Revoke</button>`}</li>`)}</ul>`}</div>`;
}

function Box({ found }) {
  const { box } = found, list = paths => paths.map((path, at) => html`${at ? ', ' : ''}<${Folder} path=${path} />`), folders = model.grants.value.filter(one => one.scope === 'folder');
  const rows = [
    ['Profile', box.name === 'trusted' ? 'trusted: no box' : `${box.name}, contained by ${box.minimum_level} at least`],
    ['Network', box.name === 'trusted' ? 'the host’s' : box.network === 'proxy' ? html`only ${box.domains.length ? html`<code><${Theirs}>${box.domains.join(', ')}</${Theirs}></code>` : 'what a person allows'}, ports ${box.ports.join(', ')}` : box.network === 'off' ? 'none' : 'the host’s'],
    ['Workspaces', found.workspaces.length ? list(found.workspaces) : 'the directory in which a client was started'],
    box.readable.length && ['Readable', list(box.readable)], box.writable.length && ['Writable', list(box.writable)], box.home_readable.length && ['Of home', list(box.home_readable)], box.masked.length && ['Found empty', html`<code><${Theirs}>${box.masked.join(', ')}</${Theirs}></code>`],
    box.name !== 'trusted' && ['Limits', `${(box.memory_bytes / GIB).toFixed(1)} GiB of memory, ${box.processes} processes`],
    ['Consented', folders.length ? html`${folders.length} ${folders.length === 1 ? 'folder' : 'folders'}, among the remembered answers` : 'no folder'],
    found.box_writable.length && ['Written by boxes', html`${list(found.box_writable)}: leave by rule does not hold there without a box`],
  ].filter(Boolean);
  return html`<div class="panel"><header><h2 class="grow">The box of new sessions</h2></header><dl class="facts box">${rows.map(([title, value]) => html`<dt>${title}</dt><dd>${value}</dd>`)}</dl></div>`;
}
