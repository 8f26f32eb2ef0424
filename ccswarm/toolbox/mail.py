"""What agents of a run have with each other, as a tool server named ``swarm``: messages, and work that is handed on.
The topology decides who may write to whom.

Kept in files of the state directory, so agents of workers on one machine reach each other. A message is delivered once:
``read_messages`` gives what came since the last time, and a call that is made again by the same key gives the same.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ccswarm.clients.base import OnProgress
from ccswarm.errors import InvalidArguments, MessageForbidden, UnknownTool
from ccswarm.models import ServerAnswer, ToolInfo
from ccswarm.plan.check import OWN_SERVER
from ccswarm.plan.delegation import MOST_TASKS, SCHEMA
from ccswarm.plan.team import Team

AGENT, RUN = "ai-session/agent", "ai-session/run"
MOST_CHARS = 20_000

_KEY = {"call_key": {"type": "string", "description": "Idempotency key."}}
TOOLS = (
    ToolInfo(
        OWN_SERVER,
        "list_agents",
        "List the agents this one may write and delegate to, with their types and capabilities.",
        {"type": "object", "properties": {}, "additionalProperties": False},
        read_only=True,
        destructive=False,
        idempotent=True,
        open_world=False,
    ),
    ToolInfo(
        OWN_SERVER,
        "read_messages",
        "Read what other agents of this run have written since the last time.",
        {"type": "object", "properties": _KEY, "additionalProperties": False},
        destructive=False,
        open_world=False,
    ),
    ToolInfo(
        OWN_SERVER,
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
    ToolInfo(
        OWN_SERVER,
        "delegate",
        "Have other agents do tasks, in parallel as far as their needs allow. Answers when all are over: status,"
        " summary and result of each.",
        {
            "type": "object",
            "properties": {"tasks": {"type": "array", "items": SCHEMA, "minItems": 1, "maxItems": MOST_TASKS}},
            "required": ["tasks"],
            "additionalProperties": False,
        },
        destructive=False,
        idempotent=True,
        open_world=False,
    ),
)


class Mailboxes:
    """A ToolClient for the agents of ``team``, who also have ``servers``. Work that may be handed on is only
    agreed to here: the caller's agent hands it on."""

    name = OWN_SERVER
    problem = about = ""
    notes: Sequence[str] = ()

    def __init__(self, directory: Path, team: Team, servers: Sequence[str] = ()) -> None:
        self._directory = directory
        self._team = team
        self._servers = servers

    async def list_tools(self, *, fresh: bool = False) -> Sequence[ToolInfo]:
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
        """The caller is who ``meta`` says, which the toolbox fills in."""
        agent, run = str(meta.get(AGENT, "")), str(meta.get(RUN, ""))
        if not agent or not run:
            raise InvalidArguments("messages are only possible within a run", suggestion="use it in a task of a plan")
        if name == "list_agents":
            return _answer({"agents": [self._shown(name) for name in self._team.links.reachable(agent)]})
        if name == "delegate":
            plan = self._team.check(agent, arguments["tasks"], self._servers)
            return _answer({"agreed": [task.id for task in plan.tasks]})
        key = str(arguments.get("call_key", ""))
        if name == "send_message":
            try:
                self._team.links.check(agent, arguments["to"])
            except MessageForbidden as error:
                facts = {"code": error.code, "message": error.message, "suggestion": error.suggestion}
                return ServerAnswer(f"error {error.code}: {error.message}", None, True, {"ai-session/error": facts})
            message = {"from": agent, "text": arguments["text"], "key": key}
            sent = await asyncio.to_thread(_deliver, self._box(run, arguments["to"]), message)
            return _answer({"to": arguments["to"], "sent": sent})
        if name == "read_messages":
            found = await asyncio.to_thread(_take, self._box(run, agent), key)
            return _answer({"messages": found})
        raise UnknownTool(f"there is no tool {OWN_SERVER}.{name}")

    async def close(self) -> None:
        """Does nothing: there is no connection."""

    def _shown(self, name: str) -> dict[str, Any]:
        agent = self._team.agents[name]
        return {"name": name, "type": agent.type, "capabilities": list(agent.capabilities)}

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
