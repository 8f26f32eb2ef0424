"""What an agent may leave in its clone, or do while its work is taken over, to have something outside read or run."""

from __future__ import annotations

import asyncio
import ctypes
import os
import re
import select
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from ccswarm.clones.clones import Clone, Workspaces
from ccswarm.clones.collect import Clones
from ccswarm.clones.git import Git
from ccswarm.errors import Conflict, WorkRefused, WorkspaceUnusable
from ccswarm.system.bounded_process import Bounds, OutOfTime, time_limit
from ccswarm.system.untrusted_tree import UntrustedTree
from tests.ccswarm.support.clones import ClonedProject
from tests.ccswarm.support.clones_commands import BY_GIT, BY_LINKS, Tree, lay
from tests.support.bounds import BOUND_SECONDS
from tests.support.products import first

pytestmark = pytest.mark.anyio

SECRET = "the-secret-of-the-host"


@pytest.fixture
def cloned(tmp_path: Path) -> ClonedProject:
    project = ClonedProject(tmp_path)
    project.write(tmp_path / "outside/key", SECRET)
    return project


async def refusal(cloned: ClonedProject, clone: Clone) -> str:
    """Why nothing is taken over, while nothing was lost."""
    head = cloned.git("rev-parse", "HEAD")
    with pytest.raises(WorkRefused) as caught:
        await cloned.workspaces.merge(clone, "its work")
    assert str(clone.path) in caught.value.suggestion
    assert (cloned.git("rev-parse", "HEAD"), cloned.git("status", "--porcelain")) == (head, "")
    return caught.value.message


def trap(cloned: ClonedProject, name: str) -> str:
    """A command that leaves a trace when something runs it."""
    return f"sh -c 'echo {name} >>{cloned.directory}/ran; cat'"


def nothing_ran(cloned: ClonedProject) -> bool:
    return not (cloned.directory / "ran").exists()


def nested(cloned: ClonedProject, at: Path) -> None:
    """A repository whose file looks changed, and whose clean filter is a program."""
    at.mkdir(parents=True)
    cloned.git("init", "-q", at=at)
    cloned.write(at / "f", "x\n")
    cloned.write(at / ".gitattributes", "* filter=evil\n")
    cloned.commit(at, "inner")
    cloned.git("config", "filter.evil.clean", trap(cloned, "clean"), at=at)
    cloned.git("config", "core.fsmonitor", trap(cloned, "fsmonitor"), at=at)
    os.utime(at / "f", (0, 0))


@pytest.mark.either("added")
@pytest.mark.parametrize("added", [True, False])
@pytest.mark.parametrize("inner", first(("sub", "a/b/sub", "sub/of/sub"), "sub/of/sub"))
async def test_a_repository_inside_is_refused_by_name_and_never_asked(
    cloned: ClonedProject, inner: str, added: bool
) -> None:
    clone = await cloned.work("ada", "b.txt", "b\n")
    nested(cloned, clone.path / inner)
    if inner == "sub/of/sub":
        nested(cloned, clone.path / "sub/deeper")
    if added:
        cloned.git("-c", "protocol.file.allow=always", "add", inner, at=clone.path)
        cloned.git("commit", "-qm", "a link to it", at=clone.path)
        os.utime(clone.path / inner / "f", (0, 0))
    (cloned.directory / "ran").unlink(missing_ok=True)
    assert inner.partition("/")[0] in await refusal(cloned, clone)
    assert nothing_ran(cloned)


NAMES_OF_GIT = (".git", ".GIT", ".Git ", "git~1", ".g\u200cit", ".git.")
KINDS = ("file", "directory", "link")


def lay_git(at: Path, kind: str, repository: Path) -> None:
    at.parent.mkdir(exist_ok=True)
    if kind == "directory":
        at.mkdir()
        (at / "config").write_text("[core]\n")
    elif kind == "link":
        at.symlink_to(repository / ".git")
    else:
        at.write_text(f"gitdir: {repository}/.git\n")


@pytest.mark.parametrize("name", first(NAMES_OF_GIT, ".GIT"))
@pytest.mark.parametrize("kind", first(KINDS, "link"))
async def test_whatever_some_file_system_takes_for_git_is_refused(cloned: ClonedProject, name: str, kind: str) -> None:
    clone = await cloned.work("ada", "b.txt", "b\n")
    cloned.write(clone.path / "sub/f", "f\n")
    lay_git(clone.path / "sub" / name, kind, cloned.repository)
    assert "sub" in await refusal(cloned, clone)


def test_git_is_known_by_each_of_its_names(tmp_path: Path) -> None:
    for kind in KINDS:
        for name in NAMES_OF_GIT:
            lay_git(tmp_path / kind / name, kind, tmp_path)
    with UntrustedTree(tmp_path) as tree:
        for kind in KINDS:
            assert tree.list(kind).git == sorted(f"{kind}/{name}" for name in NAMES_OF_GIT)


async def test_a_repository_that_is_ignored_and_what_only_looks_a_little_like_one_are_in_nobodys_way(
    cloned: ClonedProject,
) -> None:
    clone = await cloned.work("ada", ".gitignore", ".venv/\n/tools\n")
    nested(cloned, clone.path / ".venv/src/pkg")
    nested(cloned, clone.path / "tools")
    alike = ("ui/head/index.ts", "ui/config/index.ts", "a/config", "b/HEAD", "c/objects/x", "c/refs/y")
    lay(clone.path, dict.fromkeys(alike, ""))
    assert (await cloned.workspaces.merge(clone, "its work")).commits == 2
    assert nothing_ran(cloned)


async def test_a_link_to_a_commit_elsewhere_is_refused(cloned: ClonedProject) -> None:
    clone = await cloned.work("ada", "b.txt", "b\n")
    cloned.git("update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},lib", at=clone.path)
    cloned.git("commit", "-qm", "lib", at=clone.path)
    assert re.search(r"another repository was added.*: lib", await refusal(cloned, clone))


async def test_the_persons_submodules_stay_as_they_are(cloned: ClonedProject) -> None:
    nested(cloned, cloned.directory / "library")
    cloned.git("-c", "protocol.file.allow=always", "submodule", "add", "-q", str(cloned.directory / "library"), "lib")
    cloned.git("commit", "-qm", "a submodule")
    (cloned.directory / "ran").unlink(missing_ok=True)
    clone = await cloned.work("ada", "b.txt", "b\n")
    assert (await cloned.workspaces.merge(clone, "its work")).commits == 1
    assert cloned.git("ls-files", "-s", "lib").startswith("160000")
    cloned.write(clone.path / "lib/f", "written where the submodule would be\n")
    assert "'lib' is a submodule" in await refusal(cloned, clone)
    shutil.copytree(cloned.directory / "library/.git", clone.path / "lib/.git")
    assert "lib" in await refusal(cloned, clone)
    assert nothing_ran(cloned)


