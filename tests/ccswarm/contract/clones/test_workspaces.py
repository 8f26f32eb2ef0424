"""Clones with real git: work comes back whole or not at all, and nothing an agent plants in its clone is run."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path

import pytest

from ccswarm.clones.clones import Clone, Workspaces
from ccswarm.clones.contents import FEW
from ccswarm.errors import Conflict, WorkspaceUnusable
from tests.ccswarm.support.clones import ClonedProject
from tests.support import forked
from tests.support.bounds import BOUND_SECONDS
from tests.support.products import first

pytestmark = pytest.mark.anyio


@pytest.fixture
def project(tmp_path: Path) -> ClonedProject:
    return ClonedProject(tmp_path)


async def test_work_of_two_agents_comes_back(project: ClonedProject) -> None:
    ada, bob = await project.work("ada", "b.txt", "b\n"), await project.work("bob", "c.txt", "c\n")
    merges = (project.workspaces.merge(clone, "its work") for clone in (ada, bob))
    assert [merged.commits for merged in await asyncio.gather(*merges)] == [1, 1], "they take turns"
    assert sorted(path.name for path in project.repository.glob("*.txt")) == ["a.txt", "b.txt", "c.txt"]
    assert project.git("log", "--format=%s", "-4").splitlines()[0] == "its work"
    assert project.git("status", "--porcelain") == ""
    assert (await project.workspaces.merge(ada, "again")).commits == 0
    for clone in (ada, bob):
        await project.workspaces.discard(clone)
        assert not clone.path.exists()


async def test_who_commits_as_the_repository_alone_says_it_does_so_in_a_clone_too(project: ClonedProject) -> None:
    for name, value in (("name", "-x = 'Ada\n' L."), ("email", "ada@example.com")):
        project.git("config", "--local", f"user.{name}", value)
    clone = await project.workspaces.clone("run_1", "ada")
    of_agent = {name: value for name, value in project.environ.items() if not name.startswith("GIT_")}
    words = ("git", "commit", "-q", "--allow-empty", "-m", "mine")
    done = await asyncio.create_subprocess_exec(*words, cwd=clone.path, env=of_agent)
    assert await done.wait() == 0
    assert project.git("log", "-1", "--format=%ae", at=clone.path) == "ada@example.com"
    assert project.git("config", "user.name", at=clone.path) == "-x = 'Ada\n' L."


async def test_the_same_agent_finds_its_clone_again_and_what_it_was_made_from(project: ClonedProject) -> None:
    clone = await project.work("ada", "b.txt", "b\n")
    project.write(project.repository / "later.txt", "later\n")
    project.commit(project.repository, "later")
    assert await project.workspaces.clone("run_1", "ada") == clone
    assert clone.base == project.git("rev-parse", "HEAD~1")
    assert (clone.path / "b.txt").exists()
    other = await project.workspaces.clone("run_2", "ada")
    assert (other.path / "later.txt").exists()


async def test_an_incomplete_clone_is_made_again(project: ClonedProject) -> None:
    project.write(project.directory / "clones/run_1/.ada.new/half", "half")
    clone = await project.workspaces.clone("run_1", "ada")
    assert sorted(path.name for path in clone.path.iterdir()) == [".git", "a.txt"]


@pytest.mark.torture  # test_attempts.py: what a person merges by hand
async def test_a_conflict_leaves_the_repository_as_it_was_and_the_work_at_its_ref(project: ClonedProject) -> None:
    clone = await project.work("ada", "a.txt", "ada's\n")
    project.write(project.repository / "a.txt", "ours\n")
    head = project.commit(project.repository, "ours")
    with pytest.raises(Conflict, match=r"both changed a\.txt"):
        await project.workspaces.merge(clone, "ada's work")
    assert project.git("rev-parse", "HEAD") == head
    assert project.git("status", "--porcelain") == ""
    assert project.git("show", "refs/ccswarm/run_1/ada:a.txt") == "ada's"


@pytest.mark.parametrize(
    ("autocrlf", "more"),
    [
        ("true", FEW),
        *(pytest.param(*cell, marks=pytest.mark.torture) for cell in (("false", 0), ("false", FEW), ("true", 0))),
    ],
)
async def test_what_is_merged_and_copied_is_what_git_itself_checks_out(
    project: ClonedProject, autocrlf: str, more: int
) -> None:
    """Ends of lines, $Id$, encodings, links, rights; a file that takes the place of a directory, and the other way."""
    project.git("config", "core.autocrlf", autocrlf)
    rules = "*.bat text eol=crlf\n*.c ident\n*.u16 text working-tree-encoding=UTF-16LE\n*.txt text=auto\n*.bin -text\n"
    project.write(project.repository / ".gitattributes", rules)
    project.write(project.repository / "both/in.txt", "in\n")
    project.write(project.repository / "other", "other\n")
    project.commit(project.repository, "rules")
    project.git("rm", "-rq", "--cached", ".")
    project.git("reset", "-q", "--hard")  # as they are checked out
    clone = await project.workspaces.clone("run_1", "ada")
    odd = ("a\nb.txt", "-x", ":(glob)*", ":!a", '"quoted"', "a*[b]?", os.fsdecode(b"\xff\xfe"), "\\", "~/x")
    for name in ("sub/go.bat", "id.c", "plain.txt", "sub/raw.bin", "no rule", *odd, "deep/er/x"):
        project.write(clone.path / name, "one $Id$\ntwo\n")
    for number in range(more):
        project.write(clone.path / f"many/{number}.txt", f"{number}\n")
    (clone.path / "wide.u16").write_bytes("wide\n".encode("utf-16-le"))
    (clone.path / "empty").touch()
    (clone.path / "large").write_bytes(os.urandom(3 << 20))
    (clone.path / "sub/run").write_text("#!/bin/sh\n")
    (clone.path / "sub/run").chmod(0o755)
    (clone.path / "link").symlink_to("sub/run")
    (clone.path / "both/in.txt").unlink()
    (clone.path / "both").rmdir()
    project.write(clone.path / "both", "a file\n")
    (clone.path / "other").unlink()
    project.write(clone.path / "other/in", "in\n")
    commit = await project.workspaces.commit(clone, "work")
    copy = await project.workspaces.copy(clone, commit, "gates")
    end = "\r\n" if autocrlf == "true" else "\n"
    project.write(project.repository / "no rule", f"one $Id${end}two{end}")  # what is to be there is not in the way
    assert (await project.workspaces.merge(clone, "ada's work", commit=commit)).commits == 1
    project.git("-c", f"core.autocrlf={autocrlf}", "clone", "-q", "--no-checkout", str(project.repository), "../own")
    own = project.directory / "own"
    project.git("config", "core.autocrlf", autocrlf, at=own)
    project.git("checkout", "-q", at=own)
    assert files_of(project.repository) == files_of(own)
    assert project.git("status", "--porcelain") == project.git("status", "--porcelain", at=copy.path) == ""


def files_of(top: Path) -> dict[str, tuple[bytes, bool]]:
    """Bytes, or the text of a link, and whether it may be executed."""
    found = [path for path in top.rglob("*") if ".git" not in path.relative_to(top).parts]
    return {
        str(path.relative_to(top)): (
            os.fsencode(os.readlink(path)) if path.is_symlink() else path.read_bytes(),
            bool(path.lstat().st_mode & 0o100),
        )
        for path in found
        if path.is_symlink() or path.is_file()
    }


@pytest.mark.torture  # below, after a merge that was cut off
async def test_a_file_of_the_person_that_is_in_the_way_is_kept(project: ClonedProject) -> None:
    clone = await project.work("ada", "b.txt", "ada's\n")
    project.write(project.repository / "b.txt", "not committed\n")
    with pytest.raises(Conflict, match=r"in the way: b\.txt"):
        await project.workspaces.merge(clone, "ada's work")
    assert (project.repository / "b.txt").read_text() == "not committed\n"
    assert project.git("rev-list", "--count", "HEAD") == "1"


async def test_what_is_not_committed_comes_over_too_and_nothing_is_removed_that_would_be_lost(
    project: ClonedProject,
) -> None:
    clone = await project.work("ada", "b.txt", "b\n")
    project.write(clone.path / "a.txt", "changed\n")
    project.write(clone.path / "new name.txt", "new\n")
    project.write(clone.path / ".gitignore", "*.log\n")
    project.write(clone.path / "noise.log", "noise\n")
    collected = await project.workspaces.commit(clone, "left")
    assert await project.workspaces.commit(clone, "left") == collected != clone.base
    assert project.git("status", "--porcelain", at=clone.path) != "", "the clone is as the agent left it"
    assert (await project.workspaces.merge(clone, "ada's work")).commits == 2
    assert (project.repository / "new name.txt").read_text() == "new\n"
    assert project.git("diff", "HEAD~1", "--name-only").split("\n") == [".gitignore", "a.txt", "b.txt", "new name.txt"]
    project.write(clone.path / "late.txt", "late\n")
    await project.workspaces.commit(clone, "late")
    await project.workspaces.discard(clone)
    assert not clone.path.exists()
    assert project.git("show", f"{clone.ref}:late.txt") == "late"


async def test_what_an_agent_plants_in_its_clone_is_never_run(project: ClonedProject) -> None:
    clone = await project.work("ada", "b.txt", "b\n")
    trap = project.directory / "ran"
    for name in ("post-checkout", "pre-merge-commit", "post-merge", "reference-transaction", "fsmonitor", "pack"):
        hook = clone.path / ".git/hooks" / name
        project.write(hook, f"#!/bin/sh\necho {name} >>{trap}\nexec cat\n")
        hook.chmod(0o755)
    planted = clone.path / ".git/config"
    hooks = clone.path / ".git/hooks"
    planted.write_text(
        planted.read_text()
        + f"[core]\n\tfsmonitor = {hooks}/fsmonitor\n\thooksPath = {hooks}\n\tpager = {hooks}/pack\n"
        + f"[uploadpack]\n\tpackObjectsHook = {hooks}/pack\n"
        + f'[filter "x"]\n\tclean = {hooks}/pack\n\tsmudge = {hooks}/pack\n'
    )
    project.write(clone.path / ".gitattributes", "*.txt filter=x diff=x\n")
    await project.workspaces.commit(clone, "left")
    await project.workspaces.merge(clone, "ada's work")
    await project.workspaces.discard(clone)
    assert not trap.exists()
    assert project.git("show", "HEAD:b.txt") == "b"


CHECKOUTS = ("detached, older index", "packed", "linked, split index", "sha256, packed, detached, older index")


@pytest.mark.parametrize("kind", first(CHECKOUTS, *CHECKOUTS[2:]))
async def test_every_kind_of_checkout_is_merged_into(tmp_path: Path, kind: str) -> None:
    project = ClonedProject(tmp_path, ["--object-format=sha256"] if "sha256" in kind else [])
    if "detached" in kind:
        project.git("checkout", "-q", "--detach")
        project.git("update-index", "--index-version", "2")
    if "linked" in kind:
        project.git("worktree", "add", "-q", "-b", "agent", str(tmp_path / "linked"))
        project.repository = tmp_path / "linked"
        project.workspaces = Workspaces(project.repository, tmp_path / "clones", project.environ)
        project.git("update-index", "--split-index")
    if "packed" in kind:
        project.git("gc", "-q")
    project.write(project.repository / "run.sh", "#!/bin/sh\n")
    (project.repository / "run.sh").chmod(0o755)
    project.commit(project.repository, "second")
    clone = await project.work("ada", "sub/b.txt", "b\n")
    (clone.path / "run.sh").chmod(0o644)
    (clone.path / "link").symlink_to("a.txt")
    (clone.path / "a.txt").unlink()
    assert (await project.workspaces.merge(clone, "ada's work")).commits == 2
    assert project.git("status", "--porcelain") == ""
    assert sorted(path.name for path in project.repository.iterdir()) == [".git", "link", "run.sh", "sub"]
    assert not os.access(project.repository / "run.sh", os.X_OK)
    assert project.git("log", "-1", "--format=%s %P").startswith("ada's work")
    assert project.git("fsck", "--strict") == ""
    branch = "agent" if "linked" in kind else "HEAD" if "detached" in kind else "main"
    assert project.git("rev-parse", "--abbrev-ref", "HEAD") == branch, "also where its name begins those of clones"


@pytest.mark.torture  # among what is merged and copied above are both, too
async def test_files_become_directories_and_back(project: ClonedProject) -> None:
    project.write(project.repository / "d/f", "f\n")
    project.commit(project.repository, "d")
    clone = await project.workspaces.clone("run_1", "ada")
    (clone.path / "a.txt").unlink()
    project.write(clone.path / "a.txt/inner", "inner\n")
    shutil.rmtree(clone.path / "d")
    project.write(clone.path / "d", "a file now\n")
    assert (await project.workspaces.merge(clone, "ada's work")).commits == 1
    assert (project.repository / "a.txt/inner").read_text() == "inner\n"
    assert (project.repository / "d").read_text() == "a file now\n"
    assert project.git("status", "--porcelain") == ""


async def test_in_a_part_of_a_repository_the_agent_works_in_that_part_wherever_variables_lead_git(
    project: ClonedProject,
) -> None:
    """As where a hook of git started it all."""
    astray = dict.fromkeys(("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY"), "/nowhere")
    project.write(project.repository / "packages/web/index.js", "1\n")
    project.commit(project.repository, "web")
    environ = {**project.environ, **astray}
    part = Workspaces(project.repository / "packages/web", project.directory / "clones", environ)
    assert await part.is_repository()
    clone = await part.clone("run_1", "ada")
    assert clone.directory == clone.path / "packages/web"
    project.write(clone.directory / "index.js", "2\n")
    project.write(clone.path / "a.txt", "beside it\n")
    assert (await part.merge(clone, "ada's work")).commits == 1
    assert (project.repository / "packages/web/index.js").read_text() == "2\n"
    assert (project.repository / "a.txt").read_text() == "beside it\n"


@pytest.mark.torture  # below are merges that are killed
async def test_a_merge_that_was_cut_off_anywhere_is_carried_out_by_making_it_again(project: ClonedProject) -> None:
    project.write(project.repository / "gone.txt", "gone\n")
    head = project.commit(project.repository, "second")
    clone = await project.work("ada", "sub/b.txt", "b\n")
    project.write(clone.path / "a.txt", "changed\n")
    (clone.path / "gone.txt").unlink()
    project.commit(clone.path, "more")
    whole = project.directory / "whole"
    shutil.copytree(project.repository, whole)
    for done in ("one file", "files", "files and index", "everything but files"):
        shutil.rmtree(project.repository)
        shutil.copytree(whole, project.repository)
        project.workspaces = Workspaces(
            project.repository, project.directory / "clones", project.environ
        )  # a process anew
        assert (await project.workspaces.merge(clone, "ada's work")).commits == 2
        project.git("update-ref", "HEAD", head)
        if done == "one file":
            project.git("reset", "-q", "--hard")
            project.write(project.repository / "a.txt", "changed\n")
        elif done == "files":
            project.git("read-tree", "HEAD")
        elif done == "everything but files":
            shutil.copy(whole / "a.txt", project.repository)
        assert (await project.workspaces.merge(clone, "ada's work")).commits == 2
        assert (project.repository / "a.txt").read_text() == "changed\n"
        assert not (project.repository / "gone.txt").exists()
        assert project.git("status", "--porcelain") == ""


KILLED = """
import asyncio, errno, json, os, signal, sys
from dataclasses import replace
from pathlib import Path
from ccswarm.clones.clones import Clone, Workspaces

