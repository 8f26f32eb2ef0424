"""What each operation asks the daemon for, written once: the blocking and the awaited API carry the calls out.

A step is a generator that yields calls, is sent each call's structured result, or has its error thrown in, and returns
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

MAX_WAIT_SECONDS = 50.0
"""The longest that one call may wait; longer waits are several calls."""

MAX_OUTPUT_CHARS = 200_000
LOOK_AGAIN_SECONDS = 1.0
"""Between looks at output that ends in half a character: its bytes are there, but no text comes of them yet."""

Facts = Mapping[str, Any]


class Call(NamedTuple):
    """One call of a tool. ``profile`` is the sandbox profile that is asked for with a new session."""

    tool: str
    arguments: dict[str, Any]
    profile: str = ""


T = TypeVar("T")
Steps: TypeAlias = Generator[Call, Facts, T]


class Wait:
    """How long an operation still waits; ``timeout`` of None is for ever."""

    def __init__(self, timeout: float | None) -> None:
        self._deadline = math.inf if timeout is None else time.monotonic() + timeout

    @property
    def over(self) -> bool:
        """Whether the time has passed."""
        return time.monotonic() >= self._deadline

    def next(self, longest: float = MAX_WAIT_SECONDS) -> float:
        """Seconds that the next call may wait."""
        return max(0.0, min(longest, self._deadline - time.monotonic()))


def explain(error: AiSessionError) -> None:
    """Have the error's traceback say what to do next."""
    if error.suggestion and error.suggestion not in getattr(error, "__notes__", ()):
        error.add_note(error.suggestion)


def effect(tool: str, /, profile: str = "", **arguments: Any) -> Call:
    """A call that does something, with a key: repeated after the daemon's death, it is done once all the same."""
    given = {name: value for name, value in arguments.items() if value}
    return Call(tool, {**given, "call_key": f"api_{os.urandom(12).hex()}"}, profile)


def open_session(name: str, profile: str, **wanted: Any) -> Steps[SessionInfo]:
    """The session of that name, made where there is none."""
    try:
        return session_info((yield effect("create_session", profile, name=name, **wanted)))
    except SessionExists:
        return (yield from info(name))


def info(session: str) -> Steps[SessionInfo]:
    """The session as it is now."""
    return session_info((yield Call("get_session_info", {"session_id": session})))


def listed() -> Steps[list[SessionInfo]]:
    """All sessions that this program may see."""
    return [session_info(facts) for facts in (yield Call("list_sessions", {}))["sessions"]]


def run(session: str, command: str, timeout: float | None, *, stdin: str | None, apart: bool) -> Steps[CommandResult]:
    """Begin a command and wait for it."""
    wait = Wait(timeout)
    facts = yield _begin(session, command, wait.next(), stdin, apart)
    return (yield from finish(session, facts["command_id"], wait, facts))


def start(session: str, command: str, *, stdin: str | None, apart: bool) -> Steps[str]:
    """Begin a command; its id."""
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
    """Wait until it is over, wants input or the time has passed. ``facts``: how it was found just now."""
    wanted = {"session_id": session, "command_id": command, "max_output_chars": MAX_OUTPUT_CHARS}
    while facts is None or (facts["status"] == "running" and not facts.get("input_mode") and not wait.over):
        facts = yield Call("read_output", {**wanted, "wait_for": "finish", "timeout_seconds": wait.next()})
    return (yield from _result(session, facts))


def interrupt(session: str, command: str) -> Steps[CommandResult]:
    """End a command by the means of `ai-session interrupt`."""
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
    """All that it printed from a byte on, until now. Raises OutputExpired where that is no longer kept."""
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
    """Type bytes as they are, only while the command runs. Raises NothingRunning."""
    # What is sent as text has its CRLF made LF; a key is sent as it is.
    for count, line in enumerate(data.split(b"\r\n")):
        if count:
            yield effect("send_input", session_id=session, command_id=command, keys=["Enter"])
        if typed := (b"\n" if count else b"") + line:
            text = typed.decode("utf-8", "surrogateescape")
            yield effect("send_input", session_id=session, command_id=command, text=text)