@pytest.mark.torture  # parts of one are refused below
async def test_a_repository_without_a_work_tree_is_refused(cloned: ClonedProject) -> None:
    clone = await cloned.work("ada", "b.txt", "b\n")
    cloned.git("init", "-q", "--bare", "docs/evil", at=clone.path)
    config = clone.path / "docs/evil/config"
    config.write_text(config.read_text() + f"[core]\n\tfsmonitor = {trap(cloned, 'bare')}\n")
    cloned.write(clone.path / "docs/evil/objects/keep", "")
    cloned.write(clone.path / "docs/evil/refs/keep", "")
    assert "'docs/evil' is a git repository without a work tree" in await refusal(cloned, clone)
    cloned.commit(clone.path, "and committed")
    assert "'docs/evil' is a git repository without a work tree" in await refusal(cloned, clone)
    assert nothing_ran(cloned)


HEAD = "ref: refs/heads/main\n"
STORES = {"x/objects/k": "", "x/refs/k": ""}
NO_WORK_TREE: dict[str, tuple[Tree, Tree]] = {
    "split by commondir": (
        {},
        {"x/HEAD": HEAD, "x/commondir": "../y", "y/objects/k": "", "y/refs/k": "", "y/config": ""},
    ),
    "with a configuration of its own": ({}, {"x/HEAD": HEAD, "x/commondir": "../y", "x/config.worktree": ""}),
    "over the person's own": ({}, {"x/HEAD": HEAD, "x/commondir": "../.git", "x/config.worktree": ""}),
    "a HEAD that is a link": ({}, {"x/HEAD": "->refs/heads/main", "x/config": ""}),
    "stores that are links": ({}, {"x/HEAD": HEAD, "x/objects": "->../o", "x/refs": "->../r", "o/k": "", "r/k": ""}),
    "stores of the person": (STORES, {"x/HEAD": HEAD, "x/hooks/post-checkout": ""}),
    "stores and HEAD of the person": ({"x/HEAD": HEAD, **STORES}, {"x/config": ""}),
    "all but hooks of the person": ({"x/HEAD": HEAD, **STORES}, {"x/hooks/post-checkout": ""}),
    "in another case": ({}, {"x/Head": HEAD, "x/CONFIG": ""}),
    "in directories of another case": ({}, {"x/HEAD": HEAD, "X/config": ""}),
    "objects in objects": ({}, {"x/HEAD": HEAD, "x/objects/refs/k": "", "x/refs/objects/k": ""}),
    "at the top": ({"config": ""}, {"HEAD": HEAD}),
}


@pytest.mark.corners
@pytest.mark.parametrize("ignored", [False, True])
@pytest.mark.parametrize(
    "case",
    first(NO_WORK_TREE, "all but hooks of the person"),
)
async def test_parts_of_a_repository_are_refused_wherever_they_come_from(
    cloned: ClonedProject, case: str, ignored: bool
) -> None:
    persons, work = NO_WORK_TREE[case]
    lay(cloned.repository, persons)
    if ignored:
        with (cloned.repository / ".git/info/exclude").open("a") as file:
            file.write("".join(f"/{name}\n" for name in persons))
    elif persons:
        cloned.commit(cloned.repository, "the person's")
    clone = await cloned.workspaces.clone("run_1", "ada")
    lay(clone.path, work)
    assert "git repository without a work tree" in await refusal(cloned, clone)


@pytest.mark.parametrize("changed", first(("big.up", "own/x"), "own/x"))
async def test_files_that_go_through_a_filter_of_the_person_stay_or_are_refused(
    cloned: ClonedProject, changed: str
) -> None:
    """As with Git LFS: the repository holds other bytes than the directory."""
    cloned.git("config", "filter.up.clean", "tr a-z A-Z")
    cloned.git("config", "--global", "filter.up.smudge", "tr A-Z a-z")
    cloned.write(cloned.repository / ".gitattributes", "*.up filter=up\n")
    cloned.write(cloned.repository / "big.up", "big\n")
    cloned.commit(cloned.repository, "big")
    assert cloned.git("show", "HEAD:big.up") == "BIG"
    clone = await cloned.workspaces.clone("run_1", "ada")
    assert (clone.path / "big.up").read_text() == "big\n"
    cloned.write(clone.path / "b.txt", "b\n")
    assert (await cloned.workspaces.merge(clone, "its work")).commits == 1
    assert cloned.git("show", "HEAD:big.up") == "BIG"
    there = await cloned.workspaces.clone("run_1", "bob")
    cloned.write(there.path / "own/.gitattributes", "* filter=up\n" if changed == "own/x" else "")
    cloned.write(there.path / changed, "changed\n")
    cloned.write(there.path / "own/y", "")
    assert "goes through the filter 'up'" in await refusal(cloned, there)


async def test_attributes_that_lead_files_to_a_filter_of_the_person_are_merged_by_them(cloned: ClonedProject) -> None:
    """Not a byte of the file changes, and the next ``git status`` of the person runs that program on it."""
    clone = await cloned.workspaces.clone("run_1", "ada")
    cloned.write(clone.path / ".gitattributes", "*.txt filter=up\n*.bat text eol=crlf\n")
    cloned.git("config", "--global", "filter.up.clean", trap(cloned, "clean"))
    with pytest.raises(Conflict, match=r"go through the filter 'up' of your git configuration: a\.txt") as caught:
        await cloned.workspaces.merge(clone, "its work")
    assert f"git merge {clone.ref}" in caught.value.suggestion
    (cloned.repository / "a.txt").touch()
    assert cloned.git("status", "--porcelain") == ""
    cloned.write(clone.path / ".gitattributes", "*.txt filter=others\n*.bat text eol=crlf\n*.up filter=up\n")
    assert (await cloned.workspaces.merge(clone, "its work")).commits == 1
    (cloned.repository / "a.txt").touch()
    assert cloned.git("status", "--porcelain") == ""
    assert nothing_ran(cloned)


