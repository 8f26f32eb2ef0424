// The audit log, the newest record first: who did what, and how it was judged.
import { useEffect, useState } from 'preact/hooks';
import { html, Icon, Theirs, sessionLink, time } from './parts.js';
import { named } from './session.js';
import * as model from './model.js';

const COUNT = 200, DONE = 'done', ENOUGH_ROWS = 40, MOST_PAGES = 8;
const KINDS = [[DONE, 'What was done'], ['', 'Everything'], ['tool.', 'Calls'], ['consent.', 'Questions and answers'], ['session.', 'Sessions'], ['network.', 'Network']];

export function Audit({ query }) {
  const [kind, choose] = useState(query.get('event') ?? DONE), [session, limit] = useState(query.get('session') ?? ''), [records, show] = useState([]), [cursor, more] = useState(''), [until, reach] = useState(null);
  const read = async from => {
    try {
      let found = from ? records : [], place = from;
      for (let pages = 0; pages < MOST_PAGES; pages++) {
        const page = await window.wire.call('query_audit', { count: COUNT, ...(kind && kind !== DONE && { event: kind }), ...(session && { session_id: session }), ...(place && { cursor: place }) });
        found = [...found, ...page.records];
        place = page.cursor ?? '';
        if (!place || kind !== DONE || rows(found, kind).length >= (from ? rows(records, kind).length : 0) + ENOUGH_ROWS) break;
      }
      show(found);
      more(place);
      if (!from) reach(found[0]?.seq ?? 0);
    } catch (error) { model.problem(error); }
  };
  useEffect(() => { if (model.link.value === 'live') read(''); }, [kind, session, model.link.value]);
  const all = (!kind || kind === DONE) && !session, fresh = model.audit.value && until !== null && all ? model.audit.value.seq - until : 0;
  return html`<section aria-labelledby="h-page"><div class="head"><h1 id="h-page">Audit</h1><span class="grow"></span>
      <select aria-label="Records" value=${kind} onChange=${event => choose(event.target.value)}>${KINDS.map(([value, title]) => html`<option value=${value}>${title}</option>`)}</select>
      <select aria-label="Session" value=${session} onChange=${event => limit(event.target.value)}><option value="">All sessions</option>${[...model.sessions.value.values()].map(one => html`<option value=${one.value.session_id}>${one.value.name}</option>`)}</select>
      <button class="btn" type="button" onClick=${() => read('')}>${fresh > 2 ? 'Show newer' : 'Read again'}</button></div>
    <${Chain} records=${records} whole=${all} />
    <div class="panel wide" tabindex="0" role="region" aria-label="Audit records"><table><thead><tr><th scope="col">Time</th><th scope="col" class="small-hide">Record</th><th scope="col" class="small-hide">Who</th><th scope="col" class="session-cell">Session</th><th scope="col">What</th><th scope="col">Verdict</th></tr></thead>
      <tbody>${rows(records, kind).map(one => html`<${Row} key=${one.seq} one=${one} />`)}</tbody></table></div>
    ${cursor && html`<button class="btn bare" type="button" onClick=${() => read(cursor)}>Earlier records</button>`}</section>`;
}

// A call's two records are one row: what was asked, and what came of it.
export function joined(records) {
  const starts = new Map(records.filter(one => one.event === 'tool.start').map(one => [one.seq, one])), ended = new Set(records.map(one => one.start));
  return records.filter(one => one.event !== 'tool.start' || !ended.has(one.seq)).map(one => starts.has(one.start) ? { ...starts.get(one.start), ...one, actor: starts.get(one.start).actor, args: starts.get(one.start).args } : one);
}

// What only showed a person something, as this page does all the time.
const LOOKS = new Set(['list_sessions', 'get_session_info', 'read_output', 'query_commands', 'query_output', 'query_recordings', 'query_audit', 'approvals', 'policy', 'person', 'watch', 'watch_changes']);
export const looked = one => ['session.detach', 'audit.checkpoint'].includes(one.event) || one.actor?.kind === 'person' && one.outcome !== 'error' && one.decision?.verdict !== 'deny' && (LOOKS.has(one.tool) || one.tool === 'attach' && one.args?.read_only === true);

