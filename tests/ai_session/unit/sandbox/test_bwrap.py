"""Bubblewrap's arguments: what is mounted in which order; and the script that starts it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ai_session.errors import SandboxRefused
from ai_session.models import SandboxProfile
from ai_session.sandbox import bwrap
from ai_session.sandbox.bwrap import PLAIN_STARTER, STARTERS, Bubblewrap, Files, Plan, Sources, open_without_links
from ai_session.sandbox.workspace.protected_paths import Protection
from tests.support.bounds import BOUND_SECONDS

ALL = frozenset({"--bind-fd", "--ro-bind-fd", "--size", "--perms", "--disable-userns"})
NEW = Bubblewrap("/usr/bin/bwrap", "0.10", ALL, "/usr/bin/prlimit", STARTERS[0])
OLD = Bubblewrap("/usr/bin/bwrap", "0.4", frozenset(), "/usr/bin/prlimit", PLAIN_STARTER)
TAKES = {"--symlink": 2, "--bind": 2, "--ro-bind": 2, "--ro-bind-try": 2, "--bind-fd": 2, "--ro-bind-fd": 2}


@pytest.fixture
def sources() -> Iterator[Sources]:
    made = Sources()
    yield made
    made.close()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("ws/.git/hooks", "ws/sub/.git"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("ws/.git/config", "ws/.env"):
        (tmp_path / name).touch()
    return tmp_path.resolve()


def mounts(words: list[str]) -> list[tuple[str, str]]:
    """Option and place of each mount, in order."""
    found: list[tuple[str, str]] = []
    rest = iter(words)
    for word in rest:
        if word in ("--size", "--perms"):
            next(rest)
            continue
        for _ in range(TAKES.get(word, 1) - 1):
            next(rest)
        found.append((word, next(rest)))
    return found


def test_outer_places_come_first_and_the_last_word_counts(root: Path, sources: Sources) -> None:
    workspace = str(root / "ws")
    plan = Plan(NEW, sources, "/empty")
    plan.scratch(f"{workspace}/.git/hooks", 1, "0755")
    plan.show(f"{workspace}/.git/config", write=False)
    plan.show(workspace, write=False)
    plan.show(workspace, write=True)
    plan.show(f"{workspace}/.git", write=True)
    assert mounts(plan.arguments()) == [
        ("--bind-fd", workspace),
        ("--bind-fd", f"{workspace}/.git"),
        ("--ro-bind-fd", f"{workspace}/.git/config"),
        ("--tmpfs", f"{workspace}/.git/hooks"),
        ("--remount-ro", "/"),
    ]


def test_a_name_that_sorts_before_the_slash_stays_outside(root: Path, sources: Sources) -> None:
    """``ws-x`` lies beside ``ws``, though ``-`` comes before ``/``."""
    (root / "ws-x").mkdir()
    plan = Plan(NEW, sources, "/empty")
    for name in ("ws/sub", "ws-x", "ws"):
        plan.show(str(root / name), write=True)
    assert [location for _, location in mounts(plan.arguments())] == [
        str(root / n) for n in ("ws", "ws/sub", "ws-x")
    ] + ["/"]


def test_descriptors_are_numbered_as_they_are_used(root: Path, sources: Sources) -> None:
    plan = Plan(NEW, sources, "/empty")
    plan.show(str(root / "ws/sub"), write=True)
    plan.show(str(root / "ws"), write=True)
    plan.scratch(str(root / "ws/sub"), 1, "0755")
    words = plan.arguments()
    assert words[:3] == ["--bind-fd", "20", str(root / "ws")]
    assert list(plan.taken) == [20]  # none is left open for what was replaced
    assert os.path.samestat(os.fstat(plan.taken[20]), os.stat(root / "ws"))


def test_protection_is_laid_over_pins_and_pins_over_nothing(root: Path, sources: Sources) -> None:
    workspace = str(root / "ws")
    plan = Plan(NEW, sources, "/empty")
    plan.show(workspace, write=True)
    git = f"{workspace}/.git"
    plan.protect(Protection((f"{git}/config", f"{git}/hooks"), (git, workspace), (f"{workspace}/.env",)))
    assert mounts(plan.arguments()) == [
        ("--bind-fd", workspace),
        ("--ro-bind", f"{workspace}/.env"),
        ("--bind-fd", git),
        ("--ro-bind-fd", f"{git}/config"),
        ("--ro-bind-fd", f"{git}/hooks"),
        ("--remount-ro", "/"),
    ]
    assert plan.arguments()[plan.arguments().index("--ro-bind") + 1] == "/empty"


def test_hidden_directories_are_sealed_after_all_mounts(root: Path, sources: Sources) -> None:
    plan = Plan(NEW, sources, "/empty")
    plan.hide(str(root / "ws/sub"))
    plan.show(str(root / "ws"), write=True)
    assert mounts(plan.arguments())[-2:] == [("--remount-ro", str(root / "ws/sub")), ("--remount-ro", "/")]


def test_by_path_where_descriptors_are_not_taken(root: Path, sources: Sources) -> None:
    plan = Plan(OLD, sources, "/empty")
    plan.show(str(root / "ws"), write=True)
    plan.show(str(root / "ws/sub"), write=False)
    plan.scratch("/tmp", 5, "1777")
    words = plan.arguments()
    assert words[:2] == ["--tmpfs", "/tmp"]
    assert words[2:5] == ["--bind", str(root / "ws"), str(root / "ws")]
    assert words[5:8] == ["--ro-bind", str(root / "ws/sub"), str(root / "ws/sub")]
    assert plan.taken == {}


def test_the_system_is_read_only(sources: Sources) -> None:
    plan = Plan(NEW, sources, "/empty")
    plan.system(["/etc/shadow", "/etc/ssl"], network=False)
    found = {location: option for option, location in mounts(plan.arguments()) if option != "--remount-ro"}
    writable = {location for location, option in found.items() if option in ("--bind", "--bind-fd", "--tmpfs")}
    assert writable == {"/run", "/var/tmp", "/dev/shm", "/etc/ssl"}
    assert (found["/proc"], found["/proc/sys"], found["/etc/shadow"]) == ("--proc", "--ro-bind", "--ro-bind")
    assert ("--remount-ro", "/etc/ssl") in mounts(plan.arguments())


@pytest.mark.parametrize(
    ("network", "expected"), [("off", ["--unshare-net"]), ("proxy", ["--unshare-net", "--info-fd"]), ("host", [])]
)
def test_namespaces(sources: Sources, network: str, expected: list[str]) -> None:
    plan = Plan(NEW, sources, "/empty")
    profile = SandboxProfile("workspace", "/ws", network=network)  # pyright: ignore[reportArgumentType]
    env = {"A": "1\n2", "TERM": "x"}
    gated = network == "proxy"
    words = bwrap.arguments(NEW, plan, profile, env, die_with_parent=False, gated=gated).decode().split("\0")
    assert {"--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--disable-userns"} <= {*words}
    assert [word for word in words if word in ("--unshare-net", "--info-fd")] == expected
    assert words[words.index("--cap-drop") + 1] == "ALL"
    assert words[words.index("--setenv") :][:3] == ["--setenv", "A", "1\n2"]
    assert "TERM" not in words
    assert "--new-session" not in words
    assert "--die-with-parent" not in words
    assert b"--die-with-parent" in bwrap.arguments(NEW, plan, profile, {}, die_with_parent=True, gated=False)


def test_no_link_on_the_way(root: Path) -> None:
    os.close(open_without_links(str(root / "ws/.git/config")))
    (root / "link").symlink_to("ws")
    for path in ("link", "link/.git", "link/.env"):
        with pytest.raises(SandboxRefused, match="symbolic link"):
            open_without_links(str(root / path))
    before = len(os.listdir("/proc/self/fd"))
    for path in ("ws/nothing", "ws/.env/below"):
        with pytest.raises((FileNotFoundError, NotADirectoryError)):
            open_without_links(str(root / path))
    assert len(os.listdir("/proc/self/fd")) == before


def test_what_is_neither_file_nor_directory_is_not_shown(root: Path, sources: Sources) -> None:
    """The starter could not open it."""
    os.mkfifo(root / "fifo")
    with pytest.raises(SandboxRefused, match="neither a file nor a directory") as refused:
        Plan(NEW, sources, "/empty").show(str(root / "fifo"), write=False)
    assert "directory that it lies in" in refused.value.suggestion


AWKWARD = st.text(st.characters(blacklist_characters="/\0", blacklist_categories=("Cs",)), min_size=1, max_size=12)


@settings(max_examples=20, deadline=None)
@given(name=AWKWARD.filter(lambda name: name not in (".", "..") and len(os.fsencode(name)) < 60), plain=st.booleans())
def test_the_starter_with_any_path(name: str, plain: bool, tmp_path_factory: pytest.TempPathFactory) -> None:
    """In place of bubblewrap a program that tells its words and what it can read on its descriptors."""
    directory = tmp_path_factory.mktemp("box") / name
    directory.mkdir()
    files, sources = Files(directory), Sources()
    (directory / "told").write_text('#!/bin/sh\nprintf "%s\\0" "$@"; cat <&8; ls /proc/self/fd >&2\n')
    (directory / "told").chmod(0o755)
    made = OLD if plain else NEW
    bubblewrap = Bubblewrap(files / "told", "1", made.options, files / "prlimit", made.starter)
    plan = Plan(bubblewrap, sources, files / "empty")
    plan.show(str(directory), write=True)
    profile = SandboxProfile("workspace", str(directory))
    argv = bwrap.write(bubblewrap, plan, files, profile, {"V": name}, die_with_parent=False, gated=False)
    taken = os.open(files / "taken", os.O_RDWR | os.O_NONBLOCK)
    try:
        reported = subprocess.run([*argv, "run", name, ""], capture_output=True, check=True, timeout=BOUND_SECONDS)
        assert os.read(taken, 10) == b"\n"
    finally:
        os.close(taken)
        sources.close()
    words = reported.stdout.split(b"\0")
    start = words.index(b"run")
    assert words[:3] == [b"--args", b"8", b"--"]
    assert os.fsdecode(words[3]) == files / "prlimit"
    assert words[start + 1 : start + 3] == [os.fsencode(name), b""]
    assert os.fsencode(name) in words[start + 3 :]  # V, of the arguments on descriptor 8
    expected = {"0", "1", "2", "3", "8", "9"} | (set() if plain else {"20"})
    assert {*reported.stderr.decode().split()} == expected


LEASE = """
import fcntl, signal, sys
signal.signal(signal.SIGIO, signal.SIG_IGN)
file = open(sys.argv[1], "r+")
fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
print("held", flush=True)
sys.stdin.read()
"""


def test_a_file_that_a_program_holds_a_lease_on_is_refused_rather_than_waited_for(root: Path, sources: Sources) -> None:
    """Whoever opens it waits up to 45 seconds, also the shell that starts the box."""
    words = [sys.executable, "-c", LEASE, str(root / "ws/.env")]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(SandboxRefused, match=r"a program holds a lease on .*\.env'") as caught:
            sources.add(str(root / "ws/.env"))
        assert "end that program" in caught.value.suggestion
        sources.add(str(root / "ws/.git/config"))
        holder.communicate(timeout=BOUND_SECONDS)
    fresh = Sources()
    fresh.add(str(root / "ws/.env"))
    fresh.close()
