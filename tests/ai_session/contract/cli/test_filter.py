"""Every verb that shows what a session printed: on a terminal it draws and does nothing else, in a pipe it is whole."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path

import pexpect
import pytest

from agentwire import plugins
from ai_session.cli.record import RESET
from ai_session.terminal.filter import LEAVE
from tests.ai_session.support.command_line import CommandLine
from tests.ai_session.support.terminal_sequences import ACTING, DRAWING, draws, tokens

pytestmark = pytest.mark.either("main")
DETACH = b"\x1d"
CORPUS = b"".join(b"<%d>%s" % (number, data) for number, data in enumerate(ACTING))


@pytest.fixture(scope="module")
def daemon_home(shared_home: Path) -> Iterator[Path]:
    """A daemon for all tests lives there."""
    with CommandLine(shared_home):
        yield shared_home


@pytest.fixture(params=plugins.names("ai_session.backends"))
def main(daemon_home: Path, home: Path, request: pytest.FixtureRequest) -> Iterator[CommandLine]:
    """A session that has printed every sequence that acts."""
    (home / "corpus").write_bytes(CORPUS + b"\x1b\\\x18\r\n")
    line = CommandLine(home, HOME=str(daemon_home))
    with line.client() as client:
        client.call("create_session", name="main", backend=request.param, working_directory=str(home))
        client.call("execute_command", session_id="main", command="PS1='ready> '; cat corpus; echo printed")
    yield line
    line.end_sessions()


def shown(line: CommandLine, *words: str, code: int = 0) -> bytes:
    """All that a verb writes to a terminal."""
    person = line.spawn(*words)
    person.logfile_read = written = io.BytesIO()
    person.expect(pexpect.EOF)
    assert person.wait() == code
    return written.getvalue()


def acting(data: bytes, *, live: bool = False) -> list[bytes]:
    """Of a terminal's bytes what does more than draw."""
    return [token for token in tokens(data) if not draws(token, live=live)]


WAYS = [
    ("logs", "main"),
    ("logs", "main", "-n", "5"),
    ("logs", "main", "-c", "last"),
    ("screen", "main"),
    ("screen", "main", "--ansi"),
    ("exec", "main", "cat corpus"),
    ("exec", "main", "--stderr", "cat corpus >&2"),
    ("exec", "main", "cat corpus; sleep 0.3; cat corpus"),
    ("ls",),
    ("info", "main"),
]


def test_a_terminal_gets_what_draws(main: CommandLine) -> None:
    for words in WAYS:
        data = shown(main, *words)
        assert data, words
        assert acting(data) == [], words


def test_what_is_played_draws_on_a_terminal_and_is_whole_in_a_pipe(main: CommandLine) -> None:
    exported = main.home / "session.cast"
    main.run("record", "export", "main", "-o", str(exported))
    made = main.home / "made.cast"
    events = [
        [0.0, "o", (CORPUS + b"".join(DRAWING)).decode("utf-8", "surrogateescape")],
        [0.0, "r", "9x1"],
        [0.0, "r", "x"],
    ]
    rows = [{"version": 3, "term": {"cols": 80, "rows": 24}}, *events]
    made.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    for what in ("main", str(exported), str(made)):
        data = shown(main, "replay", what, "--speed", "100", "--idle", "0")
        before, reset, after = data.partition(RESET)
        assert reset, "what was switched on is switched off"
        assert after == b"\r\n"
        assert acting(before) == [], what
    for drawing in DRAWING:
        assert drawing.replace(b"\r", b"") in before.replace(b"\r", b"")
    piped = main.run("replay", str(made), text=False).stdout
    assert b"\x1b]52;c;aGVsbG8=\x07" in piped


def test_what_follows_draws(main: CommandLine) -> None:
    person = main.spawn("logs", "-f", "main")
    person.logfile_read = written = io.BytesIO()
    person.expect_exact("printed")
    main.run("exec", "main", "cat corpus; echo once-$((1+1))")
    person.expect_exact("once-2")
    main.run("kill", "main")
    person.expect(pexpect.EOF)
    person.wait()
    assert acting(written.getvalue()) == []


def test_who_is_attached_gets_what_draws_and_what_says_how_keys_are_sent(main: CommandLine) -> None:
    person = main.spawn("attach", "main")
    person.logfile_read = written = io.BytesIO()
    person.expect_exact("ready> ")
    (main.home / "drawing").write_bytes(b"".join(DRAWING[:-5]) + b"\r\n")
    main.run("exec", "main", "cat corpus drawing; printf '\\033[?1000h'; echo twice-$((1+1))")
    person.expect_exact("twice-2")
    person.send(DETACH)
    person.expect_exact("[detached from main")
    person.expect(pexpect.EOF)
    assert person.wait() == 0
    before, left, _ = written.getvalue().partition(LEAVE)
    assert left
    assert acting(before, live=True) == []
    assert b"\x1b[?1000h" in before
