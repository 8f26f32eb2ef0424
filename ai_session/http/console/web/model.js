// What the page knows: sessions, their commands, questions; reported by the daemon, kept in signals.
import { signal, computed } from '@preact/signals';

export const link = signal('connecting'), linkNote = signal(''), scopes = signal([]);
export const sessions = signal(new Map()); // session_id → signal of its facts
export const known = signal(false); // whether the daemon has said which there are
export const commands = new Map(); // session_id → signal of its commands, the oldest first
export const questions = signal([]), grants = signal([]), later = signal(new Set());
export const policy = signal(null), audit = signal(null), notice = signal(null);
export const runs = signal(null), runsAsked = signal([]), runsProblem = signal(null), runsChanged = signal(0); // as the program tells them that carries them out
export const now = signal(Date.now()), held = signal(new Set()); // sessions that this tab types in
// Whose answer another program takes, and that one asks itself, stands here once.
const own = one => !one.answer && !questions.value.some(each => one.answer_with?.includes(each.question_id));
const all = computed(() => [...questions.value, ...runsAsked.value.filter(own)].sort((one, other) => one.asked_at - other.asked_at));
export const open = computed(() => all.value.filter(one => !later.value.has(one.question_id)));
export const putOff = computed(() => all.value.length - open.value.length);
export const may = scope => scopes.value.includes(scope);

const KNOWN_COMMANDS = 200, MOST_OF_SESSION = 257; // as many as the daemon knows of a session, with the one that runs
let wire;
export const use = one => { wire = one; };

export async function refresh() {
  const [list, ran] = await Promise.all([wire.call('list_sessions'), wire.call('query_commands', { count: KNOWN_COMMANDS })]);
  const found = new Map();
  for (const row of list.sessions) {
    const known = sessions.value.get(row.session_id) ?? signal({});
    known.value = { ...known.value, typing_by: '', ...row }; // a row says only who types, not that nobody does
    found.set(row.session_id, known);
  }
  for (const id of commands.keys()) if (!found.has(id)) commands.delete(id);
  sessions.value = found;
  known.value = true;
  merge(ran.commands);
  refreshRuns();
  await Promise.all([refreshQuestions(), wire.ask('policy').then(known => { policy.value = known; })]);
}

export const refreshQuestions = async () => {
  const found = await wire.ask('approvals');
  questions.value = found.questions;
  grants.value = found.grants;
};

const CALM_MS = 1000, HIDDEN_MS = 5000; // between two looks, however much happens meanwhile
let reading = null, planned, missed = false, lookedAt = 0;

// What changed is looked up soon, and what changes meanwhile once more afterwards.
export function runsHaveChanged() {
  planned ??= setTimeout(async () => { await refreshRuns(); planned = undefined; if (missed) { missed = false; runsHaveChanged(); } }, lookedAt + (document.hidden ? HIDDEN_MS : CALM_MS) - Date.now());
  missed = Boolean(reading);
}

export function refreshRuns() {
  reading ??= readRuns().finally(() => { reading = null; });
  return reading;
}

async function readRuns() {
  lookedAt = Date.now();
  try {
    const [list, { questions: asked }] = await Promise.all([wire.ask('runs.list'), wire.ask('runs.questions')]);
    runsAsked.value = asked.map(one => ({ ...one, question_id: one.id }));
    runs.value = list;
    runsProblem.value = null;
    runsChanged.value++;
  } catch (error) {
    if (error.code !== 'connection_lost') runsProblem.value = error;
  }
}

export const commandsOf = id => {
  if (!commands.has(id)) commands.set(id, signal([]));
  return commands.get(id);
};

export function merge(rows) {
  const bySession = new Map();
  for (const row of rows) bySession.set(row.session_id, [...(bySession.get(row.session_id) ?? []), row]);
  for (const [id, fresh] of bySession) {
    const kept = commandsOf(id), all = new Map(kept.value.map(one => [one.command_id, one]));
    for (const one of fresh) all.set(one.command_id, { ...all.get(one.command_id), ...one });
    kept.value = [...all.values()].sort((one, other) => one.started_at - other.started_at).slice(-MOST_OF_SESSION);
  }
}

const asked = new Map();

// The newest commands of a session, asked for once for all changes that are reported together.
function refreshCommands(session_id) {
  if (asked.has(session_id)) return;
  asked.set(session_id, setTimeout(async () => {
    asked.delete(session_id);
    try { merge((await wire.call('query_commands', { session_id, count: 5 })).commands); } catch { /* gone meanwhile */ }
  }, 60));
}

export function changed(changes) {
  let unknown = false;
  for (const one of changes) {
    if (one.kind === 'session') {
      const known = sessions.value.get(one.session_id);
      if (one.gone) {
        commands.delete(one.session_id);
        if (known) sessions.value = new Map([...sessions.value].filter(([id]) => id !== one.session_id));
      } else if (known) {
        if (one.running !== known.value.running) refreshCommands(one.session_id);
        known.value = { ...known.value, ...one };
      } else unknown = true;
    } else if (one.kind === 'command') refreshCommands(one.session_id);
    else if (one.kind === 'questions') refreshQuestions().catch(() => {});
    else if (one.kind === 'policy') policy.value = { ...policy.value, mode: one.mode };
    else if (one.kind === 'audit') audit.value = one;
  }
  if (unknown) refresh().catch(() => {});
}

// How a session stands, as an icon, a colour and words.
export function standing(session) {
  const { session_id, state, typing_by } = session, last = commandsOf(session_id).value.at(-1);
  const seconds = last && last.status === 'running' ? now.value / 1000 - last.started_at : last?.duration_seconds;
  if (open.value.some(one => about(one, session))) return { icon: 'needs', tone: 'warn', word: 'asks you' };
  if (held.value.has(session_id)) return { icon: 'key', tone: 'busy', word: 'you are typing' };
  if (typing_by) return { icon: 'key', tone: 'busy', word: `${typing_by} types` };
  if (state === 'exited' || state === 'lost') return { icon: 'fail', tone: 'faint', word: state === 'lost' ? 'lost' : 'ended' };
  if (state === 'waiting_input') return { icon: 'key', tone: 'warn', word: 'waits for input', seconds };
  if (state === 'stopped') return { icon: 'idle', tone: 'warn', word: 'stopped' };
  if (state === 'running' || last?.status === 'running') return { icon: 'busy', tone: 'busy', word: 'running', seconds };
  if (state === 'starting') return { icon: 'busy', tone: 'busy', word: 'starting' };
  if (last && last.exit_code) return { icon: 'fail', tone: 'bad', word: `exit ${last.exit_code}`, seconds };
  if (last && last.exit_code === 0) return { icon: 'okay', tone: 'faint', word: 'exit 0', seconds };
  return { icon: 'idle', tone: 'faint', word: last && last.status !== 'finished' ? last.status : 'ready' };
}

export const about = (question, session) => !question.run && [session.session_id, session.name].includes(question.session_id ?? question.session);

export const problem = error => { notice.value = { text: error.message, advice: error.suggestion ?? '' }; };
