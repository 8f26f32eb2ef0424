// A session as it was seen, played from a recording of it: pieces come as they are needed, a screen from wherever one looks.
import { useEffect, useRef, useState } from 'preact/hooks';
import { signal } from '@preact/signals';
import { html, Icon, Theirs, span, time } from './parts.js';
import { auditLink, joined, judged, looked } from './audit.js';
import * as model from './model.js';

const SPEEDS = [1, 2, 4, 8], STEP_SECONDS = 5, LONGEST_STEP = 0.25, WAITING_BYTES = 1 << 19, PAGE = 500, MOST_MARKS = 1000, MOST_CHARS = 80;
const wire = () => window.wire;

export function Replay({ session, from, clock }) {
  const { session_id } = session, element = useRef(), player = useRef(null), [opened, show] = useState(null), [marks, mark] = useState({ commands: [], records: [] }), [again, repeat] = useState(0);
  const live = model.link.value === 'live';
  useEffect(() => {
    if (!live) return undefined;
    let closed = false;
    show(null);
    open(session_id).then(async ([lib, recording]) => {
      if (closed || !element.current) return;
      player.current = start(lib, recording, element.current);
      show(player.current);
      const found = await marked(session_id, recording);
      if (closed) return;
      mark(found);
    }).catch(error => { if (!closed) { show({ error }); model.problem(error); } });
    return () => { closed = true; player.current?.close(); player.current = null; };
  }, [session_id, live, again]);
  useEffect(() => {
    const aim = from && marks.commands.find(one => one.command_id === from);
    if (aim) player.current?.jump(aim);
  }, [from, marks]);
  useEffect(() => {
    if (clock && opened && !opened.error) wire().ask('replay.places', { clocks: [Number(clock)] }).then(({ places: [at] }) => opened.seek(at), model.problem);
  }, [clock, opened]);
  useEffect(() => {
    const press = event => {
      if (!player.current || event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented || document.querySelector('dialog[open]')) return;
      const { target } = event;
      if (target.matches?.('input, textarea:not(.xterm-helper-textarea), select') || event.key === ' ' && target.matches?.('button, a')) return;
      const act = player.current.keys[event.key];
      if (!act) return;
      event.preventDefault();
      act();
    };
    addEventListener('keydown', press);
    return () => removeEventListener('keydown', press);
  }, []);
  const ready = opened && !opened.error;
  return html`<div class="two replay"><div class="panel live-terminal" role="region" aria-label=${`Recording of ${session.name}`}>${!ready && html`<p class="soft" role="status">${opened ? 'There is no recording to show.' : 'Reading the recording'}</p>`}<div class="screen" ref=${element}></div></div>
      <aside class="panel aside" aria-label="Recorded commands"><header><h2 class="grow">Commands</h2><span class="faint num">${marks.commands.length}${marks.more ? ' latest' : ''}</span></header>
        <ol class="outline">${marks.commands.map(one => html`<li key=${one.command_id}><button type="button" onClick=${() => { player.current?.jump(one); document.querySelector('.slide')?.focus(); }}><${Icon} name=${one.bad ? 'fail' : one.running ? 'busy' : 'okay'} tone=${one.bad ? 'bad' : one.running ? 'busy' : 'faint'} label=${one.bad ? 'failed' : one.running ? 'running' : 'done'} /><code class="cut"><${Theirs}>${one.command}</${Theirs}></code><span class="faint num">${time(one.started_at)}</span></button></li>`)}</ol>
        <header><h2 class="grow">Audit records</h2><span class="faint num">${marks.records.length}</span></header>
        <ol class="outline" aria-label="Audit records">${[...marks.records].reverse().map(one => html`<li key=${one.seq} class="pair"><button type="button" onClick=${() => player.current?.seek(one.at)}><code class="cut">${one.what}</code><span>${one.tone && html`<span class=${`tag ${one.tone}`}>${one.word}</span>`}</span><span class="faint num">${time(one.ts)}</span></button><a href=${auditLink(one.about)} aria-label=${`Record ${one.seq} in the audit log`}><${Icon} name="log" /></a></li>`)}</ol></aside></div>
    ${ready && html`<${Scrubber} player=${opened} marks=${marks} again=${() => repeat(again + 1)} />`}`;
}

async function open(session) {
  const [lib, recording] = await Promise.all([import('./emulator.js'), wire().ask('replay.open', { session })]);
  return [lib, recording];
}

