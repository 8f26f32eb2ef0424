"""Leave by rule outside of a box, where a box may write what the command reads: nothing planted there runs unasked."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tests.ai_session.support import asking
from tests.ai_session.support.asking import client, error_of, greet, person
from tests.ai_session.support.mcp_client import Client, stop_daemons
from tests.conftest import new_home
from tests.support.products import first

BOX = "default:box-writable"
CONFIG = """
[sandbox]
profile = "trusted"

[rates]
questions_per_minute = 1000

[[policy.rules]]
id = "everyday"
decision = "allow"
commands = [
    "true", "ls", "cat", "cd", "git status", "make test", "make -C *", "make -C ../shop test",
]

[[policy.rules]]
id = "everywhere"
decision = "allow"
commands = ["cat"]
paths = ["/**"]

[[policy.rules]]
id = "openings"
decision = "allow"
tools = ["create_session"]
"""


@pytest.fixture(scope="module")
def daemon_home(homes: Path) -> Iterator[Path]:
    """``shop`` is where a box wrote, ``safe`` where none did, with links into ``shop`` and one around it."""
    made = new_home(homes, CONFIG)
    for name in ("shop/sub", "shop/bin", "safe/sub", "own"):
        (made / name).mkdir(parents=True)
    subprocess.run(["git", "init", "-q", made / "own"], check=True)
    (made / "safe/into").symlink_to("../shop/sub")
    (made / "safe/notes").symlink_to(made / "shop/notes")
    (made / "shop/out").symlink_to("../safe")
    (made / "through").symlink_to("shop/out/sub")
    (made / "safe/round").symlink_to("round")
    yield made
    stop_daemons(made)


@pytest.fixture(scope="module")
def peer(daemon_home: Path) -> Iterator[Client]:
    with client(daemon_home) as found:
        greet(found, {})
        yield found


@pytest.fixture(scope="module")
def planted(daemon_home: Path, peer: Client) -> Path:
    """A boxed session was in ``shop``, left a Makefile, and is gone."""
    assert run(daemon_home, peer, daemon_home / "safe", "true") == "ran"
    assert run(daemon_home, peer, daemon_home / "shop", "true") == "ran"  # nobody can have written there yet
    person(daemon_home, "new", "boxed", "--profile", "workspace", "--cwd", str(daemon_home / "shop"))
    line = r"printf 'test:\n\ttouch ../RAN\n' > Makefile; echo touch ../RAN > run.sh; chmod +x run.sh; cp run.sh bin/ls"
    person(daemon_home, "exec", "boxed", "--", "sh", "-c", line)
    person(daemon_home, "kill", "boxed")
    assert (daemon_home / "shop/Makefile").exists()
    return daemon_home


def opened(peer: Client, directory: Path, **given: object) -> str:
    """A new session without a box."""
    name = f"s{os.urandom(6).hex()}"
    made = peer.call("create_session", name=name, backend="pty", working_directory=str(directory), **given)
    assert not made["isError"], made
    return name


def judged(daemon_home: Path, peer: Client, session: str, command: str) -> str:
    """``ran``, or the rule that asks, or the code of another refusal."""
    result = peer.call("execute_command", session_id=session, command=command)
    if not result["isError"]:
        return "ran"
    error = error_of(result)
    asked = [q["rule"] for q in asking.approvals(daemon_home)["questions"] if q["question_id"] in str(error)]
    return asked[0] if asked else error["code"]


def run(daemon_home: Path, peer: Client, directory: Path, command: str, **given: object) -> str:
    """In a session of its own."""
    session = opened(peer, directory, **given)
    try:
        return judged(daemon_home, peer, session, command)
    finally:
        peer.call("close_session", session_id=session)


def together(peer: Client, home: Path, directory: Path, commands: Iterable[str]) -> dict[str, str]:
    """What is said of each, in one session."""
    session = opened(peer, directory)
    try:
        return {command: judged(home, peer, session, command.format(home=home)) for command in commands}
    finally:
        peer.call("close_session", session_id=session)


ASKED = {
    "shop": ("make test", "ls", "git status"),
    "shop/sub": ("ls", "git status"),
    "safe": (
        *("cat notes", "ls into", "cd into && ls", "make -C into", "make -C ../shop test", "cd into; cd sub; ls"),
        *("cd; ls", "cd - && ls", "cat {home}/shop/Makefile", "cat {home}/safe/into/x", "cat {home}/shop/out/x"),
    ),
    "safe/into": ("true",),
    ".": ("ls", "make test", "cat through"),
    "through": ("true",),
    "shop/out": ("ls",),
}


@pytest.mark.parametrize("where", ASKED)
def test_what_a_box_may_write_is_asked_about(planted: Path, peer: Client, where: str) -> None:
    assert together(peer, planted, planted / where, ASKED[where]) == dict.fromkeys(ASKED[where], BOX)
    assert not (planted / "RAN").exists()


FREE = {
    "safe": ("ls", "ls sub && cat x.txt", "cat {home}/own/x", "cat round", "cd sub && ls"),
    "own": ("git status", "make test"),
    "/usr": ("ls",),
}


@pytest.mark.parametrize("where", FREE)
def test_elsewhere_leave_holds(planted: Path, peer: Client, where: str) -> None:
    assert together(peer, planted, planted / where, FREE[where]) == dict.fromkeys(FREE[where], "ran")


@pytest.mark.parametrize(
    "env",
    [
        {"PATH": "{home}/shop/bin:/usr/bin:/bin"},
        pytest.param({"PATH": "/usr/bin:/bin:../shop/bin"}, marks=pytest.mark.torture),
        pytest.param({"PATH": "{home}/safe/into:/usr/bin:/bin"}, marks=pytest.mark.torture),
        pytest.param({"GIT_DIR": "{home}/shop/.git"}, marks=pytest.mark.torture),
        {"MAKEFLAGS": "-I{home}/other -f {home}/shop/Makefile"},
        {"LD_PRELOAD": "{home}/shop/x.so"},
        {"BASH_ENV": "{home}/shop/run.sh"},
    ],
)
def test_variables_that_lead_there_are_noticed(planted: Path, peer: Client, env: dict[str, str]) -> None:
    given = {name: value.format(home=planted) for name, value in env.items()}
    assert run(planted, peer, planted / "safe", "ls", env=given) == BOX
    assert not (planted / "RAN").exists()


@pytest.mark.parametrize(
    "before",
    [
        "export PATH={home}/shop/bin:$PATH",
        pytest.param("export PATH=$PWD/../shop/bin:$PATH", marks=pytest.mark.torture),
        pytest.param("PATH=$HOME/shop/bin:$PATH", marks=pytest.mark.torture),
        "cd ../shop",
        pytest.param("cd ../shop && PATH=$PWD/bin:$PATH && cd ../safe", marks=pytest.mark.torture),
        "alias ls=~/shop/run.sh",
        ". ../shop/run.sh",
        "cd {home}/safe/into",
    ],
)
def test_what_a_person_agreed_to_earlier_is_remembered(planted: Path, peer: Client, before: str) -> None:
    session = opened(peer, planted / "safe")
    assert judged(planted, peer, session, "ls") == "ran"
    line = before.format(home=planted)
    assert judged(planted, peer, session, line) == "default:no-box"
    asking.approve(planted, asking.approvals(planted)["questions"][-1])
    assert judged(planted, peer, session, line) == "ran"
    (planted / "RAN").unlink(missing_ok=True)
    assert judged(planted, peer, session, "ls") == BOX
    assert judged(planted, peer, session, "true") == BOX
    assert not (planted / "RAN").exists()
    peer.call("close_session", session_id=session)


def test_the_question_and_the_verbs_say_why(planted: Path, peer: Client) -> None:
    session = opened(peer, planted / "shop")
    assert judged(planted, peer, session, "make test") == BOX
    question = asking.approvals(planted)["questions"][-1]
    assert question["rule"] == "default:box-writable"
    said = f"everyday would allow it, but does not apply here: it would run in {planted}/shop, where a box may write"
    assert said in question["message"]
    shown = person(planted, "policy", "show")
    assert f"does not hold in: {planted}/shop" in shown
    peer.call("close_session", session_id=session)


def test_an_answer_there_covers_no_more_than_the_line(planted: Path, peer: Client) -> None:
    session, other = opened(peer, planted / "shop"), opened(peer, planted / "own")
    assert judged(planted, peer, session, "git log") == judged(planted, peer, other, "git log") == "default:no-box"
    offers = {q["session"]: q["prefix"] for q in asking.approvals(planted)["questions"]}
    assert sorted(offers.values()) == ["", "git log"]
    for name in (session, other):
        peer.call("close_session", session_id=name)


@pytest.fixture(scope="module")
def moved(planted: Path, peer: Client) -> Path:
    """A box wrote in ``late/one`` and ``late/two``; a person then moved the first, and what held the second."""
    for name in ("late/one", "late/two", "new/deep", "copied"):
        (planted / name).mkdir(parents=True)
    for name in ("one", "two"):
        person(planted, "new", name, "--profile", "workspace", "--cwd", str(planted / "late" / name))
        person(planted, "exec", name, "--", "sh", "-c", r"printf 'test:\n\ttouch ../RAN\n' > Makefile; mkdir sub")
        person(planted, "kill", name)
    (planted / "late/one").rename(planted / "new/one")
    (planted / "late").rename(planted / "later")
    (planted / "into").symlink_to("new/one/sub")
    return planted


MOVED = {
    "new/one": ("make test",),
    "new/one/sub": ("ls",),
    "into": ("true",),
    "new": ("make -C one", "ls"),
    "new/deep": ("cat {home}/new/one/Makefile",),
    "later/two": ("make test",),
    "later": ("make test",),
    "safe": ("cat {home}/later/two/sub/x",),
}


@pytest.mark.parametrize("where", first(MOVED, "new/one", "into", "new", "later", "safe"))
def test_a_directory_that_was_moved_is_known(moved: Path, peer: Client, where: str) -> None:
    assert together(peer, moved, moved / where, MOVED[where]) == dict.fromkeys(MOVED[where], BOX)
    assert not (moved / "RAN").exists()


def test_what_lies_beside_one_that_was_moved_is_free(moved: Path, peer: Client) -> None:
    for where in ("new/deep", "copied"):
        assert run(moved, peer, moved / where, "ls") == "ran"


def test_a_directory_made_anew_at_the_same_path_is_known_when_it_is_moved(moved: Path, peer: Client) -> None:
    again = moved / "again"
    for number in range(2):
        again.mkdir()
        person(moved, "new", f"again{number}", "--profile", "workspace", "--cwd", str(again))
        person(moved, "kill", f"again{number}")
        again.rename(moved / f"kept{number}")
    assert [run(moved, peer, moved / f"kept{number}", "ls") for number in range(2)] == [BOX, BOX]


def test_it_is_remembered_when_the_daemon_is_another(planted: Path, moved: Path) -> None:
    stop_daemons(planted)
    with client(planted) as found:
        greet(found, {})
        assert run(planted, found, planted / "shop", "make test") == BOX
        assert run(planted, found, planted / "safe", "ls") == "ran"
        for where in ("new", "later"):
            assert set(together(found, planted, planted / where, MOVED[where]).values()) == {BOX}
    assert not (planted / "RAN").exists()
