"""What an agent may leave in its clone, or do while its work is taken over, to have something outside read or run."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ccswarm.errors import Conflict, WorkRefused, WorkspaceUnusable
from ccswarm.workspaces import Clone
from tests.ccswarm.clones_world import World

pytestmark = pytest.mark.anyio

SECRET = "the-secret-of-the-host"


@pytest.fixture
def place(tmp_path: Path) -> World:
    world = World(tmp_path)
    world.write(tmp_path / "outside/key", SECRET)
    return world


async def refusal(place: World, clone: Clone) -> str:
    """Why nothing is taken over, while nothing was lost."""
    head = place.git("rev-parse", "HEAD")
    with pytest.raises(WorkRefused) as caught:
        await place.workspaces.merge(clone, "its work")
    assert str(clone.path) in caught.value.suggestion
    assert (place.git("rev-parse", "HEAD"), place.git("status", "--porcelain")) == (head, "")
    return caught.value.message


def trap(place: World, name: str) -> str:
    """A command that leaves a trace when something runs it."""
    return f"sh -c 'echo {name} >>{place.directory}/ran; cat'"


def nothing_ran(place: World) -> bool:
    return not (place.directory / "ran").exists()


def nested(place: World, at: Path) -> None:
    """A repository whose file looks changed, and whose clean filter is a program."""
    at.mkdir(parents=True)
    place.git("init", "-q", at=at)
    place.write(at / "f", "x\n")
    place.write(at / ".gitattributes", "* filter=evil\n")
    place.commit(at, "inner")
    place.git("config", "filter.evil.clean", trap(place, "clean"), at=at)
    place.git("config", "core.fsmonitor", trap(place, "fsmonitor"), at=at)
    os.utime(at / "f", (0, 0))


@pytest.mark.parametrize("added", [True, False])
@pytest.mark.parametrize("inner", ["sub", "a/b/sub", "sub/of/sub"])
async def test_a_repository_inside_is_refused_by_name_and_never_asked(place: World, inner: str, added: bool) -> None:
    clone = await place.work("ada", "b.txt", "b\n")
    nested(place, clone.path / inner)
    if inner == "sub/of/sub":
        nested(place, clone.path / "sub/deeper")
    if added:
        place.git("-c", "protocol.file.allow=always", "add", inner, at=clone.path)
        place.git("commit", "-qm", "a link to it", at=clone.path)
        os.utime(clone.path / inner / "f", (0, 0))
    (place.directory / "ran").unlink(missing_ok=True)
    assert inner.partition("/")[0] in await refusal(place, clone)
    assert nothing_ran(place)


@pytest.mark.parametrize("name", [".git", ".GIT", ".Git ", "git~1", ".g\u200cit", ".git."])
@pytest.mark.parametrize("kind", ["file", "directory", "link"])
async def test_whatever_some_file_system_takes_for_git_is_refused(place: World, name: str, kind: str) -> None:
    clone = await place.work("ada", "b.txt", "b\n")
    place.write(clone.path / "sub/f", "f\n")
    at = clone.path / "sub" / name
    if kind == "directory":
        place.write(at / "config", "[core]\n")
    elif kind == "link":
        at.symlink_to(place.repository / ".git")
    else:
        at.write_text(f"gitdir: {place.repository}/.git\n")
    assert "sub" in await refusal(place, clone)


async def test_a_repository_in_an_ignored_directory_is_none_of_ours(place: World) -> None:
    clone = await place.work("ada", ".gitignore", ".venv/\n/tools\n")
    nested(place, clone.path / ".venv/src/pkg")
    nested(place, clone.path / "tools")
    assert (await place.workspaces.merge(clone, "its work")).commits == 1
    assert nothing_ran(place)


async def test_a_link_to_a_commit_elsewhere_is_refused(place: World) -> None:
    clone = await place.work("ada", "b.txt", "b\n")
    place.git("update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},lib", at=clone.path)
    place.git("commit", "-qm", "lib", at=clone.path)
    assert re.search(r"another repository was added.*: lib", await refusal(place, clone))


async def test_the_persons_submodules_stay_as_they_are(place: World) -> None:
    nested(place, place.directory / "library")
    place.git("-c", "protocol.file.allow=always", "submodule", "add", "-q", str(place.directory / "library"), "lib")
    place.git("commit", "-qm", "a submodule")
    (place.directory / "ran").unlink(missing_ok=True)
    clone = await place.work("ada", "b.txt", "b\n")
    assert (await place.workspaces.merge(clone, "its work")).commits == 1
    assert place.git("ls-files", "-s", "lib").startswith("160000")
    place.write(clone.path / "lib/f", "written where the submodule would be\n")
    shutil.copytree(place.directory / "library/.git", clone.path / "lib/.git")
    assert "lib" in await refusal(place, clone)
    assert nothing_ran(place)


async def test_a_repository_without_a_work_tree_is_refused(place: World) -> None:
    clone = await place.work("ada", "b.txt", "b\n")
    place.git("init", "-q", "--bare", "docs/evil", at=clone.path)
    config = clone.path / "docs/evil/config"
    config.write_text(config.read_text() + f"[core]\n\tfsmonitor = {trap(place, 'bare')}\n")
    place.write(clone.path / "docs/evil/objects/keep", "")
    place.write(clone.path / "docs/evil/refs/keep", "")
    assert "'docs/evil' is a git repository without a work tree" in await refusal(place, clone)
    place.commit(clone.path, "and committed")
    assert "'docs/evil' is a git repository without a work tree" in await refusal(place, clone)
    assert nothing_ran(place)


async def test_files_that_go_through_a_filter_of_the_person_stay_or_are_refused(place: World) -> None:
    """As with Git LFS: the repository holds other bytes than the directory."""
    place.git("config", "filter.up.clean", "tr a-z A-Z")
    place.git("config", "--global", "filter.up.smudge", "tr A-Z a-z")
    place.write(place.repository / ".gitattributes", "*.up filter=up\n")
    place.write(place.repository / "big.up", "big\n")
    place.commit(place.repository, "big")
    assert place.git("show", "HEAD:big.up") == "BIG"
    clone = await place.workspaces.clone("run_1", "ada")
    assert (clone.path / "big.up").read_text() == "big\n"
    place.write(clone.path / "b.txt", "b\n")
    assert (await place.workspaces.merge(clone, "its work")).commits == 1
    assert place.git("show", "HEAD:big.up") == "BIG"
    for name in ("big.up", "own/x"):
        there = await place.workspaces.clone("run_1", name.replace("/", "."))
        place.write(there.path / "own/.gitattributes", "* filter=up\n" if name == "own/x" else "")
        place.write(there.path / name, "changed\n")
        place.write(there.path / "own/y", "")
        assert "goes through the filter 'up'" in await refusal(place, there)


async def test_line_ends_are_kept_as_the_person_says(place: World) -> None:
    place.write(place.repository / ".gitattributes", "*.bat text eol=crlf\n*.txt text\n")
    (place.repository / "run.bat").write_bytes(b"one\r\ntwo\r\n")
    place.commit(place.repository, "bat")
    clone = await place.workspaces.clone("run_1", "ada")
    assert (clone.path / "run.bat").read_bytes() == b"one\r\ntwo\r\n"
    assert await place.workspaces.collect(clone, "nothing") == 0
    (clone.path / "run.bat").write_bytes(b"one\r\nthree\r\n")
    (clone.path / "new.txt").write_bytes(b"a\r\nb\n")
    assert (await place.workspaces.merge(clone, "its work")).commits == 1
    assert place.git("cat-file", "blob", "HEAD:run.bat") == "one\nthree"
    assert place.git("cat-file", "blob", "HEAD:new.txt") == "a\nb"
    assert (place.repository / "run.bat").read_bytes() == b"one\r\nthree\r\n"
    assert place.git("status", "--porcelain") == ""


async def test_objects_of_another_repository_are_not_reached(place: World) -> None:
    """An agent that knows a commit's name points its clone at the objects of the repository that has it."""
    private = place.directory / "private"
    private.mkdir()
    place.git("init", "-q", at=private)
    place.write(private / "key", SECRET)
    commit = place.commit(private, "private")
    for way in ("alternates", "objects", "folder", "pack"):
        clone = await place.work(way, "b.txt", "b\n")
        git = clone.path / ".git"
        if way == "alternates":
            place.write(git / "objects/info/alternates", f"{private}/.git/objects\n")
        elif way == "objects":
            (git / "objects").rename(git / "gone")
            (git / "objects").symlink_to(private / ".git/objects")
        elif way == "folder":
            for folder in (private / ".git/objects").glob("??"):
                shutil.rmtree(git / "objects" / folder.name, ignore_errors=True)
                (git / "objects" / folder.name).symlink_to(folder)
        else:
            place.git("repack", "-adq", at=private)
            for file in (private / ".git/objects/pack").iterdir():
                (git / "objects/pack" / file.name).symlink_to(file)
        (git / "refs/heads" / clone.branch).write_text(commit + "\n")
        assert "does not hold its commit" in await refusal(place, clone)