def bytes_from(session: str, command: str, offset: int, seconds: float) -> Call:
    """What the command printed from that byte on, waited for so long."""
    wanted = {"session_id": session, "command_id": command, "offset": offset, "timeout_seconds": seconds}
    return Call("read_bytes", wanted)


def read_bytes(session: str, command: str, offset: int, seconds: float) -> Steps[Facts]:
    """One page of a command's output, from the byte ``offset``; waits up to ``seconds`` for more."""
    return (yield bytes_from(session, command, offset, seconds))


def begun(session: str, command: str, seconds: float) -> Steps[Facts]:
    """As ``read_bytes``; waits until its program has been started, or has printed something, or has ended."""
    call = bytes_from(session, command, 0, seconds)
    call.arguments["wait_for"] = "program"
    return (yield call)


def send_signal(session: str, command: str, number: int) -> Steps[None]:
    """A signal for the command's program. Raises NothingRunning."""
    yield effect("signal_command", session_id=session, command_id=command, signal=number)


def set_echo(session: str, command: str, *, on: bool) -> Steps[None]:
    """Whether the terminal shows what is typed. Raises NothingRunning."""
    call = effect("set_echo", session_id=session, command_id=command)
    call.arguments["echo"] = on
    yield call


def read_screen(session: str) -> Steps[Screen]:
    """What is visible."""
    return screen((yield Call("read_screen", {"session_id": session})))


def resize(session: str, rows: int, cols: int) -> Steps[None]:
    """Another size."""
    yield effect("resize_session", session_id=session, rows=rows, cols=cols)


def close(session: str) -> Steps[None]:
    """End the session with all that runs in it; nothing where it is gone already."""
    with suppress(SessionNotFound):
        yield effect("close_session", session_id=session)


class Reader:
    """Reads one command's output forward. What was matched or read is not given again."""

    def __init__(self, session: str, command: str) -> None:
        self._session = session
        self._command = command
        self._anchor = 0
        """The byte from which the last line, which may still change, is read again."""
        self._end = 0
        self._kept = ""
        """Text before the anchor that was not given yet."""
        self._line = ""
        self._given = 0
        """Characters of ``_kept + _line`` that were."""
        self._over = False

    @property
    def _new(self) -> str:
        return (self._kept + self._line)[self._given :]

    def read(self) -> Steps[str]:
        """What was printed since the last time."""
        yield from self._look()
        return self._give(len(self._new))

    def expect(self, pattern: str | re.Pattern[str], timeout: float | None) -> Steps[re.Match[str]]:
        """Wait for a match. Raises NotExpected."""
        wait, stuck = Wait(timeout), False
        while True:
            end = self._end
            yield from self._look()
            if match := re.search(pattern, self._new):
                self._give(match.end())
                return match
            if self._over or wait.over:
                raise self._missing(pattern)
            stuck = stuck and self._end == end
            how = {"timeout_seconds": wait.next(LOOK_AGAIN_SECONDS)} if stuck else {"offset": self._end}
            asked = {"timeout_seconds": wait.next(), "wait_for": "output", "max_output_chars": 200} | how
            call = Call("read_output", {"session_id": self._session, "command_id": self._command, **asked})
            stuck = (yield call).get("waited") == "output"

    def _look(self) -> Steps[None]:
        """Read what there is, up to its end."""
        while True:
            page = yield _page(self._session, self._command, self._anchor)
            self._line = page["output"]
            self._end = page["next_offset"]
            whole = self._end < page["end_offset"]
            if whole or self._line.endswith("\n"):
                moved = self._end != self._anchor
                self._kept = self._kept + self._line
                self._line = ""
                self._anchor = self._end
                if whole and moved:
                    continue
            self._over = page["status"] != "running"
            return

    def _give(self, size: int) -> str:
        given = self._new[:size]
        self._given = self._given + size
        done = min(self._given, len(self._kept))
        self._kept = self._kept[done:]
        self._given = self._given - done
        return given

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
