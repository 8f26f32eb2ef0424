"""The traps of a person run for the person's commands, as often as typed ones cause, however a command is run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ai_session.support.shells import RawSession, start

pytestmark = pytest.mark.corners

SET = "trap 'echo dbg' DEBUG"
WAYS = {
    "in the text": SET,
    "in a file": ". '@HOME@/trap'",
    "by a function": "set_it",
    "by an alias": "alias_sets_it",
    "and an error": f"{SET}; echo 'abc",
}
"""Ways to set the trap, after which it must be the person's."""


@pytest.fixture(params=["bash", "zsh"])
def session(request: pytest.FixtureRequest, home: Path) -> Iterator[RawSession]:
    (home / "trap").write_text(f"{SET}\n")
    (home / "in").write_text("read\n")
    begun = start(request.param, home, f'set_it() {{ {SET}; }}\nalias alias_sets_it="{SET}"\n')
    try:
        yield begun
    finally:
        begun.close()


def redirected(session: RawSession, home: Path, text: str, streams: str) -> bytes:
    """Run ``text`` with those of the two streams in files that ``streams`` names; return its output."""
    stdin_path = str(home / "in") if "stdin" in streams else ""
    stderr_path = str(home / "err") if "stderr" in streams else ""
    return session.run(text, stdin_path=stdin_path, stderr_path=stderr_path).output


@pytest.mark.parametrize("way", WAYS)
def test_debug_trap_runs_at_most_once_more_in_the_command_that_sets_it(
    way: str, session: RawSession, home: Path
) -> None:
    text = WAYS[way].replace("@HOME@", str(home))
    # A text that cannot be read runs nothing of it in zsh, and the line that can be read in bash.
    said = session.run(text).output.count(b"dbg\n")
    assert said <= 2 if session.plugin.name == "bash" else said <= 1
    if way == "and an error":
        session.run(SET)
    assert session.run("echo a; echo b").output == b"dbg\na\ndbg\nb\n"
    session.run("trap - DEBUG")
    assert session.run("echo a").output == b"a\n"


@pytest.mark.parametrize("streams", ["", "stdin", "stderr", "stdin stderr"])
def test_debug_trap_runs_and_is_taken_back_whatever_is_redirected(
    streams: str, session: RawSession, home: Path
) -> None:
    session.run(SET)
    assert redirected(session, home, "echo a\necho b", streams) == b"dbg\na\ndbg\nb\n"
    assert redirected(session, home, "trap - DEBUG; echo c", streams) == b"dbg\nc\n"
    assert session.run("echo d").output == b"d\n"
    redirected(session, home, SET, streams)
    assert session.run("echo e").output == b"dbg\ne\n"
    redirected(session, home, "trap 'echo other' DEBUG", streams)
    assert session.run("echo f").output == b"other\nf\n"
    redirected(session, home, "trap - DEBUG", streams)
    assert session.run("cat <<E\ng\nE").output == b"g\n"


@pytest.mark.parametrize("streams", ["", "stdin", "stderr"])
@pytest.mark.parametrize("kind", ["ERR", "USR1", "EXIT"])
def test_other_traps_are_set_and_taken_back_whatever_is_redirected(
    kind: str, streams: str, session: RawSession, home: Path
) -> None:
    cause = {"ERR": "false", "USR1": "kill -USR1 $$; :", "EXIT": "(exit 3)"}[kind]
    kind = "ZERR" if (kind, session.plugin.name) == ("ERR", "zsh") else kind
    redirected(session, home, f"trap 'echo trapped' {kind}", streams)
    assert session.run(cause).output == (b"" if kind == "EXIT" else b"trapped\n")
    redirected(session, home, f"trap - {kind}", streams)
    if kind != "USR1":
        assert session.run(cause).output == b""
    assert b"trapped" not in session.run("exit 4").output


def test_debug_trap_that_a_person_types_runs_for_the_commands_alone(session: RawSession) -> None:
    assert session.wait_ready()
    before = len(session.log)
    session.send(SET.encode() + b"\n")
    session.until(lambda: session.mark("A", before) is not None, "the next prompt")
    session.position = before
    assert session.run("echo a").output == b"dbg\na\n"
    assert session.run("trap - DEBUG").output == b"dbg\n"
    assert session.run("echo b").output == b"b\n"


def test_debug_trap_shows_itself_alone_in_the_trace_of_zsh(home: Path) -> None:
    session = start("zsh", home, "setopt prompt_subst; PS4='+ '")
    try:
        session.run(SET)
        assert session.run("set -x").output == b"dbg\n"
        assert session.run("echo a").output == b"+ echo dbg\ndbg\n+ echo a\na\n"
        assert session.run("set +x").output == b"+ echo dbg\ndbg\n+ set +x\n"
    finally:
        session.close()
