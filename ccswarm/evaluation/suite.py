"""What a suite says, a TOML file: cases, each a repository, a task in words and the gates that decide; who is tried."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from ccswarm.config import config, parsing
from ccswarm.config.settings import AgentSettings, Name, PlanStep, Section

GUIDE = "ai-session docs evaluation describes the format of a suite"
TERMINAL = "terminal"
RECORDED = "recorded:"
"""The model of brain llm that answers what ``replies`` say."""

Done = Annotated[
    Annotated[str, Tag("command")] | Annotated[PlanStep, Tag("step")],
    Discriminator(lambda one: "command" if isinstance(one, str) else "step"),
]
"""A command in the case's terminal, or a step as playbooks have them."""


class ReplyCall(Section):
    """A tool that a recorded model asks for."""

    tool: str = Field(description="SERVER.TOOL, or finish.")
    arguments: dict[str, Any] = Field(
        default={}, description="The tool's arguments; $1.FIELD refers to the first answer."
    )


class Reply(Section):
    """What a recorded model says once."""

    text: str = Field(default="", description="In words.")
    calls: tuple[ReplyCall, ...] = Field(default=(), description="The tools it calls.")
    input_tokens: int = Field(default=0, ge=0, description="Input tokens to count.")
    output_tokens: int = Field(default=0, ge=0, description="Output tokens to count.")


class Case(Section):
    """A repository, a task, and what must hold afterwards."""

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
    """What the suite is called."""

    name: Name = Field(description="Name of the suite in reports.")
    description: str = Field(default="", description="Description of the suite.")


class Suite(Section):
    """The whole file."""

    suite: SuiteFacts
    cases: tuple[Case, ...] = Field(description="The cases, in order.")


@dataclass(frozen=True, slots=True)
class Entrant:
    """Who is tried: ``agent`` with those it may work with; or, to prove gates, nobody at all (``nothing``) or what a
    case calls ``wrong``. ``expected`` is whether the gates are to hold afterwards."""

    name: str
    agent: AgentSettings
    others: tuple[AgentSettings, ...] = ()
    does: Literal["work", "nothing", "wrong"] = "work"
    expected: bool = True

    @property
    def model(self) -> str:
        """What thinks for it, where its settings say so."""
        return str(self.agent.settings.get("model") or self.agent.settings.get("program") or "")

    def cannot(self, case: Case) -> str:
        """Why there is nothing it could do for that case; ``""`` where there is."""
        if self.does == "wrong":
            return "" if case.wrong else "the case has no wrong solution"
        if self.does == "work" and self.agent.brain == "playbook":
            return "" if case.steps else "the case has no steps"
        if self.model.startswith(RECORDED):
            return "" if case.replies else "the case has no replies"
        return ""

    def agent_for(self, case: Case) -> AgentSettings:
        """Its agent, with the replies of the case where it answers recorded ones."""
        if not self.model.startswith(RECORDED):
            return self.agent
        replies = [reply.model_dump(mode="json") for reply in case.replies]
        return self.agent.model_copy(update={"settings": {**self.agent.settings, "replies": replies}})

    def steps_for(self, case: Case, shell: str) -> tuple[PlanStep, ...]:
        """The playbook it follows; none where it thinks, or does nothing."""
        if self.does == "wrong":
            return playbook(case.wrong, shell)
        return playbook(case.steps, shell) if self.does == "work" and self.agent.brain == "playbook" else ()


def load(path: Path, confirm: config.Confirm | None = None, *, shipped: bool = False) -> Suite:
    """The suite in that file, which a person has to have used as it is, unless it is ``shipped`` with ccswarm: its
    commands make repositories outside of any box. Raises ConfigInvalid, naming every problem, and ConfigChanged."""

    def problems(suite: Suite) -> Iterator[str]:
        return _problems(suite, path.parent)

    if shipped:
        return parsing.parse_as(Suite, config.text_of(path), str(path), GUIDE, problems)
    return config.load_as(Suite, path, GUIDE, problems, confirm=confirm)


def playbook(done: Sequence[str | PlanStep], shell: str) -> tuple[PlanStep, ...]:
    """As steps: a terminal is opened first, ``${steps.terminal.session_id}``, and closed last. Commands are a shell's
    own text, in which ``${`` is no reference."""
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