@pytest.mark.torture  # test_workspaces.py compares all that is merged with what git checks out
async def test_line_ends_are_kept_as_the_person_says(cloned: ClonedProject) -> None:
    cloned.write(cloned.repository / ".gitattributes", "*.bat text eol=crlf\n*.txt text\n")
    (cloned.repository / "run.bat").write_bytes(b"one\r\ntwo\r\n")
    cloned.commit(cloned.repository, "bat")
    clone = await cloned.workspaces.clone("run_1", "ada")
    assert (clone.path / "run.bat").read_bytes() == b"one\r\ntwo\r\n"
    assert await cloned.workspaces.commit(clone, "nothing") == clone.base
    (clone.path / "run.bat").write_bytes(b"one\r\nthree\r\n")
    (clone.path / "new.txt").write_bytes(b"a\r\nb\n")
    assert (await cloned.workspaces.merge(clone, "its work")).commits == 1
    assert cloned.git("cat-file", "blob", "HEAD:run.bat") == "one\nthree"
    assert cloned.git("cat-file", "blob", "HEAD:new.txt") == "a\nb"
    assert (cloned.repository / "run.bat").read_bytes() == b"one\r\nthree\r\n"
    assert cloned.git("status", "--porcelain") == ""


@pytest.mark.parametrize(
    "ways", [("alternates", "folder"), pytest.param(("objects", "pack"), marks=pytest.mark.torture)], ids=str
)
async def test_objects_of_another_repository_are_not_reached(cloned: ClonedProject, ways: Sequence[str]) -> None:
    """An agent that knows a commit's name points its clone at the objects of the repository that has it."""
    private = cloned.directory / "private"
    private.mkdir()
    cloned.git("init", "-q", at=private)
    cloned.write(private / "key", SECRET)
    commit = cloned.commit(private, "private")
    for way in ways:
        clone = await cloned.work(way, "b.txt", "b\n")
        git = clone.path / ".git"
        if way == "alternates":
            cloned.write(git / "objects/info/alternates", f"{private}/.git/objects\n")
        elif way == "objects":
            (git / "objects").rename(git / "gone")
            (git / "objects").symlink_to(private / ".git/objects")
        elif way == "folder":
            for folder in (private / ".git/objects").glob("??"):
                shutil.rmtree(git / "objects" / folder.name, ignore_errors=True)
                (git / "objects" / folder.name).symlink_to(folder)
        else:
            cloned.git("repack", "-adq", at=private)
            for file in (private / ".git/objects/pack").iterdir():
                (git / "objects/pack" / file.name).symlink_to(file)
        (git / "refs/heads" / clone.branch).write_text(commit + "\n")
        assert "is incomplete" in await refusal(cloned, clone)


@pytest.mark.parametrize(
    "kinds", [("link", "branch-link"), pytest.param(("file", "gone", "symref"), marks=pytest.mark.torture)], ids=str
)
async def test_what_stands_where_the_clones_repository_was_is_not_followed(
    cloned: ClonedProject, kinds: Sequence[str]
) -> None:
    for kind in kinds:
        clone = await cloned.work(kind, "b.txt", "b\n")
        git = clone.path / ".git"
        branch = git / "refs/heads" / clone.branch
        if kind in ("link", "file", "gone"):
            git.rename(cloned.directory / f"moved-{kind}")
            if kind == "link":
                git.symlink_to(cloned.directory / f"moved-{kind}")
            elif kind == "file":
                git.write_text(f"gitdir: {cloned.directory}/moved-{kind}\n")
        elif kind == "branch-link":
            branch.unlink()
            branch.symlink_to(cloned.directory / "outside/key")
        else:
            branch.write_text("ref: refs/heads/main\n")
        assert "no longer has branch" in await refusal(cloned, clone)


@pytest.mark.parametrize("case", first(("loose", "pack", "dotgit", "dotdot", "odd"), "loose", "dotgit"))
async def test_hostile_objects_are_distinguished_from_sound_ones(cloned: ClonedProject, case: str) -> None:
    cases: dict[str, Callable[[Clone], None]] = {
        "loose": lambda clone: corrupt(cloned, clone),
        "pack": lambda clone: cloned.write(clone.path / ".git/objects/pack/pack-1.pack", "PACK nothing"),
        "dotgit": lambda clone: tree_with(cloned, clone, b".git"),
        "dotdot": lambda clone: tree_with(cloned, clone, b".."),
        "odd": lambda clone: commit_of(cloned, clone, "no address 0 +0000"),
    }
    clone = await cloned.work("ada", "b.txt", "b\n")
    cases[case](clone)
    assert await refusal(cloned, clone)
    assert not (cloned.directory / "f").exists()


def corrupt(cloned: ClonedProject, clone: Clone) -> None:
    head = cloned.git("rev-parse", "HEAD^{tree}", at=clone.path)
    path = clone.path / ".git/objects" / head[:2] / head[2:]
    path.chmod(0o600)
    path.write_bytes(b"\x78\x01" + os.urandom(50))


def made(cloned: ClonedProject, clone: Clone, kind: str, data: bytes) -> str:
    """The name of an object that git itself would not make."""
    words = ["git", "hash-object", "-w", "-t", kind, "--stdin", "--literally"]
    done = subprocess.run(words, cwd=clone.path, env=cloned.environ, input=data, capture_output=True, check=True)
    return done.stdout.decode().strip()


def commit_of(cloned: ClonedProject, clone: Clone, who: str) -> None:
    """The last commit once more, of an author that git does not accept from others."""
    lines = cloned.git("cat-file", "commit", "HEAD", at=clone.path).split("\n")
    text = "\n".join(f"author {who}" if line.startswith("author ") else line for line in lines)
    commit = made(cloned, clone, "commit", f"{text}\n".encode())
    (clone.path / ".git/refs/heads" / clone.branch).write_text(commit + "\n")


def tree_with(cloned: ClonedProject, clone: Clone, name: bytes) -> None:
    """A commit whose tree holds a directory of that name."""
    inner = made(cloned, clone, "tree", b"100644 f\0" + bytes.fromhex(made(cloned, clone, "blob", b"x")))
    tree = made(cloned, clone, "tree", b"40000 " + name + b"\0" + bytes.fromhex(inner))
    commit = cloned.git("commit-tree", tree, "-p", "HEAD", "-m", "m", at=clone.path)
    (clone.path / ".git/refs/heads" / clone.branch).write_text(commit + "\n")


@pytest.mark.torture  # ten seconds of git; test_clone_processes.py shows that what it answers is bounded
async def test_a_tree_that_stands_for_billions_of_files_is_refused(cloned: ClonedProject) -> None:
    clone = await cloned.work("ada", "b.txt", "b\n")
    inner = cloned.git("rev-parse", "HEAD^{tree}", at=clone.path)
    for _ in range(10):
        lines = "".join(f"040000 tree {inner}\t{number}\n" for number in range(10))
        inner = cloned.git("mktree", at=clone.path, given=lines)
    commit = cloned.git("commit-tree", inner, "-p", "HEAD", "-m", "bomb", at=clone.path)
    (clone.path / ".git/refs/heads" / clone.branch).write_text(commit + "\n")
    assert "contains too many" in await refusal(cloned, clone)