async def test_what_stands_where_the_clones_repository_was_is_not_followed(place: World) -> None:
    for kind in ("link", "file", "gone", "branch-link", "symref"):
        clone = await place.work(kind, "b.txt", "b\n")
        git = clone.path / ".git"
        branch = git / "refs/heads" / clone.branch
        if kind in ("link", "file", "gone"):
            git.rename(place.directory / f"moved-{kind}")
            if kind == "link":
                git.symlink_to(place.directory / f"moved-{kind}")
            elif kind == "file":
                git.write_text(f"gitdir: {place.directory}/moved-{kind}\n")
        elif kind == "branch-link":
            branch.unlink()
            branch.symlink_to(place.directory / "outside/key")
        else:
            branch.write_text("ref: refs/heads/main\n")
        assert "has no branch" in await refusal(place, clone)


async def test_hostile_objects_are_told_from_sound_ones(place: World) -> None:
    cases: dict[str, Callable[[Clone], None]] = {
        "loose": lambda clone: corrupt(place, clone),
        "pack": lambda clone: place.write(clone.path / ".git/objects/pack/pack-1.pack", "PACK nothing"),
        "dotgit": lambda clone: tree_with(place, clone, b".git"),
        "dotdot": lambda clone: tree_with(place, clone, b".."),
    }
    for name, plant in cases.items():
        clone = await place.work(name, "b.txt", "b\n")
        plant(clone)
        assert await refusal(place, clone)
    assert not (place.directory / "f").exists()


