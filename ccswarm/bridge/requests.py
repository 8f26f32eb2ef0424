"""A program's requests to its bridge as a brain's steps: waiting for a request is a thought, a call is a call."""

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
    """Of one visit. ``wait`` is the thought to be had next, under the name ``waiting``; ``more`` is recorded with each
    request. ``finished`` is what the program finished with, ``broken`` why nobody can ask any more."""

    def __init__(self, bridge: ToolBridge, prefix: str, more: Callable[[], Mapping[str, Json]] = dict) -> None:
        self._bridge = bridge
        self._prefix = prefix
        self._more = more
        self._number = 0
        self.waiting = ""
        self._calls: dict[str, Mapping[str, Any]] = {}
        self._said: list[str] = []
        """By people, and in no answer yet."""
        self.finished: Mapping[str, Any] | None = None
        self.broken = ""

    def hear(self, words: str) -> None:
        """What goes with the next answer; until it has, nothing is finished."""
        self._said.append(words)

    def unheard(self) -> list[str]:
        """Messages that were not attached to an answer; from now on they are delivered otherwise."""
        said = self._said
        self._said = []
        return said

    def unknown(self) -> list[str]:
        """The tools of calls whose outcome is not known yet."""
        return [str(request["tool"]) for request in self._calls.values()]

    def begin(self) -> None:
        """``waiting`` is the next request."""
        self._number += 1
        self.waiting = f"{self._prefix}ask {self._number}"

    def handle(self, ended: Mapping[str, CallOutcome]) -> tuple[list[Call], Mapping[str, Any] | None]:
        """The calls to be made because of what ended, and the request that came, where one did: then ``waiting`` is
        another one. What is not from here is let be."""
        for name, outcome in ended.items():
            if request := self._calls.pop(name, None):
                self._bridge.answer(request["id"], _with(outcome, self.unheard()))
        outcome = ended.get(self.waiting)
        if outcome is None:
            return [], None
        if not outcome.ok:
            self.broken = outcome.message or str(outcome.status)
            return [], None
        request = outcome.structured or {}
        self._bridge.taken(request)
        step = f"{self._prefix}call {self._number}"
        self.begin()
        if request["tool"] == FINISH:
            self._bridge.answer(request["id"], self._finish(request["arguments"]))
            return [], request
        self._calls[step] = request
        return [Call(step, request["tool"], request["arguments"])], request

    def _finish(self, given: Mapping[str, Any]) -> CallOutcome:
        status, summary = given.get("status"), given.get("summary")
        if status not in ENDINGS or not isinstance(summary, str):
            words = f"finish needs a status ({', '.join(ENDINGS)}) and a summary"
            return CallOutcome(CallStatus.INVALID, code="invalid_arguments", message=words)
        if said := self.unheard():
            words = "the task is not ended: a person said something in the meantime"
            return _with(CallOutcome(CallStatus.DENIED, code="hear_first", message=words), said)
        if self.finished is None:
            result = given.get("result")
            self.finished = {"status": status, "summary": summary[:MOST_SUMMARY_CHARS], "result": result}
        return CallOutcome(CallStatus.OK, "The task is finished. Say nothing more, and end.")

    async def wait(self, _: str) -> Mapping[str, Json]:
        """What was asked, and ``more``."""
        try:
            return {**await self._bridge.next(), **self._more()}
        except asyncio.CancelledError:
            # Handed on to another worker, or the task is over, and then the bridge is closed already.
            await self._bridge.close(over=False)
            raise


def _with(outcome: CallOutcome, said: list[str]) -> CallOutcome:
    """As text alone: some programs show their model nothing else where there are facts too."""
    if not said:
        return outcome
    body = outcome.text or (json.dumps(dict(outcome.structured), ensure_ascii=False) if outcome.structured else "")
    return replace(outcome, text="\n\n".join(filter(None, (body, *said))), structured=None)