def at_that_moment(event, arguments):
    if event == "os.rename" and str(arguments[1]) == sys.argv[1]:
        if sys.argv[5:]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.kill(os.getpid(), signal.SIGKILL)

repository, root, clone = Path(sys.argv[2]), Path(sys.argv[3]), Clone(**json.loads(sys.argv[4]))
sys.addaudithook(at_that_moment)
workspaces = Workspaces(repository, root, dict(os.environ))
asyncio.run(workspaces.merge(replace(clone, path=Path(clone.path)), "ada's work"))
"""
"""A merge whose process is killed, or has no room any more, right before it gives a file its name; the files come in
order, then the index."""


async def killed_merge(project: ClonedProject, moment: str, *full: str) -> Clone:
    """The clone whose work it is; where the disk is ``full`` the process ends by itself."""
    ada = await project.work("ada", "one.txt", "1\n")
    project.write(ada.path / "two.txt", "2\n")
    project.commit(ada.path, "two")
    facts = json.dumps({**asdict(ada), "path": str(ada.path)})
    script = project.directory / "killed.py"
    script.write_text(KILLED)
    words = (moment, str(project.repository), str(project.directory / "clones"), facts, *full)
    merging = partial(forked.run, "ccswarm", words, cwd=project.directory, env=project.environ, script=str(script))
    code, _, said = await asyncio.to_thread(merging)
    assert code == (1 if full else -signal.SIGKILL)
    assert not full or (b"Conflict: " in said and b"No space left on device" in said)
    return ada


@pytest.mark.torture  # below is one that is cut off
@pytest.mark.parametrize("moment", ["one.txt", "two.txt", "index"])
async def test_the_rest_of_a_merge_whose_process_was_killed_is_done_by_the_next(
    project: ClonedProject, moment: str
) -> None:
    ada, bob = await killed_merge(project, moment), await project.work("bob", "b.txt", "b\n")
    assert project.git("status", "--porcelain", "--", "one.txt", "two.txt") or moment == "one.txt", "it is half done"
    await project.workspaces.require_ready()
    assert project.git("status", "--porcelain") == "", "nothing of it lies about"
    assert project.git("show", "HEAD:two.txt") == "2"
    assert (await project.workspaces.merge(bob, "bob's work")).commits == 1
    assert (await project.workspaces.merge(ada, "ada's work")).commits == 0
    assert project.git("log", "--format=%s", "--first-parent") == "bob's work\nada's work\nfirst"
    assert not list((project.directory / "clones").glob(".*-*"))


@pytest.mark.parametrize("why", first(("full", "killed"), "full"))
async def test_the_rest_of_a_merge_that_was_cut_off_is_done_by_the_next_but_over_nothing_of_a_persons(
    project: ClonedProject, why: str
) -> None:
    """As where the disk had no room for all of it."""
    ada = await killed_merge(project, "two.txt", *(("full",) if why == "full" else ()))
    assert project.git("status", "--porcelain", "--", "one.txt"), "it is half done"
    project.write(project.repository / "one.txt", "mine\n")
    with pytest.raises(Conflict, match=r"uncommitted files in the way: one\.txt"):
        await project.workspaces.merge(ada, "ada's work")
    assert (project.repository / "one.txt").read_text() == "mine\n"
    (project.repository / "one.txt").unlink()
    assert (await project.workspaces.merge(ada, "ada's work")).commits == 2
    assert project.git("status", "--porcelain") == ""


async def test_what_the_person_changed_or_staged_or_is_doing_with_git_is_not_overrun(project: ClonedProject) -> None:
    clone = await project.work("ada", "b.txt", "b\n")
    project.write(project.repository / "a.txt", "mine\n")
    with pytest.raises(Conflict, match=r"uncommitted changes: a\.txt") as refused:
        await project.workspaces.merge(clone, "ada's work")
    assert refused.value.suggestion == "commit or stash them; its work is at refs/ccswarm/run_1/ada"
    assert (project.repository / "a.txt").read_text() == "mine\n"
    assert project.git("rev-parse", "refs/ccswarm/run_1/ada") == project.git("rev-parse", "HEAD", at=clone.path)
    project.git("checkout", "-q", "a.txt")
    project.write(project.repository / "c.txt", "mine\n")
    project.git("add", "c.txt")
    with pytest.raises(Conflict, match=r"uncommitted changes: c\.txt"):
        await project.workspaces.merge(clone, "ada's work")
    project.git("reset", "-q")
    project.write(project.repository / "b.txt", "mine\n")
    project.git("add", "b.txt")
    with pytest.raises(Conflict, match=r"uncommitted changes: b\.txt"):
        await project.workspaces.merge(clone, "ada's work")
    project.git("reset", "-q")
    (project.repository / "b.txt").unlink()
    lock = project.repository / ".git/index.lock"
    lock.touch()
    with pytest.raises(Conflict, match="another git is at work") as caught:
        await project.workspaces.merge(clone, "ada's work")
    assert str(lock) in caught.value.suggestion
    lock.unlink()
    assert (await project.workspaces.merge(clone, "ada's work")).commits == 1
    assert not lock.exists()


HOLDS = """
import sys
from pathlib import Path
from ccswarm.clones.checkout import IndexLock

