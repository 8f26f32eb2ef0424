"""Whatever a person's start files and environment are like, the shell starts as theirs and reports its commands."""

from __future__ import annotations

import os
import venv
from pathlib import Path

import pytest

from agentwire import plugins
from ai_session.errors import ShellUnavailable
from tests.ai_session.support.shell_cases import STYLES
from tests.ai_session.support.shells import PLUGINS, SH_LIKE, SHELLS, RawSession, Seen, kin, start

pytestmark = pytest.mark.corners


def answers(session: RawSession) -> list[tuple[bytes, int | None]]:
    """What three commands with known answers say."""
    return [(o.output, o.exit_code) for o in map(session.run, ("echo ok", "cat /nonexistent 2>/dev/null", "printf x"))]


RIGHT = [(b"ok\n", 0), (b"", 1), (b"x", 0)]


@pytest.fixture(scope="module")
def environment(shared_home: Path) -> Path:
    """A virtual environment of Python."""
    venv.create(shared_home / "venv", with_pip=False, symlinks=True)
    return shared_home / "venv"


DAILY = {
    "skel .bashrc",
    "vi mode and venv",
    "DEBUG trap",
    "prompt built anew each time",
    "strict options",
    "own zle-line-init",
    "own prompt",
    "2-line PS1",
}


@pytest.mark.parametrize(
    ("shell", "name", "text"),
    [
        pytest.param(shell, *style, marks=() if style[0] in DAILY else pytest.mark.torture)
        for shell in SHELLS
        for family, *style in STYLES
        if family == kin(shell)
    ],
)
def test_start_file(shell: str, name: str, text: str, environment: Path, home: Path) -> None:
    activate = "activate.fish" if shell == "fish" else "activate"
    (home / "venv").symlink_to(environment)
    session = start(shell, home, text.replace("@DIR@", str(home)))
    try:
        assert answers(session) == RIGHT
        session.run(f". {home}/venv/bin/{activate}")
        assert answers(session) == RIGHT
        session.run("deactivate")
        assert answers(session) == RIGHT
        assert session.wait_ready()
        if shell == "bash":
            assert b"ais" not in session.run("history").output
    finally:
        session.close()


BROKEN = (
    ("returns", "MINE=1; return 3", "return 3"),
    ("fails under set -e", "MINE=1; set -e; false; set +e", None),
    ("unbound variable", "MINE=1; set -u; : $no_such_variable; set +u", None),
    ("syntax error", "MINE=1\nif true; then (\n", "set MINE 1\nif true; ("),
    ("allexport", "set -a; MINE=1", None),
    ("odd IFS", "IFS=/:7", None),
    ("allexport without a blank in IFS", "set -a; IFS=:", None),
    ("tracing", "set -x", "set fish_trace 1"),
    ("3000 characters of prompt", "PS1=" + "p" * 3000, "function fish_prompt; echo " + "p" * 3000 + "; end"),
    ("no prompt", "unset PS1 PS2 PS4", "functions -e fish_prompt"),
)


@pytest.mark.parametrize(
    ("shell", "name", "text", "in_fish"),
    # dash ends by set -e in a sourced file even where that file's status is looked at.
    [(shell, *rest) for shell in SHELLS for rest in BROKEN if (kin(shell), rest[0]) != ("posix", "fails under set -e")],
)
def test_broken_start_file(shell: str, name: str, text: str, in_fish: str | None, home: Path) -> None:
    session = start(shell, home, (in_fish or "") if shell == "fish" else text)
    try:
        session.run("set +exu; set +a" if shell != "fish" else "set -e fish_trace")
        assert answers(session) == RIGHT
        assert session.wait_ready()
        assert session.run(f"env | grep -c {session.nonce}").output == b"0\n"
    finally:
        session.close()


@pytest.mark.either("shell")
@pytest.mark.parametrize("shell", SH_LIKE)
def test_start_file_that_exits_is_reported_as_the_exit_it_is(shell: str, home: Path) -> None:
    with pytest.raises(EOFError):
        start(shell, home, "exit 4")


def test_exit_in_the_start_file_of_fish_only_ends_the_file(home: Path) -> None:
    session = start("fish", home, "exit 4")
    try:
        assert answers(session) == RIGHT
    finally:
        session.close()


ENVIRONMENTS: tuple[tuple[str, dict[str, str | None]], ...] = (
    ("no HOME", {"HOME": None}),
    ("HOME that cannot be written", {"HOME": "/proc"}),
    ("empty PATH", {"PATH": ""}),
    ("dumb terminal", {"TERM": "dumb"}),
    ("no TERM", {"TERM": None}),
    ("not UTF-8", {"LC_ALL": "C"}),
    ("POSIXLY_CORRECT", {"POSIXLY_CORRECT": "1"}),
)