// Commands and audit records as parts of the recording: from when to when, and whether they are an exception.
async function marked(session_id, { began, commands: at }) {
  if (!began) return { commands: [], records: [] };
  const [commands, records] = await Promise.all([paged('query_commands', 'commands', { session_id }), paged('query_audit', 'records', { session_id })]);
  const ran = commands.rows.filter(one => one.command_id in at || one.started_at + (one.duration_seconds ?? Infinity) >= began).sort((one, other) => one.started_at - other.started_at);
  const kept = joined(records.rows).filter(one => !looked(one) && one.ts / 1e6 >= began);
  const clocks = [...ran.map(one => one.started_at), ...kept.map(one => one.ts / 1e6)], ends = ran.map(one => one.started_at + (one.duration_seconds ?? 1e9));
  const [{ places }, { places: until }] = await Promise.all([wire().ask('replay.places', { clocks }), wire().ask('replay.places', { clocks: ends })]);
  return {
    more: Boolean(commands.more),
    commands: ran.map((one, n) => ({ ...one, from: at[one.command_id] ?? places[n], to: until[n], running: one.status === 'running', bad: Boolean(one.exit_code) || !['running', 'finished'].includes(one.status) })),
    records: kept.map((one, n) => ({ seq: one.seq, ts: one.ts / 1e6, what: one.tool ?? one.event, about: one.call ?? one.hash, at: places[ran.length + n], ...judged(one) })),
  };
}

async function paged(name, rows, given) {
  let found = [], cursor = '';
  do {
    const page = await wire().call(name, { ...given, count: PAGE, ...(cursor && { cursor }) });
    found = [...found, ...page[rows]];
    cursor = page.cursor ?? '';
  } while (cursor && found.length < MOST_MARKS);
  return { rows: found.slice(0, MOST_MARKS), more: cursor };
}

// Plays. At most two pieces are held, and one screen is asked for at a time, the one that was wanted last.
function start(lib, recording, element) {
  const { seconds, pieces } = recording, now = signal({ at: 0, clock: recording.began, shown: 0 }), playing = signal(false), speed = signal(1);
  const term = lib.emulator({ rows: 24, cols: 80, scrollback: 0, disableStdin: true, fontSize: 13, screenReaderMode: localStorage.screenReader === 'on' });
  let closed = false, wanted = null, seeking = false, piece = null, ahead = null, next = 0, number = 0, waiting = 0, frame, last;
  const fit = () => lib.fit(term, element);
  const problem = error => { playing.value = false; if (!closed && error.code !== 'connection_lost') model.problem(error); };
  const sized = (rows, cols) => { if (rows > 0 && cols > 0 && (rows !== term.rows || cols !== term.cols)) { term.resize(cols, rows); fit(); } };
  const write = bytes => { waiting += bytes.length; term.write(bytes, () => { waiting -= bytes.length; }); };

  const seek = to => show({ at: Math.min(Math.max(to, 0), seconds) });
  const jump = one => show(one.command_id in recording.commands ? { at: one.from, command: one.command_id } : { at: one.from });

  async function show(what) {
    wanted = what;
    now.value = { ...now.value, at: what.at };
    if (seeking) return;
    seeking = true;
    try {
      while (wanted !== null && !closed) {
        const aim = wanted, found = await wire().ask('replay.screen', aim);
        if (closed) return;
        term.reset();
        sized(found.rows, found.cols);
        if (found.bytes) write(found.bytes);
        if (found.piece !== number) piece = ahead = null;
        ({ piece: number, skip: next } = found);
        now.value = { at: wanted.at, clock: found.clock, shown: found.shown };
        if (wanted === aim) wanted = null;
      }
    } catch (error) { wanted = null; problem(error); } finally { seeking = false; }
  }

  const load = async at => {
    const { events, bytes } = await wire().ask('replay.piece', { number: at });
    let offset = 0;
    return { at, events: events.map(([at, clock, code, length]) => ({ at, clock, code, bytes: bytes.subarray(offset, offset += length) })) };
  };

  // The piece that is played; while it is not there yet the time stands still.
  function held() {
    if (piece?.at === number) return true;
    if (ahead?.at === number) { piece = ahead; ahead = null; return true; }
    if (ahead?.coming !== number) {
      ahead = { coming: number };
      load(number).then(found => { if (!closed && ahead?.coming === found.at) ahead = found; }, error => { ahead = null; problem(error); });
    }
    return false;
  }

  function step(moment) {
    if (closed || !playing.value) return;
    frame = requestAnimationFrame(step);
    const passed = Math.min((moment - (last ?? moment)) / 1000, LONGEST_STEP) * speed.value;
    last = moment;
    if (seeking || waiting > WAITING_BYTES || !held()) return;
    let { at, clock, shown } = now.value;
    at = Math.min(at + passed, seconds);
    clock += passed;
    while (next < piece.events.length && piece.events[next].at <= at && waiting <= WAITING_BYTES) {
      const event = piece.events[next++];
      clock = event.clock + Math.max(0, at - event.at);
      if (event.code === 'o') { write(event.bytes); shown += event.bytes.length; }
      else if (event.code === 'r') sized(...new TextDecoder().decode(event.bytes).split('x').map(Number).reverse());
    }
    const rest = piece.events[next];
    if (rest) at = Math.min(at, rest.at);
    else if (number + 1 < pieces) { number++; next = 0; held(); }
    else if (at >= seconds) playing.value = false;
    now.value = { at, clock, shown };
  }

  function play(on = !playing.value) {
    playing.value = on;
    cancelAnimationFrame(frame);
    last = undefined;
    if (!on) return;
    if (now.value.at >= seconds) seek(0);
    frame = requestAnimationFrame(step);
  }

  const faster = by => { speed.value = SPEEDS[Math.min(Math.max(SPEEDS.indexOf(speed.value) + by, 0), SPEEDS.length - 1)]; };
  const by = seconds => () => seek(now.value.at + seconds);
  term.open(element);
  term.attachCustomKeyEventHandler(() => false);
  const leave = lib.follow(term, element, fit);
  element.terminal = term;
  seek(seconds);
  return {
    recording, now, playing, speed, seek, jump, play, faster,
    keys: {
      ' ': () => play(), '+': () => faster(1), '=': () => faster(1), '-': () => faster(-1), Home: () => seek(0), End: () => seek(seconds),
      ArrowLeft: by(-STEP_SECONDS), ArrowDown: by(-STEP_SECONDS), ArrowRight: by(STEP_SECONDS), ArrowUp: by(STEP_SECONDS), PageUp: by(seconds / 10), PageDown: by(-seconds / 10),
    },
    close() { closed = true; cancelAnimationFrame(frame); leave(); term.dispose(); element.replaceChildren(); },
  };
}

