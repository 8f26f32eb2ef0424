"""The calls of each operation, written once and made by both the blocking and the asynchronous API.

A step is a generator that yields calls, is sent each call's structured result or has its error thrown in, and returns
the operation's value.
"""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Generator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple, TypeAlias, TypeVar

from ai_session.api.values import CommandResult, NotExpected, Screen, SessionInfo, screen, session_info
from ai_session.errors import AiSessionError, OutputExpired, SessionExists, SessionNotFound
from ai_session.models import SessionState

MAX_WAIT_SECONDS = 50.0
"""The longest wait of one call; longer waits are several calls."""

MAX_OUTPUT_CHARS = 200_000
POLL_SECONDS = 1.0
"""The interval of polling for output that ends with half a character: there are new bytes, but no new text."""

Facts = Mapping[str, Any]


class Call(NamedTuple):
    """One call of a tool. ``profile`` is the sandbox profile that is requested for a new session."""

    tool: str
    arguments: dict[str, Any]
    profile: str = ""


T = TypeVar("T")
Steps: TypeAlias = Generator[Call, Facts, T]


class Wait:
    """The remaining time of an operation; a ``timeout`` of None never expires."""

    def __init__(self, timeout: float | None) -> None:
        self._deadline = math.inf if timeout is None else time.monotonic() + timeout

    @property
    def over(self) -> bool:
        """Whether the time has passed."""
        return time.monotonic() >= self._deadline

    def next(self, longest: float = MAX_WAIT_SECONDS) -> float:
        """Return the seconds that the next call may wait."""
        return max(0.0, min(longest, self._deadline - time.monotonic()))


def explain(error: AiSessionError) -> None:
    """Add the suggestion to the error's traceback."""
    if error.suggestion and error.suggestion not in getattr(error, "__notes__", ()):
        error.add_note(error.suggestion)


def effect(tool: str, /, profile: str = "", **arguments: Any) -> Call:
    """Return a call with a key: repeated after a daemon has ended, it still takes effect only once."""
    given = {name: value for name, value in arguments.items() if value}
    return Call(tool, {**given, "call_key": f"api_{os.urandom(12).hex()}"}, profile)


def open_session(
    name: str, directory: str | os.PathLike[str], profile: str, shell: str, backend: str, **wanted: Any
) -> Steps[SessionInfo]:
    """Return the session with that name, which is created if necessary. Raises SessionExists if it has another box,
    shell or backend than was asked for; ``directory`` may be any in its workspace."""
    wanted |= {"working_directory": os.path.abspath(directory), "shell": shell, "backend": backend}
    try:
        found = session_info((yield effect("create_session", profile, name=name, **wanted)))
    except SessionExists:
        found = yield from info(name)
    box, _, _ = found.sandbox.partition(" ")
    workspace = str(found.facts.get("workspace", ""))
    has = {
        "profile": (profile, "trusted" if box == "none" else box),
        "shell": (os.path.basename(shell), found.shell),
        "backend": (backend if backend != "auto" else "", found.backend),
        "directory": (os.fspath(directory) if workspace and not _inside(directory, workspace) else "", workspace),
    }
    if other := [f"{what} {real}, not {asked}" for what, (asked, real) in has.items() if asked and asked != real]:
        ended = found.state in (SessionState.EXITED, SessionState.LOST)
        state, use = ("has ended", "start it again as it was") if ended else ("already exists", "use it as it is")
        raise SessionExists(
            f"session {name!r} {state}, with {' and '.join(other)}",
            suggestion=f"leave that out to {use}, close it first, or choose another name",
        )
    return found


def _inside(directory: str | os.PathLike[str], workspace: str) -> bool:
    real = os.path.realpath(directory)
    return os.path.commonpath((real, workspace)) == workspace


def info(session: str) -> Steps[SessionInfo]:
    """Return the session's current properties."""
    return session_info((yield Call("get_session_info", {"session_id": session})))


def list_sessions() -> Steps[list[SessionInfo]]:
    """Return all sessions that this program may see."""
    return [session_info(facts) for facts in (yield Call("list_sessions", {}))["sessions"]]


