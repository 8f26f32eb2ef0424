"""The brain that a command-line program is: claude, codex, gemini or any other that speaks MCP.

The program runs in a terminal where a person may watch, with its agent's tools as its only MCP server. Its requests
become the task's calls, granted, approved, counted and recorded as any others; it has no other tools. If the worker is
killed, the program keeps running and the next worker continues with it. A killed program is restarted with its session.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ccswarm.brains.base import Assignment, CallTool, Finish, Step, Think, Thinking, WorkerContext
from ccswarm.brains.cli import diagnosis as diagnosis
from ccswarm.brains.cli import programs, prompts
from ccswarm.brains.cli.events import EventReader
from ccswarm.brains.cli.settings import CliSettings, settings_of
from ccswarm.bridge.bridge import ANSWER_SECONDS, BridgeDirectory, ToolBridge, bridge_directory
from ccswarm.bridge.requests import Requests
from ccswarm.config.settings import AgentSettings
from ccswarm.engines.base import Flow
from ccswarm.errors import PlanInvalid, WorkRefused
from ccswarm.models import CallOutcome, CallStatus, Json
from ccswarm.system.confined_files import write_files

VARIABLE = "CCSWARM_GUEST"
PASSED_ON = ("PYTHONPATH",)
COME_SECONDS = 60.0
"""The time for a program to start, or for its keeper to connect to a new worker."""

PATIENT_SECONDS = 1500.0
"""The answer limit for the known programs, which are configured to wait longer: asking again costs a model request."""

LINGER_SECONDS = 30.0
"""The time for a program that has called ``finish`` to end by itself and report its usage."""

RUN_SECONDS = 45.0
FORGOTTEN_SECONDS = 30 * 86400.0
MARK_CHARS = 16
SIGNALLED = (129, 137, 143)
"""The exit codes of programs that handle a signal, as shells do."""


class Program:
    """One round of a task. Implements ``SupportsMessages``, ``Thinking``, ``SupportsClose`` and ``SupportsSettled``.
    Its decisions depend on recorded outcomes only; live state is used to produce these."""

    def __init__(
        self,
        assignment: Assignment,
        worker_context: WorkerContext,
        settings: CliSettings,
        before: Program | None = None,
    ) -> None:
        self._assignment = assignment
        self._worker_context = worker_context
        self._settings = settings
        round_number = int(assignment.settings.get("round", 1))
        self._prefix = f"v{round_number}." if round_number > 1 else ""
        self._last_round = round_number >= int(assignment.task.get("rounds", 1))
        self._started = 0
        self._restarts = 0
        self._reminded = self._resumed = False
        self._run: Mapping[str, Any] = {}
        self._open = ""
        self._events = EventReader()
        self._said = self._tokens = 0
        self.totals: Mapping[str, float] = before.totals if before else {}
        self._ended: Mapping[str, Any] | None = None
        self._bridge_directory: BridgeDirectory | None = None
        self._bridge: ToolBridge | None = None
        self._requests: Requests | None = None
        self._words: list[str] = []
        """All messages of people."""
        self.session = before.session if before else ""

    def hear(self, by: str, text: str) -> None:
        """Deliver the message with the next answer to the program, or when it is restarted."""
        words = prompts.SAID.format(mark=self._mark(), by=by, text=text)
        self._words.append(words)
        if self._requests:
            self._requests.add_message(words)

    def _mark(self) -> str:
        """Return the mark before people's messages, which only the program knows."""
        assert self._bridge_directory
        return f"[person {self._bridge_directory.token('person').rpartition('.')[2][:MARK_CHARS]}]"

    async def decide(self, flow: Flow, ended: Mapping[str, CallOutcome]) -> Sequence[Step]:
        if self._requests is None or self._bridge is None:
            return await self._begin(flow)
        before = self._requests.finished
        calls, request = self._requests.handle(ended)
        steps: list[Step] = [CallTool(*call) for call in calls]
        if request is not None:
            await self._record_progress(flow, request)
            steps.append(self._ask(self._requests))
            if self._requests.finished and not before:
                steps.append(Think(f"{self._prefix}linger", self._linger))
        if self._requests.broken:
            return [Finish("failed", self._requests.broken)]
        for kind, follow in (
            ("opened", self._opened_ended),
            ("run", self._run_ended),
            ("program", self._program_ended),
            ("closed", self._closed_ended),
        ):
            if (outcome := ended.get(self._name(kind))) is not None:
                steps += await follow(flow, outcome)
        if (late := ended.get(f"{self._prefix}linger")) and (late.structured or {}).get("late"):
            return [self._finish()]
        finish = next((step for step in steps if isinstance(step, Finish)), None)
        return [finish] if finish else steps

    async def over(self) -> Sequence[CallTool]:
        """End the program and close its terminal."""
        if self._bridge and self._bridge_directory:
            await self._bridge.close(over=True)
            await asyncio.to_thread(_tidy, self._bridge_directory.directory, self._last_round)
        return [self._close()] if self._open else ()

    async def settled(self) -> None:
        """Remove what another round would need."""
        if self._bridge_directory:
            await asyncio.to_thread(_tidy, self._bridge_directory.directory, True)

    async def _begin(self, flow: Flow) -> list[Step]:
        self._bridge_directory = bridge_directory(self._worker_context.state_directory, flow.id)
        seconds = ANSWER_SECONDS if self._settings.command else PATIENT_SECONDS
        self._bridge = ToolBridge(
            self._bridge_directory, self._assignment.agent, self._assignment.tools, answer_seconds=seconds
        )
        self._requests = Requests(self._bridge, self._prefix, lambda: self._events.take_new())
        self._requests.expect_request()
        prompt = prompts.FEEDBACK.format(feedback=self._assignment.feedback) if self.session else self._full_prompt()
        await self._bridge.open(self._start_name(1))
        return [*await self._start(flow, prompt), self._ask(self._requests)]

    def _ask(self, requests: Requests) -> Think:
        return Think(requests.waiting, requests.wait)

    def _name(self, kind: str) -> str:
        return f"{self._prefix}{kind} {self._started}"

    def _start_name(self, number: int) -> str:
        return f"{self._prefix}{number}"

    async def _start(self, flow: Flow, prompt: str) -> list[Step]:
        """Start the program in a terminal; in a replay, continue with the running one."""
        assert self._bridge_directory
        assert self._bridge
        self._started += 1
        if self._requests and self._started > 1:  # a killed program may have received none of them
            self._requests.pop_messages()
            prompt = "\n\n".join((prompt, *self._words))
        self._resumed = bool(self.session)
        before: Mapping[str, float] = self.totals if self.session else {}
        self._events = EventReader(before)
        self._said = 0
        self._tokens = 0
        self._run = {}
        start = self._start_name(self._started)
        variables = {VARIABLE: self._bridge_directory.guest(start)}
        variables |= {
            name: self._worker_context.variables[name] for name in PASSED_ON if self._worker_context.variables.get(name)
        }
        directory = self._bridge_directory.directory
        words = [sys.executable, "-P", "-m", "ccswarm", "mcp-server", "--agent", self._assignment.agent, "--stdio"]
        launch = programs.make_launch(
            programs.StartOptions(self._settings, str(directory), words, list(variables), self.session)
        )
        session = self.session
        repairs = self._settings.program == "gemini" and bool(self.session)

        def ready() -> None:
            # Not called for a program that is already running.
            write_files(directory, {programs.PROMPT: prompt, **launch.files}, 0o600)
            if repairs:
                with contextlib.suppress(WorkRefused, ValueError, AttributeError, OSError):
                    programs.repair_gemini(directory, session)  # the program may have written anything there

        facts = {
            "command": list(launch.command),
            "environment": {**launch.environment, **self._own_variables()},
            "directory": str(directory),
            "input": str(directory / programs.PROMPT),
            "prepare": launch.prepare,
        }
        self._bridge.launch(start, facts, self._on_line, ready)
        self._open = f"{self._assignment.agent}-" + hashlib.sha256(f"{flow.id}\0{start}".encode()).hexdigest()[:12]
        arguments = {"name": self._open, "working_directory": str(directory), "env": variables}
        return [CallTool(self._name("opened"), f"{self._assignment.shell}.create_session", arguments, as_host=True)]

    def _on_line(self, line: str) -> None:
        self._events.read_line(line)
        if self._events.toolless and self._bridge and not self._events.error:
            self._events.error = "it started without its tools: its MCP server failed"
            self._bridge.dismiss()

    def _own_variables(self) -> dict[str, str]:
        environment = self._settings.environment
        return {
            name: self._worker_context.secret(value[1:]) if value[:1] == "$" else value
            for name, value in environment.items()
        }

    def _close(self) -> CallTool:
        arguments = {"session_id": self._open}
        return CallTool(self._name("closed"), f"{self._assignment.shell}.close_session", arguments, as_host=True)

    async def _record_progress(self, flow: Flow, facts: Mapping[str, Any]) -> None:
        """Emit what the program said, and record its usage, since its last request."""
        self.session = facts.get("session") or self.session
        said = facts.get("said") or ()
        self.totals = facts.get("totals") or self.totals
        self._said += len(said)
        usage: Mapping[str, Any] = facts.get("usage") or {}
        self._tokens += int(usage.get("tokens") or 0)
        self._events.skip(self._said, self._tokens)
        for text in said:
            await _emit(flow, "agent.said", text=text)

    async def _opened_ended(self, flow: Flow, outcome: CallOutcome) -> list[Step]:
        if not outcome.ok:
            self._open = ""
            return [Finish("failed", diagnosis.explain_terminal(self._settings.program, outcome))]
        facts = {"program": self._settings.program, "server": self._assignment.shell, "session": self._open}
        await _emit(flow, "program.started", **facts, resumed=bool(self.session))
        command = shlex.join([sys.executable, "-P", "-m", "ccswarm", "guest-program"])
        arguments = {"session_id": self._open, "command": command, "timeout_seconds": RUN_SECONDS}
        tool = f"{self._assignment.shell}.execute_command"
        return [
            CallTool(self._name("run"), tool, arguments, as_host=True),
            Think(self._name("program"), self._wait_for_end),
        ]

    async def _run_ended(self, flow: Flow, outcome: CallOutcome) -> list[Step]:
        """Record the result of the terminal's command. If it has ended, the program will not connect any more."""
        del flow
        found = outcome.structured or {}
        self._run = {"exit_code": found.get("exit_code"), "text": found.get("output") or outcome.message}
        known = outcome.status not in (CallStatus.LOST, CallStatus.TIMEOUT, CallStatus.CANCELLED)
        if self._bridge and known and found.get("status") != "running":
            self._bridge.abandon_program()
        return []

    async def _program_ended(self, flow: Flow, outcome: CallOutcome) -> list[Step]:
        assert self._bridge
        assert self._requests
        self._bridge.dismiss()
        if not outcome.ok:
            return [Finish("failed", f"{self._settings.program}: {outcome.message}")]
        facts = self._ended = outcome.structured or {}
        await self._record_progress(flow, facts)
        shown = {name: facts[name] for name in ("exit", "failed", "gone") if name in facts}
        await _emit(flow, "program.ended", program=self._settings.program, session=self.session, **shown)
        if self._requests.finished:
            return [self._finish()]
        if _killed(facts):
            if facts.get("gone") == "never came" and (self._run.get("exit_code") is not None or not self.session):
                return [Finish("failed", diagnosis.explain_missing(self._settings.program, self._run))]
            return self._restart(self._restarts >= self._settings.restarts)
        if why := diagnosis.explain_end(self._settings.program, facts):
            if not (self._resumed and diagnosis.FORGOTTEN in why):
                return [Finish("failed", why)]
            self.session = ""
            self._ended = {"gone": "forgot"}
            return self._restart(self._restarts >= self._settings.restarts)
        if not self._reminded and self.session and programs.resumable(self._settings):
            self._reminded = True
            return [self._close()]
        return [Finish("failed", self._unfinished(facts), facts.get("result"))]

    def _restart(self, enough: bool) -> list[Step]:
        self._restarts += 1
        if enough:
            return [Finish("failed", f"{self._settings.program} was killed {self._restarts} times")]
        return [self._close()]

    async def _closed_ended(self, flow: Flow, outcome: CallOutcome) -> list[Step]:
        del outcome
        assert self._requests
        if self._ended and not _killed(self._ended):
            return await self._start(flow, prompts.REMIND)
        if not (self.session and programs.resumable(self._settings)):
            self.session = ""
            return await self._start(flow, f"{self._full_prompt()}\n\n{prompts.again(self._requests.open_calls())}")
        return await self._start(flow, prompts.again(self._requests.open_calls()))

    def _full_prompt(self) -> str:
        return prompts.begin(self._assignment, self._mark())

    def _unfinished(self, facts: Mapping[str, Any]) -> str:
        said = str(facts.get("result") or facts.get("stray") or "").strip()
        return f"{self._settings.program} ended without calling finish{f': {said}' if said else ''}"

    def _finish(self) -> Finish:
        assert self._requests
        finished = self._requests.finished
        assert finished
        return Finish(finished["status"], finished["summary"], finished["result"])

    async def _linger(self, _: str) -> Mapping[str, Json]:
        assert self._bridge
        return {"late": await self._bridge.still_running(LINGER_SECONDS)}

    async def _wait_for_end(self, _: str) -> Mapping[str, Json]:
        assert self._bridge
        ended = await self._bridge.program(COME_SECONDS)
        return {**ended, **self._events.facts()}