def corrupt(place: World, clone: Clone) -> None:
    head = place.git("rev-parse", "HEAD^{tree}", at=clone.path)
    path = clone.path / ".git/objects" / head[:2] / head[2:]
    path.chmod(0o600)
    path.write_bytes(b"\x78\x01" + os.urandom(50))


def tree_with(place: World, clone: Clone, name: bytes) -> None:
    """A commit whose tree holds a directory of that name."""

    def made(kind: str, data: bytes) -> str:
        words = ["git", "hash-object", "-w", "-t", kind, "--stdin", "--literally"]
        done = subprocess.run(words, cwd=clone.path, env=place.environ, input=data, capture_output=True, check=True)
        return done.stdout.decode().strip()

    inner = made("tree", b"100644 f\0" + bytes.fromhex(made("blob", b"x")))
    tree = made("tree", b"40000 " + name + b"\0" + bytes.fromhex(inner))
    commit = place.git("commit-tree", tree, "-p", "HEAD", "-m", "m", at=clone.path)
    (clone.path / ".git/refs/heads" / clone.branch).write_text(commit + "\n")


async def test_a_tree_that_stands_for_billions_of_files_is_refused(place: World) -> None:
    clone = await place.work("ada", "b.txt", "b\n")
    inner = place.git("rev-parse", "HEAD^{tree}", at=clone.path)
    for _ in range(10):
        lines = "".join(f"040000 tree {inner}\t{number}\n" for number in range(10))
        inner = place.git("mktree", at=clone.path, given=lines)
    commit = place.git("commit-tree", inner, "-p", "HEAD", "-m", "bomb", at=clone.path)
    (clone.path / ".git/refs/heads" / clone.branch).write_text(commit + "\n")
    assert "holds too many files" in await refusal(place, clone)


