"""Plans with agents of models, and tools that go through a real toolbox to servers in memory."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ccswarm.brains.base import WorkerContext
from ccswarm.journal.writer import Journal, read, verify
from ccswarm.toolbox.mail import Mailboxes
from ccswarm.toolbox.toolbox import Toolbox
from tests.ccswarm.support.swarms import MemoryTaskWorker, MemoryWorker

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ccswarm.models import CallOutcome, CallRequest, ToolInfo
    from ccswarm.swarm.agent import Call
    from ccswarm.toolbox.scope import ToolScope
    from tests.ccswarm.support.doubles import MemoryClient
    from tests.ccswarm.support.engine_double import MemoryStore
    from tests.ccswarm.support.model_servers import ModelServer

KEY, SECRET = "MODEL_KEY", "sk-0123456789-secret"
SUFFIXES = {"openai": "/v1", "openai-responses": "/v1", "anthropic": "", "gemini": "/v1beta"}
"""The path in the address of each kind of model."""


def secret(name: str) -> str:
    return {KEY: SECRET}.get(name, "")


CONTEXT = WorkerContext(secret, {}, Path("/nowhere"))


def reply(*calls: tuple[str, Mapping[str, Any]], text: str = "", **tokens: int) -> dict[str, Any]:
    """Return a recorded reply."""
    made = [{"tool": tool, "arguments": dict(arguments)} for tool, arguments in calls]
    return {"text": text, "calls": made, **tokens}


def finish(status: str = "succeeded", summary: str = "Done.", **more: Any) -> tuple[str, dict[str, Any]]:
    return "finish", {"status": status, "summary": summary, **more}


def plan(settings: Mapping[str, Any], *, text: str = "Look around.", task: Any = None, **agent: Any) -> dict[str, Any]:
    """Return a plan with one task, ``t``, and its agent, ``ada``."""
    ada = {"name": "ada", "brain": "llm", "grants": ["*"], "settings": dict(settings), **agent}
    return {"agents": [ada], "tasks": [{"id": "t", "text": text, **(task or {})}]}


def recorded(*replies: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """Return the settings of an agent with recorded replies."""
    return {"replies": list(replies), **more}


def served(server: ModelServer, kind: str = "openai", **more: Any) -> dict[str, Any]:
    """Return the settings of an agent whose model is at a server."""
    return {"model": f"{kind}:big", "base_url": server.url + SUFFIXES[kind], "key": KEY, **more}


def llm_worker(store: MemoryStore | None = None, process: str = "one") -> MemoryWorker:
    """Return a worker with a key for models."""
    made = MemoryWorker(store, process)
    made.task_worker.worker_context = CONTEXT
    return made


async def task_events(made: MemoryWorker, event: str = "", task: str = "run_1.t") -> list[Mapping[str, Any]]:
    """Return the events of a task, or those of one kind."""
    events = [one async for one in made.engine.events(task, follow=False)]
    return [one for one in events if event in ("", one["event"])]


class ToolboxTaskWorker(MemoryTaskWorker):
    """Tools whose calls go through a toolbox, as in a worker."""

    def __init__(self, directory: Path, *clients: MemoryClient, process: str = "one") -> None:
        super().__init__(process)
        self.worker_context = CONTEXT
        self.journals = directory / "journal"
        self._journal = Journal(self.journals, process)
        self._directory = directory
        self._clients = {client.name: client for client in clients}

    def toolbox(self, scope: ToolScope) -> Toolbox:
        team = scope.team
        mail = {"swarm": Mailboxes(self.messages, team, list(self._clients))} if team else {}
        return Toolbox({**self._clients, **mail}, scope.agents, self._journal, process=self.claims.process)

    async def call(self, scope: ToolScope) -> Call:
        toolbox = self.toolbox(scope)

        async def send(request: CallRequest) -> CallOutcome:
            self.calls.append(request)
            return await toolbox.call(request, budget=None, approved=lambda one: bool(one.approval))

        return send

    async def tools(self, scope: ToolScope, agent: str) -> list[ToolInfo]:
        return list(await self.toolbox(scope).discover_tools(agent))

    def journalled(self) -> list[tuple[str, str, str, str]]:
        """Return event, agent, tool and status of each record of a call. The journal must be sound."""
        assert verify(self.journals).sound
        return [
            (one.event, str(one.facts["agent"]), str(one.facts["tool"]), str(one.facts.get("status", "")))
            for one in read(self.journals)
            if one.event.startswith("call.")
        ]