async def test_pipes_sockets_and_files_that_nobody_may_read(cloned: ClonedProject, home: Path) -> None:
    clone = await cloned.work("ada", "b.txt", "b\n")
    os.mkfifo(clone.path / "pipe")
    os.mkfifo(clone.path / ".gitignore")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{home}/s")
        Path(f"{home}/s").rename(clone.path / "socket")
        assert (await cloned.workspaces.merge(clone, "its work")).commits == 1
    with (clone.path / "sparse").open("wb") as file:
        file.truncate(3 << 30)
    assert "'sparse' has more than" in await refusal(cloned, clone)


@pytest.mark.torture  # some of them are merged in test_workspaces.py
async def test_any_name_a_file_may_have_comes_over(cloned: ClonedProject) -> None:
    clone = await cloned.workspaces.clone("run_1", "ada")
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
        cloned.write(clone.path / "d" / os.fsdecode(name) / "f", "f")
    assert (await cloned.workspaces.merge(clone, "its work")).commits == 1
    for name in names:
        assert (cloned.repository / os.fsdecode(name)).read_bytes() == name
        assert (cloned.repository / "d" / os.fsdecode(name) / "f").exists()
    assert cloned.git("status", "--porcelain") == ""


async def test_what_configures_ccswarm_is_merged_by_a_person_only(cloned: ClonedProject) -> None:
    clone = await cloned.workspaces.clone("run_1", "ada")
    lay(clone.path, dict.fromkeys(("ccswarm.toml", "deep/CCSWARM.toml", "plan.toml"), "[mcp]\n"))
    said = r"changes ccswarm's configuration: ccswarm\.toml, deep/CCSWARM\.toml, plan\.toml$"
    with pytest.raises(Conflict, match=said) as caught:
        await cloned.workspaces.merge(clone, "its work", [str(cloned.repository / "plan.toml")])
    assert clone.ref in caught.value.suggestion
    assert cloned.git("status", "--porcelain") == ""


async def test_what_takes_commands_from_files_is_changed_by_a_person_only(cloned: ClonedProject) -> None:
    """Settings of editors, agents and shells by name; hooks and further configuration as the person's git names it."""
    cloned.git("config", "core.hooksPath", "tools/hk")
    cloned.git("config", "include.path", "../more/gitconfig")
    cloned.git("config", "alias.x", "!sh scripts/x.sh")
    names = (".envrc", "sub/.vscode/tasks.json", ".gitmodules", "tools/hk/pre-commit", "more/gitconfig", "scripts/x.sh")
    clone = await cloned.workspaces.clone("run_1", "ada")
    lay(clone.path, dict.fromkeys((*names, "tools/other"), "id\n"))
    with pytest.raises(Conflict, match="take commands: ") as caught:
        await cloned.workspaces.merge(clone, "its work")
    assert caught.value.message.partition("commands: ")[2] == ", ".join(sorted(names))
    assert clone.ref in caught.value.suggestion
    assert cloned.git("status", "--porcelain") == ""
    clone = await cloned.work("eve", "tools/other", "id\n")
    assert (await cloned.workspaces.merge(clone, "its work")).commits == 1


COMMANDS = "the work changes files from which programs outside its box take commands: "


async def merging(cloned: ClonedProject, persons: Tree, work: Tree, settings: Sequence[str] = ()) -> list[str]:
    """The files that are a person's to merge; none where the work was merged. ``settings`` are words for git config."""
    lay(cloned.repository, persons)
    if persons:
        cloned.git("add", "-f", "-A")
        cloned.git("commit", "-qm", "the person's")
    for setting in settings:
        key, _, value = setting.partition("=")
        cloned.git("config", "--add", key, value)
    clone = await cloned.workspaces.clone("run_1", "ada")
    lay(clone.path, work)
    cloned.git("add", "-f", "-A", at=clone.path)
    cloned.git("commit", "-qm", "work", at=clone.path)
    head = cloned.git("rev-parse", "HEAD")
    said = ""
    try:
        await cloned.workspaces.merge(clone, "its work")
    except Conflict as conflict:
        said = conflict.message
    assert cloned.git("status", "--porcelain") == ""
    assert bool(said) == (cloned.git("rev-parse", "HEAD") == head)
    return said.removeprefix(COMMANDS).split(", ") if said else []


NAMES = (
    *(".clinerules/hooks/x", ".latexmkrc", ".lazy.lua", ".lfsconfig", ".lsp/config.edn", ".theia/tasks.json"),
    *(".vibe/config.toml", "hie.yaml", "sub/latexmkrc"),
)


@pytest.mark.torture  # other names are asked for above
async def test_settings_of_tools_are_a_persons_to_merge_and_what_lies_near_them_is_not(cloned: ClonedProject) -> None:
    near = (".clinerules/rule.md", ".vibe/notes", ".lsp/x", "hie.yaml.md")
    assert sorted(await merging(cloned, {}, dict.fromkeys((*NAMES, *near), "x"))) == sorted(NAMES)


@pytest.mark.torture  # unit/clones/test_commands.py asks for each; below and above are some that are merged
@pytest.mark.parametrize("case", BY_LINKS)
async def test_links_give_nobody_another_way_to_what_commands_are_taken_from(cloned: ClonedProject, case: str) -> None:
    persons, work, taken = BY_LINKS[case]
    assert await merging(cloned, persons, work) == taken


async def test_links_that_are_not_committed_count_too(cloned: ClonedProject) -> None:
    cloned.write(cloned.repository / ".gitignore", ".envrc\n")
    cloned.write(cloned.repository / "env.dev", "1\n")
    cloned.commit(cloned.repository, "the person's")
    (cloned.repository / ".envrc").symlink_to("env.dev")
    assert await merging(cloned, {}, {"env.dev": "2"}) == ["env.dev"]


@pytest.mark.torture  # as for links
@pytest.mark.parametrize("case", BY_GIT)
async def test_what_the_persons_git_runs_or_reads_is_a_persons_to_merge_and_nothing_else(
    cloned: ClonedProject, case: str
) -> None:
    setting, persons, work, taken = BY_GIT[case]
    assert sorted(await merging(cloned, persons, work, [setting])) == taken


