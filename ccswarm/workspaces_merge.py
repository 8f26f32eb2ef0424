"""Merges an agent's work into what a person has checked out. Blocks.

The merge is made without a work tree; then the files that differ are put where they belong, the index and HEAD follow.
Whatever of that was done when a process ended, the next one finds it, and does the rest.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from ccswarm.errors import Conflict
from ccswarm.protected_names import protected
from ccswarm.workspaces_checkout import CHANGES, Blocked, Change, IndexLock, WorkTree, changes
from ccswarm.workspaces_collect import Clone, Clones, few
from ccswarm.workspaces_git import Git, PrivateRepository, Repository

OWN_CONFIGURATION = "ccswarm.toml"


def merge(git: Git, clones: Clones, clone: Clone, directory: Path, configuration: Collection[Path], title: str) -> str:
    """Merge the work of ``clone``, which was collected, into the repository that ``directory`` lies in; the commit.

    Raises Conflict where it cannot be done without a person: then all is as it was.
    """
    repository, work = git.repository(directory), clones.work(clone)
    by_hand = f"merge by hand in {repository.top}: git merge {clone.ref}"
    if repository.sparse:
        raise Conflict(f"{repository.top} is a sparse checkout, which is not merged into", suggestion=by_hand)
    with clones.scratch() as scratch, _locked(repository) as index:
        head = clones.head()
        ours = PrivateRepository(scratch / "ours", repository, head, writing=True)
        index.copy_to(ours.path)
        tree = _merged_tree(git, ours, scratch, head, work, by_hand)
        wanted = changes(git.private(ours, *CHANGES, head, tree))
        if own := [
            change.path for change in wanted if _configures(repository.top.resolve() / change.path, configuration)
        ]:
            raise Conflict(
                f"the work changes what ccswarm is configured by: {few(own)}",
                suggestion=f"read it: git diff HEAD...{clone.ref} -- {own[0]}; {by_hand}",
            )
        led_to = git.led_to(repository)
        if taken := [
            change.path for change in wanted if _commands(repository.top.resolve() / change.path, change.path, led_to)
        ]:
            raise Conflict(
                f"the work changes what programs outside of its box take commands from: {few(taken)}",
                suggestion=f"read it: git diff HEAD...{clone.ref} -- {taken[0]}; {by_hand}",
            )
        old = _files(git, ours, scratch / "old", head, [one.path for one in wanted if not one.added])
        new = _files(git, ours, scratch / "new", tree, [one.path for one in wanted if not one.removed])
        with WorkTree(repository.top) as files:
            if mine := _uncommitted(git, ours, repository, wanted, git.filters(directory)):
                raise Conflict(
                    f"{directory} has uncommitted changes: {few(mine)}",
                    suggestion=f"commit or stash them; its work lies at {clone.ref}",
                )
            if mine := files.in_the_way(wanted, old, new):
                raise Conflict(
                    f"{directory} has uncommitted files in the way: {few(mine)}",
                    suggestion=f"move them away; its work lies at {clone.ref}",
                )
            who = git.identity(directory)
            words = ("commit-tree", tree, "-p", head, "-p", work, "-m", title)
            commit = git.private(ours, *words, variables=who).decode().strip()
            try:
                files.write(wanted, new)
            except Blocked as blocked:
                raise Conflict(
                    f"{str(blocked)!r} in {directory} was exchanged for something else during the merge",
                    suggestion=f"see who else works there; its work lies at {clone.ref}",
                ) from None
        _set_index(git, ours, wanted)
        index.replace(ours.path / "index")
        git.person(directory, "update-ref", "-m", f"merge {clone.ref}", "HEAD", commit, head)
        return commit


def _locked(repository: Repository) -> IndexLock:
    try:
        return IndexLock(repository.index.parent, repository.index.name)
    except FileExistsError:
        raise Conflict(
            f"another git is at work in {repository.top}",
            suggestion=f"wait for it; where there is none, remove {repository.index}.lock",
        ) from None


def _merged_tree(git: Git, ours: PrivateRepository, scratch: Path, head: str, work: str, by_hand: str) -> str:
    said = git.private(ours, "ls-tree", "-r", "-z", "--name-only", "--full-tree", head)
    names = said.decode(errors="surrogateescape").split("\0")
    # Which files are merged line by line is the person's to say.
    attributes = _files(git, ours, scratch / "attributes", head, [n for n in names if n.endswith(".gitattributes")])
    words = ("merge-tree", "--write-tree", "-z", "--name-only", "--no-messages", head, work)
    code, answer, said = git.outcome(ours, *words, work_tree=attributes)
    tree, *both = answer.decode(errors="surrogateescape").rstrip("\0").split("\0")
    if code == 0:
        return tree
    if code == 1:
        raise Conflict(f"both changed {few(both)}", suggestion=by_hand)
    if "usage: git merge-tree" in said:
        said = "git 2.38 or newer is needed"
    raise Conflict(f"git merge-tree: {said}", suggestion=by_hand)


def _commands(path: Path, within: str, led_to: Collection[Path]) -> bool:
    """Whether git, a shell, an editor, another agent or a package manager does what stands there."""
    return bool(protected().around(within)) or any(one in led_to for one in (path, *path.parents))


def _configures(path: Path, configuration: Collection[Path]) -> bool:
    return path.name.casefold() == OWN_CONFIGURATION or path in configuration


def _files(git: Git, ours: PrivateRepository, directory: Path, commit: str, paths: Sequence[str]) -> Path:
    """Files of a commit as they are checked out, but for filters, in a new directory."""
    directory.mkdir()
    if paths:
        index = {"GIT_INDEX_FILE": str(directory.with_suffix(".index"))}
        git.private(ours, "read-tree", commit, variables=index)
        given = b"".join(path.encode(errors="surrogateescape") + b"\0" for path in paths)
        git.private(ours, "checkout-index", "-q", "-z", "--stdin", stdin=given, variables=index, work_tree=directory)
    return directory


def _uncommitted(
    git: Git, ours: PrivateRepository, repository: Repository, wanted: Sequence[Change], filters: Collection[str]
) -> list[str]:
    """Files that git knows and the person changed, but for what is to be there afterwards anyway. Of those that go
    through filters only git itself could say; they are never changed here."""
    known = {change.path: (change.mode, change.oid) for change in wanted}
    git.outcome(ours, "update-index", "-q", "--refresh", "--ignore-submodules", work_tree=repository.top)
    staged = changes(git.private(ours, "diff-index", "--cached", "-z", "--raw", "--no-renames", "HEAD"))
    changed = [one.path for one in staged if known.get(one.path) != (one.mode, one.oid)]
    words = ("diff-files", "-z", "--name-only", "--ignore-submodules=all")
    said = git.private(ours, *words, work_tree=repository.top).decode(errors="surrogateescape")
    # What of these the merge is about is looked at byte by byte.
    unstaged = [path for path in said.split("\0")[:-1] if path not in known]
    unsure = git.through_filters(ours, "HEAD", unstaged, filters)
    return [*changed, *(path for path in unstaged if path not in unsure)]


def _set_index(git: Git, ours: PrivateRepository, wanted: Sequence[Change]) -> None:
    lines = [f"{int(change.mode, 8):o} {change.oid}\t{change.path}\0" for change in wanted]
    given = "".join(lines).encode(errors="surrogateescape")
    git.private(ours, "update-index", "-z", "--index-info", stdin=given)