lock = IndexLock(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


async def test_a_lock_that_a_killed_merge_left_is_in_nobodys_way(project: ClonedProject) -> None:
    clone, lock = await project.work("ada", "b.txt", "b\n"), project.repository / ".git/index.lock"
    words = (sys.executable, "-c", HOLDS, str(lock.parent))
    holder = await asyncio.create_subprocess_exec(*words, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE)
    assert holder.stdout
    assert await holder.stdout.readline() == b"held\n"
    with pytest.raises(Conflict, match="another git is at work"):
        await project.workspaces.merge(clone, "ada's work")
    holder.kill()
    await holder.communicate()
    assert lock.exists()
    assert (await project.workspaces.merge(clone, "ada's work")).commits == 1
    assert not lock.exists()
    assert project.git("status", "--porcelain") == ""


async def test_another_git_that_is_at_work_for_a_moment_is_waited_for(project: ClonedProject) -> None:
    clone, lock = await project.work("ada", "b.txt", "b\n"), project.repository / ".git/index.lock"
    patient = Workspaces(project.repository, project.directory / "clones", project.environ, lock_seconds=BOUND_SECONDS)
    lock.touch()
    asyncio.get_running_loop().call_later(0.2, lock.unlink)
    assert (await patient.merge(clone, "ada's work")).commits == 1


async def test_what_git_says_of_a_full_disk_is_a_persons_to_see_to(project: ClonedProject) -> None:
    """While it is committed, and while it is shown to gates."""
    clone, git = await project.work("ada", "b.txt", "b\n"), project.directory / "full/git"
    commit = await project.workspaces.commit(clone, "work")
    project.write(clone.path / "c.txt", "c\n")
    said = 'echo "fatal: x: No space left on device" >&2; exit 128'
    project.write(git, f'#!/bin/sh\ncase $* in *read-tree*) {said};; esac\nexec {shutil.which("git")} "$@"\n')
    git.chmod(0o755)
    environ = {**project.environ, "PATH": f"{git.parent}:{project.environ['PATH']}"}
    within = Workspaces(project.repository, project.directory / "clones", environ)
    for done in (within.commit(clone, "more"), within.copy(clone, commit, "gates")):
        with pytest.raises(Conflict, match="No space left on device") as caught:
            await done
        assert "check free disk space" in caught.value.suggestion


async def test_a_sparse_checkout_is_merged_into_by_hand(project: ClonedProject) -> None:
    clone = await project.work("ada", "b.txt", "b\n")
    project.git("sparse-checkout", "set", "nothing")
    with pytest.raises(Conflict, match="sparse checkout") as caught:
        await project.workspaces.merge(clone, "ada's work")
    assert f"git merge {clone.ref}" in caught.value.suggestion


async def test_work_is_merged_into_what_was_checked_out_when_it_began_and_nothing_else(project: ClonedProject) -> None:
    project.git("branch", "old")
    project.write(project.repository / "new.txt", "new\n")
    project.commit(project.repository, "new")
    clone, idle = await project.work("ada", "b.txt", "b\n"), await project.workspaces.clone("run_1", "bob")
    for elsewhere, called in (("old", "the branch old"), ("--detach", "no branch")):
        project.git("checkout", "-q", elsewhere)
        with pytest.raises(Conflict, match=f"began on the branch main, but .* has {called} checked out$") as caught:
            await project.workspaces.merge(clone, "ada's work")
        assert "check out the branch main again, or merge by hand" in caught.value.suggestion
        assert (await project.workspaces.merge(idle, "nothing")).commits == 0, "what is checked out lacks its base"
        assert (await project.workspaces.leave_on_branch(idle, idle.base))[1], "and needs no branch"
    assert project.git("rev-parse", "old") == project.git("rev-parse", "main~1")
    assert await project.workspaces.clone("run_1", "ada") == clone, "wherever it is looked for"
    project.git("checkout", "-q", "main")
    assert (await project.workspaces.merge(clone, "ada's work")).commits == 1
    assert project.git("status", "--porcelain") == ""


async def test_what_a_person_took_out_meanwhile_does_not_come_back_with_work(project: ClonedProject) -> None:
    project.write(project.repository / "unwanted.txt", "unwanted\n")
    unwanted = project.commit(project.repository, "unwanted")
    clone, idle = await project.work("ada", "b.txt", "b\n"), await project.workspaces.clone("run_1", "bob")
    project.git("reset", "-q", "--hard", "HEAD~1")
    for beside in ("", "beside"):
        if beside:
            project.write(project.repository / "beside.txt", "beside\n")
            project.commit(project.repository, beside)
        before = project.git("rev-parse", "main")
        with pytest.raises(
            Conflict,
            match=f"with {unwanted[:12]}, which is no longer part of what is checked out in .*, the branch main$",
        ) as caught:
            await project.workspaces.merge(clone, "ada's work")
        assert (project.git("rev-parse", "main"), project.git("status", "--porcelain")) == (before, "")
    assert (await project.workspaces.merge(idle, "nothing")).commits == 0
    assert not (project.repository / "unwanted.txt").exists()
    project.git(*caught.value.suggestion.partition(": git ")[2].split(), "--no-edit")
    assert (await project.workspaces.merge(clone, "ada's work")).commits == 0, "the person let it come back"
    assert (project.repository / "b.txt").exists()


async def test_a_clone_is_not_made_of_what_lacks_the_work_it_needs(project: ClonedProject) -> None:
    project.git("branch", "old")
    ada = await project.work("ada", "b.txt", "b\n")
    commit = await project.workspaces.commit(ada, "ada's work")
    assert (await project.workspaces.merge(ada, "ada's work", commit=commit)).commits == 1
    await project.workspaces.forget(ada)
    whole = await project.workspaces.clone("run_1", "bob")
    await project.workspaces.require_merged(whole, {"one": commit})
    project.git("checkout", "-q", "old")
    for lacking in (commit, "1" * len(commit)):
        clone = await project.workspaces.clone("run_1", "cy")
        with pytest.raises(Conflict, match=f"'one' was merged as {lacking[:12]}, .* the branch old$") as caught:
            await project.workspaces.require_merged(clone, {"one": lacking})
        assert not clone.path.exists()
        assert f"git merge {lacking[:12]}" in caught.value.suggestion
    assert "cy" not in project.git("for-each-ref")


@pytest.mark.parametrize("agents", [("ada",), pytest.param(("ada", "bob"), marks=pytest.mark.torture)])
async def test_work_on_a_shallow_clone_is_merged(
    project: ClonedProject, tmp_path: Path, agents: tuple[str, ...]
) -> None:
    project.write(project.repository / "c.txt", "c\n")
    project.commit(project.repository, "second")
    project.git("clone", "-q", "--depth", "1", f"file://{project.repository}", str(tmp_path / "shallow"))
    project.repository = tmp_path / "shallow"
    project.workspaces = Workspaces(project.repository, tmp_path / "clones", project.environ)
    for clone in [await project.work(agent, f"{agent}.txt", "x\n") for agent in agents]:
        commit = await project.workspaces.commit(clone, "work")
        copy = await project.workspaces.copy(clone, commit, "gates")
        assert (copy.path / "c.txt").exists()
        assert (await project.workspaces.merge(clone, "work", commit=commit)).commits == 1
        assert (await project.workspaces.difference(clone.base, commit)).added == 1
    assert project.git("status", "--porcelain") == ""
    assert project.git("rev-list", "--count", "HEAD") == str(1 + 2 * len(agents))


async def test_what_would_keep_work_from_being_merged_is_found_before_it_is_done(project: ClonedProject) -> None:
    await project.workspaces.require_ready()
    project.git("sparse-checkout", "set", "nothing")
    with pytest.raises(Conflict, match="sparse checkout") as caught:
        await project.workspaces.require_ready()
    await project.workspaces.require_ready(merges=False)
    project.git(*caught.value.suggestion.partition(",")[0].split()[1:])
    await project.workspaces.require_ready()
    nobody = {name: value for name, value in project.environ.items() if not name.startswith("GIT_")}
    project.git("config", "user.useConfigOnly", "true")
    for merges in (True, False):
        with pytest.raises(Conflict, match="git has no author for commits in "):
            await Workspaces(project.repository, project.directory / "x", nobody).require_ready(merges=merges)


async def test_attributes_of_the_person_decide_how_files_are_merged(project: ClonedProject) -> None:
    project.write(project.repository / ".gitattributes", "*.log merge=union\n*.lock -merge\n")
    for name in ("x.log", "x.lock"):
        project.write(project.repository / name, "one\n")
    project.commit(project.repository, "both")
    clone = await project.work("ada", "x.log", "one\nada's\n")
    project.write(project.repository / "x.log", "one\nours\n")
    project.commit(project.repository, "ours")
    assert (await project.workspaces.merge(clone, "ada's work")).commits == 1
    assert sorted((project.repository / "x.log").read_text().split()) == ["ada's", "one", "ours"]


async def test_a_directory_without_a_repository_says_so(project: ClonedProject, tmp_path: Path) -> None:
    bare = Workspaces(tmp_path / "clones", tmp_path / "x", project.environ)
    assert not await bare.is_repository()
    (tmp_path / "clones").mkdir()
    assert not await bare.is_repository()
    assert await project.workspaces.is_repository()
    with pytest.raises(WorkspaceUnusable, match=r"git rev-parse in .*not a git repository"):
        await bare.clone("run_1", "ada")
    assert not await Workspaces(project.repository, tmp_path / "x", {"PATH": "/nowhere"}).is_repository()


async def test_a_branch_in_the_way_of_those_that_work_is_left_on_is_found_before_any_work(
    project: ClonedProject,
) -> None:
    project.git("branch", "ccswarm")
    await project.workspaces.require_ready()
    with pytest.raises(Conflict, match="has a branch 'ccswarm'") as caught:
        await project.workspaces.require_ready(merges=False)
    assert caught.value.suggestion.startswith("git branch -m ccswarm another-name")
    project.git("branch", "-m", "ccswarm", "another-name")
    await project.workspaces.require_ready(merges=False)
