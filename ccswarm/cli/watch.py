"""A run watched to its end: on a terminal, as lines, or as JSON; until it is over, waits for people, or Ctrl-C."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Protocol

from agentwire.cli.output import EXIT_ERROR, EXIT_INTERRUPTED, remark, say, show_rows, to_person
from agentwire.system.inherited_signals import is_ignored
from agentwire.system.user import user_name
from agentwire.visible import visible
from ccswarm.cli.board import RunTable
from ccswarm.cli.output import BY_STATUS, EXIT_BLOCKED, show_json_line, show_line, show_lines
from ccswarm.errors import AnsweredAlready, EngineUnavailable, RunNotFound, SwarmError, UsageInvalid
from ccswarm.journal.files import directory_of
from ccswarm.models import RunStatus
from ccswarm.runs.answers import answer, last_task
from ccswarm.runs.events import Calls, RunEvent, event_from_record, format_event
from ccswarm.runs.feed import EventStream
from ccswarm.runs.status import run_and_facts, short
from ccswarm.toolbox.questions import command_for

if TYPE_CHECKING:
    from rich.text import Text

    from ccswarm.runs.app import App

CHECK_SECONDS = 1.0
"""The interval of checks whether the run was paused elsewhere."""

DRAW_SECONDS = 0.25
MOST_CHANGED_LINES = 60
"""The length to which changes to be merged are cut; diff shows the rest."""

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """Ctrl-C and other signals to end. The first one sets ``first``, and cancels the caller of ``caught`` unless
    ``attend`` was called; the second ends the process at once, after ``restore`` and ``leave``."""

    def __init__(self) -> None:
        self.first = asyncio.Event()
        self.restore: Callable[[], None] = lambda: None
        self.leave: Callable[[], None] = lambda: None
        self._cancelled: asyncio.Task[Any] | None = None

    @contextmanager
    def caught(self) -> Generator[None]:
        """Handle signals while the block runs."""
        loop = asyncio.get_running_loop()
        self._cancelled = asyncio.current_task()
        handled = [number for number in SIGNALS if not is_ignored(number)]
        for number in handled:
            loop.add_signal_handler(number, self._handle_signal)
        try:
            yield
        finally:
            for number in handled:
                loop.remove_signal_handler(number)

    def attend(self) -> None:
        """Let signals only set ``first``, which the caller watches from here on."""
        self._cancelled = None

    def _handle_signal(self) -> None:
        if self.first.is_set():
            try:
                self.restore()
                self.leave()
            finally:
                os._exit(EXIT_INTERRUPTED)
        self.first.set()
        remark("stopping; Ctrl-C again ends at once")
        if self._cancelled:
            self._cancelled.cancel()


class View(Protocol):
    """A way to show events. ``tick`` is called after events that arrived together, and every ``period`` seconds."""

    period: float

    def show(self, run_event: RunEvent) -> None: ...

    def tick(self) -> None: ...


def _next(question: RunEvent) -> str:
    """Return the command that answers a question from another terminal."""
    if "question" not in question.facts:
        return command_for(question.facts)
    run = short(question.run)
    return f"ccswarm diff {run} {question.task}; ccswarm accept {run}.{question.task}, or return it with a comment"


class Lines:
    """One line for each event."""

    period = CHECK_SECONDS

    def show(self, run_event: RunEvent) -> None:
        show_line(format_event(run_event))
        if run_event.event == "approval.asked":
            remark(visible(f"next: {_next(run_event)}"))

    def tick(self) -> None:
        return


class JsonLines:
    """One document for each event."""

    period = CHECK_SECONDS

    def show(self, run_event: RunEvent) -> None:
        show_json_line(run_event.to_json())

    def tick(self) -> None:
        return


class RedrawnView:
    """The live view, which is redrawn from the board."""

    period = DRAW_SECONDS

    def __init__(self, draw: Callable[[], None]) -> None:
        self.tick = draw

    def show(self, run_event: RunEvent) -> None:
        del run_event


class Watch:
    """A run that is watched by the process that executes it. ``plan`` is the submitted one; events ``before`` are not
    shown again. With ``no_wait``, watching ends when only questions to people are in progress."""

    def __init__(
        self,
        opened: App,
        feed: EventStream,
        plan: Mapping[str, Any],
        before: Sequence[RunEvent] = (),
        *,
        no_wait: bool,
        as_json: bool,
    ) -> None:
        self._app = opened
        self._engine = opened.engine
        self._feed = feed
        self._run = run = feed.run
        self._no_wait = no_wait
        self._json = as_json
        name = str(plan.get("swarm", {}).get("name", "swarm"))
        self._board = RunTable(run, [str(task["id"]) for task in plan.get("tasks", ())], name)
        self._calls = Calls(directory_of(opened.state_directory), run, fresh=True)
        for run_event in before:
            self._board.take(run_event)

    async def until_left(self, interrupts: Interrupts) -> int:
        """Watch the run and return the exit code. Ctrl-C, or the end of the output's reader, pauses the run."""
        try:
            if to_person() and not self._json:
                why = await self._draw(interrupts)
            else:
                why = await self._follow(JsonLines() if self._json else Lines(), interrupts.first)
        except BrokenPipeError:
            await self._engine.pause(self._run)
            raise
        if why == "interrupted":
            await self._engine.pause(self._run)
        return await self._tell_end(why)

    async def _draw(self, interrupts: Interrupts) -> str:
        from ccswarm.cli.live_view import LiveView, drawable

        if not drawable():
            return await self._follow(Lines(), interrupts.first)
        view = LiveView(self._board, self._answer, self._changes)
        interrupts.restore = view.restore
        with view.shown():
            return await self._follow(RedrawnView(view.draw), interrupts.first)

    async def _answer(self, question: Mapping[str, Any], approved: bool) -> None:
        with suppress(RunNotFound, AnsweredAlready, UsageInvalid):  # the view shows it in a moment
            task = str(question["task_id"])
            await self._app.swarm.answer(str(question["id"]), approved=approved, by=user_name(), task_id=task)

    async def _changes(self, question: Mapping[str, Any]) -> list[Text]:
        """Return the changes that a person is asked to merge."""
        from ccswarm.cli.diff import styled_lines
        from ccswarm.runs.work import compare, works_of

        task = str(question["task_id"]).removeprefix(f"{self._run}.")
        with suppress(SwarmError):  # diff shows it, and the question includes its size
            repository, works = await works_of(self._engine, self._run, task)
            found = await asyncio.to_thread(compare, self._run, repository, works)
            return styled_lines(found, f"ccswarm diff {short(self._run)} {task}", MOST_CHANGED_LINES)
        return []

    async def _follow(self, view: View, interrupted: asyncio.Event) -> str:
        """Show events until there is a reason to end, and return it: over, interrupted, paused or waiting."""
        async with self._feed.follow() as queue:
            stop = asyncio.create_task(interrupted.wait())
            coming = asyncio.create_task(queue.get())
            try:
                while True:
                    done, _ = await asyncio.wait({stop, coming}, timeout=view.period, return_when="FIRST_COMPLETED")
                    if stop in done:
                        return "interrupted"
                    for record in self._calls.new():
                        self._board.take(event_from_record(self._run, record))
                    while coming.done():
                        run_event = coming.result()
                        if run_event is None:
                            return "over"
                        self._board.take(run_event)
                        view.show(run_event)
                        coming = asyncio.create_task(queue.get())
                        await asyncio.sleep(0)
                    view.tick()
                    asks = self._no_wait and self._board.questions
                    if (asks or not done) and (why := await self._standstill()):
                        return why
            finally:
                stop.cancel()
                coming.cancel()
                await asyncio.gather(stop, coming, return_exceptions=True)

    async def _standstill(self) -> str:
        try:
            return await self._find_standstill()
        except EngineUnavailable:  # the feed reports it if it is unreachable for long
            return ""

    async def _find_standstill(self) -> str:
        run = await self._engine.status(self._run)
        if run.status is RunStatus.PAUSED:
            return "paused"
        going = [str(one["task"]) for one in (run.shown or {}).get("going", ())]
        if not (self._no_wait and going and all(map(self._board.waits, going))):
            return ""
        answer = self._app.swarm.answer_to
        answers = [await answer(str(one["id"]), str(one["task_id"])) for one in self._board.questions]
        return "" if any(answers) else "waiting"  # an answered question continues in a moment

    async def _tell_end(self, why: str) -> int:
        run, facts = await run_and_facts(self._engine, self._run)
        name = last_task(run, facts["tasks"])
        said = answer(facts["tasks"][name]) if name else ""
        code = BY_STATUS.get(RunStatus(facts["status"]), EXIT_ERROR)
        code = {"interrupted": EXIT_INTERRUPTED, "paused": EXIT_BLOCKED, "waiting": EXIT_BLOCKED}.get(why, code)
        if self._json:
            show_json_line({"event": "result", **facts, "answer": {"task": name, "text": said}, "exit_code": code})
            return code
        show_summary(facts)
        if said and facts["status"] in (RunStatus.SUCCEEDED, RunStatus.FAILED):
            say(f"\n{name}:")
            show_lines(said.split("\n"))
        for note in facts["notes"]:
            remark(f"note: {note}")
        for question in facts["approvals"]:
            remark(f"waits for approval: {command_for(question)}")
        blocked = facts["status"] == RunStatus.BLOCKED
        if blocked or why != "over":
            remark(f"next: {'fix what blocks it, then ' if blocked else ''}ccswarm resume {short(self._run)}")
        return code


def show_summary(facts: Mapping[str, Any]) -> None:
    """Print the tasks of a run as a table, and how to see more."""
    tasks: Mapping[str, Mapping[str, Any]] = facts["tasks"]
    rows = [{"task": name, **task, "seconds": _seconds(task)} for name, task in tasks.items()]
    show_rows(rows, ("task", "status", "agent", "attempts", "seconds", "summary"))
    say(f"{facts['run']} {facts['status'].replace('_', ' ')}")
    say(f"more: ccswarm runs show {short(facts['run'])}, ccswarm logs {short(facts['run'])}")


def _seconds(task: Mapping[str, Any]) -> str:
    began, ended = task["started_at"], task["ended_at"]
    return f"{ended - began:.1f}" if began and ended else ""
