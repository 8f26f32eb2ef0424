"""The loop of a model at one task: request an answer, make its calls, add their results, and repeat.

All of its state is derived from records, so it is the same after a crash: only a request without a recorded answer is
repeated.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from ccswarm.brains.base import Assignment, CallTool, Finish, Step, Think, Wait
from ccswarm.brains.llm import prompts as prompt
from ccswarm.brains.llm.conversation import KEPT_TURNS, Conversation, ModelCall, Turn, describe_outcome
from ccswarm.brains.llm.repository import describe_directory
from ccswarm.brains.llm.retries import ELSEWHERE, TRANSIENT, explain, pause
from ccswarm.brains.llm.settings import LlmSettings, Model
from ccswarm.brains.llm.terminal import BASH, EDIT, READ, WAIT, Done, Terminal, Work
from ccswarm.brains.llm.tools import FINISH, OWN, RECALL, TODO, OfferedTool
from ccswarm.engines.base import Flow
from ccswarm.models import CallOutcome, Json

SAID_CHARS = 2000
"""The longest text of the model in an event."""

SUMMARY_CHARS = 4000

MOST_CALLS = 64
"""The most calls of one answer; the others are not made. Calls at one terminal run one after the other, and the model
gets no result before the last has ended."""

MOST_EMPTY = 5
"""The most empty answers in a row."""

WARN_FAILURES = 3
WARN_TURNS = 3
MOST_TIGHTENED = 4
MOST_REMINDERS = 2
"""The most reminders in a row after answers without a call, which may be announcements, questions or reports."""

MOST_ITEMS, TODO_CHARS = 50, 300
STATUSES = {"open": "open", "doing": "doing", "done": "done"}
NOTES_CHARS = 24_000
MOST_KNOWN = 40
"""The most files, and ids, that are named after a conversation was summarized."""

INSPECT = "inspect"
"""The step that inspects the working directory."""

FIRST_TRIES = 2
"""The most retries of an unreachable or wrong server before any model has answered. A wrong address or a missing
network should be reported within seconds. After an answer, ``retries`` applies."""

Ask = Callable[[Model, Conversation], Awaitable[Mapping[str, Json]]]
"""A function that returns a model's next answer in the form of ``api.ask``."""

Handle = Callable[[Flow, CallOutcome], Awaitable[Sequence[Step]]]
"""Returns the next steps after an outcome that the model did not request."""


@dataclass(slots=True)
class _RunningCall:
    """A call of the model's in progress. Calls in the same ``lane`` run one after the other."""

    call: ModelCall
    work: Work
    lane: str
    steps: int = 0


