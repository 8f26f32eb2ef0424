"""A run on a terminal: agents, tasks, their last events, and the questions, which a person answers with y or n."""

from __future__ import annotations

import asyncio
import os
import sys
import termios
import time
import tty
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.live import Live
from rich.status import Status
from rich.table import Table
from rich.text import Text

from agentwire.system import typed_ahead
from agentwire.visible import visible
from ccswarm.cli.board import Row, RunTable
from ccswarm.config import config
from ccswarm.models import RunStatus
from ccswarm.runs.events import enclosing_task, question_text
from ccswarm.system.ancestry import in_session
from ccswarm.toolbox.questions import command_for

if TYPE_CHECKING:
    from rich.console import RenderableType

Answer = Callable[[Mapping[str, Any], bool], Awaitable[None]]
"""Answers a question: whether the person agrees."""

Changes = Callable[[Mapping[str, Any]], Awaitable[list[Text]]]
"""Returns the changes that a person is asked to merge, as lines."""

FEWEST_LINES = 8

STYLES = {
    "succeeded": "green",
    **dict.fromkeys(("running", "queued", "waiting_approval", "paused"), "yellow"),
    **dict.fromkeys(("failed", "blocked", "budget_exhausted", "cancelled"), "red"),
    "skipped": "dim",
}
"""The styles of statuses."""


def drawable() -> bool:
    """Report whether standard output is a terminal that supports drawing."""
    console = Console()
    return console.is_terminal and not console.is_dumb_terminal


def answerable() -> bool:
    """Report whether a person may type at this terminal: a background command must leave it alone, and in a session of
    ai-session an agent may be typing."""
    if not sys.stdin.isatty() or os.tcgetpgrp(sys.stdin.fileno()) != os.getpgrp():
        return False
    return not in_session(config.server_environment())


def starting() -> Status:
    """Return a status line to show while servers start; it is quiet unless the terminal supports drawing."""
    return Console(quiet=not drawable()).status("starting the servers…", spinner="line")


class LiveView:
    """The live view, drawn by ``draw``. Leaving ``shown`` restores the screen, except for what was printed above."""

    def __init__(self, board: RunTable, answer: Answer, changes: Changes) -> None:
        self._board = board
        self._answer = answer
        self._changes = changes
        self._answers: set[asyncio.Task[None]] = set()
        self._question: Mapping[str, Any] = {}
        self._console = Console(highlight=False)
        self._live = Live(console=self._console, auto_refresh=False, transient=True, redirect_stdout=False)
        self._began = time.time()
        self._keys = answerable()
        self._saved_attributes: list[Any] = termios.tcgetattr(sys.stdin.fileno()) if self._keys else []

    @contextmanager
    def shown(self) -> Generator[None]:
        with self._typing(), self._live:
            self.draw()
            yield
            for task in self._answers:
                task.cancel()

    def restore(self) -> None:
        """Restore the terminal before the process ends at once."""
        self._console.show_cursor(True)
        if self._keys:
            termios.tcsetattr(sys.stdin.fileno(), termios.TCSADRAIN, self._saved_attributes)

    def draw(self) -> None:
        """Redraw the view from the current state."""
        questions = self._board.questions
        question = questions[0] if questions else {}
        if question.get("id") != self._question.get("id"):
            self._question = question
            if "question" in question:
                self._start(self._show_changes(question))
            if question and self._keys:
                # Keys typed before the question appeared do not answer it.
                typed_ahead.discard(sys.stdin.fileno())
        self._live.update(self._render(questions), refresh=True)

    @contextmanager
    def _typing(self) -> Generator[None]:
        if not self._keys:
            yield
            return
        fd = sys.stdin.fileno()
        loop = asyncio.get_running_loop()
        tty.setcbreak(fd, termios.TCSADRAIN)
        loop.add_reader(fd, self._handle_key, fd)
        try:
            yield
        finally:
            loop.remove_reader(fd)
            termios.tcsetattr(fd, termios.TCSADRAIN, self._saved_attributes)

    def _handle_key(self, fd: int) -> None:
        key = os.read(fd, 1).lower()
        if not key:
            asyncio.get_running_loop().remove_reader(fd)
        elif key in (b"y", b"n") and self._question:
            question = self._question
            self._question = {}
            self._start(self._answer(question, key == b"y"))

    def _start(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._answers.add(task)
        task.add_done_callback(self._answers.discard)

    async def _show_changes(self, question: Mapping[str, Any]) -> None:
        """Print the changes above the view, where they stay."""
        for line in await self._changes(question):
            self._live.console.print(line, soft_wrap=True)

    def _render(self, questions: list[dict[str, Any]]) -> RenderableType:
        board = self._board
        counts: dict[str, int] = {}
        for row in board.rows.values():
            counts[row.shown] = counts.get(row.shown, 0) + 1
        summary = ", ".join(f"{count} {status.replace('_', ' ')}" for status, count in counts.items())
        head = Text(
            f"{visible(board.name)}  {board.run[:12]}  {_clock(time.time() - self._began)}  {summary}", style="bold"
        )
        parts: list[RenderableType] = [head, self._table()]
        for question in questions[:1]:
            parts.append(Text(visible(question_text(question)), style="yellow"))
            more = f" ({len(questions) - 1} more questions wait)" if len(questions) > 1 else ""
            here = self._keys and "answer_with" not in question
            how = "y: approve, n: reject" if here else command_for(question)
            parts.append(Text(f"{how}{more}", style="bold yellow"))
        return Group(*parts)

    def _table(self) -> Table:
        table = Table(box=SIMPLE_HEAD, pad_edge=False, expand=True)
        for column in ("TASK", "AGENT", "STATUS", "TIME"):
            table.add_column(column, no_wrap=True)
        table.add_column("NOW", no_wrap=True, overflow="ellipsis", ratio=1)
        room = max(FEWEST_LINES, self._console.size.height - 8)
        depths = self._board.nested()
        rows = [self._board.rows[task] for task in depths]
        if crowded := len(rows) > room:
            rows.sort(key=_urgency)
        for row in rows[:room]:
            within = enclosing_task(row.task, depths)
            name = row.task if crowded or not within else "  " * depths[row.task] + row.task[len(within) + 1 :]
            seconds = (row.ended or time.time()) - row.began if row.began else 0.0
            status = Text(row.shown.replace("_", " "), style=STYLES.get(row.shown, ""))
            agent = row.agent + (f" ({row.attempt})" if row.attempt > 1 else "")
            table.add_row(name, agent, status, _clock(seconds) if row.began else "", Text(visible(row.said)))
        if crowded:
            table.add_row(Text(f"… {len(rows) - room} more", style="dim"))
        return table


def _urgency(row: Row) -> int:
    """Return the sort key for when not all tasks fit: questions, tasks in progress, failures, the rest."""
    order = (RunStatus.WAITING_APPROVAL, RunStatus.RUNNING, RunStatus.FAILED, RunStatus.BLOCKED, RunStatus.EXHAUSTED)
    return order.index(row.shown) if row.shown in order else len(order) + (row.shown is not RunStatus.QUEUED)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}:{rest:02}" if minutes < 60 else f"{minutes // 60}:{minutes % 60:02}:{rest:02}"
