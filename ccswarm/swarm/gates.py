"""Gates, the checks after an agent's work: a command whose exit code decides, or the answer of any tool. The
orchestrator runs the gates that the person wrote. All others act for an agent: each call is that agent's, under its
grants, approvals and budgets."""

from __future__ import annotations

import hashlib
import secrets
import shlex
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ccswarm.brains.base import CallTool, Finish, Step
from ccswarm.config.settings import AgentSettings, Expect, Gate
from ccswarm.engines.base import Flow
from ccswarm.models import CallOutcome, Json, Usage
from ccswarm.plan.expectations import unmet
from ccswarm.swarm.agent import ORCHESTRATOR, Agent, Ending, Work
from ccswarm.swarm.time_budgets import TimeBudgets

WAIT_SECONDS = 45.0
"""The limit of a single call; servers and clients give up on longer ones."""

LONGEST_SECONDS = 365 * 86400.0
"""The time limit of a gate's agent loop: each gate has a limit of its own, which excludes waits for people."""

SHOWN_CHARS = 2000

Calls = Generator[CallTool, CallOutcome, str]
"""Yields calls one after the other and is sent the outcome of each; returns what failed, or ``""``."""


def orchestrator(shell: str, gates: Sequence[Gate], *more: str) -> AgentSettings:
    """Return the agent that runs a person's gates, with the tools of the shell server, ``more`` and the gates."""
    servers = dict.fromkeys(f"{name}.*" for name in (shell, *more))
    return AgentSettings(name=ORCHESTRATOR, type=ORCHESTRATOR, grants=(*servers, *(g.tool for g in gates if g.tool)))


@dataclass(frozen=True, slots=True)
class Checked:
    """The result of gates: ``problem`` is the failure of the first gate that failed, or ``""``. If the gates could not
    be completed, ``ending`` says how the task ended: it was stopped, or a budget is used up."""

    problem: str = ""
    usage: Usage = field(default_factory=Usage)
    ending: Ending | None = None


class Gates:
    """The gates of one task. Commands run in ``directory`` and act for ``agent``, or, if that is ``""``, for the
    person; ``time`` limits all gates together."""

    def __init__(
        self, flow: Flow, work: Work, shell: str, directory: str, round_number: str, agent: str, time: TimeBudgets
    ) -> None:
        self._flow = flow
        self._work = replace(work, timeout_seconds=LONGEST_SECONDS)
        self._shell = shell
        self._directory = directory
        self._round = round_number
        self._agent = agent
        self._time = time

    async def check(self, gates: Sequence[Gate]) -> Checked:
        """Run the gates one after the other, until one fails."""
        usage = Usage()
        # The agent for which gates act could prepare a session with a name that it knows.
        secret = str(await self._flow.step(f"gates{self._round} secret", _draw)) if self._agent else ""
        for number, gate in enumerate(gates):
            check = self._check(f"gate{self._round}.{number}", gate, secret)
            ending = await Agent(self._flow, self._work).run(check, await self._time.left())
            usage += ending.usage
            if check.problem is None:
                return Checked(usage=usage, ending=ending)
            if check.problem:
                name = gate.tool or (shlex.quote(gate.command) if "\n" in gate.command else gate.command)
                return Checked(f"gate `{name}`: {check.problem}", usage)
        return Checked(usage=usage)

    def _check(self, name: str, gate: Gate, secret: str) -> _Check:
        afterwards: list[CallTool] = []
        calls = self._tool(name, gate) if gate.tool else self._command(name, gate, secret, afterwards)
        return _Check(calls, afterwards)

    def _tool(self, name: str, gate: Gate) -> Calls:
        assert not self._agent
        outcome = yield CallTool(name, gate.tool, gate.args, timeout_seconds=gate.timeout_seconds, as_host=True)
        return unmet(gate.expect, outcome)

    def _command(self, name: str, gate: Gate, secret: str, afterwards: list[CallTool]) -> Calls:
        seed = f"{self._flow.id}\0{name}\0{secret}"
        session = {"session_id": "gate-" + hashlib.sha256(seed.encode()).hexdigest()[:12]}
        where = {"working_directory": self._directory} if self._directory else {}
        question = self._call(f"{name}.run", "execute_command", {"command": gate.command, **where})

        def call(step: str, tool: str, **given: object) -> CallTool:
            return replace(self._call(f"{name}.{step}", tool, given), asked_as=question)

        afterwards.append(call("close", "close_session", **session))
        opened = yield call("open", "create_session", name=session["session_id"], **where)
        if not opened.ok:
            afterwards.clear()
            return _failure(opened)
        left = gate.timeout_seconds
        seconds = min(left, WAIT_SECONDS)
        outcome = yield call("run", "execute_command", **session, command=gate.command, timeout_seconds=seconds)
        turn = 0
        while outcome.ok and (outcome.structured or {}).get("status") == "running":
            left -= outcome.duration_seconds
            if left <= 0:
                return f"not done within {gate.timeout_seconds:g} s"
            turn += 1
            seconds = min(left, WAIT_SECONDS)
            waits = call(f"wait{turn}", "read_output", **session, wait_for="finish", timeout_seconds=seconds)
            outcome = yield replace(waits, repeatable=True)
        problem = unmet(Expect(exit_code=0), replace(outcome, text=""))
        return f"{problem}\n{outcome.text[-SHOWN_CHARS:]}" if problem else ""

    def _call(self, name: str, tool: str, given: Mapping[str, object]) -> CallTool:
        return CallTool(name, f"{self._shell}.{tool}", given, agent=self._agent, as_host=not self._agent)


class _Check:
    """A Thinking that makes ``calls``, then those of ``afterwards``, however the calls ended. ``problem`` is None until
    the calls have completed. Implements ``SupportsClose``."""

    def __init__(self, calls: Calls, afterwards: Sequence[CallTool]) -> None:
        self.problem: str | None = None
        self._calls = calls
        self._afterwards = afterwards
        self._begun = False

    async def decide(self, flow: Flow, ended: Mapping[str, CallOutcome]) -> Sequence[Step]:
        if self._begun and not ended:
            return []
        try:
            step = self._calls.send(*ended.values()) if self._begun else next(self._calls)
        except StopIteration as over:
            self.problem = over.value
            return [Finish("succeeded")]
        self._begun = True
        return [step]

    async def over(self) -> Sequence[CallTool]:
        self._calls.close()
        return self._afterwards


async def _draw(_: str) -> Json:
    return secrets.token_hex(16)


def _failure(outcome: CallOutcome) -> str:
    return f"{outcome.code or outcome.status}: {outcome.message or outcome.text[:SHOWN_CHARS]}"