def run(session: str, command: str, timeout: float | None, *, stdin: str | None, apart: bool) -> Steps[CommandResult]:
    """Start a command and wait for it."""
    wait = Wait(timeout)
    facts = yield _begin(session, command, wait.next(), stdin, apart)
    return (yield from finish(session, facts["command_id"], wait, facts))


def start(session: str, command: str, *, stdin: str | None, apart: bool) -> Steps[str]:
    """Start a command and return its id."""
    return (yield _begin(session, command, 0.0, stdin, apart))["command_id"]


def _begin(session: str, command: str, seconds: float, stdin: str | None, apart: bool) -> Call:
    call = effect("execute_command", session_id=session, separate_stderr=apart)
    call.arguments["command"] = command
    call.arguments["timeout_seconds"] = seconds
    call.arguments["max_output_chars"] = MAX_OUTPUT_CHARS
    if stdin is not None:
        call.arguments["stdin"] = stdin
    return call


def finish(session: str, command: str, wait: Wait, facts: Facts | None = None) -> Steps[CommandResult]:
    """Wait until the command has ended, needs input, or time is up. ``facts`` are its latest known state."""
    wanted = {"session_id": session, "command_id": command, "max_output_chars": MAX_OUTPUT_CHARS}
    while facts is None or (facts["status"] == "running" and not facts.get("input_mode") and not wait.over):
        facts = yield Call("read_output", {**wanted, "wait_for": "finish", "timeout_seconds": wait.next()})
    return (yield from _result(session, facts))


def interrupt(session: str, command: str) -> Steps[CommandResult]:
    """End a command in the same way as `ai-session interrupt`."""
    return (yield from _result(session, (yield effect("interrupt_command", session_id=session, command_id=command))))


def _result(session: str, facts: Facts) -> Steps[CommandResult]:
    output, truncated = str(facts["output"]), False
    if facts.get("omitted_bytes"):
        try:
            output = yield from text(session, facts["command_id"])
        except OutputExpired:
            truncated = True
    return CommandResult(
        command_id=facts["command_id"],
        status=facts["status"],
        exit_code=facts.get("exit_code"),
        output=output,
        duration_seconds=facts.get("duration_seconds"),
        cwd=facts.get("cwd", ""),
        stderr=facts.get("stderr", ""),
        input_mode=facts.get("input_mode", ""),
        note=facts.get("note", ""),
        truncated=truncated,
    )


def text(session: str, command: str, offset: int = 0) -> Steps[str]:
    """Return all output from a byte on, as text. Raises OutputExpired if that is no longer stored."""
    pages, end = list[str](), -1
    while True:
        page = yield _page(session, command, offset)
        end = page["end_offset"] if end < 0 else end
        pages.append(page["output"])
        if page["next_offset"] >= end or page["next_offset"] == offset:
            return "".join(pages)
        offset = page["next_offset"]


def _page(session: str, command: str, offset: int) -> Call:
    wanted = {"session_id": session, "command_id": command, "offset": offset, "max_output_chars": MAX_OUTPUT_CHARS}
    return Call("read_output", wanted)


def send(session: str, typed: str, keys: tuple[str, ...] = ()) -> Steps[None]:
    """Type text, then press keys."""
    yield effect("send_input", session_id=session, text=typed, keys=list(keys))


def type_into(session: str, command: str, data: bytes) -> Steps[None]:
    """Type bytes unchanged, only while the command runs. Raises NothingRunning."""
    # CRLF in text becomes LF; a key is sent unchanged.
    for count, line in enumerate(data.split(b"\r\n")):
        if count:
            yield effect("send_input", session_id=session, command_id=command, keys=["Enter"])
        if typed := (b"\n" if count else b"") + line:
            text = typed.decode("utf-8", "surrogateescape")
            yield effect("send_input", session_id=session, command_id=command, text=text)


def bytes_from(session: str, command: str, offset: int, seconds: float) -> Call:
    """Return the call for a command's output from byte ``offset`` on, which waits up to ``seconds``."""
    wanted = {"session_id": session, "command_id": command, "offset": offset, "timeout_seconds": seconds}
    return Call("read_bytes", wanted)


def read_bytes(session: str, command: str, offset: int, seconds: float) -> Steps[Facts]:
    """Return one page of a command's output from byte ``offset`` on; waits up to ``seconds`` for more."""
    return (yield bytes_from(session, command, offset, seconds))


