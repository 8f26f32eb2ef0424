"""What no box is made of, and boxes that are less than they could be."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from ai_session.errors import SandboxRefused, SandboxUnavailable
from ai_session.models import TRUSTED, SandboxLevel, SandboxProfile
from ai_session.sandbox.sandbox import Sandbox
from tests.ai_session.support.box_users import MOSTLY_ORDINARY
from tests.ai_session.support.boxes import BoxUser, as_user, box_user


@pytest.fixture(params=MOSTLY_ORDINARY)
def here(request: pytest.FixtureRequest) -> Iterator[BoxUser]:
    with box_user(request.param) as made:
        yield made


@pytest.fixture
def repository(here: BoxUser) -> BoxUser:
    here.sh("git init -q . && git config user.name a && git config user.email a@b")
    here.sh("echo one > one && git add one && git commit -qm one && echo TOKEN=x > .env && echo k > tls.key")
    return here


def refused(done: subprocess.CompletedProcess[str]) -> bool:
    return done.returncode != 0 and any(
        word in done.stderr for word in ("Read-only", "busy", "denied", "not permitted", "File exists", "not empty")
    )


def test_read_only_writes_to_memory_alone(repository: BoxUser) -> None:
    before = repository.files()
    done = repository.run(
        "cat one .env; echo x > one; echo y > two; echo z > /tmp/z && cat /tmp/z; git log --oneline | wc -l",
        name="read-only",
    )
    assert done.stdout.split() == ["one", "z", "1"]
    assert done.stderr.count("Read-only") == 2
    assert repository.files() == before


def test_a_link_put_in_after_the_check_leads_nowhere(repository: BoxUser) -> None:
    outside = repository.root / "outside"
    repository.sh("mkdir -p sub ../outside/.git && git init -q sub && echo OUT > ../outside/secret")

    def swap() -> None:
        (repository.workspace / "sub").rename(repository.workspace / "was")
        (repository.workspace / "sub").symlink_to("../outside")

    done = repository.run("cat sub/secret; echo x > sub/secret; echo y > sub/new", between=swap)
    assert "OUT" not in done.stdout
    assert (outside / "secret").read_text() == "OUT\n"
    assert sorted(path.name for path in outside.iterdir()) == [".git", "secret"]


def link(path: str) -> str:
    return f"mkdir -p elsewhere && rm -rf {path} && ln -s $PWD/elsewhere {path}"


@pytest.mark.parametrize(
    "paths", [(".git", ".claude", "sub/.git"), pytest.param((".git/hooks", ".git/info"), marks=pytest.mark.torture)]
)
def test_links_in_protected_places_are_refused(repository: BoxUser, paths: tuple[str, ...]) -> None:
    repository.sh("git init -q sub; cp -a . ../sound")
    for path in paths:
        repository.sh(f"rm -rf .[!.]* *; cp -a ../sound/. .; {link(path)}")
        before = repository.files()
        with pytest.raises(AssertionError, match=r"SandboxRefused.*symbolic link"):
            repository.run("true")
        assert repository.files() == before


def test_unfit_workspaces(here: BoxUser) -> None:
    (here.root / "way").symlink_to(here.workspace)
    unfit: list[Any] = [
        "/",
        "/tmp",
        "/usr",
        "/run/x",
        here.home,
        here.root,
        here.runtime,
        here.runtime / "x",
        here.root / "way",
        "",
    ]

    async def work() -> list[str]:
        sandbox = Sandbox(runtime_directory=here.runtime)
        refusals: list[str] = []
        for path in unfit:
            for profile in (
                SandboxProfile("workspace", str(path), str(here.home)),
                SandboxProfile("workspace", str(here.workspace), str(here.home), writable=(str(path),)),
            ):
                try:
                    await sandbox.prepare(profile, here.runtime / "box")
                except SandboxRefused as refusal:
                    refusals.append(refusal.suggestion)
        return refusals

    answers = as_user(here.uid, lambda: asyncio.run(work()))
    assert len(answers) == 2 * len(unfit)
    assert all(answers)


def test_the_daemons_files_are_never_shown(here: BoxUser) -> None:
    for path in (here.root, here.runtime):
        with pytest.raises(AssertionError, match="SandboxRefused"):
            here.run("true", readable=(str(path),))


def test_trusted_is_no_box(here: BoxUser) -> None:
    async def work() -> Any:
        boxed = await Sandbox(runtime_directory=here.runtime).prepare(TRUSTED, here.runtime / "box", env={"A": "b"})
        return boxed.argv, boxed.level, boxed.env

    assert asyncio.run(work()) == ((), SandboxLevel.NONE, {"A": "b"})


def test_never_weaker_than_asked_for(here: BoxUser) -> None:
    async def work() -> None:
        sandbox = Sandbox(runtime_directory=here.runtime, minimum_level=SandboxLevel.BWRAP)
        with pytest.raises(SandboxUnavailable, match="is required"):
            await sandbox.prepare(here.profile, here.runtime / "box")

    # A process that may open no more files cannot make the probe's box.
    as_user(here.uid, lambda: _with_no_namespaces(lambda: asyncio.run(work())))


def _with_no_namespaces(work: Any) -> None:
    """As in a container whose filter allows neither namespaces nor mounts."""
    import ctypes

    from ai_session.sandbox import seccomp

    program = seccomp.build(network=True)
    buffer = ctypes.create_string_buffer(program, len(program))

    class Program(ctypes.Structure):
        _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]

    libc = ctypes.CDLL(None, use_errno=True)
    described = Program(len(program) // 8, ctypes.addressof(buffer))
    assert libc.prctl(38, 1, 0, 0, 0) == 0
    assert libc.prctl(22, 2, ctypes.byref(described), 0, 0) == 0
    work()
