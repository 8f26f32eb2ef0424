"""Notices for a person: about questions that wait, and commands that exceed a time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from agentwire.notices.notifier import Notice, Notifier
from agentwire.system import program_path
from ai_session.config import config
from ai_session.config.settings import NotifySettings
from ai_session.gate.hook import unusable
from ai_session.gate.written import WrittenDirectories
from ai_session.models import Question
from ai_session.sessions.manager import SessionManager

PROGRAM = "ai-session"


def make_notifier(settings: NotifySettings, written: WrittenDirectories, masked: Callable[[str], str]) -> Notifier:
    """Return a notifier that runs only programs that no box can have written."""
    environ = program_path.environment(config.environment())
    return Notifier(PROGRAM, settings, environ, masked, partial(unusable, written=written))


@dataclass(slots=True)
class _Running:
    command_id: str
    timer: asyncio.TimerHandle


class PersonNotices:
    """Sends notices with a Notifier; does nothing if none is configured."""

    def __init__(self, settings: NotifySettings, notifier: Notifier, sessions: SessionManager) -> None:
        self._settings = settings
        self._notifier = notifier
        self._sessions = sessions
        self._running: dict[str, _Running] = {}
        self._watching: asyncio.Task[None] | None = None

    def notify_question(self, question: Question) -> None:
        """Notify the person that a question waits."""
        if not self._notifier:
            return
        session = self._sessions.find(question.session) if question.session else None
        name = session.spec.name if session else ""
        what = question.message if self._settings.show_commands else question.tool + (f" in {name}" if name else "")
        text = f"{what} waits for your answer: ai-session approve {question.question_id}"
        facts = {"question_id": question.question_id, "tool": question.tool, "session": name}
        self._notifier.tell(Notice("question", f"{PROGRAM} asks", text, facts))

    def start(self) -> None:
        """Start watching how long commands run, if that is configured."""
        if not self._notifier or not self._settings.command_seconds:
            return
        changes = self._sessions.changes.watch(lambda spec: True, ("list", "state"))

        async def watch() -> None:
            try:
                while batch := await changes.next():
                    for change in batch:
                        self._update_timer(change.session_id)
            finally:
                changes.close()

        for session in self._sessions.all():
            self._update_timer(session.spec.session_id)
        self._watching = asyncio.create_task(watch())

    async def close(self) -> None:
        """Stop watching, and sending notices."""
        for running in self._running.values():
            running.timer.cancel()
        if self._watching:
            self._watching.cancel()
            await asyncio.wait((self._watching,))
        await self._notifier.close()

    def _update_timer(self, session_id: str) -> None:
        session, known = self._sessions.find(session_id), self._running.get(session_id)
        record = session.running.record if session and session.running else None
        if known and not (record and record.command_id == known.command_id):
            known.timer.cancel()
            del self._running[session_id]
            known = None
        if record and not known:
            left = max(0.0, record.started_at + self._settings.command_seconds - time.time())
            timer = asyncio.get_running_loop().call_later(left, self._overdue, session_id, record.command_id)
            self._running[session_id] = _Running(record.command_id, timer)

    def _overdue(self, session_id: str, command_id: str) -> None:
        session = self._sessions.find(session_id)
        running = session.running if session else None
        if session is None or running is None or running.record.command_id != command_id:
            return
        name = session.spec.name
        what = running.record.command if self._settings.show_commands else command_id
        text = f"{what} in session {name} still runs after {self._settings.command_seconds:g} s"
        facts = {"command_id": command_id, "session": name}
        self._notifier.tell(Notice("command", f"{PROGRAM}: a command still runs", text, facts))
