"""Turns a program's requests into a brain's steps: waiting for a request is a thought, a request is a call."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from ccswarm.bridge.bridge import FINISH, ToolBridge
from ccswarm.models import CallOutcome, CallStatus, Json

ENDINGS = ("succeeded", "failed", "blocked")
MOST_SUMMARY_CHARS = 20_000


class Call(NamedTuple):
    """A step: its id, the tool and the arguments."""

    id: str
    tool: str
    arguments: Mapping[str, Any]


class Requests:
    """The requests of one round. ``wait`` is the function of the next thought, ``waiting`` its name. The result of
    ``more`` is recorded with each request. ``finished`` has the arguments of the program's ``finish``, ``broken`` the
    reason why no request can follow."""

    def __init__(self, bridge: ToolBridge, prefix: str, more: Callable[[], Mapping[str, Json]] = dict) -> None:
        self._bridge = bridge
        self._prefix = prefix
        self._more = more
        self._number = 0
        self.waiting = ""
        self._calls: dict[str, Mapping[str, Any]] = {}
        self._messages: list[str] = []
        """Messages of people that are in no answer yet."""
        self.finished: Mapping[str, Any] | None = None
        self.broken = ""

    def add_message(self, words: str) -> None:
        """Add a message to the next answer. The task cannot be finished before it is delivered."""
        self._messages.append(words)

    def pop_messages(self) -> list[str]:
        """Remove and return the messages that were in no answer, for another way of delivery."""
        messages = self._messages
        self._messages = []
        return messages

    def open_calls(self) -> list[str]:
        """Return the tools of calls without a known outcome."""
        return [str(request["tool"]) for request in self._calls.values()]

    def expect_request(self) -> None:
        """Set ``waiting`` to the next request."""
        self._number += 1
        self.waiting = f"{self._prefix}ask {self._number}"

    def handle(self, ended: Mapping[str, CallOutcome]) -> tuple[list[Call], Mapping[str, Any] | None]:
        """Answer the calls that ended. Return the calls to make, and the new request if there is one. After a request
        ``waiting`` has changed. Outcomes of other steps are ignored."""
        for name, outcome in ended.items():
            if request := self._calls.pop(name, None):
                self._bridge.answer(request["id"], _with_messages(outcome, self.pop_messages()))
        outcome = ended.get(self.waiting)
        if outcome is None:
            return [], None
        if not outcome.ok:
            self.broken = outcome.message or str(outcome.status)
            return [], None
        request = outcome.structured or {}
        self._bridge.mark_taken(request)
        step = f"{self._prefix}call {self._number}"
        self.expect_request()
        if request["tool"] == FINISH:
            self._bridge.answer(request["id"], self._finish(request["arguments"]))
            return [], request
        self._calls[step] = request
        return [Call(step, request["tool"], request["arguments"])], request

    def _finish(self, arguments: Mapping[str, Any]) -> CallOutcome:
        status, summary = arguments.get("status"), arguments.get("summary")
        if status not in ENDINGS or not isinstance(summary, str):
            words = f"finish needs a status ({', '.join(ENDINGS)}) and a summary"
            return CallOutcome(CallStatus.INVALID, code="invalid_arguments", message=words)
        if messages := self.pop_messages():
            words = "the task is not ended: a person said something in the meantime"
            return _with_messages(CallOutcome(CallStatus.DENIED, code="hear_first", message=words), messages)
        if self.finished is None:
            result = arguments.get("result")
            self.finished = {"status": status, "summary": summary[:MOST_SUMMARY_CHARS], "result": result}
        return CallOutcome(CallStatus.OK, "The task is finished. Say nothing more, and end.")

    async def wait(self, _: str) -> Mapping[str, Json]:
        """Return the next request, with the facts of ``more``."""
        try:
            return {**await self._bridge.next(), **self._more()}
        except asyncio.CancelledError:
            # Another worker continues, or the task is over and the bridge closed already.
            await self._bridge.close(over=False)
            raise


def _with_messages(outcome: CallOutcome, messages: list[str]) -> CallOutcome:
    """Append messages to an outcome as text. Some programs show their model no text next to structured data."""
    if not messages:
        return outcome
    body = outcome.text or (json.dumps(dict(outcome.structured), ensure_ascii=False) if outcome.structured else "")
    return replace(outcome, text="\n\n".join(filter(None, (body, *messages))), structured=None)
