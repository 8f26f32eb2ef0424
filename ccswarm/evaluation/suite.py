"""A suite, read from a TOML file: entrants, and cases: each a repository, a task in words, and its gates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag

from ccswarm.config import config, parsing
from ccswarm.config.settings import AgentSettings, JsonTable, Name, PlanStep, Section

GUIDE = "ai-session docs evaluation describes the format of a suite"
TERMINAL = "terminal"
RECORDED = "recorded:"
"""The prefix of the models of brain llm that answer with ``replies``."""

Done = Annotated[
    Annotated[str, Tag("command")] | Annotated[PlanStep, Tag("step")],
    Discriminator(lambda one: "command" if isinstance(one, str) else "step"),
]
"""A command in the case's terminal, or a step of a playbook."""


class ReplyCall(Section):
    """A tool call of a recorded model."""

    tool: str = Field(description="SERVER.TOOL, or finish.")
    arguments: JsonTable = Field(default={}, description="The tool's arguments; $1.FIELD refers to the first answer.")


class Reply(Section):
    """One answer of a recorded model."""

    text: str = Field(default="", description="The answer, in words.")
    calls: tuple[ReplyCall, ...] = Field(default=(), description="The tools it calls.")
    input_tokens: int = Field(default=0, ge=0, description="Input tokens to count.")
    output_tokens: int = Field(default=0, ge=0, description="Output tokens to count.")


class Case(Section):
    """A repository, a task, and the gates that must pass afterwards."""

    id: Name = Field(description="ID, unique in the suite.")
    text: str = Field(description="The task as given to agents.")
    files: dict[str, str] = Field(default={}, description="Files of the initial commit: content by path.")
    fixture: str = Field(default="", description="Directory next to the suite, copied before the files are written.")
    setup: tuple[str, ...] = Field(default=(), description="Commands run after that commit, outside any box.")
    gates: tuple[str, ...] = Field(description="Commands that all must exit with 0.")
    gate_files: dict[str, str] = Field(default={}, description="Files for the gates, written when the agent is done.")
    steps: tuple[Done, ...] = Field(default=(), description="A solution: the steps for the brain playbook.")
    wrong: tuple[Done, ...] = Field(default=(), description="A wrong solution, which the gates must refuse.")
    replies: tuple[Reply, ...] = Field(default=(), description="A solution by a recorded model, for the brain llm.")
    timeout_seconds: float = Field(default=300, gt=0, description="Time limit for the agent.")
    gate_seconds: float = Field(default=60, gt=0, description="Time limit for one gate.")
    tags: tuple[str, ...] = Field(default=(), description="Topic of the case.")


class SuiteFacts(Section):
    """The name and description of a suite."""

    name: Name = Field(description="Name of the suite in reports.")
    description: str = Field(default="", description="Description of the suite.")


class Suite(Section):
    """A suite file."""

    suite: SuiteFacts
    cases: tuple[Case, ...] = Field(description="The cases, in order.")


@dataclass(frozen=True, slots=True)
class Entrant:
    """An entrant: ``agent`` with the agents it may work with; or, to prove the gates, an agent that does ``nothing``,
    or a case's ``wrong`` solution. ``expected`` says whether the gates should pass afterwards."""

    name: str
    agent: AgentSettings
    others: tuple[AgentSettings, ...] = ()
    does: Literal["work", "nothing", "wrong"] = "work"
    expected: bool = True

    @property
    def model(self) -> str:
        """The model or program that thinks for it, if its settings name one."""
        return str(self.agent.settings.get("model") or self.agent.settings.get("program") or "")

    def cannot(self, case: Case) -> str:
        """Return why it cannot try that case; ``""`` if it can."""
        if self.does == "wrong":
            return "" if case.wrong else "the case has no wrong solution"
        if self.does == "work" and self.agent.brain == "playbook":
            return "" if case.steps else "the case has no steps"
        if self.model.startswith(RECORDED):
            return "" if case.replies else "the case has no replies"
        return ""

    def agent_for(self, case: Case) -> AgentSettings:
        """Return its agent, which has the case's replies if its model is a recorded one."""
        if not self.model.startswith(RECORDED):
            return self.agent
        replies = [reply.model_dump(mode="json") for reply in case.replies]
        return self.agent.model_copy(update={"settings": {**self.agent.settings, "replies": replies}})

    def steps_for(self, case: Case, shell: str) -> tuple[PlanStep, ...]:
        """Return the playbook it follows; empty if a model thinks for it, or it does nothing."""
        if self.does == "wrong":
            return playbook(case.wrong, shell)
        return playbook(case.steps, shell) if self.does == "work" and self.agent.brain == "playbook" else ()


def load(path: Path, confirm: config.Confirm | None = None, *, shipped: bool = False) -> Suite:
    """Return the suite in that file. Raises ConfigInvalid, naming every problem, and ConfigChanged. A person must have
    used the file as it is, unless it is ``shipped`` with ccswarm: its commands run outside any box."""
    problems = partial(_problems, directory=path.parent)
    if shipped:
        return parsing.parse_as(Suite, config.text_of(path), str(path), GUIDE, problems)
    return config.load_as(Suite, path, GUIDE, problems, confirm=confirm)


def playbook(done: Sequence[str | PlanStep], shell: str) -> tuple[PlanStep, ...]:
    """Return commands and steps as a playbook, which opens a terminal first, ``${steps.terminal.session_id}``, and
    closes it last. ``${`` in a command is text for the shell, and not a reference."""
    if not done:
        return ()
    session = {"session_id": f"${{steps.{TERMINAL}.session_id}}"}
    opened = PlanStep(
        id=TERMINAL,
        tool=f"{shell}.create_session",
        args={"name": "${run.id}", "working_directory": "${workspace}"},
        gate=True,
    )
    closed = PlanStep(id=f"{TERMINAL}-closed", tool=f"{shell}.close_session", args=session)
    steps: list[PlanStep] = []
    for number, one in enumerate(done, 1):
        if isinstance(one, str):
            given = {**session, "command": one.replace("${", "$${"), "timeout_seconds": 45}
            steps.append(PlanStep(id=f"command-{number}", tool=f"{shell}.execute_command", args=given))
        else:
            steps.append(one)
    return (opened, *steps, closed)


def _problems(suite: Suite, directory: Path) -> Iterator[str]:
    if not suite.cases:
        yield "[cases] there are none"
    for name, count in Counter(case.id for case in suite.cases).items():
        if count > 1:
            yield f"[cases] id {name} occurs {count} times"
    for case in suite.cases:
        if not case.gates:
            yield f"[cases.{case.id}] gates: at least one is required"
        for key, files in (("files", case.files), ("gate_files", case.gate_files)):
            for name in files:
                parts = PurePosixPath(name).parts
                if not parts or parts[0] in ("/", ".git") or ".." in parts or "\0" in name:
                    yield f"[cases.{case.id}.{key}] {name!r} is not a path within the repository"
        if case.fixture and not (directory / case.fixture).is_dir():
            yield f"[cases.{case.id}] fixture: {directory / case.fixture} is not a directory"