@pytest.mark.parametrize(
    ("shell", "name", "env"),
    [
        # Every run has a shell for each environment, and each shell.
        pytest.param(shell, *environment, marks=[] if (place - number) % len(SHELLS) == 0 else [pytest.mark.torture])
        for number, environment in enumerate(ENVIRONMENTS)
        for place, shell in enumerate(SHELLS)
    ],
)
def test_environment(shell: str, name: str, env: dict[str, str | None], home: Path) -> None:
    session = start(shell, home, "", user_rc=True, **env)
    try:
        outcome = [session.run(text) for text in ("echo ok", "false", "echo end")]
        assert [(o.output, o.exit_code) for o in outcome] == [(b"ok\n", 0), (b"", 1), (b"end\n", 0)]
        assert session.wait_ready()
    finally:
        session.close()


@pytest.mark.either("shell")
@pytest.mark.parametrize("shell", SHELLS)
def test_working_directory_is_deleted(shell: str, home: Path) -> None:
    (home / "gone").mkdir()
    session = start(shell, home)
    try:
        session.run(f"cd '{home}/gone'")
        (home / "gone").rmdir()
        assert answers(session) == RIGHT
        assert session.run("cd /; pwd").output == b"/\n"
    finally:
        session.close()


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("user_rc", [True, False])
def test_start_files_are_read_when_asked_for(shell: str, user_rc: bool, home: Path) -> None:
    session = start(shell, home, "MINE=yes" if shell != "fish" else "set -g MINE yes", user_rc=user_rc)
    try:
        assert session.run('echo "<$MINE>"').output == (b"<yes>\n" if user_rc else b"<>\n")
    finally:
        session.close()


def test_zsh_reads_the_files_of_its_persons_zdotdir(home: Path) -> None:
    own = home / "dotfiles"
    own.mkdir()
    (home / ".zshenv").write_text(f"export ZDOTDIR={own}; FIRST=1\n")
    (own / ".zshrc").write_text("SECOND=$FIRST$ZDOTDIR\nHISTFILE=$ZDOTDIR/h\n")
    session = start("zsh", home)
    try:
        said = session.run("echo $SECOND $ZDOTDIR $HISTFILE").output.decode()
        assert said == f"1{own} {own} {own}/h\n"
    finally:
        session.close()


def test_zsh_that_is_told_to_read_no_more_files_still_reports(home: Path) -> None:
    (home / ".zshenv").write_text("setopt no_rcs\n")
    session = start("zsh", home, "MINE=1")
    try:
        assert answers(session) == RIGHT
        assert session.run('echo "<$MINE$ZDOTDIR>"').output == b"<>\n"
    finally:
        session.close()


def test_own_line_editor_hook_of_zsh_runs_in_addition_to_ours(home: Path) -> None:
    session = start("zsh", home, "zle-line-init() { echo -n first >/dev/tty; }; zle -N zle-line-init")
    try:
        assert answers(session) == RIGHT
        assert session.log.count(b"first") > 2
        session.run("autoload -U add-zle-hook-widget; f() { echo -n second >/dev/tty; }")
        session.run("add-zle-hook-widget line-init f")
        assert answers(session) == RIGHT
        assert session.wait_ready()
        assert session.log.count(b"second") > 2
    finally:
        session.close()


def test_bash_without_line_editor(home: Path) -> None:
    session = start("bash", home, "set +o emacs")
    try:
        assert answers(session) == RIGHT
        assert session.wait_ready()
    finally:
        session.close()


def test_fish_without_configuration_hands_its_persons_folder_on(home: Path) -> None:
    session = start("fish", home, user_rc=False, XDG_CONFIG_HOME="/own")
    try:
        assert session.run("echo $XDG_CONFIG_HOME").output == b"/own\n"
    finally:
        session.close()


def test_env_is_the_persons_again_for_shells_started_from_a_posix_shell(home: Path) -> None:
    session = start("dash", home, "MINE=yes")
    try:
        assert session.run("echo $ENV $MINE").output.decode() == f"{home}/.shrc yes\n"
    finally:
        session.close()


@pytest.mark.either("shell")
@pytest.mark.parametrize("shell", SHELLS)
def test_start_is_reported_once_with_pid_and_version(shell: str, home: Path) -> None:
    session = start(shell, home)
    try:
        mark = session.mark("R", 0)
        assert isinstance(mark, Seen)
        assert mark.fields[0] == str(session.pid)
        said = session.run('echo "$KSH_VERSION$BASH_VERSION$ZSH_VERSION$FISH_VERSION"').output
        assert mark.fields[1] == said.decode().strip()
        for _ in range(2):
            session.run("true")
        assert session.wait_ready()
        assert [seen.kind for seen in session.marks()].count("R") == 1
    finally:
        session.close()


@pytest.mark.parametrize("plugin", sorted(set(PLUGINS.values())))
def test_find(plugin: str) -> None:
    shell = plugins.load("ai_session.shells", plugin)
    found = shell.find("")
    assert os.path.isabs(found)
    assert os.access(found, os.X_OK)
    assert shell.find(found) == found
    for wanted in ("nosuchshell", "/bin/nosuchshell", f"/nowhere/{shell.names[0]}", "/bin/cat", "rbash"):
        with pytest.raises(ShellUnavailable) as caught:
            shell.find(wanted)
        assert wanted in caught.value.message
        assert "bash" in caught.value.suggestion
