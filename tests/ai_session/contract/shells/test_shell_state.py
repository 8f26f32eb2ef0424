"""What a shell leaves behind: its state for the next one, nothing in histories, nothing of ours in its children."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.ai_session.support.shells import SH_LIKE, SHELLS, RawSession, kin, start

pytestmark = pytest.mark.corners

FILL = "cd /usr; export FOO='a b\nc'; g() { echo \"G $FOO\"; }; alias zz='echo ZZ'; plain=1; export PS1='> '"
FILL_FISH = "cd /usr; set -gx FOO 'a b\nc'; function g; echo \"G $FOO\"; end; alias zz='echo ZZ'; set -g plain 1"


def ends(session: RawSession, text: str) -> tuple[bytes, int | None]:
    """What ``text`` prints on the way out, and the shell's own exit status."""
    outcome = session.run(text)
    session.wait_end()
    return outcome.output, session.status


@pytest.mark.parametrize("shell", SHELLS)
def test_next_shell_goes_on_where_the_last_one_ended(shell: str, home: Path) -> None:
    session = start(shell, home)
    try:
        session.run(FILL_FISH if shell == "fish" else FILL)
        for _ in range(2):
            assert ends(session, "exit 7") == (b"", 7)
            session.start()
        assert session.run('pwd; echo "$FOO"; zz').output == b"/usr\na b\nc\nZZ\n"
        assert session.run('echo "<$plain>"').output == b"<>\n"
        if kin(shell) != "posix":
            assert session.run("g").output == b"G a b\nc\n"
    finally:
        session.close()


@pytest.mark.parametrize("shell", SHELLS)
def test_state_is_private_and_holds_nothing_of_ours(shell: str, home: Path) -> None:
    session = start(shell, home, AI_SESSION_ID="cookie", TERM="vt100")
    try:
        ends(session, "exit 0")
        state = session.directory / "out/state"
        text = state.read_text()
        assert state.stat().st_mode & 0o777 == 0o600
        assert text.endswith("# end of state\n")
        assert session.nonce not in text
        assert "vt100" not in text
        assert "AI_SESSION_ID" not in text
        assert re.findall(r"__ais_[a-z]+", text.replace("__ais_cwd", "")) == []
    finally:
        session.close()


@pytest.mark.either("shell")
@pytest.mark.parametrize("shell", SHELLS)
def test_torn_state_is_not_read(shell: str, home: Path) -> None:
    session = start(shell, home)
    try:
        ends(session, "exit 0")
        state = session.directory / "out/state"
        state.write_text("cd /usr\nbroken '")
        session.start()
        assert session.run("pwd").output == b"/\n"
        assert not state.exists()
    finally:
        session.close()


@pytest.mark.either("shell")
@pytest.mark.parametrize("shell", SH_LIKE)
def test_death_by_set_e_keeps_state_and_exit_code(shell: str, home: Path) -> None:
    session = start(shell, home)
    try:
        assert ends(session, "cd /usr; set -e; (exit 5); echo never") == (b"", 5)
        mark = session.mark("X", 0)
        assert mark is not None
        assert mark.fields[:2] == ("1", "5")
        session.start()
        assert session.run("pwd").output == b"/usr\n"
    finally:
        session.close()


@pytest.mark.parametrize("shell", SH_LIKE)
@pytest.mark.parametrize("where", ["start file", "command", "typed"])
def test_exit_trap_of_the_person_runs_and_the_end_is_reported(shell: str, where: str, home: Path) -> None:
    trap = "trap 'echo \"it'\\''s $?\"' EXIT"
    session = start(shell, home, trap if where == "start file" else "")
    try:
        if where == "command":
            session.run(trap)
        if where == "typed":
            assert session.wait_ready()
            session.send(trap.encode() + b"\n")
            session.position = len(session.log)
            session.run("true")
        output, status = ends(session, "cd /usr; exit 6")
        assert (output, status) == (b"it's 6\n", 6)
        mark = session.mark("X", 0)
        assert mark is not None
        assert mark.fields[1] == "6"
        session.start()
        assert session.run("pwd").output == b"/usr\n"
    finally:
        session.close()


@pytest.mark.either("shell")
@pytest.mark.parametrize("shell", SH_LIKE)
def test_exit_trap_taken_back_is_not_run(shell: str, home: Path) -> None:
    session = start(shell, home)
    try:
        session.run("trap 'echo bye' EXIT")
        session.run("trap - EXIT")
        assert ends(session, "exit 2") == (b"", 2)
        assert session.mark("X", 0) is not None
    finally:
        session.close()


@pytest.mark.parametrize("shell", SHELLS)
def test_only_what_people_type_is_in_their_history(shell: str, home: Path) -> None:
    own = f"export HISTFILE={home}/history HISTSIZE=100; SAVEHIST=100; HISTCONTROL=ignoredups"
    session = start(shell, home, "" if shell == "fish" else own)
    try:
        session.run("echo from-agent")
        assert session.wait_ready()
        before = len(session.log)
        session.send(b"echo by-hand\n")
        session.until(lambda: session.mark("A", before) is not None, "the next prompt")
        session.position = before
        session.run("false")
        ends(session, "exit 0")
        files = [path for path in home.rglob("*history*") if path.is_file() and path.parent != session.directory]
        kept = b"".join(path.read_bytes() for path in files)
        assert b"ais" not in kept
        assert b"from-agent" not in kept
        assert (b"by-hand" in kept) == (kin(shell) != "posix")
    finally:
        session.close()


@pytest.mark.either("shell")
@pytest.mark.parametrize("shell", SHELLS)
def test_without_start_files_the_history_is_left_alone(shell: str, home: Path) -> None:
    for name in (".bash_history", ".zsh_history", ".sh_history"):
        (home / name).write_text("".join(f"line {n}\n" for n in range(3000)))
    session = start(shell, home, user_rc=False)
    try:
        session.run("true")
        ends(session, "exit 0")
        sizes = {name: len((home / name).read_text().splitlines()) for name in (".bash_history", ".zsh_history")}
        assert set(sizes.values()) == {3000}
    finally:
        session.close()


@pytest.mark.parametrize("shell", SHELLS)
def test_children_never_learn_the_nonce(shell: str, home: Path) -> None:
    session = start(shell, home, "set -gx PS1 x" if shell == "fish" else "set -a; export PS1='x> '; PS4=y")
    try:
        session.run("true")
        assert session.run(f"env | grep -c {session.nonce}").output == b"0\n"
        assert session.run("true").exit_code == 0
        assert session.run(f"sh -c 'env; set' | grep -c {session.nonce}").output == b"0\n"
    finally:
        session.close()


@pytest.mark.either("shell")
@pytest.mark.parametrize("shell", SHELLS)
def test_shell_that_replaced_itself_reports_again(shell: str, home: Path) -> None:
    session = start(shell, home)
    try:
        session.run("cd /usr")
        before = len(session.log)
        session.begin(f"exec {session.plugin.find()}")
        session.until(lambda: session.mark("C", before) is not None, "the start mark")
        session.until(
            # A shell without a line editor leaves the terminal as it is.
            lambda: session.at_prompt() or (kin(shell) == "posix" and b"# " in session.log[-9:]),
            "the new shell",
        )
        session.position = len(session.log)
        session.send(session.plugin.reintegrate(session.directory))
        session.until(lambda: session.mark("R", session.position) is not None, "the marks")
        assert session.run("pwd").output == b"/usr\n"
        assert session.run("false").exit_code == 1
        assert session.run(f"env | grep -c {session.nonce}").output == b"0\n"
    finally:
        session.close()
