"""Checks by the orchestrator after an agent's work: a command whose exit code decides, or any tool's answer."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ccswarm.agent import ORCHESTRATOR, Work, call_once
from ccswarm.brains.base import CallTool
from ccswarm.engines.base import Flow
from ccswarm.expectations import unmet
from ccswarm.models import CallOutcome
from ccswarm.settings import AgentSettings, Expect, Gate

WAIT_SECONDS = 45.0
"""One call's; servers and clients give up on longer ones."""

SHOWN_CHARS = 2000


def orchestrator(shell: str, gates: Sequence[Gate], *more: str) -> AgentSettings:
    """The agent that gates are run by: the tools of the shell server and of ``more``, and those that gates name."""
    servers = dict.fromkeys(f"{name}.*" for name in (shell, *more))
    return AgentSettings(name=ORCHESTRATOR, type=ORCHESTRATOR, grants=(*servers, *(g.tool for g in gates if g.tool)))


class Gates:
    """The gates of one task. ``directory`` is where its commands run."""

    def __init__(self, flow: Flow, work: Work, shell: str, directory: str, visit: int) -> None:
        self._flow = flow
        self._work = work
        self._shell = shell
        self._directory = directory
        self._visit = visit

    async def check(self, gates: Sequence[Gate]) -> str:
        """``""`` when all hold, else what the first that does not said."""
        for number, gate in enumerate(gates):
            name = f"gate{self._visit}.{number}"
            if gate.tool:
                outcome = await self._call(f"{name}", gate.tool, gate.args, gate.timeout_seconds)
                problem = unmet(gate.expect, outcome)
                what = gate.tool
            else:
                problem = await self._command(name, gate)
                what = shlex.quote(gate.command) if "\n" in gate.command else gate.command
            if problem:
                return f"gate `{what}`: {problem}"
        return ""

    async def _command(self, name: str, gate: Gate) -> str:
        seed = f"{self._flow.id}\0{name}"
        session = "gate-" + hashlib.sha256(seed.encode()).hexdigest()[:12]
        given = {"name": session} | ({"working_directory": self._directory} if self._directory else {})
        made = await self._call(f"{name}.open", f"{self._shell}.create_session", given)
        if not made.ok:
            return _words(made)
        try:
            return await self._run(name, session, gate)
        finally:
            await self._call(f"{name}.close", f"{self._shell}.close_session", {"session_id": session})

    async def _run(self, name: str, session: str, gate: Gate) -> str:
        left = gate.timeout_seconds
        given = {"session_id": session, "command": gate.command, "timeout_seconds": min(left, WAIT_SECONDS)}
        outcome = await self._call(f"{name}.run", f"{self._shell}.execute_command", given)
        turn = 0
        while outcome.ok and (outcome.structured or {}).get("status") == "running":
            left -= outcome.duration_seconds
            if left <= 0:
                return f"not done within {gate.timeout_seconds:g} s"
            turn += 1
            given = {"session_id": session, "wait_for": "finish", "timeout_seconds": min(left, WAIT_SECONDS)}
            outcome = await self._call(f"{name}.wait{turn}", f"{self._shell}.read_output", given)
        problem = unmet(Expect(exit_code=0), replace(outcome, text=""))
        return f"{problem}\n{outcome.text[-SHOWN_CHARS:]}" if problem else ""

    async def _call(self, name: str, tool: str, given: Mapping[str, Any], seconds: float | None = None) -> CallOutcome:
        step = CallTool(name, tool, given, agent=ORCHESTRATOR, timeout_seconds=seconds)
        return await call_once(self._flow, self._work, step)


def _words(outcome: CallOutcome) -> str:
    return f"{outcome.code or outcome.status}: {outcome.message or outcome.text[:SHOWN_CHARS]}"
