"""Notices to the person that a run is over, or waits for an answer."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractContextManager

from agentwire.notices.notifier import Notice, Notifier
from agentwire.notices.settings import NotifySettings
from agentwire.system import program_path
from ccswarm.models import CallRequest, Json, RunStatus
from ccswarm.toolbox.telemetry.base import Function, SentCall, Status, Telemetry

PROGRAM = "ccswarm"
ANSWERED_SOON_SECONDS = 1.0
"""Delay before a notice: what is answered earlier, by a person who is watching or from a continued run's record, is not
reported."""
SENT_SECONDS = 5.0
"""How long this process waits at its end for notices that are being sent."""


def make_notifier(settings: NotifySettings, environ: Mapping[str, str], masked: Callable[[str], str]) -> Notifier:
    """Return the notifier that the person's configuration describes."""
    return Notifier(PROGRAM, settings, program_path.environment(environ), masked, _unusable)


def _unusable(argv: Sequence[str]) -> str:
    safe_directories = program_path.directories(os.path.dirname(argv[0]))
    return "" if safe_directories else f"{argv[0]} is where agents may write: put it next to your configuration"


def with_notices(telemetry: Telemetry, notifier: Notifier) -> Telemetry:
    """Return ``telemetry`` with notices, if there is a way to send them."""
    return NotifyingTelemetry(telemetry, notifier) if notifier else telemetry


class NotifyingTelemetry(Telemetry):
    """A telemetry that sends notices to the person, and passes everything on to ``inner``."""

    def __init__(self, inner: Telemetry, notifier: Notifier) -> None:
        self._inner = inner
        self._notifier = notifier

    def call(self, request: CallRequest, sent: SentCall) -> AbstractContextManager[Mapping[str, str]]:
        return self._inner.call(request, sent)

    def trace_thought(self, request: CallRequest, function: Function) -> Function:
        return self._inner.trace_thought(request, function)

    async def await_answer(self, number: str, answer: Awaitable[Json | None]) -> Json | None:
        text = f"A run waits for your answer: ccswarm approvals shows {number}"
        notice = Notice("question", f"{PROGRAM} asks", text, {"question": number})
        soon = asyncio.get_running_loop().call_later(ANSWERED_SOON_SECONDS, self._notifier.tell, notice)
        try:
            return await self._inner.await_answer(number, answer)
        finally:
            soon.cancel()

    async def execution(
        self, execution_id: str, root: str, work: Coroutine[object, object, Json], status: Status
    ) -> Json:
        try:
            result = await self._inner.execution(execution_id, root, work, status)
        except Exception:  # not for cancellation: the run was paused, handed back, or ended by a person
            self._notify_end(execution_id, root, RunStatus.FAILED.value)
            raise
        self._notify_end(execution_id, root, str(result["status"]))
        return result

    def _notify_end(self, execution_id: str, run: str, status: str) -> None:
        if execution_id != run:
            return
        text = f"{run[:12]} {status.replace('_', ' ')}: ccswarm result {run[:12]}"
        self._notifier.tell(Notice("run", f"{PROGRAM}: a run is over", text, {"run": run, "status": status}))

    async def close(self) -> None:
        await self._notifier.close(SENT_SECONDS)
        await self._inner.close()
