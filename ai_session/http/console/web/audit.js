// The audit log, the newest record first: who did what, and how it was judged. What is chosen stands in the address.
import { useEffect, useRef, useState } from 'preact/hooks';
import { signal } from '@preact/signals';
import { html, Icon, Theirs, now, runLink, sessionLink, time } from './parts.js';
import { named } from './session.js';
import * as model from './model.js';

const COUNT = 200, DONE = 'done', ENOUGH_ROWS = 40, MOST_PAGES = 8, MOST_MISSING = 40;
const KINDS = [[DONE, 'What was done'], ['', 'Everything'], ['tool.', 'Calls'], ['consent.', 'Questions and answers'], ['session.', 'Sessions'], ['network.', 'Network']];
const judgement = signal(null); // of the whole log, as it was last asked for
const OF_RUN = /^(run_[0-9a-zA-Z]+)\.([^/~]+)/;

export const auditLink = about => `#/audit?event=&about=${encodeURIComponent(about)}`;
const call = args => window.wire.call('query_audit', { count: COUNT, ...args });

export function Audit({ query }) {
  const about = query.get('about') ?? '', kind = query.get('event') ?? DONE, session = query.get('session') ?? '', [records, show] = useState([]), [cursor, more] = useState(''), [until, setUntil] = useState(null), latest = useRef(0);
  const choose = change => {
    const next = new URLSearchParams({ event: kind, ...(session && { session }), ...(about && { about }), ...change });
    for (const [name, value] of [...next]) if (name !== 'event' && !value) next.delete(name);
    location.hash = `#/audit?${next}`;
  };
  const read = async from => {
    const mine = ++latest.current;
    try {
      let found = from ? records : [], next = from;
      for (let pages = 0; pages < MOST_PAGES; pages++) {
        const page = await call({ ...(kind && kind !== DONE && { event: kind }), ...(session && { session_id: session }), ...(about && { about }), ...(next && { cursor: next }) });
        if (mine !== latest.current) return;
        found = [...found, ...page.records];
        next = page.cursor ?? '';
        if (!next || kind !== DONE && found.length || rows(found, kind).length >= (from ? rows(records, kind).length : 0) + ENOUGH_ROWS) break;
      }
      if (about) found = await completed(found);
      if (mine !== latest.current) return;
      show(found);
      more(next);
      if (!from) setUntil(found[0]?.seq ?? 0);
    } catch (error) { if (mine === latest.current) model.problem(error); }
  };
  useEffect(() => { if (model.link.value === 'live') read(''); }, [kind, session, about, model.link.value]);
  const all = (!kind || kind === DONE) && !session && !about, fresh = model.audit.value && until !== null && all ? model.audit.value.seq - until : 0;
  const shown = rows(records, kind);
  const look = event => { event.preventDefault(); choose({ about: event.target.elements.about.value.trim() }); };
  return html`<section aria-labelledby="h-page"><div class="head"><h1 id="h-page">Audit</h1><span class="grow"></span>
      <form class="about" onSubmit=${look}><input key=${about} name="about" type="search" defaultValue=${about} maxlength="300" placeholder="An id, or any text" aria-label="Only records that contain this" /></form>
      <select aria-label="Records" value=${kind} onChange=${event => choose({ event: event.target.value })}>${KINDS.map(([value, title]) => html`<option value=${value}>${title}</option>`)}</select>
      <select aria-label="Session" value=${session} onChange=${event => choose({ session: event.target.value })}><option value="">All sessions</option>${[...model.sessions.value.values()].map(one => html`<option value=${one.value.session_id}>${one.value.name}</option>`)}</select>
      <button class="btn" type="button" onClick=${() => read('')}>${fresh > 2 ? 'Show newer' : 'Read again'}</button></div>
    <${Chain} records=${records} whole=${all} loaded=${until !== null} />
    <div class="panel wide" tabindex="0" role="region" aria-label="Audit records"><table><thead><tr><th scope="col">Time</th><th scope="col" class="small-hide">Record</th><th scope="col" class="small-hide">Who</th><th scope="col" class="session-cell">Session</th><th scope="col">What</th><th scope="col">Verdict</th></tr></thead>
      <tbody>${shown.map(one => html`<${Row} key=${one.seq} one=${one} alone=${Boolean(about) && shown.length === 1} />`)}</tbody></table></div>
    ${cursor && html`<button class="btn bare" type="button" onClick=${() => read(cursor)}>Earlier records</button>`}</section>`;
}

// Where only one of a call's two records has the text, the other belongs to it.
async function completed(found) {
  const events = new Map();
  for (const one of found) if (one.call) events.set(one.call, [...(events.get(one.call) ?? []), one.event]);
  const alone = [...events].filter(([, names]) => names.includes('tool.start') !== names.includes('tool.end')).slice(0, MOST_MISSING);
  const others = await Promise.all(alone.map(([id]) => call({ about: id, event: 'tool.' })));
  return [...new Map([...found, ...others.flatMap(page => page.records)].map(one => [one.seq, one])).values()].sort((one, other) => other.seq - one.seq);
}

// A call's two records are one row: what was asked, and what came of it.
export function joined(records) {
  const starts = new Map(records.filter(one => one.event === 'tool.start').map(one => [one.seq, one])), ended = new Set(records.map(one => one.start));
  return records.filter(one => one.event !== 'tool.start' || !ended.has(one.seq)).map(one => starts.has(one.start) ? { ...starts.get(one.start), ...one, begun: starts.get(one.start).ts } : one);
}

