"""Results of calls. Units are in the names; a value never changes after it was returned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ai_session.errors import CallerError


class CommandFailed(CallerError):
    """A command that should have succeeded did not. ``result`` is its result."""

    code = "command_failed"

    def __init__(self, result: CommandResult) -> None:
        how = f"exit code {result.exit_code}" if result.status == "finished" else f"it is {result.status}"
        super().__init__(f"the command did not succeed: {how}", suggestion="look at result.output")
        self.result = result


class NotExpected(CallerError, TimeoutError):
    """The expected output was not printed. ``before`` is the actual output; ``ended``: the command has ended."""

    code = "not_expected"

    def __init__(self, message: str, *, suggestion: str, before: str, ended: bool) -> None:
        super().__init__(message, suggestion=suggestion)
        self.before = before
        self.ended = ended


@dataclass(frozen=True, slots=True)
class CommandResult:
    """The state of a command. ``exit_code`` is the shell's, None while it is unknown.

    ``status`` is ``finished``, ``running`` (the timeout passed, or it waits for input: then ``input_mode`` is ``line``,
    ``password`` or ``raw``), ``interrupted`` or ``lost`` (it ended, and its exit code is unknown). ``output`` is its
    text without control sequences; with ``truncated`` the oldest part is no longer stored. ``stderr`` is empty unless
    it was requested separately. ``note`` says what else happened to the command.
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
        """Return this result if ``ok``. Raises CommandFailed with this result."""
        if not self.ok:
            raise CommandFailed(self)
        return self


@dataclass(frozen=True, slots=True)
class Screen:
    """The visible lines without trailing blanks. The cursor is zero-based."""

    text: str
    rows: int
    cols: int
    cursor_row: int
    cursor_col: int
    title: str = ""

    @property
    def lines(self) -> list[str]:
        """The ``rows`` lines from the top."""
        found = self.text.split("\n")
        return found + [""] * (self.rows - len(found))


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """A session as it was when it was requested. ``facts`` is all that is known, as in `ai-session info --json`."""

    session_id: str
    name: str
    state: str
    shell: str
    backend: str
    working_directory: str
    sandbox: str
    facts: Mapping[str, Any]


def session_info(facts: Mapping[str, Any]) -> SessionInfo:
    """Return a tool's facts about a session as a value."""
    texts = {name: str(facts.get(name, "")) for name in SessionInfo.__slots__ if name != "facts"}
    return SessionInfo(**texts, facts=facts)


def screen(facts: Mapping[str, Any]) -> Screen:
    """Return the facts of ``read_screen`` as a value."""
    numbers = {name: int(facts[name]) for name in ("rows", "cols", "cursor_row", "cursor_col")}
    return Screen(str(facts["screen"]), **numbers, title=str(facts.get("title", "")))