const rows = (records, kind) => joined(records).filter(one => kind !== DONE || !looked(one) && (one.event !== 'tool.end' || one.actor));

const plain = value => value === null || value === undefined ? '' : typeof value !== 'object' ? String(value) : 'text' in value ? value.text : 'chars' in value ? `(${value.chars} characters)` : JSON.stringify(value);
const told = one => {
  const { command, session_id, ...rest } = one.args ?? {};
  return command ? plain(command) : Object.entries(one.args ? rest : {}).map(([name, value]) => `${name} ${plain(value)}`).join(', ');
};

// What became of a call, in a word; colour only where it is an exception.
export function judged({ event, decision, outcome }) {
  if (!event.startsWith('tool.')) return { word: '' };
  if (decision?.verdict === 'ask' && outcome === 'denied') return { word: 'asked', tone: 'warn' };
  if (decision?.verdict === 'deny' || outcome === 'denied') return { word: 'denied', tone: 'bad' };
  if (outcome && outcome !== 'ok') return { word: outcome, tone: 'bad' };
  return { word: decision?.verdict === 'allow' ? 'allowed' : decision?.verdict === 'ask' ? 'answered' : '' };
}

function Row({ one }) {
  const [open, toggle] = useState(false), verdict = judged(one), known = model.sessions.value.has(one.session);
  const given = typeof one.args?.session_id === 'string' ? one.args.session_id : '', detail = told(one);
  const name = one.name || model.sessions.value.get(one.session || given)?.value.name || given;
  return html`<tr class="record"><td class="num">${time(one.ts / 1e6)}</td><td class="faint num small-hide">${one.seq}</td><td class="small-hide cut"><bdi>${named(one.actor)}</bdi></td><td class="cut session-cell">${known ? html`<a href=${sessionLink(one.session, one.command_id ? `?command=${one.command_id}` : '')}><${Theirs}>${name}</${Theirs}></a>` : html`<${Theirs}>${name}</${Theirs}>`}</td>
      <td class="what"><button type="button" class="more cut" aria-expanded=${open} onClick=${() => toggle(!open)}><b>${one.event.startsWith('tool.') ? one.tool : one.event}</b> <code><${Theirs}>${detail}</${Theirs}></code></button></td><td>${verdict.tone ? html`<span class=${`tag ${verdict.tone}`}>${verdict.word}</span>` : html`<span class="soft">${verdict.word}</span>`}</td></tr>
    ${open && html`<tr><td colspan="6" class="whole"><pre tabindex="0">${JSON.stringify(one, null, 2)}</pre></td></tr>`}`;
}

// Each record names the hash of the one before it. Checked here for what is shown; the log as a whole by the verb.
function Chain({ records, whole }) {
  const breaks = whole ? records.slice(0, -1).filter((one, at) => one.prev !== records[at + 1].hash || one.seq !== records[at + 1].seq + 1) : [], head = records[0]?.hash;
  if (!whole || !records.length) return html`<div class="panel chain"><span class="soft">${records.length ? 'A choice of the records: whether any is missing shows with everything.' : 'No record matches.'}</span></div>`;
  return html`<div class="panel chain"><${Icon} name=${breaks.length ? 'fail' : 'okay'} tone=${breaks.length ? 'bad' : 'faint'} /><b>${breaks.length ? `The chain is broken at record ${breaks[0].seq}` : 'Each record follows the one before'}</b>
    <span class="soft num small-hide cut">${records.length} shown, head <code>${head.slice(0, 16)}</code></span><span class="grow"></span><span class="soft small-hide">The whole log and its signatures: <code>ai-session audit verify</code></span></div>`;
}