async def test_what_git_and_the_home_lead_to_is_a_persons_to_merge(cloned: ClonedProject) -> None:
    """By links in git's own directory, in the home, and on the way that a setting names."""
    git, home = cloned.repository / ".git", cloned.directory
    (git / "hooks").mkdir(exist_ok=True)
    (git / "hooks/pre-commit").symlink_to("../../tools/x")
    (home / ".gitconfig").symlink_to("project/dots/gitconfig")
    (git / "info").mkdir(exist_ok=True)
    (git / "info/attributes").symlink_to("../../attrs")
    (home / ".bashrc").symlink_to("project/dots/bashrc")
    (home / ".config").mkdir()
    (home / ".config/nvim").symlink_to("../project/dots/nvim")
    (home / "way").symlink_to("project")
    led = ("attrs", "dots/bashrc", "dots/nvim/b", "monitor", "tools/x")
    persons = dict.fromkeys((*led[:2], "dots/nvim/a", "dots/other", *led[3:]), "")
    persons["dots/gitconfig"] = "[user]\n\tname = t\n"
    work = dict.fromkeys((*led, "dots/other", "tools/y"), "* diff=x\n") | {"dots/gitconfig": "[core]\n\tpager = id\n"}
    taken = await merging(cloned, persons, work, [f"core.fsmonitor={home}/way/monitor"])
    assert sorted(taken) == sorted((*led, "dots/gitconfig"))


@pytest.mark.parametrize("kind", first(("repository", "bare"), "repository"))
async def test_nothing_is_merged_into_a_repository_that_the_person_keeps_there(
    cloned: ClonedProject, kind: str
) -> None:
    cloned.write(cloned.repository / ".gitignore", "/sub\n")
    cloned.commit(cloned.repository, "ignored")
    cloned.git("init", "-q", *(["--bare"] if kind == "bare" else []), "sub")
    clone = await cloned.workspaces.clone("run_1", "ada")
    lay(clone.path, {"sub/hk/pre-commit": "", "b.txt": ""})
    cloned.git("add", "-f", "-A", at=clone.path)
    cloned.git("commit", "-qm", "work", at=clone.path)
    with pytest.raises(Conflict, match="inside another repository: sub"):
        await cloned.workspaces.merge(clone, "its work")
    assert not (cloned.repository / "sub/hk").exists()
    assert not (cloned.repository / "b.txt").exists()


SLOW_TO_COMPARE = {".gitignore": "/**a**a**a**a**a**a**a**a**a/b\n", f"{'a' * 200}/{'a' * 200}": ""}


@pytest.mark.torture  # below the time of all commands together is bounded
@pytest.mark.parametrize(
    "bounds",
    [
        Bounds(seconds=0.3, cpu_seconds=3600),
        pytest.param(Bounds(seconds=3600, cpu_seconds=1), marks=pytest.mark.torture),
    ],
    ids=["passing", "computing"],
)
def test_patterns_that_take_for_ever_to_compare_are_refused(cloned: ClonedProject, bounds: Bounds) -> None:
    clones = Clones(cloned.repository, cloned.directory / "clones", Git(cloned.environ, comparing=bounds))
    clone = clones.make("run_1", "ada")
    lay(clone.path, SLOW_TO_COMPARE)
    with pytest.raises(WorkRefused, match=r"check-ignore takes (longer than 0\.3|more than 1) second") as caught:
        clones.collect(clone, "its work")
    assert "fewer *" in caught.value.suggestion
    (clone.path / ".gitignore").unlink()
    assert clones.collect(clone, "its work").commits == 1


async def test_who_takes_over_and_merges_has_so_much_time_for_all_of_it(cloned: ClonedProject) -> None:
    """However many commands it takes, and however much there is to read."""
    clone = await cloned.workspaces.clone("run_1", "ada")
    lay(clone.path, SLOW_TO_COMPARE)
    with pytest.raises(WorkRefused, match=r"not collected in the remaining time \(0.3 s\)"):
        await cloned.workspaces.merge(clone, "its work", seconds=0.3)
    (clone.path / ".gitignore").unlink()
    with UntrustedTree(clone.path) as tree, time_limit(0), pytest.raises(OutOfTime):
        tree.digest("a.txt", "sha1")
    assert (await cloned.workspaces.merge(clone, "its work", seconds=BOUND_SECONDS)).commits == 1


@pytest.mark.torture  # below what is too large is refused unread
def test_no_more_is_read_to_compare_it_than_there_was_and_a_bound(cloned: ClonedProject) -> None:
    """Files of nothing, of which the agent committed as large ones, would be read by the terabyte."""
    clones = Clones(cloned.repository, cloned.directory / "clones", Git(cloned.environ), most_bytes=1 << 20)
    clone = clones.make("run_1", "ada")
    large = clone.path / "large"
    large.write_bytes(bytes(1 << 18))
    cloned.git("add", "large", at=clone.path)
    oid = cloned.git("rev-parse", ":large", at=clone.path)
    for number in range(8):
        cloned.git("update-index", "--add", "--cacheinfo", f"100644,{oid},f{number}", at=clone.path)
        with (clone.path / f"f{number}").open("wb") as file:
            file.truncate(1 << 18)
    cloned.git("commit", "-qm", "as large", at=clone.path)
    with pytest.raises(WorkRefused, match=r"have grown by more than 1048576 bytes since the clone was made: 'f4'"):
        clones.collect(clone, "its work")
    for number in range(3, 8):
        (clone.path / f"f{number}").unlink()
    assert clones.collect(clone, "its work").commits == 2


def test_objects_that_take_gigabytes_to_hold_are_refused(cloned: ClonedProject) -> None:
    bounds = Bounds(seconds=3600, cpu_seconds=3600, memory_bytes=16 << 20)
    clones = Clones(cloned.repository, cloned.directory / "clones", Git(cloned.environ, of_agents=bounds))
    clone = clones.make("run_1", "ada")
    words = ("hash-object", "-w", "-t", "tree", "--stdin", "--literally")
    tree = cloned.git(*words, at=clone.path, given=("100644 a\0" + "\0" * 20) * (20 << 15))
    commit = cloned.git("commit-tree", tree, "-p", "HEAD", "-m", "large", at=clone.path)
    (clone.path / ".git/refs/heads" / clone.branch).write_text(commit + "\n")
    with pytest.raises(WorkRefused, match=r"needs more than 16777216 bytes of memory"):
        clones.collect(clone, "its work")


