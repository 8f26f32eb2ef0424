"""What calls return. Units are in the names; a value never changes after it was returned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ai_session.errors import CallerError


class CommandFailed(CallerError):
    """A command that was to succeed did not. ``result`` is what came of it."""

    code = "command_failed"

    def __init__(self, result: CommandResult) -> None:
        how = f"exit code {result.exit_code}" if result.status == "finished" else f"it is {result.status}"
        super().__init__(f"the command did not succeed: {how}", suggestion="look at result.output")
        self.result = result


class NotExpected(CallerError, TimeoutError):
    """What was expected was not printed: ``before`` is what was, ``ended`` whether the command is over."""

    code = "not_expected"

    def __init__(self, message: str, *, suggestion: str, before: str, ended: bool) -> None:
        super().__init__(message, suggestion=suggestion)
        self.before = before
        self.ended = ended


@dataclass(frozen=True, slots=True)
class CommandResult:
    """How a command stands. ``exit_code`` is the shell's own, None while it is not known.

    ``status`` is ``finished``, ``running`` (``timeout`` passed, or it waits for input: then ``input_mode`` is ``line``,
    ``password`` or ``raw``), ``interrupted`` or ``lost`` (it ended, and nobody could learn how). ``output`` is the text
    of what it printed, without control sequences; with ``truncated`` its oldest part is no longer kept. ``stderr`` is
    empty unless it was asked for apart. ``note`` says what else befell the command.
    """

    command_id: str
    status: str
    exit_code: int | None
    output: str
    duration_seconds: float | None = None
    cwd: str = ""
    stderr: str = ""
    input_mode: str = ""
    note: str = ""
    truncated: bool = False

    @property
    def ok(self) -> bool:
        """Whether it finished with exit code 0."""
        return self.status == "finished" and self.exit_code == 0

    def check(self) -> CommandResult:
        """Itself when ``ok``. Raises CommandFailed, which has this result."""
        if not self.ok:
            raise CommandFailed(self)
        return self


@dataclass(frozen=True, slots=True)
class Screen:
    """The visible lines, trailing blanks cut. The cursor is zero-based."""

    text: str
    rows: int
    cols: int
    cursor_row: int
    cursor_col: int
    title: str = ""

    @property
    def lines(self) -> list[str]:
        """``rows`` lines from the top."""
        found = self.text.split("\n")
        return found + [""] * (self.rows - len(found))


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """A session as it was when it was asked for. ``facts`` is all that is known, as `ai-session info --json`.

    ``state`` is ``starting``, ``ready``, ``running``, ``waiting_input``, ``stopped``, ``exited`` or ``lost``;
    ``sandbox`` is ``none`` or the profile with its level, such as ``workspace (bwrap, network off)``.
    """

    session_id: str
    name: str
    state: str
    shell: str
    backend: str
    working_directory: str
    sandbox: str
    facts: Mapping[str, Any]


def session_info(facts: Mapping[str, Any]) -> SessionInfo:
    """What a tool says of a session."""
    texts = {name: str(facts.get(name, "")) for name in SessionInfo.__slots__ if name != "facts"}
    return SessionInfo(**texts, facts=facts)


def screen(facts: Mapping[str, Any]) -> Screen:
    """What ``read_screen`` says."""
    numbers = {name: int(facts[name]) for name in ("rows", "cols", "cursor_row", "cursor_col")}
    return Screen(str(facts["screen"]), **numbers, title=str(facts.get("title", "")))