function Scrubber({ player, marks, again }) {
  const { recording: { seconds, shown: all, began }, now, playing, speed } = player, { at, clock, shown } = now.value, track = useRef(), tenths = seconds < 60;
  const share = value => seconds ? `${(100 * value / seconds).toFixed(3)}%` : '0%';
  const to = event => { const { left, width } = track.current.getBoundingClientRect(); player.seek(seconds * (event.clientX - left) / width); };
  const drag = event => { if (event.buttons & 1 && track.current.hasPointerCapture(event.pointerId)) to(event); };
  const take = event => { if (event.button) return; event.preventDefault(); track.current.setPointerCapture(event.pointerId); track.current.focus(); to(event); };
  const in_ = marks.commands.findLast(one => one.from <= at && at <= one.to), wallClock = began ? time(clock) : '';
  const said = `${wallClock && `${wallClock}, `}${spoken(at)} of ${spoken(seconds)}${in_ ? `, ${in_.command.slice(0, MOST_CHARS)}` : ''}`;
  return html`<div class="panel scrub" role="group" aria-label="Replay">
    <button class="btn play" type="button" aria-label=${playing.value ? 'Pause' : 'Play'} onClick=${() => player.play()}><${Icon} name=${playing.value ? 'pause' : 'play'} /></button>
    <button class="btn num" type="button" aria-label=${`Speed: ${speed.value} times`} onClick=${() => { speed.value = SPEEDS[(SPEEDS.indexOf(speed.value) + 1) % SPEEDS.length]; }}>${speed.value}×</button>
    <div class="slide" ref=${track} role="slider" tabindex="0" aria-label="Position in the recording" aria-valuemin="0" aria-valuemax=${seconds.toFixed(1)} aria-valuenow=${at.toFixed(1)} aria-valuetext=${said} onPointerDown=${take} onPointerMove=${drag}>
      <${Marks} marks=${marks} share=${share} /><span class="at" style=${{ left: share(at) }}></span></div>
    <span class="position num"><b>${wallClock}</b> <span class="soft">${tenths ? at.toFixed(1) : clockwise(at)} of ${tenths ? `${seconds.toFixed(1)} s` : clockwise(seconds)}</span> <span class="faint">byte ${shown.toLocaleString('en')} of ${all.toLocaleString('en')}</span></span>
    <button class="btn bare" type="button" onClick=${again}>Read again</button></div>`;
}

const Marks = ({ marks, share }) => html`<span class="line"></span>
  ${marks.commands.map(one => html`<span key=${one.command_id} class=${`ran ${one.bad ? 'bad' : one.running ? 'busy' : ''}`} style=${{ left: share(one.from), width: `max(3px, ${share(one.to - one.from)})` }}></span>`)}
  ${marks.records.map(one => html`<span key=${one.seq} class=${`noted ${one.tone ?? ''}`} style=${{ left: share(one.at) }}></span>`)}`;

const spoken = seconds => seconds < 1 ? '0 s' : span(Math.floor(seconds));
const clockwise = seconds => `${Math.floor(seconds / 60)}:${String(Math.floor(seconds % 60)).padStart(2, '0')}`;