async def test_pipes_sockets_and_files_that_nobody_may_read(place: World, home: Path) -> None:
    clone = await place.work("ada", "b.txt", "b\n")
    os.mkfifo(clone.path / "pipe")
    os.mkfifo(clone.path / ".gitignore")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{home}/s")
        Path(f"{home}/s").rename(clone.path / "socket")
        assert (await place.workspaces.merge(clone, "its work")).commits == 1
    with (clone.path / "sparse").open("wb") as file:
        file.truncate(3 << 30)
    assert "'sparse' has more than" in await refusal(place, clone)


async def test_any_name_a_file_may_have_comes_over(place: World) -> None:
    clone = await place.workspaces.clone("run_1", "ada")
    names = [
        b"-x",
        b":(glob)*",
        b":!a",
        b'"quoted"',
        b"tab\there",
        b"line\nbreak",
        b"a*[b]?",
        b"\xff\xfe",
        b" ",
        b"\\",
        b"~",
    ]
    for name in names:
        (clone.path / os.fsdecode(name)).write_bytes(name)
        place.write(clone.path / "d" / os.fsdecode(name) / "f", "f")
    assert (await place.workspaces.merge(clone, "its work")).commits == 1
    for name in names:
        assert (place.repository / os.fsdecode(name)).read_bytes() == name
        assert (place.repository / "d" / os.fsdecode(name) / "f").exists()
    assert place.git("status", "--porcelain") == ""


async def test_what_configures_ccswarm_is_merged_by_a_person_only(place: World) -> None:
    for number, name in enumerate(("ccswarm.toml", "deep/CCSWARM.toml")):
        clone = await place.work(f"ada{number}", name, "[mcp]\n")
        with pytest.raises(Conflict, match=rf"changes what ccswarm is configured by: {name}") as caught:
            await place.workspaces.merge(clone, "its work")
        assert clone.ref in caught.value.suggestion
        assert not (place.repository / name).exists()


async def test_what_takes_commands_from_files_is_changed_by_a_person_only(place: World) -> None:
    """Settings of editors, agents and shells by name; hooks and further configuration as the person's git names it."""
    place.git("config", "core.hooksPath", "tools/hk")
    place.git("config", "include.path", "../more/gitconfig")
    place.git("config", "alias.x", "!sh scripts/x.sh")
    names = (".envrc", "sub/.vscode/tasks.json", ".gitmodules", "tools/hk/pre-commit", "more/gitconfig", "scripts/x.sh")
    for number, name in enumerate(names):
        clone = await place.work(f"ada{number}", name, "id\n")
        with pytest.raises(Conflict, match=rf"take commands from: {re.escape(name)}") as caught:
            await place.workspaces.merge(clone, "its work")
        assert clone.ref in caught.value.suggestion
        assert not (place.repository / name).exists()
    clone = await place.work("eve", "tools/other", "id\n")
    assert (await place.workspaces.merge(clone, "its work")).commits == 1


@contextmanager
def exchanging(one: Path, other: Path) -> Iterator[None]:
    """Somebody exchanges two names as fast as can be."""
    code = "import ctypes, sys; c = ctypes.CDLL(None); a, b = (p.encode() for p in sys.argv[1:])\nprint(flush=True)\n"
    code += "while 1: c.renameat2(-100, a, -100, b, 2)"
    swapper = subprocess.Popen([sys.executable, "-c", code, one, other], stdout=subprocess.PIPE)
    assert swapper.stdout
    swapper.stdout.readline()
    try:
        yield
    finally:
        swapper.kill()
        swapper.communicate()


def everything(place: World) -> str:
    """All that lies in the person's repository, whatever it is called."""
    names = place.git("cat-file", "--batch-all-objects", "--batch-check=%(objectname) %(objecttype)").splitlines()
    blobs = "\n".join(line.split()[0] for line in names if line.endswith("blob"))
    done = subprocess.run(
        ["git", "cat-file", "--batch"],
        cwd=place.repository,
        env=place.environ,
        input=blobs.encode(),
        capture_output=True,
    )
    return done.stdout.decode(errors="replace")


