"""The tool server named ``swarm``: messages between the agents of a run, and delegation. The topology decides who may
write to whom.

Messages are stored with their run, so agents of workers on several machines reach each other if the workers share a
store. Each message is delivered once: ``read_messages`` returns those that arrived since the previous call, and a
repeated call with the same key returns the same ones.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from ccswarm.clients.base import OnProgress
from ccswarm.errors import InvalidArguments, MessageForbidden, UnknownTool
from ccswarm.models import Json, ServerAnswer, ToolInfo
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


class MessageStore(Protocol):
    """A store of messages with their runs: an ``Engine``."""

    async def send(self, execution_id: str, topic: str, message: Json, *, key: str = "") -> bool:
        """Store a message, and return True; with ``key`` only the first one, and False for others."""
        ...

    async def messages(self, execution_id: str, topic: str) -> Mapping[str, Json]:
        """Return the messages of ``topic`` by their ids."""
        ...


class Mailboxes:
    """The ToolClient for the agents of ``team``, who can also use ``servers``. A call of ``delegate`` is only checked
    here; the agent loop of the caller starts the tasks."""

    name = OWN_SERVER
    problem = about = ""
    notes: Sequence[str] = ()

    def __init__(self, store: MessageStore, team: Team, servers: Sequence[str] = ()) -> None:
        self._store = store
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
        """Answer one call of the agent and run in ``meta``. Raises InvalidArguments without them, and UnknownTool."""
        agent, run = str(meta.get(AGENT, "")), str(meta.get(RUN, ""))
        if not agent or not run:
            raise InvalidArguments("messages are only possible within a run", suggestion="use it in a task of a plan")
        if name == "list_agents":
            return _answer({"agents": [self._describe(name) for name in self._team.links.reachable(agent)]})
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
            message = {"from": agent, "text": arguments["text"], "at": time.time()}
            await self._store.send(run, _sent_to(arguments["to"]), message, key=key)
            return _answer({"to": arguments["to"], "sent": True})
        if name == "read_messages":
            return _answer({"messages": await self._read(run, agent, key)})
        raise UnknownTool(f"there is no tool {OWN_SERVER}.{name}")

    async def close(self) -> None:
        """Do nothing: there is no connection."""

    def _describe(self, name: str) -> dict[str, Any]:
        agent = self._team.agents[name]
        return {"name": name, "type": agent.type, "capabilities": list(agent.capabilities)}

    async def _read(self, run: str, agent: str, key: str) -> list[dict[str, Any]]:
        """Return the messages that no earlier call has returned, or those that the call with this key returned. Each
        call records what it reads under its number: of two concurrent ones, the later one reads again."""
        while True:
            reads = await self._store.messages(run, _read_by(agent))
            sent = await self._store.messages(run, _sent_to(agent))
            mine = next((read["ids"] for read in reads.values() if key and read["key"] == key), None)
            if mine is None:
                known = {one for read in reads.values() for one in read["ids"]}
                mine = [one for one in sent if one not in known]
                record = {"key": key, "ids": mine}
                if (key or mine) and not await self._store.send(run, _read_by(agent), record, key=str(len(reads))):
                    continue
            found = sorted((sent[one] for one in mine), key=lambda message: message["at"])
            return [{"from": message["from"], "text": message["text"]} for message in found]


def _sent_to(agent: str) -> str:
    return f"messages to {agent}"


def _read_by(agent: str) -> str:
    return f"messages read by {agent}"


def _answer(facts: dict[str, Any]) -> ServerAnswer:
    return ServerAnswer(json.dumps(facts, ensure_ascii=False), facts)