def _killed(facts: Mapping[str, Any]) -> bool:
    """Report whether it ended with its keeper, or by a signal without a reason of its own."""
    code = facts.get("exit") or 0
    return bool(facts.get("gone")) or ((code < 0 or code in SIGNALLED) and not facts.get("error"))


def _tidy(directory: Path, done: bool) -> None:
    """Remove the program's files, and those of tasks that were cancelled long ago."""
    if done:
        shutil.rmtree(directory, ignore_errors=True)
    for other in directory.parent.iterdir():
        with contextlib.suppress(OSError):
            if other.stat().st_mtime < time.time() - FORGOTTEN_SECONDS:
                shutil.rmtree(other, ignore_errors=True)


async def _emit(flow: Flow, event: str, **facts: Any) -> None:
    await flow.emit({"event": event, "at": round(time.time(), 3), **facts})


class CliBrain:
    """The brain that needs a program, and a terminal server to run it in. Implements ``Brain``."""

    name = "cli"
    wants_tools = True
    hears = True
    rounds = 3

    def problems(self, agent: AgentSettings, secret: Callable[[str], str], *, priced: bool) -> Sequence[str]:
        """Return the problems. Whether the program is logged in is only known when it runs."""
        try:
            settings = _require_known(settings_of(agent.settings, agent.name), agent.name)
        except PlanInvalid as error:
            return [f"{error.message.removeprefix(f'agent {agent.name}: ')}; {error.suggestion}"]
        found: list[str] = []
        program = settings.command[0] if settings.command else settings.program
        if not shutil.which(program):
            found.append(f"{program} is not installed: {programs.INSTALL.get(settings.program, 'not on PATH')}")
        wanted = [value[1:] for value in settings.environment.values() if value[:1] == "$"]
        found += [f"settings.environment: no variable or secret {name}" for name in wanted if not secret(name)]
        if priced and settings.program != "claude":
            found.append(f"{settings.program} does not report its cost: a budget in dollars cannot be enforced")
        return found

    def begin(self, assignment: Assignment, worker_context: WorkerContext, before: Thinking | None = None) -> Program:
        """Begin a task. A second round resumes the session of the first."""
        settings = _require_known(settings_of(assignment.settings, assignment.agent), assignment.agent)
        known = before if isinstance(before, Program) and programs.resumable(settings) else None
        return Program(assignment, worker_context, settings, known)


def _require_known(settings: CliSettings, agent: str) -> CliSettings:
    if not settings.command and settings.program not in programs.KNOWN:
        raise PlanInvalid(
            f"agent {agent}: {settings.program} is not one of {', '.join(programs.KNOWN)}",
            suggestion="set settings.command to how it is started",
        )
    return settings


PLUGIN = CliBrain()