@pytest.mark.torture  # test_workspaces.py merges one that is smaller; above is what needs too much
def test_large_files_come_over_without_being_held_in_memory(cloned: ClonedProject) -> None:
    bounds = Bounds(seconds=3600, cpu_seconds=3600, memory_bytes=32 << 20)
    clones = Clones(cloned.repository, cloned.directory / "clones", Git(cloned.environ, of_agents=bounds))
    clone = clones.make("run_1", "ada")
    most = (33 << 20) // len("large")
    for text in ("large", "LARGE"):
        (clone.path / "large").write_text(text * most)
        assert clones.collect(clone, "its work").commits == 1
    assert cloned.git("cat-file", "-s", f"{clone.ref}:large") == str(5 * most)
    assert cloned.git("fsck", "--strict", "--no-dangling") == ""


async def test_large_files_are_refused_unread(cloned: ClonedProject) -> None:
    """A terabyte of nothing would take an hour to read."""
    clone = await cloned.workspaces.clone("run_1", "ada")
    with (clone.path / "a.txt").open("r+b") as file:
        file.truncate(1 << 40)
    assert "'a.txt' has more than" in await refusal(cloned, clone)


@pytest.fixture
def caught_git(cloned: ClonedProject) -> Iterator[Callable[[], int]]:
    """A git that says when it compares the names in a second directory; the answer is a descriptor of that process."""
    fifo, real = cloned.directory / "compares", shutil.which("git", path=cloned.environ["PATH"])
    os.mkfifo(fifo)
    directory = cloned.directory / "bin"
    second = f"if [ -e {fifo}.once ]; then [ -p {fifo} ] && echo $$ >{fifo}; fi; : >{fifo}.once"
    lay(directory, {"git": f'#!/bin/sh\ncase "$*" in *check-ignore*) {second};; esac\nexec {real} "$@"\n'})
    cloned.environ["PATH"] = f"{directory}:{cloned.environ['PATH']}"
    cloned.workspaces = Workspaces(cloned.repository, cloned.directory / "clones", cloned.environ)
    found: list[int] = []

    def wait() -> int:
        found.append(os.pidfd_open(int(fifo.read_text())))
        fifo.unlink()
        return found[-1]

    yield wait
    for one in found:
        os.close(one)


def ended(process: int) -> bool:
    """Whether the process that a descriptor is of has ended, or does under the bound."""
    return bool(select.select([process], [], [], BOUND_SECONDS)[0])


async def test_who_cancels_ends_git_and_others_have_their_turn(
    cloned: ClonedProject, caught_git: Callable[[], int]
) -> None:
    clone = await cloned.workspaces.clone("run_1", "ada")
    lay(clone.path, SLOW_TO_COMPARE)
    work = asyncio.create_task(cloned.workspaces.merge(clone, "its work"))
    process = await asyncio.to_thread(caught_git)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    assert await asyncio.to_thread(ended, process)
    for name in SLOW_TO_COMPARE:
        (clone.path / name).unlink()
    shutil.rmtree(clone.path / ("a" * 200))
    assert (await cloned.workspaces.merge(clone, "its work")).commits == 0


def test_no_git_outlives_who_waits_for_it(cloned: ClonedProject, caught_git: Callable[[], int]) -> None:
    clone = Clones(cloned.repository, cloned.directory / "clones", Git(cloned.environ)).make("run_1", "ada")
    lay(clone.path, SLOW_TO_COMPARE)
    with subprocess.Popen([sys.executable, "-c", collecting(cloned)]) as waiting:
        process = caught_git()
        waiting.kill()
    assert ended(process)


@contextmanager
def exchanging(one: Path, other: Path) -> Generator[None]:
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


def everything(cloned: ClonedProject) -> str:
    """All that lies in the person's repository, whatever it is called."""
    names = cloned.git("cat-file", "--batch-all-objects", "--batch-check=%(objectname) %(objecttype)").splitlines()
    blobs = "\n".join(line.split()[0] for line in names if line.endswith("blob"))
    done = subprocess.run(
        ["git", "cat-file", "--batch"],
        cwd=cloned.repository,
        env=cloned.environ,
        input=blobs.encode(),
        capture_output=True,
    )
    return done.stdout.decode(errors="replace")


