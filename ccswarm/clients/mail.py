"""Messages between the agents of a run, as a tool server named ``swarm``: the topology decides who may write to whom.

Kept in files of the state directory, so agents of workers on one machine reach each other. A message is delivered once:
``read_messages`` gives what came since the last time, and a call that is made again by the same key gives the same.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ccswarm.clients.base import OnProgress
from ccswarm.errors import InvalidArguments, MessageForbidden, UnknownTool
from ccswarm.models import ServerAnswer, ToolInfo

NAME = "swarm"
AGENT, RUN = "ai-session/agent", "ccswarm/run"
MOST_CHARS = 20_000

_KEY = {"call_key": {"type": "string", "description": "Idempotency key."}}
TOOLS = (
    ToolInfo(
        NAME,
        "list_agents",
        "The agents this one may write to.",
        {"type": "object", "properties": {}, "additionalProperties": False},
        read_only=True,
        destructive=False,
        idempotent=True,
        open_world=False,
    ),
    ToolInfo(
        NAME,
        "read_messages",
        "What other agents of this run wrote since the last time.",
        {"type": "object", "properties": _KEY, "additionalProperties": False},
        destructive=False,
        open_world=False,
    ),
    ToolInfo(
        NAME,
        "send_message",
        "Write to another agent of this run.",
        {
            "type": "object",
            "properties": {
                "to": {"type": "string", "description": "The agent's name."},
                "text": {"type": "string", "maxLength": MOST_CHARS},
                **_KEY,
            },
            "required": ["to", "text"],
            "additionalProperties": False,
        },
        destructive=False,
        open_world=False,
    ),
)


class Mailboxes:
    """A ToolClient. ``reachable`` says whom an agent may write to; ``check`` raises MessageForbidden for all others."""

    name = NAME
    problem = ""

    def __init__(
        self, directory: Path, reachable: Callable[[str], Sequence[str]], check: Callable[[str, str], None]
    ) -> None:
        self._directory = directory
        self._reachable = reachable
        self._check = check

    async def list_tools(self, *, fresh: bool = False) -> Sequence[ToolInfo]:
        """See ToolClient."""
        return TOOLS

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any],
        *,
        meta: Mapping[str, Any],
        timeout_seconds: float | None = None,
        on_progress: OnProgress | None = None,
    ) -> ServerAnswer:
        """See ToolClient; the caller is who ``meta`` says, which the toolbox fills in."""
        agent, run = str(meta.get(AGENT, "")), str(meta.get(RUN, ""))
        if not agent or not run:
            raise InvalidArguments("messages belong to a run", suggestion="use it from a plan's task")
        if name == "list_agents":
            return _answer({"agents": list(self._reachable(agent))})
        key = str(arguments.get("call_key", ""))
        if name == "send_message":
            try:
                self._check(agent, arguments["to"])
            except MessageForbidden as error:
                facts = {"code": error.code, "message": error.message, "suggestion": error.suggestion}
                return ServerAnswer(f"error {error.code}: {error.message}", None, True, {"ai-session/error": facts})
            message = {"from": agent, "text": arguments["text"], "key": key}
            sent = await asyncio.to_thread(_deliver, self._box(run, arguments["to"]), message)
            return _answer({"to": arguments["to"], "sent": sent})
        if name == "read_messages":
            found = await asyncio.to_thread(_take, self._box(run, agent), key)
            return _answer({"messages": found})
        raise UnknownTool(f"there is no tool {NAME}.{name}")

    async def close(self) -> None:
        """See ToolClient."""

    def _box(self, run: str, agent: str) -> Path:
        return self._directory / run / f"{agent}.jsonl"


def _answer(facts: dict[str, Any]) -> ServerAnswer:
    return ServerAnswer(json.dumps(facts, ensure_ascii=False), facts)


def _records(box: Path) -> tuple[int, list[dict[str, Any]]]:
    """The box, locked, and what is in it; an unfinished last line is cut off."""
    box.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fd = os.open(box, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    fcntl.flock(fd, fcntl.LOCK_EX)
    with open(fd, "rb", closefd=False) as file:
        whole = file.read().rpartition(b"\n")
    os.ftruncate(fd, len(whole[0]) + len(whole[1]))
    os.lseek(fd, 0, os.SEEK_END)
    return fd, [json.loads(line) for line in whole[0].split(b"\n") if line]


def _deliver(box: Path, message: dict[str, Any]) -> bool:
    fd, records = _records(box)
    try:
        if not message["key"] or not any(one.get("key") == message["key"] for one in records):
            os.write(fd, json.dumps(message).encode() + b"\n")
    finally:
        os.close(fd)
    return True


def _take(box: Path, key: str) -> list[dict[str, Any]]:
    fd, records = _records(box)
    try:
        messages = [one for one in records if "text" in one]
        reads = [one for one in records if "read" in one]
        known: dict[str, Any] | None = next((one for one in reads if key and one["key"] == key), None)
        if known is None:
            since: int = reads[-1]["read"] if reads else 0
            known = {"read": len(messages), "since": since, "key": key}
            os.write(fd, json.dumps(known).encode() + b"\n")
    finally:
        os.close(fd)
    return [{"from": one["from"], "text": one["text"]} for one in messages[known["since"] : known["read"]]]


PLUGIN = Mailboxes