@pytest.mark.parametrize("what", ["directory", "file", ".gitignore", ".git/refs", ".git/objects"])
async def test_a_link_exchanged_with_what_is_read_shows_nothing_of_the_host(place: World, what: str) -> None:
    clone = await place.work("ada", "b.txt", "b\n")
    outside, within = place.directory / "outside", clone.path / "d"
    within.mkdir()
    for number in range(30):
        (outside / f"k{number}").write_text(f"{SECRET} {number}")
        (within / f"k{number}").write_text("x" * 30)
    place.write(outside / "objects/ab/" / ("c" * 38), SECRET)
    place.write(outside / "heads" / clone.branch, SECRET)
    one, target = {
        "directory": (within, outside),
        "file": (clone.path / "b.txt", outside / "key"),
        ".gitignore": (clone.path / ".gitignore", outside / "key"),
        ".git/refs": (clone.path / ".git/refs", outside),
        ".git/objects": (clone.path / ".git/objects", outside / "objects"),
    }[what]
    if not one.exists():
        one.write_text("zz\n")
    link = clone.path / ".git/zz"
    link.symlink_to(target)
    said = ""
    with exchanging(one, link):
        for _ in range(5):
            try:
                await place.workspaces.collect(clone, "its work")
            except (WorkRefused, WorkspaceUnusable) as refused:
                said += refused.message
    assert SECRET not in said + everything(place)


async def test_a_merge_does_not_write_through_links_in_the_persons_directory(place: World) -> None:
    """Others may be at work where the person is, too."""
    target = place.directory / "outside"
    place.write(place.repository / "d/a", "a\n")
    place.commit(place.repository, "d")
    clone = await place.work("ada", "d/key", "written\n")
    (place.repository / "d").rename(place.repository / "e")
    (place.repository / "d").symlink_to(target)
    with pytest.raises(Conflict):
        await place.workspaces.merge(clone, "its work")
    assert (target / "key").read_text() == SECRET
    (place.repository / "d").unlink()
    (place.repository / "e").rename(place.repository / "d")
    link = place.repository / "zz"
    link.symlink_to(target)
    with exchanging(place.repository / "d", link):
        for _ in range(10):
            try:
                await place.workspaces.merge(clone, "its work")
            except (Conflict, OSError):
                continue
            break
    assert (target / "key").read_text() == SECRET
    assert {path.name for path in target.iterdir()} == {"key"}


async def test_no_program_of_the_persons_configuration_is_run_on_what_agents_made(place: World) -> None:
    """Where a box protects nothing, the person's own configuration may be an agent's."""
    clone = await place.work("ada", "a.txt", "changed\n")
    place.write(clone.path / "b.txt", "b\n")
    config = place.repository / ".git/config"
    config.write_text(
        config.read_text()
        + f"[core]\n\tfsmonitor = {trap(place, 'fsmonitor')}\n\thooksPath = {place.directory}/hooks\n"
        + f'[filter "x"]\n\tclean = {trap(place, "clean")}\n\tsmudge = {trap(place, "smudge")}\n\trequired = true\n'
        + f'[merge "x"]\n\tdriver = {trap(place, "driver")}\n[diff]\n\texternal = {trap(place, "diff")}\n'
        + f'[diff "x"]\n\ttextconv = {trap(place, "textconv")}\n\tcommand = {trap(place, "command")}\n'
        + f"[uploadpack]\n\tpackObjectsHook = {trap(place, 'pack')}\n[gpg]\n\tprogram = {trap(place, 'gpg')}\n"
        + '[commit]\n\tgpgSign = true\n[url "ext::sh -c %S"]\n\tinsteadOf = /\n[protocol]\n\tallow = always\n'
    )
    place.write(place.repository / ".git/info/attributes", "* filter=x diff=x merge=x\n")
    for name in ("post-merge", "reference-transaction", "post-index-change", "pre-commit", "post-checkout"):
        place.write(place.directory / "hooks" / name, f"#!/bin/sh\n{trap(place, name)}\n")
        (place.directory / "hooks" / name).chmod(0o755)
    assert (await place.workspaces.merge(clone, "its work")).commits == 2
    assert (place.repository / "a.txt").read_text() == "changed\n"
    assert nothing_ran(place)