@pytest.mark.parametrize("times", [2, pytest.param(5, marks=pytest.mark.torture)])
@pytest.mark.parametrize("what", first(("directory", "file", ".gitignore", ".git/refs", ".git/objects"), "directory"))
async def test_a_link_exchanged_with_what_is_read_shows_nothing_of_the_host(
    cloned: ClonedProject, what: str, times: int
) -> None:
    clone = await cloned.work("ada", "b.txt", "b\n")
    outside, time_limit = cloned.directory / "outside", clone.path / "d"
    time_limit.mkdir()
    for number in range(30):
        (outside / f"k{number}").write_text(f"{SECRET} {number}")
        (time_limit / f"k{number}").write_text("x" * 30)
    cloned.write(outside / "objects/ab/" / ("c" * 38), SECRET)
    cloned.write(outside / "heads" / clone.branch, SECRET)
    one, target = {
        "directory": (time_limit, outside),
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
        for _ in range(times):
            try:
                await cloned.workspaces.commit(clone, "its work")
            except (WorkRefused, WorkspaceUnusable) as refused:
                said += refused.message
    assert SECRET not in said + everything(cloned)


async def test_a_merge_does_not_write_through_links_in_the_persons_directory(cloned: ClonedProject) -> None:
    """Others may be at work where the person is, too."""
    target = cloned.directory / "outside"
    cloned.write(cloned.repository / "d/a", "a\n")
    cloned.commit(cloned.repository, "d")
    clone = await cloned.work("ada", "d/key", "written\n")
    (cloned.repository / "d").rename(cloned.repository / "e")
    (cloned.repository / "d").symlink_to(target)
    with pytest.raises(Conflict):
        await cloned.workspaces.merge(clone, "its work")
    assert (target / "key").read_text() == SECRET


@pytest.mark.torture
async def test_a_merge_does_not_write_through_links_that_come_meanwhile(cloned: ClonedProject) -> None:
    target = cloned.directory / "outside"
    cloned.write(cloned.repository / "d/a", "a\n")
    cloned.commit(cloned.repository, "d")
    clone = await cloned.work("ada", "d/key", "written\n")
    link = cloned.repository / "zz"
    link.symlink_to(target)
    with exchanging(cloned.repository / "d", link):
        for _ in range(10):
            try:
                await cloned.workspaces.merge(clone, "its work")
            except (Conflict, OSError):
                continue
            break
    assert (target / "key").read_text() == SECRET
    assert {path.name for path in target.iterdir()} == {"key"}


async def test_no_program_of_the_persons_configuration_is_run_on_what_agents_made(cloned: ClonedProject) -> None:
    """Where a box protects nothing, the person's own configuration may be an agent's."""
    clone = await cloned.work("ada", "a.txt", "changed\n")
    cloned.write(clone.path / "b.txt", "b\n")
    config = cloned.repository / ".git/config"
    config.write_text(
        config.read_text()
        + f"[core]\n\tfsmonitor = {trap(cloned, 'fsmonitor')}\n\thooksPath = {cloned.directory}/hooks\n"
        + f'[filter "x"]\n\tclean = {trap(cloned, "clean")}\n\tsmudge = {trap(cloned, "smudge")}\n\trequired = true\n'
        + f'[merge "x"]\n\tdriver = {trap(cloned, "driver")}\n[diff]\n\texternal = {trap(cloned, "diff")}\n'
        + f'[diff "x"]\n\ttextconv = {trap(cloned, "textconv")}\n\tcommand = {trap(cloned, "command")}\n'
        + f"[uploadpack]\n\tpackObjectsHook = {trap(cloned, 'pack')}\n[gpg]\n\tprogram = {trap(cloned, 'gpg')}\n"
        + '[commit]\n\tgpgSign = true\n[url "ext::sh -c %S"]\n\tinsteadOf = /\n[protocol]\n\tallow = always\n'
    )
    cloned.write(cloned.repository / ".git/info/attributes", "* filter=x diff=x merge=x\n")
    for name in ("post-merge", "reference-transaction", "post-index-change", "pre-commit", "post-checkout"):
        cloned.write(cloned.directory / "hooks" / name, f"#!/bin/sh\n{trap(cloned, name)}\n")
        (cloned.directory / "hooks" / name).chmod(0o755)
    assert (await cloned.workspaces.merge(clone, "its work")).commits == 2
    assert (cloned.repository / "a.txt").read_text() == "changed\n"
    assert nothing_ran(cloned)


WORDS = st.sampled_from(["a", "b", "sub", ".gitignore", ".gitattributes", "zz", "é", "x y", ".env"])
PATHS = st.lists(WORDS, min_size=1, max_size=3).map("/".join)
ENTRIES = st.one_of(
    st.tuples(st.just("file"), PATHS, st.sampled_from(["", "x\n", "*\n", "!*\n", "* filter=x eol=crlf\n", "sub/\n"])),
    st.tuples(st.just("link"), PATHS, st.sampled_from(["outside", "outside/key", "/", "..", "."])),
    st.tuples(st.just("pipe"), PATHS, st.just("")),
    st.tuples(st.just("hard"), PATHS, st.just("")),
    st.tuples(st.sampled_from(["repository", "bare", "worktree", "submodule", "settings"]), PATHS, st.just("")),
    st.tuples(st.just("folder"), PATHS, st.just("")),
)


MUCH = [("link", "a", "outside"), ("file", "b", "* filter=x\n"), ("settings", "sub", ""), ("pipe", "é", "")]


def test_of_much_that_lies_in_a_clone_nothing_else_is_read_and_only_git_is_run(tmp_path: Path) -> None:
    nothing_else_is_read(tmp_path, MUCH, committed=False)


@pytest.mark.torture
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(entries=st.lists(ENTRIES, max_size=12), committed=st.booleans())
@example(entries=[*MUCH[:3], ("submodule", "zz", "")], committed=True)
def test_whatever_lies_in_a_clone_nothing_else_is_read_and_only_git_is_run(
    tmp_path_factory: pytest.TempPathFactory, entries: list[tuple[str, str, str]], committed: bool
) -> None:
    nothing_else_is_read(tmp_path_factory.mktemp("c"), entries, committed=committed)


def nothing_else_is_read(directory: Path, entries: list[tuple[str, str, str]], *, committed: bool) -> None:
    """While a clone's state is looked at, it is taken over, compared, copied, merged, counted and removed."""
    cloned = ClonedProject(directory)
    cloned.write(directory / "outside/key", SECRET)
    clone_path = Clones(cloned.repository, directory / "clones", Git(cloned.environ)).make("run_1", "ada").path
    for kind, name, text in sorted(entries, key=lambda one: one[0] == "pipe"):
        if kind == "pipe" and committed:
            break  # the agent's own git would wait for somebody to write into it
        plant(cloned, clone_path, kind, name, text)
    if committed:
        words = ["git", "add", "-A"], ["git", "commit", "-qm", "all"]
        for one in words:
            subprocess.run(one, cwd=clone_path, env=cloned.environ, capture_output=True)
    (directory / "ran").unlink(missing_ok=True)
    log = directory / "trace"
    run_in(
        cloned,
        "all",
        "strace",
        "-f",
        "--seccomp-bpf",
        "-y",
        "-qq",
        "-e",
        "trace=execve,open,openat,openat2",
        "-o",
        str(log),
    )
    said = log.read_text()
    opened = re.findall(r"(?:open|openat|openat2)\(.*\) = \d+<(.*)>$", said, re.MULTILINE)
    assert any(str(clone_path) in path for path in opened), "what was looked at is seen at all"
    ours = tuple(f"{directory}/{name}" for name in ("clones", "project", ".config/git"))
    theirs = {path for path in opened if path.startswith(f"{directory}/") and not path.startswith(ours)}
    assert theirs <= {f"{directory}/.gitconfig"}
    started = re.findall(r"execve\(\"([^\"]*)\", \[(.*?)\].*\) = 0$", said, re.MULTILINE)
    programs = {Path(path).name for path, words in started if not words.startswith('"/bin/sh", "-c", "git-upload-pack')}
    assert programs <= {"git", "git-upload-pack", "setpriv", "prlimit", Path(sys.executable).name}
    assert nothing_ran(cloned)
    assert SECRET not in everything(cloned)


def collecting(cloned: ClonedProject, what: str = "collect") -> str:
    """A program that does so, or ``all`` there is to do with a clone."""
    then = {
        "collect": ("there.commit(clone, 'work')",),
        "all": (
            "looked()",
            "there.commit(clone, 'work')",
            "there.difference(clone.base, clone.ref)",
            "there.copy(clone, clone.ref, 'gates1')",
            "there.merge(clone, 'work')",
            "there.require_ready()",
            "there.clone('run_1', 'bob')",
            "there.merge(clone, 'work')",
            "there.discard(clone)",
            "counted()",
            "there.forget(clone)",
        ),
    }[what]
    return f"""
import asyncio
from pathlib import Path
from ccswarm.errors import SwarmError
from ccswarm.clones.clones import Workspaces
from ccswarm.clones.kept import list_kept, remove
from ccswarm.clones.looker import Looker
environ, root = {cloned.environ!r}, Path({str(cloned.directory / "clones")!r})
async def looked():
    assert Looker(Path({str(cloned.repository)!r}), root, environ).under_way("run_1", "ada")
async def counted():
    for one in list_kept(root):
        assert one.bytes
        remove(one, environ)
async def main():
    there = Workspaces(Path({str(cloned.repository)!r}), root, environ)
    clone = await there.clone("run_1", "ada")
    for step in ({", ".join(f"lambda: {one}" for one in then)},):
        try:
            await step()
        except SwarmError as error:
            print(error.message)
asyncio.run(main())
"""


def run_in(cloned: ClonedProject, what: str, *before: str) -> None:
    words = [*before, sys.executable, "-c", collecting(cloned, what)]
    subprocess.run(words, check=True, capture_output=True, timeout=50)


def plant(cloned: ClonedProject, top: Path, kind: str, name: str, text: str) -> None:
    path = top / name
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if kind == "file":
            path.write_text(text)
        elif kind == "link":
            path.symlink_to(cloned.directory / text if "outside" in text else text)
        elif kind == "pipe":
            os.mkfifo(path)
        elif kind == "hard":
            os.link(top / "a.txt", path)
        elif kind == "folder":
            path.mkdir()
        elif kind == "bare":
            cloned.git("init", "-q", "--bare", str(path))
            cloned.git("config", "core.fsmonitor", trap(cloned, "bare"), at=path)
        elif kind == "worktree":
            cloned.git("worktree", "add", "-q", str(path), at=top)
        elif kind == "settings":
            for key in ("core.fsmonitor", "filter.x.clean", "filter.x.process", "diff.external", "merge.x.driver"):
                cloned.git("config", key, trap(cloned, key), at=top)
        else:
            nested(cloned, path)
            if kind == "submodule":
                cloned.git("add", str(path), at=top)
                os.utime(path / "f", (0, 0))
    except (OSError, subprocess.CalledProcessError):
        return  # something else has the name


def swap(path: Path, other: Path) -> None:
    """Two names change places in one step, as a program in a box does it where it may write both directories."""
    if ctypes.CDLL(None, use_errno=True).renameat2(-100, os.fsencode(path), -100, os.fsencode(other), 2):
        raise OSError(ctypes.get_errno(), "renameat2")


@pytest.mark.parametrize("place_of", first(("project", "parent", "repository", "files"), "project"))
async def test_what_takes_the_place_of_a_repository_is_not_merged_into(tmp_path: Path, place_of: str) -> None:
    """A box that holds a directory above it, or in which it was made, may exchange whatever leads to it."""
    (tmp_path / "box/parent").mkdir(parents=True)
    cloned = ClonedProject(tmp_path / "box/parent")
    clone = await cloned.work("ada", "b.txt", "b\n")
    await cloned.workspaces.commit(clone, "its work")
    shutil.copytree(cloned.directory, tmp_path / "other", symlinks=True)  # the person's, with all that is needed
    victim, spare = tmp_path / "other/project", tmp_path / "box/spare"
    match place_of:
        case "project":
            path = cloned.repository
            shutil.copytree(victim, spare)
        case "parent":
            path = cloned.directory
            spare.symlink_to(tmp_path / "other")
        case "repository":
            path = cloned.repository / ".git"
            spare.write_text(f"gitdir: {victim}/.git\n")
        case _:
            path = cloned.repository / ".git/config"
            spare.write_text(f"{path.read_text()}[core]\n\tworktree = {tmp_path}\n")
    swap(path, spare)
    with pytest.raises(WorkspaceUnusable):
        await cloned.workspaces.merge(clone, "its work")
    swap(path, spare)
    for one in (victim, cloned.repository):
        assert cloned.git("log", "--format=%s", at=one) == "first"
    assert not (tmp_path / "b.txt").exists()
    assert (await cloned.workspaces.merge(clone, "its work")).commits == 1


@pytest.mark.parametrize("place_of", ["project", "parent"])
async def test_no_clone_is_made_of_what_a_link_leads_to(tmp_path: Path, place_of: str) -> None:
    """A run knows its workspace by name: a link may stand there by the time that its first clone is made."""
    (tmp_path / "box/parent").mkdir(parents=True)
    cloned = ClonedProject(tmp_path / "box/parent")
    shutil.copytree(cloned.directory, tmp_path / "other", symlinks=True)
    path, spare = (cloned.repository if place_of == "project" else cloned.directory), tmp_path / "box/spare"
    spare.symlink_to(tmp_path / "other" / ("project" if place_of == "project" else ""))
    swap(path, spare)
    anew = Workspaces(cloned.repository, tmp_path / "clones", cloned.environ)
    for one in (cloned.workspaces, anew):
        with pytest.raises(WorkspaceUnusable, match="without following a link"):
            await one.clone("run-1", "ada")
        assert not await one.is_repository()
    swap(path, spare)
    assert (await anew.clone("run-1", "ada")).path.is_dir()


@pytest.mark.torture
@pytest.mark.parametrize("place_of", ["project", "parent"])
async def test_no_merge_is_led_elsewhere_by_what_is_swapped_all_the_time(tmp_path: Path, place_of: str) -> None:
    (tmp_path / "box/parent").mkdir(parents=True)
    cloned = ClonedProject(tmp_path / "box/parent")
    clone = await cloned.work("ada", "b.txt", "b\n")
    await cloned.workspaces.commit(clone, "its work")
    shutil.copytree(cloned.directory, tmp_path / "other", symlinks=True)
    path, spare = (cloned.repository if place_of == "project" else cloned.directory), tmp_path / "box/spare"
    spare.symlink_to(tmp_path / "other" / ("project" if place_of == "project" else ""))
    over = asyncio.Event()

    def swapping() -> None:
        while not over.is_set():
            swap(path, spare)
            swap(path, spare)

    swapper = asyncio.create_task(asyncio.to_thread(swapping))
    try:
        for number in range(60):
            with suppress(WorkspaceUnusable, WorkRefused, Conflict, OSError):
                cloned.write(clone.path / f"n{number}", "")
                await cloned.workspaces.merge(clone, "its work")
    finally:
        over.set()
        await swapper
    assert cloned.git("log", "--format=%s", at=tmp_path / "other/project") == "first"
    assert sorted(os.listdir(tmp_path / "other/project")) == [".git", "a.txt"]
