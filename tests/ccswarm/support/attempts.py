"""Agents that work in clones of a real repository: an engine and tools in memory, files and git on disk."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.ccswarm.support.clones import ClonedProject
from tests.ccswarm.support.swarms import MemoryWorker

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ccswarm.models import CallRequest
    from tests.ccswarm.support.engine_double import MemoryStore


class Attempts(MemoryWorker):
    """A worker with a repository. ``srv.run`` and gates run commands in the caller's directory; ``sessions`` are those
    that ``list_sessions`` returns, ``closed`` those that were closed, in order."""

    def __init__(
        self, directory: Path, store: MemoryStore | None = None, repository: ClonedProject | None = None
    ) -> None:
        super().__init__(store)
        self.repository = repository or ClonedProject(directory)
        self.path = str(self.repository.repository)
        self.task_worker.places[self.path] = self.repository.workspaces
        self.sessions: list[dict[str, Any]] = []
        self.closed: list[str] = []
        self.tool("srv.run", self._run)
        self.tool("ai-session.create_session", session_id="s")
        self.tool("ai-session.execute_command", self._run)
        self.tool("ai-session.close_session", self._close)
        self.tool("ai-session.list_sessions", self._list)

    async def _run(self, request: CallRequest) -> Mapping[str, Any]:
        words = ("sh", "-c", request.arguments["command"])
        made = await asyncio.create_subprocess_exec(
            *words,
            cwd=self.task_worker.directories[-1],
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=self.repository.environ,
        )
        said, _ = await made.communicate()
        return {"exit_code": made.returncode, "status": "finished", "output": said.decode()}

    async def _list(self, _: CallRequest) -> Mapping[str, Any]:
        return {"sessions": [one for one in self.sessions if one["session_id"] not in self.closed]}

    async def _close(self, request: CallRequest) -> Mapping[str, Any]:
        self.closed.append(request.arguments["session_id"])
        return {"closed": True}

    @property
    def head(self) -> dict[str, str]:
        """The contents of the files of HEAD, by name."""
        names = self.repository.git("ls-tree", "-r", "--name-only", "HEAD").splitlines()
        return {name: self.repository.git("show", f"HEAD:{name}") for name in names}

    @property
    def refs(self) -> list[str]:
        return self.repository.git("for-each-ref", "--format=%(refname)", "refs/ccswarm").split()

    @property
    def trees(self) -> list[str]:
        """The existing clones."""
        there = (self.repository.directory / "clones").glob("run_*/*")
        return sorted(str(one.relative_to(self.repository.directory / "clones")) for one in there)


def holding(attempts: Attempts, number: int) -> asyncio.Event:
    """Let the call of that number never return. The event is set when the call is reached."""
    reached, never = asyncio.Event(), asyncio.Event()

    def held(act: Any) -> Any:
        async def counted(request: CallRequest) -> Any:
            if len(attempts.task_worker.calls) == number:
                reached.set()
                await never.wait()
            return await act(request)

        return counted

    attempts.task_worker.acts = {name: held(act) for name, act in attempts.task_worker.acts.items()}
    return reached


def task(name: str, command: str, agent: str = "ada", **more: Any) -> dict[str, Any]:
    """Return a task that runs a command, which must succeed."""
    step = {"id": "work", "tool": "srv.run", "args": {"command": command}, "expect": {"exit_code": 0}}
    return {"id": name, "agent": agent, "steps": [step], **more}


def swarm(*tasks: Mapping[str, Any], agents: Sequence[str] = ("ada", "bob"), **more: Any) -> dict[str, Any]:
    """Return a plan whose agents have clones of their own."""
    those = [{"name": name, "grants": ["*"], "workspace": "clone"} for name in agents]
    return {"agents": those, "tasks": list(tasks), **more}