WORDS = st.sampled_from(["a", "b", "sub", ".gitignore", ".gitattributes", "zz", "é", "x y", ".env"])
PATHS = st.lists(WORDS, min_size=1, max_size=3).map("/".join)
ENTRIES = st.one_of(
    st.tuples(st.just("file"), PATHS, st.sampled_from(["", "x\n", "*\n", "!*\n", "* filter=x eol=crlf\n", "sub/\n"])),
    st.tuples(st.just("link"), PATHS, st.sampled_from(["outside", "outside/key", "/", "..", "."])),
    st.tuples(st.just("pipe"), PATHS, st.just("")),
    st.tuples(st.just("hard"), PATHS, st.just("")),
    st.tuples(st.just("repository"), PATHS, st.just("")),
    st.tuples(st.just("folder"), PATHS, st.just("")),
)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(entries=st.lists(ENTRIES, max_size=12), committed=st.booleans())
def test_whatever_lies_in_a_clone_nothing_else_is_read_and_only_git_is_run(
    tmp_path_factory: pytest.TempPathFactory, entries: list[tuple[str, str, str]], committed: bool
) -> None:
    directory = tmp_path_factory.mktemp("c")
    place = World(directory)
    place.write(directory / "outside/key", SECRET)
    clone_path = directory / "clones/run_1/ada"
    run_in(place, "clone")
    for kind, name, text in sorted(entries, key=lambda one: one[0] == "pipe"):
        if kind == "pipe" and committed:
            break  # the agent's own git would wait for somebody to write into it
        plant(place, clone_path, kind, name, text)
    if committed:
        words = ["git", "add", "-A"], ["git", "commit", "-qm", "all"]
        for one in words:
            subprocess.run(one, cwd=clone_path, env=place.environ, capture_output=True)
    (directory / "ran").unlink(missing_ok=True)
    log = directory / "trace"
    run_in(place, "collect", "strace", "-f", "-y", "-qq", "-e", "trace=execve,open,openat,openat2", "-o", str(log))
    said = log.read_text()
    opened = re.findall(r"(?:open|openat|openat2)\(.*\) = \d+<(.*)>$", said, re.MULTILINE)
    assert any(str(clone_path) in path for path in opened), "what was looked at is seen at all"
    assert [path for path in opened if path.startswith(f"{directory}/outside")] == []
    started = set(re.findall(r"execve\(\"([^\"]*)\".*\) = 0$", said, re.MULTILINE))
    assert {Path(path).name for path in started} <= {"git", Path(sys.executable).name}
    assert nothing_ran(place)
    assert SECRET not in everything(place)


def run_in(place: World, what: str, *before: str) -> None:
    code = f"""
import asyncio
from pathlib import Path
from ccswarm.errors import SwarmError
from ccswarm.workspaces import Workspaces
async def main():
    there = Workspaces(Path({str(place.repository)!r}), Path({str(place.directory / "clones")!r}), {place.environ!r})
    clone = await there.clone("run_1", "ada")
    if {what == "collect"}:
        await there.collect(clone, "work")
try:
    asyncio.run(main())
except SwarmError as error:
    print(error.message)
"""
    subprocess.run([*before, sys.executable, "-c", code], check=True, capture_output=True, timeout=50)


def plant(place: World, top: Path, kind: str, name: str, text: str) -> None:
    path = top / name
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if kind == "file":
            path.write_text(text)
        elif kind == "link":
            path.symlink_to(place.directory / text if "outside" in text else text)
        elif kind == "pipe":
            os.mkfifo(path)
        elif kind == "hard":
            os.link(top / "a.txt", path)
        elif kind == "folder":
            path.mkdir()
        else:
            nested(place, path)
    except OSError:
        return  # something else has the name