def wait_started(session: str, command: str, seconds: float) -> Steps[Facts]:
    """Wait until the program has been started, has printed something, or has ended; returns facts as ``read_bytes``."""
    call = bytes_from(session, command, 0, seconds)
    call.arguments["wait_for"] = "program"
    return (yield call)


def send_signal(session: str, command: str, number: int) -> Steps[None]:
    """Send a signal to the command's program. Raises NothingRunning."""
    yield effect("signal_command", session_id=session, command_id=command, signal=number)


def set_echo(session: str, command: str, *, on: bool) -> Steps[None]:
    """Set whether the terminal echoes what is typed. Raises NothingRunning."""
    call = effect("set_echo", session_id=session, command_id=command)
    call.arguments["echo"] = on
    yield call


def read_screen(session: str) -> Steps[Screen]:
    """Return the visible screen."""
    return screen((yield Call("read_screen", {"session_id": session})))


def resize(session: str, rows: int, cols: int) -> Steps[None]:
    """Change the terminal's size."""
    yield effect("resize_session", session_id=session, rows=rows, cols=cols)


def close(session: str) -> Steps[None]:
    """End the session and everything that runs in it; has no effect if it does not exist."""
    with suppress(SessionNotFound):
        yield effect("close_session", session_id=session)


class Reader:
    """Reads one command's output forward. What was matched or read is not returned again."""

    def __init__(self, session: str, command: str) -> None:
        self._session = session
        self._command = command
        self._anchor = 0
        """The byte where the last line begins, which is read again because it may still change."""
        self._end = 0
        self._pending = ""
        """Text before the anchor that was not returned yet."""
        self._line = ""
        self._returned = 0
        """The number of characters of ``_pending + _line`` that were returned."""
        self._over = False

    @property
    def _new(self) -> str:
        return (self._pending + self._line)[self._returned :]

    def read(self) -> Steps[str]:
        """Return the output since the last call."""
        yield from self._fetch()
        return self._pop(len(self._new))

    def expect(self, pattern: str | re.Pattern[str], timeout: float | None) -> Steps[re.Match[str]]:
        """Wait for a match. Raises NotExpected."""
        wait, stuck = Wait(timeout), False
        while True:
            end = self._end
            yield from self._fetch()
            if match := re.search(pattern, self._new):
                self._pop(match.end())
                return match
            if self._over or wait.over:
                raise self._missing(pattern)
            stuck = stuck and self._end == end
            how = {"timeout_seconds": wait.next(POLL_SECONDS)} if stuck else {"offset": self._end}
            wanted = {"timeout_seconds": wait.next(), "wait_for": "output", "max_output_chars": 200} | how
            call = Call("read_output", {"session_id": self._session, "command_id": self._command, **wanted})
            stuck = (yield call).get("waited") == "output"

    def _fetch(self) -> Steps[None]:
        """Read to the current end of the output."""
        while True:
            page = yield _page(self._session, self._command, self._anchor)
            self._line = page["output"]
            self._end = page["next_offset"]
            whole = self._end < page["end_offset"]
            if whole or self._line.endswith("\n"):
                moved = self._end != self._anchor
                self._pending = self._pending + self._line
                self._line = ""
                self._anchor = self._end
                if whole and moved:
                    continue
            self._over = page["status"] != "running"
            return

    def _pop(self, size: int) -> str:
        popped = self._new[:size]
        self._returned = self._returned + size
        done = min(self._returned, len(self._pending))
        self._pending = self._pending[done:]
        self._returned = self._returned - done
        return popped

    def _missing(self, pattern: str | re.Pattern[str]) -> NotExpected:
        wanted = pattern if isinstance(pattern, str) else pattern.pattern
        if self._over:
            return NotExpected(
                f"the command has ended, and did not print {wanted!r}",
                suggestion="wait() returns its exit code; before holds what it printed instead",
                before=self._new,
                ended=True,
            )
        return NotExpected(
            f"{wanted!r} was not printed in time",
            suggestion="the command is still running: expect again with a longer timeout, or interrupt() it",
            before=self._new,
            ended=False,
        )