class LlmThinking:
    """A model's work on a task. ``conversation`` continues if the work was returned. Implements ``SupportsMessages``,
    ``Thinking``, ``SupportsPartialResult``, ``SupportsRelease`` and ``SupportsShown``."""

    def __init__(
        self,
        assignment: Assignment,
        settings: LlmSettings,
        models: Sequence[Model],
        tools: Sequence[OfferedTool],
        conversation: Conversation,
        ask: Ask,
        terminal: Terminal | None = None,
        close_connections: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self.conversation = conversation
        self.terminal = terminal
        self._assignment = assignment
        self._settings = settings
        self._ask = ask
        self._close_connections = close_connections
        self._models = models
        self._model = 0
        self._names = {one.name: one.tool for one in tools}
        self._full = {one.tool: one.tool for one in tools}
        self._first = len(conversation.turns)
        self._asked = self._tries = self._tightened = self._empty = self._reminded = 0
        self._awaited: dict[str, Handle] = {}
        self._running: dict[str, _RunningCall] = {}
        self._lanes: dict[str, deque[_RunningCall]] = {}
        self._needs_inspection = bool(terminal and assignment.workspace and not conversation.turns)
        self._failing: dict[str, int] = {}
        self._cut_short = False
        self._summed = 0
        self._reported_where = False
        self.todo: list[dict[str, str]] = []
        self._messages: list[str] = []
        """Messages of people since the last request to the model."""

    def hear(self, by: str, text: str) -> None:
        self._messages.append(prompt.SAID.format(by=by, text=text))

    async def decide(self, flow: Flow, ended: Mapping[str, CallOutcome]) -> Sequence[Step]:
        """Return a request to the model, its calls, a pause before a retry, or the end."""
        if self.terminal:
            self.terminal.execution = flow.id
        if self._needs_inspection:
            self._needs_inspection = False
            return [self._await(Think(INSPECT, self._inspect_directory), self._inspected)]
        called, steps = False, list[Step]()
        for name, outcome in ended.items():
            if doing := self._running.pop(name, None):
                steps += self._continue(doing, outcome)
                called = True
            elif handle := self._awaited.pop(name, None):
                return await handle(flow, outcome)
        if self._running:
            return steps
        return self._after_calls() if called else self._think()

    def _await(self, think: Think, handle: Handle) -> Think:
        """Return ``think``, whose outcome ``handle`` will turn into the next steps."""
        self._awaited[think.id] = handle
        return think

    async def _inspect_directory(self, _: str) -> Mapping[str, Json]:
        facts = await asyncio.to_thread(describe_directory, self._assignment.workspace)
        return {"facts": facts, **where(self._models[0])}

    async def _inspected(self, flow: Flow, outcome: CallOutcome) -> Sequence[Step]:
        await self._emit_where(flow, outcome)
        self.conversation.task += prompt.directory_facts(str((outcome.structured or {}).get("facts") or ""))
        return self._think()

    async def _emit_where(self, flow: Flow, outcome: CallOutcome) -> None:
        """Emit once where a model is reached, if a variable redirects it from its vendor."""
        found = (outcome.structured or {}).get("where")
        if found and not self._reported_where:
            self._reported_where = True
            await self._emit(flow, "agent.redirected", **cast("dict[str, Json]", found))

    def so_far(self) -> Json:
        """Return the model's last text."""
        said = next((turn.text for turn in reversed(self.conversation.turns) if turn.text), "")
        return {"said": _shorten(said, SAID_CHARS)} if said else None

    async def release(self) -> None:
        """Close the connections to models."""
        if self._close_connections:
            await self._close_connections()

    async def _handle_answer(self, flow: Flow, outcome: CallOutcome) -> Sequence[Step]:
        await self._emit_where(flow, outcome)
        facts = outcome.structured or {"error": {"kind": "internal", "message": f"{outcome.code}: {outcome.message}"}}
        if error := facts.get("error"):
            return await self._model_failed(flow, error)
        self._asked = self._tries = self._tightened = 0
        self._cut_short = facts["finish"] == "length"
        turn = self.conversation.add(
            facts["response"], facts["text"], [self._resolve_tool(call) for call in facts["calls"]]
        )
        said = {"text": _shorten(turn.text, SAID_CHARS), "calls": [call.tool for call in turn.calls]}
        await self._emit(flow, "agent.said", model=facts["model"], tokens=facts["usage"]["tokens"], **said)
        return self._act(turn)

    def _resolve_tool(self, call: Mapping[str, Any]) -> dict[str, Any]:
        """Add the tool that a call names. The toolbox rejects unknown ones with a message."""
        name = str(call["name"])
        return {**call, "tool": self._names.get(name) or self._full.get(name) or name[:200]}

    def _act(self, turn: Turn) -> Sequence[Step]:
        steps: list[Step] = []
        for number, call in enumerate(turn.calls):
            if number >= MOST_CALLS and call.tool != FINISH:
                _end(call, prompt.TOO_MANY.format(calls=len(turn.calls), most=MOST_CALLS), failed=True)
            elif call.arguments is None:
                why = "they were cut off" if self._cut_short else "write them as one JSON object"
                _end(call, f"The arguments are not a JSON object: {why}. Nothing was called.", failed=True)
            elif call.tool == RECALL:
                self._recall(call)
            elif call.tool == TODO:
                self._set_todo(call)
            elif call.tool != FINISH:
                steps += self._begin(call)
        return steps or self._after_calls()

    def _begin(self, call: ModelCall) -> Sequence[Step]:
        arguments = _arguments(call)
        if self.terminal and call.tool in (BASH, READ, EDIT):
            doing = _RunningCall(call, self.terminal.work(call.tool, arguments), BASH)
        else:
            session = arguments.get("session_id")
            of_session = f"{call.tool.partition('.')[0]} {session}" if session else ""
            doing = _RunningCall(call, _single_call(call.tool, arguments), of_session or str(call.number))
        lane = self._lanes.setdefault(doing.lane, deque())
        lane.append(doing)
        return self._continue(doing, None) if len(lane) == 1 else []

    def _continue(self, doing: _RunningCall, outcome: CallOutcome | None) -> Sequence[Step]:
        """Return the next step of a call, or the first of the next call in its lane."""
        try:
            tool, arguments = doing.work.send(outcome) if outcome else next(doing.work)
        except StopIteration as ended:
            done: Done = ended.value
            _end(doing.call, done.text, done.structured, failed=done.failed, exit_code=done.exit_code)
            doing.call.images = done.images
            lane = self._lanes[doing.lane]
            lane.popleft()
            return self._continue(lane[0], None) if lane else []
        doing.steps += 1
        more = f".{doing.steps}" if doing.steps > 1 else ""
        waits = doing.call.tool == BASH and tool.endswith(f".{WAIT}")
        name = f"turn{len(self.conversation.turns)}.call{doing.call.number}{more}"
        step = CallTool(name, tool, arguments, repeatable=waits)
        self._running[step.id] = doing
        return [step]

    def _recall(self, call: ModelCall) -> None:
        number, offset = ((call.arguments or {}).get(name, 0) for name in ("id", "offset"))
        numbers = isinstance(number, int) and isinstance(offset, int) and offset >= 0
        found = self.conversation.recall(number, offset) if numbers else None
        _end(call, found or f"There is no output {number!r} from {offset!r} on.", failed=found is None)

    def _set_todo(self, call: ModelCall) -> None:
        value = (call.arguments or {}).get("items")
        items = [cast("Mapping[str, Any]", one) for one in cast("list[Any]", value if isinstance(value, list) else [])]
        try:
            self.todo = [
                {"text": _shorten(str(one["text"]), TODO_CHARS), "status": STATUSES[one["status"]]}
                for one in items[:MOST_ITEMS]
            ]
        except (LookupError, TypeError):
            return _end(call, "Each of items needs a text, and a status: open, doing or done.", failed=True)
        return _end(call, "It is kept.")

    def shown(self) -> Mapping[str, Json]:
        return {"todo": self.todo} if self.todo else {}

    def _after_calls(self) -> Sequence[Step]:
        """Return the end of the task, or the next request, after all calls of an answer have ended."""
        turn = self.conversation.turns[-1]
        if over := self._finish(turn):
            return [over]
        if again := self._failed_again(turn):
            return [again]
        left = self._settings.max_turns - (len(self.conversation.turns) - self._first)
        if left <= 0:
            return [self._give_up(f"not done within {self._settings.max_turns} answers of the model")]
        if left == WARN_TURNS:
            turn.note = "\n".join(filter(None, (turn.note, prompt.TURNS_LEFT.format(left=left, finish=FINISH))))
        return self._think()

    def _failed_again(self, turn: Turn) -> Finish | None:
        """Return the end of the task if the same call has failed too often in a row; warn the model before that. A
        command that ran and ended with the same exit code may fail twice as often: it may be waiting for something."""
        useless = all(call.failed or call.exit_code for call in turn.calls)
        failed = {_digest(call): call for call in turn.calls if call.failed or (call.exit_code and useless)}
        self._failing = {digest: self._failing.get(digest, 0) + 1 for digest in failed}
        for digest, times in self._failing.items():
            call = failed[digest]
            most = self._settings.same_failures * (1 if failed[digest].failed else 2)
            if times >= most:
                return self._give_up(
                    f"the same call failed {times} times in a row: {_describe_call(call)}: {call.answer[:500]}"
                )
            if times >= min(WARN_FAILURES, most - 1):
                call.answer += "\n" + prompt.AGAIN.format(times=times)
        return None

    def _finish(self, turn: Turn) -> Finish | None:
        """Return the end of the task if the model requested it, or add the reason why it cannot end."""
        if finish := next((call for call in turn.calls if call.tool == FINISH and not call.ended), None):
            for other in turn.calls:
                if other.tool == FINISH and other is not finish:
                    _end(other, "Only the first counts.")
            broken = [str(call.number) for call in turn.calls if call.failed or call.exit_code]
            problem = f"the calls {', '.join(broken)} alongside it failed" if broken else ""
            problem = problem or _finish_problem(finish.arguments or {})
            problem = problem or (self._messages and prompt.HEAR_FIRST) or ""
            if problem:
                _end(finish, f"The task is not ended: {problem}.", failed=True)
                return None
            _end(finish, "The task is ended.")
            arguments = dict(finish.arguments or {})
            summary = str(arguments["summary"])
            return Finish(
                arguments["status"], _shorten(summary, SUMMARY_CHARS), _result(arguments.get("result"), summary)
            )
        if turn.calls:
            self._empty = self._reminded = 0
            return None
        if turn.text.strip() and not self._cut_short:
            if self._reminded == MOST_REMINDERS:
                said = _shorten(turn.text.strip(), SAID_CHARS)
                return self._give_up(f"the model did not call {FINISH}, so the result is unknown; it said: {said}")
            self._reminded += 1
            turn.note = prompt.WORDS_ALONE.format(finish=FINISH)
            return None
        self._empty += 1
        most = self._models[self._model].max_tokens
        cut = prompt.CUT_SHORT.format(tokens=most)
        turn.note = cut if self._cut_short else prompt.EMPTY.format(finish=FINISH)
        if self._empty < MOST_EMPTY:
            return None
        why = f"are cut off after {most} tokens; raise max_tokens" if self._cut_short else "are empty"
        return self._give_up(f"the model's answers {why}")

    def _give_up(self, why: str) -> Finish:
        last = next((turn.text for turn in reversed(self.conversation.turns) if turn.text.strip()), "")
        reached = {"turns": len(self.conversation.turns), "last_words": _shorten(last, SAID_CHARS)}
        return Finish("failed", why, {"reached": reached})

    def _think(self, *, may_sum_up: bool = True) -> Sequence[Step]:
        model = self._models[self._model]
        if may_sum_up and self._needs_summary():
            self._summed += 1
            question = self.conversation.asking(prompt.SUM_UP)

            async def sum_up(_: str) -> Mapping[str, Json]:
                return await self._ask(model, question)

            return [self._await(Think(f"{self._turn()}.sum{self._summed}", sum_up), self._summed_up)]
        if self._messages and self.conversation.turns:
            turn = self.conversation.turns[-1]
            turn.note = "\n".join(filter(None, (turn.note, *self._messages)))
        elif self._messages:
            self.conversation.task = "\n".join((self.conversation.task, *self._messages))
        self._messages.clear()
        self.conversation.age()
        self.conversation.fit()
        self._asked += 1

        async def ask(_: str) -> Mapping[str, Json]:
            return await self._ask(model, self.conversation)

        return [self._await(Think(f"{self._turn()}.ask{self._asked}", ask), self._handle_answer)]

    def _needs_summary(self) -> bool:
        conversation, share = self.conversation, self._settings.sum_up_at
        going = len(conversation.turns) - conversation.left_out
        return bool(share) and going > 2 * KEPT_TURNS and conversation.chars > share * conversation.context_chars

    async def _summed_up(self, flow: Flow, outcome: CallOutcome) -> Sequence[Step]:
        """Continue with the summary. Without one, the conversation is shortened instead."""
        facts: Mapping[str, Any] = outcome.structured or {}
        if not (notes := str(facts.get("text") or "").strip()):
            return self._think(may_sum_up=False)
        before = self.conversation.chars
        known = "\n".join(self._facts_to_keep())
        self.conversation.sum_up(prompt.NOTES.format(notes=notes[:NOTES_CHARS], known=known).rstrip())
        await self._emit(flow, "agent.summed_up", chars=before, left=self.conversation.chars)
        return self._think(may_sum_up=False)

    def _facts_to_keep(self) -> Iterator[str]:
        """Yield the facts from calls that no summary may omit."""
        files = self.terminal.touched if self.terminal else {}
        for how, verb in ((EDIT, "edited"), (READ, "read")):
            if names := [name for name, done in files.items() if done == how][-MOST_KNOWN:]:
                yield f"Files that you {verb}: {', '.join(names)}"
        ids: dict[str, None] = {}
        for call in (
            call for turn in self.conversation.turns for call in turn.calls if isinstance(call.structured, dict)
        ):
            for name, value in cast("dict[str, Json]", call.structured).items():
                if name.endswith("id") and name != "command_id" and isinstance(value, str | int):
                    ids[f"{name} {str(value)[:200]} ({call.tool})"] = None
        if ids:
            yield f"Ids that were answered: {'; '.join(list(ids)[-MOST_KNOWN:])}"
        if self.todo:
            yield "Your list: " + "; ".join(f"{one['text']} ({one['status']})" for one in self.todo)

    async def _model_failed(self, flow: Flow, error: Mapping[str, Any]) -> Sequence[Step]:
        kind = str(error["kind"])
        message = str(error["message"])
        model = self._models[self._model]
        if kind == "too_long" and self._tightened < MOST_TIGHTENED:
            self._tightened += 1
            self.conversation.tighten()
            return self._think(may_sum_up=False)
        facts = {"model": model.model, "why": kind, "message": message}
        most = self._settings.retries
        if kind in ELSEWHERE and not self.conversation.turns:
            most = min(most, FIRST_TRIES)
        if kind in TRANSIENT and self._tries < most:
            self._tries += 1
            seconds = pause(self._assignment.run_id + self._assignment.task_id, self._tries, error.get("retry_after"))
            await self._emit(flow, "agent.waits", seconds=seconds, **facts)
            return [Wait(f"{self._turn()}.pause{self._asked}", seconds)]
        if self._model + 1 < len(self._models):
            self._model = self._model + 1
            self._tries = 0
            await self._emit(flow, "agent.changed_model", to=self._models[self._model].model, **facts)
            return self._think()
        return [self._give_up(explain(kind, message, model, self._tries))]

    def _turn(self) -> str:
        return f"turn{len(self.conversation.turns) + 1}"

    async def _emit(self, flow: Flow, event: str, /, **facts: Any) -> None:
        who = {"task": self._assignment.task_id, "agent": self._assignment.agent, "turn": len(self.conversation.turns)}
        await flow.emit({"event": event, "at": round(time.time(), 3), **who, **facts})


def where(model: Model) -> dict[str, Json]:
    """Return the model's address to record with its answers, if a variable redirects it."""
    return {"where": {"model": model.model, "endpoint": model.endpoint}} if model.elsewhere else {}


def _single_call(tool: str, arguments: Mapping[str, Json]) -> Work:
    outcome = yield tool, arguments
    return Done(describe_outcome(outcome), not outcome.ok, outcome.structured, images=outcome.images)


def _end(
    call: ModelCall,
    answer: str,
    structured: Mapping[str, Json] | None = None,
    *,
    failed: bool = False,
    exit_code: int | None = None,
) -> None:
    call.answer = answer
    call.failed = failed
    call.ended = True
    call.exit_code = exit_code
    call.structured = dict(structured) if structured else None


def _arguments(call: ModelCall) -> dict[str, Any]:
    """Return the arguments without a call key, which only the toolbox sets."""
    return {name: value for name, value in (call.arguments or {}).items() if name != "call_key"}


def _digest(call: ModelCall) -> str:
    return json.dumps([call.tool, call.arguments, call.exit_code], sort_keys=True)


def _describe_call(call: ModelCall) -> str:
    command = (call.arguments or {}).get("command") if call.exit_code else None
    return f"{call.tool} {command[:200]!r}" if isinstance(command, str) else call.tool


def _finish_problem(arguments: Mapping[str, Any]) -> str:
    known = OWN[0].schema["properties"]["status"]["enum"]
    if arguments.get("status") not in known:
        return f"status is {arguments.get('status')!r}, and should be one of {', '.join(known)}"
    return "" if str(arguments.get("summary") or "").strip() else "summary is missing"


def _result(arguments: Json, summary: str) -> dict[str, Json]:
    if isinstance(arguments, dict):
        return {"summary": summary, **cast("dict[str, Json]", arguments)}
    return {"summary": summary} if arguments is None else {"summary": summary, "result": arguments}


def _shorten(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}… ({len(text) - most} characters more)"