// What only showed a person something, as this page does all the time.
const LOOKS = new Set(['list_sessions', 'get_session_info', 'read_output', 'query_commands', 'query_output', 'query_recordings', 'query_audit', 'approvals', 'policy', 'explain', 'person', 'watch', 'watch_changes']);
export const looked = one => ['session.detach', 'audit.checkpoint'].includes(one.event) || one.actor?.kind === 'person' && one.outcome !== 'error' && one.decision?.verdict !== 'deny' && (LOOKS.has(one.tool) || one.tool === 'attach' && one.args?.read_only === true);

const rows = (records, kind) => joined(records).filter(one => kind !== DONE || !looked(one) && (one.event !== 'tool.end' || one.actor));

const plain = value => value === null || value === undefined ? '' : typeof value !== 'object' ? String(value) : 'text' in value ? value.text : 'chars' in value ? `(${value.chars} characters)` : JSON.stringify(value);
const detailOf = one => {
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

// Where else one sees what a record is about.
function relatedLinks(one) {
  const found = [], run = OF_RUN.exec(plain(one.args?.call_key)) ?? OF_RUN.exec((one.owner ?? '').replace(/^run:/, ''));
  const session = [one.session, one.args?.session_id].find(id => model.sessions.value.has(id));
  if (session && one.command_id) found.push([sessionLink(session, `?command=${one.command_id}`), 'Its command']);
  if (session) found.push([sessionLink(session, `?clock=${(one.begun ?? one.ts) / 1e6}`), 'This moment in the recording']);
  if (run) found.push([runLink(run[1], `?task=${encodeURIComponent(run[2])}&view=transcript${one.request ? `&call=${encodeURIComponent(one.request)}` : ''}`), `Step ${run[2]} of its run`]);
  if (one.rule && !one.rule.includes('default:')) found.push([`#/policy?rule=${encodeURIComponent(one.rule)}`, `Rule ${one.rule}`]);
  if (run) found.push([auditLink(run[1]), 'All records of the run']);
  const id = one.session ?? '';
  if (id) found.push([auditLink(id), 'All records of the session']);
  return found;
}

function Row({ one, alone }) {
  const [toggled, toggle] = useState(null), verdict = judged(one), known = model.sessions.value.has(one.session), open = toggled ?? alone;
  const given = typeof one.args?.session_id === 'string' ? one.args.session_id : '', detail = detailOf(one);
  const name = one.name || model.sessions.value.get(one.session || given)?.value.name || given;
  return html`<tr class="record"><td class="num">${time(one.ts / 1e6)}</td><td class="faint num small-hide">${one.seq}</td><td class="small-hide cut"><bdi>${named(one.actor)}</bdi></td><td class="cut session-cell">${known ? html`<a href=${sessionLink(one.session, one.command_id ? `?command=${one.command_id}` : '')}><${Theirs}>${name}</${Theirs}></a>` : html`<${Theirs}>${name}</${Theirs}>`}</td>
      <td class="what"><button type="button" class="more cut" aria-expanded=${open} onClick=${() => toggle(!open)}><b>${one.event.startsWith('tool.') ? one.tool : one.event}</b> <code><${Theirs}>${detail}</${Theirs}></code></button></td><td>${verdict.tone ? html`<span class=${`tag ${verdict.tone}`}>${verdict.word}</span>` : html`<span class="soft">${verdict.word}</span>`}</td></tr>
    ${open && html`<tr><td colspan=${matchMedia('(max-width: 900px)').matches ? 3 : 6} class="whole"><p class="related">${relatedLinks(one).map(([href, title]) => html`<a href=${href}>${title}</a>`)}</p><pre tabindex="0">${JSON.stringify(one, (name, value) => name === 'begun' ? undefined : value, 2)}</pre></td></tr>`}`;
}

// Each record names the hash of the one before it. Checked here for what is shown; the log as a whole by a program.
function Chain({ records, whole, loaded }) {
  const breaks = whole ? records.slice(0, -1).filter((one, at) => one.prev !== records[at + 1].hash || one.seq !== records[at + 1].seq + 1) : [], head = records[0]?.hash;
  return html`<div class="panel chain">${!whole || !records.length ? html`<span class="soft grow">${records.length ? 'A choice of the records: whether any is missing shows with everything.' : loaded ? 'No record matches.' : 'Loading the records'}</span>`
    : html`<${Icon} name=${breaks.length ? 'fail' : 'okay'} tone=${breaks.length ? 'bad' : 'faint'} /><b>${breaks.length ? `The chain is broken at record ${breaks[0].seq}` : 'Each record follows the one before'}</b><span class="soft num small-hide cut grow">${records.length} shown, head <code>${head.slice(0, 16)}</code></span>`}<${Whole} /></div>`;
}

function Whole() {
  const [busy, wait] = useState(false), found = judgement.value;
  const verify = async () => {
    wait(true);
    try { judgement.value = { ...await window.wire.ask('audit.verify'), at: now() / 1000 }; } catch (error) { model.problem(error); } finally { wait(false); }
  };
  return html`<span class=${`judged ${found && !found.sound ? 'bad' : 'soft'}`} role="status">${busy ? 'Reading the whole log' : !found ? '' : found.sound ? html`The whole log is sound: <span class="num">${found.records ?? found.last_seq} records, ${time(found.at)}</span>` : html`The log was changed: <bdi>${found.problems?.[0]?.location} ${found.problems?.[0]?.what}</bdi>${found.broken > 1 ? `, and ${found.broken - 1} more` : ''}`}</span>
    <button class="btn" type="button" disabled=${busy} onClick=${verify}>Verify all of it</button>`;
}
