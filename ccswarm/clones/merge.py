"""Merges an agent's work into what a person has checked out. Blocks.

The merge is computed without a work tree; then the files that differ are written, and the index and HEAD updated. If
the process ends in between, the next one to merge completes it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from agentwire.system.path_patterns import fold_path
from agentwire.system.protected_names import protected
from ccswarm.clones.checkout import (
    CHANGES,
    Blocked,
    Change,
    IndexLock,
    WorkTree,
    blobs_after,
    blobs_before,
    parse_changes,
)
from ccswarm.clones.collect import Clone, Clones, describe_ref, shorten
from ccswarm.clones.commands import Commands, Names, links_of
from ccswarm.clones.contents import Contents
from ccswarm.clones.git import Git, PrivateRepository, Repository
from ccswarm.clones.nested import other_repositories, refuse_nested
from ccswarm.errors import Conflict
from ccswarm.system.bounded_process import pause, uninterruptible

BETWEEN_TRIES_SECONDS = 0.05
"""The polling interval for git's lock, which sends no notification."""

OWN_CONFIGURATION = "ccswarm.toml"


@dataclass(frozen=True, slots=True)
class Made:
    """The merge into ``head`` as a commit, which is checked out if ``is_merged``."""

    commit: str
    head: str
    is_merged: bool


@dataclass(frozen=True, slots=True)
class _PendingMerge:
    """The note that exists while ``commit`` is being written to the work tree."""

    commit: str
    head: str
    onto: str
    ref: str


def merge(
    git: Git,
    clones: Clones,
    clone: Clone,
    work: str,
    repository: Repository,
    configuration: Collection[Path],
    title: str,
    judged: Collection[str] | None = None,
) -> Made:
    """Merge the commit ``work``, which was collected from ``clone``, into the ``repository`` of ``clones``. With
    ``judged`` it is carried out only if its files are those of one of these commits. Raises Conflict if a person is
    needed; then nothing has changed."""
    directory = clones.directory
    by_hand = f"merge by hand in {repository.top}: git merge {clone.ref}"
    require_whole(repository, by_hand)
    with clones.scratch() as scratch, _locked(repository, clones.lock_seconds) as index:
        head, onto = clones.checked_out()
        if clone.onto not in ("", onto):
            raise Conflict(
                f"the work began on {describe_ref(clone.onto)},"
                f" but {repository.top} has {describe_ref(onto)} checked out",
                suggestion=f"check out {describe_ref(clone.onto)} again, or {by_hand}",
            )
        ours = PrivateRepository(scratch / "ours", repository, head, writing=True)
        index.copy_to(ours.path)
        if clone.base != head and git.private(ours, "rev-list", "-n1", clone.base, "--not", head):
            raise Conflict(
                f"the work began with {clone.base[:12]}, which is no longer part of what is checked out in"
                f" {repository.top}, {describe_ref(onto)}",
                suggestion=f"if it may bring that commit back, {by_hand}",
            )
        tree = _merged_tree(git, ours, scratch, head, work, by_hand)
        wanted = parse_changes(git.private(ours, *CHANGES, head, tree))
        if own := [
            change.path for change in wanted if _configures(repository.top.resolve() / change.path, configuration)
        ]:
            raise Conflict(
                f"the work changes ccswarm's configuration: {shorten(own)}",
                suggestion=f"read it: git diff HEAD...{clone.ref} -- {own[0]}; {by_hand}",
            )
        _refuse_commands(git, ours, repository, tree, wanted, f"git diff HEAD...{clone.ref}", by_hand)
        filters = repository.filters
        _refuse_filters(git, ours, filters, head, tree, wanted, by_hand)
        with (
            Contents(git, ours, scratch / "old", head, blobs_before(wanted)) as old,
            Contents(git, ours, scratch / "new", tree, blobs_after(wanted)) as new,
            WorkTree(repository.top) as files,
        ):
            if mine := _uncommitted(git, ours, repository, wanted, filters):
                raise Conflict(
                    f"{directory} has uncommitted changes: {shorten(mine)}",
                    suggestion=f"commit or stash them; its work is at {clone.ref}",
                )
            if mine := files.conflicting_paths(wanted, old, new):
                raise Conflict(
                    f"{directory} has uncommitted files in the way: {shorten(mine)}",
                    suggestion=f"move them away; its work is at {clone.ref}",
                )
            who = git.identity(directory, repository.configuration)
            words = ("commit-tree", tree, "-p", head, "-p", work, "-m", title)
            commit = git.private(ours, *words, variables=who).decode().strip()
            seen = [git.private(ours, "rev-parse", f"{one}^{{tree}}").decode().strip() for one in judged or ()]
            if judged is not None and tree not in seen:
                git.person(directory, "update-ref", f"{clone.ref}-merged", commit)
                return Made(commit, head, is_merged=False)
            note, pending = clones.merging(repository), _PendingMerge(commit, head, onto, clone.ref)
            with uninterruptible():
                try:
                    note.write_text(json.dumps(asdict(pending)))
                    _write_merge(git, ours, directory, files, index, wanted, new, pending)
                except Blocked as blocked:
                    note.unlink()
                    raise Conflict(
                        f"{str(blocked)!r} in {directory} was replaced during the merge",
                        suggestion=f"check who else works there; its work is at {clone.ref}",
                    ) from None
                note.unlink()
        return Made(commit, head, is_merged=True)


def finish(git: Git, clones: Clones, repository: Repository, lock_seconds: float = 0.0) -> bool:
    """Complete a merge whose process was killed while writing it, and report whether there was one. If a person has
    changed one of its files since, or checked out something else, nothing is changed. Raises Conflict if another git is
    working for longer than ``lock_seconds``."""
    note = clones.merging(repository)
    if not note.exists():
        return False
    with clones.scratch() as scratch, _locked(repository, lock_seconds) as index:
        try:
            pending = _PendingMerge(**json.loads(note.read_text()))
        except ValueError:  # it was killed while writing the note, so no file was written
            pending = None
        if pending and (pending.head, pending.onto) == clones.checked_out():
            ours = PrivateRepository(scratch / "ours", repository, pending.head, writing=True)
            index.copy_to(ours.path)
            wanted = parse_changes(git.private(ours, *CHANGES, pending.head, pending.commit))
            with (
                Contents(git, ours, scratch / "old", pending.head, blobs_before(wanted)) as old,
                Contents(git, ours, scratch / "new", pending.commit, blobs_after(wanted)) as new,
                WorkTree(repository.top) as files,
                suppress(Blocked),
                uninterruptible(),
            ):
                if not files.conflicting_paths(wanted, old, new):
                    _write_merge(git, ours, clones.directory, files, index, wanted, new, pending)
        note.unlink()
    return True


def _write_merge(
    git: Git,
    ours: PrivateRepository,
    directory: Path,
    files: WorkTree,
    index: IndexLock,
    wanted: Sequence[Change],
    new: Contents,
    pending: _PendingMerge,
) -> None:
    files.write(wanted, new)
    _set_index(git, ours, wanted)
    index.replace(ours.path / "index")
    git.person(directory, "update-ref", "-m", f"merge {pending.ref}", "HEAD", pending.commit, pending.head)


def require_whole(repository: Repository, instead: str = 'git sparse-checkout disable, or merge = "branch"') -> None:
    """Raise Conflict if only a part of the repository is checked out."""
    if repository.sparse:
        raise Conflict(f"{repository.top} is a sparse checkout, which is not merged into", suggestion=instead)


def uncommitted(git: Git, clones: Clones, repository: Repository) -> list[str]:
    """Return the files that would block every merge; empty if another git is working now."""
    try:
        if finish(git, clones, repository):
            repository = clones.repository()
    except Conflict:
        return []
    with clones.scratch() as scratch:
        ours = PrivateRepository(scratch / "ours", repository, repository.head)
        try:
            with _locked(repository) as index:
                index.copy_to(ours.path)
        except Conflict:
            return []
        return _uncommitted(git, ours, repository, (), repository.filters)


def _locked(repository: Repository, seconds: float = 0.0) -> IndexLock:
    """Lock the index, waiting that long for another git or ccswarm. Raises Conflict."""
    until = time.monotonic() + seconds
    while True:
        try:
            return IndexLock(repository.index.parent, repository.index.name)
        except FileExistsError:
            if time.monotonic() >= until:
                raise Conflict(
                    f"another git is at work in {repository.top}",
                    suggestion=f"wait for it; if there is none, remove {repository.index}.lock",
                ) from None
        pause(BETWEEN_TRIES_SECONDS)


def _merged_tree(git: Git, ours: PrivateRepository, scratch: Path, head: str, work: str, by_hand: str) -> str:
    said = git.private(ours, "ls-tree", "-r", "-z", "--name-only", "--full-tree", head)
    names = said.decode(errors="surrogateescape").split("\0")
    # The person's attributes decide which files are merged line by line.
    attributes = git.files(ours, scratch / "attributes", head, [n for n in names if n.endswith(".gitattributes")])
    words = ("merge-tree", "--write-tree", "-z", "--name-only", "--no-messages", head, work)
    code, answer, said = git.outcome(ours, *words, work_tree=attributes)
    tree, *both = answer.decode(errors="surrogateescape").rstrip("\0").split("\0")
    if code == 0:
        return tree
    if code == 1:
        raise Conflict(
            f"both changed {shorten(dict.fromkeys(both))}", suggestion=by_hand
        )  # git 2.39 repeats a name for each stage
    if "usage: git merge-tree" in said:
        said = "git 2.38 or newer is required"
    raise Conflict(f"git merge-tree: {said}", suggestion=by_hand)


def _refuse_commands(
    git: Git,
    ours: PrivateRepository,
    repository: Repository,
    tree: str,
    wanted: Sequence[Change],
    difference: str,
    by_hand: str,
) -> None:
    """Refuse changes on which git, a shell, an editor, another agent or a package manager would act."""
    if others := other_repositories(repository.top, [change.path for change in wanted]):
        raise Conflict(f"the work changes files inside another repository: {shorten(others)}", suggestion=by_hand)
    refuse_nested(git, ours, tree, wanted, repository.top)
    links = links_of(git, ours, tree, repository.top)
    commands = Commands(Names(git, repository).all(), protected(), links)
    if taken := [change.path for change in wanted if commands.controls_programs(change)]:
        raise Conflict(
            f"the work changes files from which programs outside its box take commands: {shorten(taken)}",
            suggestion=f"read it: {difference} -- {taken[0]}; {by_hand}",
        )


def _refuse_filters(
    git: Git,
    ours: PrivateRepository,
    drivers: Collection[str],
    head: str,
    tree: str,
    wanted: Sequence[Change],
    by_hand: str,
) -> None:
    """Refuse a ``.gitattributes`` file by which git would run a person's filter on more files."""
    if not drivers or not any(fold_path(change.path).endswith(".gitattributes") for change in wanted):
        return
    output = git.private(ours, "ls-tree", "-r", "-z", "--name-only", "--full-tree", tree)
    names = output.decode(errors="surrogateescape").split("\0")[:-1]
    before = git.through_filters(ours, head, names, drivers)
    after = git.through_filters(ours, tree, names, drivers)
    if filtered := [path for path, driver in after.items() if before.get(path) != driver]:
        raise Conflict(
            f"the work makes files go through the filter {after[filtered[0]]!r} of your git configuration:"
            f" {shorten(filtered)}",
            suggestion=f"leave .gitattributes as it is, or {by_hand}",
        )


def _configures(path: Path, configuration: Collection[Path]) -> bool:
    return path.name.casefold() == OWN_CONFIGURATION or path in configuration


def _uncommitted(
    git: Git, ours: PrivateRepository, repository: Repository, wanted: Sequence[Change], filters: Collection[str]
) -> list[str]:
    """Return the tracked files that the person changed, except those already as the merge makes them. Of files that
    pass through filters only git itself could tell; the merge never changes those."""
    known = {change.path: (change.mode, change.oid) for change in wanted}
    git.outcome(ours, "update-index", "-q", "--refresh", "--ignore-submodules", work_tree=repository.top)
    staged = parse_changes(git.private(ours, "diff-index", "--cached", "-z", "--raw", "--no-renames", "HEAD"))
    changed = [one.path for one in staged if known.get(one.path) != (one.mode, one.oid)]
    words = ("diff-files", "-z", "--name-only", "--ignore-submodules=all")
    output = git.private(ours, *words, work_tree=repository.top).decode(errors="surrogateescape")
    # Files in the merge are compared byte by byte instead.
    unstaged = [path for path in output.split("\0")[:-1] if path not in known]
    unsure = git.through_filters(ours, "HEAD", unstaged, filters)
    return [*changed, *(path for path in unstaged if path not in unsure)]


def _set_index(git: Git, ours: PrivateRepository, wanted: Sequence[Change]) -> None:
    lines = [f"{int(change.mode, 8):o} {change.oid}\t{change.path}\0" for change in wanted]
    stdin = "".join(lines).encode(errors="surrogateescape")
    git.private(ours, "update-index", "-z", "--index-info", stdin=stdin)
