"""Creates clones and collects their work: commits, and one more commit with what is not committed. Methods block."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from ccswarm.clones.checkout import CHANGES, GITLINK, WorkTree, blobs_after, parse_changes
from ccswarm.clones.contents import Contents
from ccswarm.clones.difference import Difference, compare
from ccswarm.clones.git import CHECKED_OUT, Git, PrivateRepository, Repository
from ccswarm.clones.nested import refuse_nested
from ccswarm.clones.objects import export_commits, import_commit, packs_of, tip
from ccswarm.clones.snapshot import NO_FILTERS, Filters, Snapshot
from ccswarm.errors import Conflict, WorkRefused, WorkspaceUnusable
from ccswarm.system.confined_files import remove_tree
from ccswarm.system.untrusted_tree import MOST_COPIED_BYTES, UntrustedTree

SHOWN_PATHS = 10

LOCK_SECONDS = 10.0

BRANCHES = "ccswarm"
"""The prefix of branches for people and of clones' refs."""

REFS = ("", "-base", "-sent", "-merged")
"""The suffixes of a clone's refs: its work, its base, the agent's last commit, the merge that was judged."""

IGNORED_BY_DEFAULT = b"""\
__pycache__/
*.py[co]
.venv/
node_modules/
.pytest_cache/
.mypy_cache/
.ruff_cache/
.hypothesis/
.tox/
.nox/
.gradle/
.DS_Store
"""
"""Files that tools create and nobody commits on purpose: ignored unless a .gitignore says otherwise."""


@dataclass(frozen=True, slots=True)
class Clone:
    """The clone of one attempt. ``branch`` is checked out in it; its work is at ``ref`` in the repository."""

    path: Path
    branch: str
    ref: str
    base: str
    """The commit it was made from."""
    prefix: str = ""
    """The agent's directory in it; not empty if the workspace is not the top of its repository."""
    onto: str = ""
    """The ref of the branch that was checked out when it was made; HEAD for none; empty in old clones."""

    @property
    def directory(self) -> Path:
        """The agent's working directory."""
        return self.path / self.prefix


@dataclass(frozen=True, slots=True)
class Origin:
    """The initial state of a clone, stored where the agent cannot change it."""

    packs: tuple[str, ...] = ()
    filters: Filters = NO_FILTERS
    onto: str = ""

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read the stored state. It is empty for old clones."""
        try:
            facts = json.loads(path.read_text())
        except FileNotFoundError:
            return cls()
        filters = Filters(tuple(facts["drivers"]), facts["digests"], facts.get("size", 0))
        return cls(tuple(facts["packs"]), filters, facts.get("onto", ""))

    def write(self, path: Path, repository: Path, ref: str) -> None:
        """Store the state for ``read``."""
        filters = {"drivers": self.filters.drivers, "digests": self.filters.digests, "size": self.filters.size}
        whose = {"repository": str(repository), "ref": ref}
        path.write_text(json.dumps({**whose, "packs": self.packs, **filters, "onto": self.onto}))


@dataclass(frozen=True, slots=True)
class Collected:
    """The ``commit`` with the work, or the clone's base if there is none, and how many ``commits`` of it the current
    branch of ``repository`` lacks."""

    commit: str
    commits: int
    repository: Repository


class Clones:
    """The clones under ``root`` of the repository that contains ``directory``. Implements ``Workspaces`` and
    ``Looker``. At most ``most_bytes`` are copied from a clone, and as many more read for comparison than the clone
    began with."""

    def __init__(
        self,
        directory: Path,
        root: Path,
        git: Git,
        *,
        most_bytes: int = MOST_COPIED_BYTES,
        lock_seconds: float = LOCK_SECONDS,
    ) -> None:
        self.directory = directory
        self._root = root
        self._git = git
        self._most_bytes = most_bytes
        self.lock_seconds = lock_seconds
        """How long another git may be at work before a merge is not made."""

    def repository(self) -> Repository:
        """Return the current facts of the repository. Raises WorkspaceUnusable if it has no commit."""
        return self._git.repository(self.directory)

    def checked_out(self) -> tuple[str, str]:
        """Return the checked-out commit and the ref of its branch, HEAD for none."""
        head, onto, _ = self._git.person(self.directory, "rev-parse", *CHECKED_OUT).split("\n")
        return head, onto

    def make(self, run_id: str, name: str) -> Clone:
        """Return the clone of the attempt ``name``, creating it if needed. Raises WorkspaceUnusable."""
        return self._make(self.repository(), run_id, name)

    def _make(self, repository: Repository, run_id: str, name: str) -> Clone:
        path = self._root / run_id / name
        branch, ref = f"agent/{run_id}/{name}", f"refs/{BRANCHES}/{run_id}/{name}"
        if path.is_dir():
            base = self._git.person(self.directory, "rev-parse", "--verify", f"{ref}-base")
            onto = Origin.read(_origin_file(path)).onto
        else:
            base, onto = repository.head, repository.onto
            temporary = self._temporary_clone(repository, path, branch, base)
            origin = replace(self._read_origin(temporary, repository), onto=onto)
            origin.write(_origin_file(path), self.directory, ref)
            self._git.person(self.directory, "update-ref", f"{ref}-base", base)
            temporary.rename(path)
        prefix = "" if repository.prefix == Path() else str(repository.prefix)
        return Clone(path, branch, ref, base, prefix, onto)

    def require(self, clone: Clone, merged: Mapping[str, str]) -> None:
        """Raise Conflict unless the clone's base contains every commit of ``merged``, which maps tasks to commits."""
        repository = self.repository()
        for task, commit in merged.items():
            try:
                lacks = self.unmerged(repository, commit, clone.base)
            except WorkspaceUnusable:  # the commit does not exist there
                lacks = 1
            if lacks:
                raise Conflict(
                    f"the work of {task!r} was merged as {commit[:12]}, which is not part of what is checked out in"
                    f" {self.directory}, {describe_ref(clone.onto)}",
                    suggestion=f"check out the branch that contains it (git branch --contains {commit[:12]}), "
                    f"or git merge {commit[:12]}; then ccswarm resume",
                )

    def copy(self, clone: Clone, commit: str, name: str) -> Clone:
        path = clone.path.with_name(f"{clone.path.name}.{name}")
        if not path.is_dir():
            repository = self.repository()
            temporary = self._temporary_clone(repository, path, clone.branch, clone.base)
            self._check_out(repository, temporary, clone, commit)
            temporary.rename(path)
        return Clone(path, clone.branch, clone.ref, clone.base, clone.prefix)

    def _temporary_clone(self, repository: Repository, path: Path, branch: str, base: str) -> Path:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.new")
        if temporary.exists():
            remove_tree(temporary)
        source, target = str(repository.top), str(temporary)
        self._git.person(self.directory, "clone", "-q", "--no-hardlinks", "--no-tags", "--", source, target)
        self._identify(temporary, repository)
        if f"refs/heads/{branch}".startswith(f"{repository.onto}/"):  # git allows no branch below another
            self._git.person(temporary, "update-ref", "--no-deref", "HEAD", base)
            self._git.person(temporary, "update-ref", "-d", repository.onto)
        self._git.person(temporary, "checkout", "-q", "-B", branch, base)
        excluded = temporary / ".git/info/exclude"
        excluded.parent.mkdir(exist_ok=True)
        excluded.write_bytes(IGNORED_BY_DEFAULT)
        return temporary

    def _identify(self, clone: Path, repository: Repository) -> None:
        """Copy the identity of commits if only the repository defines it, since a clone has none of its settings."""
        local = {setting.name: setting.value for setting in repository.configuration if setting.scope == "local"}
        for name in sorted(local.keys() & {"user.name", "user.email"}):
            self._git.person(clone, "config", "--local", name, local[name])

    def _check_out(self, repository: Repository, made: Path, clone: Clone, commit: str) -> None:
        """Check out ``commit`` in a new clone of ``clone.base``. The files that differ are written without git: none of
        the person's filters is run on an agent's files."""
        inner = self._git.repository(made)
        with tempfile.TemporaryDirectory(prefix=".scratch-", dir=made.parent) as path:
            scratch = Path(path)
            # Line endings are those of the rest of the clone, which has none of the repository's settings.
            ours = PrivateRepository(scratch / "ours", replace(repository, settings=inner.settings), clone.base)
            export_commits(
                self._git,
                ours,
                PrivateRepository(scratch / "inner", inner, clone.base, writing=True),
                (commit,),
                clone.base,
            )
            wanted = parse_changes(self._git.private(ours, *CHANGES, clone.base, commit))
            with (
                Contents(self._git, ours, scratch / "new", commit, blobs_after(wanted)) as new,
                WorkTree(made) as files,
            ):
                files.write(wanted, new)
            index = {"GIT_INDEX_FILE": str(scratch / "index")}
            self._git.private(ours, "read-tree", commit, variables=index)
            shutil.copyfile(scratch / "index", inner.index)
        self._git.person(made, "update-ref", f"refs/heads/{clone.branch}", commit)

    def remove(self, clone: Clone) -> None:
        """Remove the clone's directory with its contents. Raises WorkspaceUnusable."""
        if clone.path.is_dir():
            remove_tree(clone.path)
        _origin_file(clone.path).unlink(missing_ok=True)

    def forget(self, clone: Clone) -> None:
        self.remove(clone)
        self._git.refs(self.directory, dict.fromkeys((clone.ref + ending for ending in REFS), ""))

    def unmerged(self, repository: Repository, commit: str, head: str = "") -> int:
        """Return how many commits up to ``commit`` are not in ``head``, by default the checked-out commit."""
        head = head or repository.head
        with self.scratch() as scratch:
            person = PrivateRepository(scratch / "person", repository, head)
            return int(self._git.private(person, "rev-list", "--count", commit, "--not", head))

    def collect(self, clone: Clone, title: str) -> Collected:
        repository = self.repository()
        with self.scratch() as scratch:
            person = PrivateRepository(scratch / "person", repository, repository.head, writing=True)
            if clone.path.is_dir():
                try:
                    commit = self._take_over(repository, person, clone, title, scratch)
                except WorkRefused as refused:
                    where = f"{refused.suggestion}; the clone is {clone.path}"
                    raise WorkRefused(refused.message, suggestion=where) from None
            else:
                commit = self._git.person(self.directory, "rev-parse", "--verify", f"{clone.ref}^{{commit}}")
            listed = self._git.private(person, "rev-list", "--count", commit, "--not", repository.head)
            return Collected(commit, int(listed), repository)

    def difference(self, base: str, commit: str, scratch: Path) -> Difference:
        """Return the difference. ``scratch`` is an empty private directory."""
        return compare(self._git, PrivateRepository(scratch / "person", self.repository(), base), base, commit)

    def under_way(self, run_id: str, name: str, scratch: Path) -> Difference | None:
        """Return the difference of the work so far, or None. ``scratch`` is an empty private directory."""
        if not (self._root / run_id / name).is_dir():
            return None
        repository = self.repository()
        clone = self._make(repository, run_id, name)
        taken, _, tree = self._import(repository, clone, scratch)
        return compare(self._git, taken, clone.base, tree)

    def is_collected(self, run_id: str, name: str, scratch: Path) -> bool:
        """Report whether all work in an existing clone is at its ref. ``scratch`` is an empty private directory."""
        repository = self.repository()
        clone = self._make(repository, run_id, name)
        _, sent, tree = self._import(repository, clone, scratch)
        words = ("rev-parse", f"{clone.ref}-sent", f"{clone.ref}^{{tree}}")
        return self._git.person(self.directory, *words, allowed=(0, 128)).split() == [sent, tree]

    def require_branches(self) -> None:
        """Raise Conflict if no branch can be created for work to be left on."""
        words = ("rev-parse", "-q", "--verify", f"refs/heads/{BRANCHES}")
        if self._git.person(self.directory, *words, allowed=(0, 1, 128)):
            raise Conflict(
                f"{self.directory} has a branch {BRANCHES!r}, so work cannot be left on branches below {BRANCHES}/",
                suggestion=f"git branch -m {BRANCHES} another-name; then ccswarm resume",
            )

    def leave_on_branch(self, clone: Clone, commit: str) -> tuple[str, bool]:
        name = clone.ref.removeprefix("refs/").rpartition(".")[0]
        if commit == clone.base or not self.unmerged(self.repository(), commit):
            return name, True
        words = ("rev-parse", "-q", "--verify", f"refs/heads/{name}^{{commit}}")
        if not self._git.person(self.directory, *words, allowed=(0, 1, 128)):
            try:
                self._git.person(self.directory, "update-ref", "-m", "accepted", f"refs/heads/{name}", commit)
            except WorkspaceUnusable as failed:
                raise Conflict(
                    f"branch {name} cannot be created: {failed.message}",
                    suggestion=f"rename the conflicting branch; its work is at {clone.ref}",
                ) from None
        return name, False

    def merging(self, repository: Repository) -> Path:
        """Return the path of the note that exists while a merge is being written to the work tree."""
        return self._root / f".merging-{hashlib.sha256(os.fsencode(repository.git_dir)).hexdigest()[:16]}"

    @contextmanager
    def scratch(self) -> Generator[Path]:
        """Yield a private directory, and remove what an earlier process left. Only one may be in use."""
        for old in self._root.glob(".scratch-*"):
            shutil.rmtree(old, ignore_errors=True)
        with tempfile.TemporaryDirectory(prefix=".scratch-", dir=self._root) as path:
            yield Path(path)

    def _read_origin(self, clone: Path, repository: Repository) -> Origin:
        with UntrustedTree(clone) as tree:
            packs = tuple(packs_of(tree))
            if not (drivers := repository.filters):
                return Origin(packs)
            names = self._git.person(clone, "ls-files", "-z").encode(errors="surrogateescape")
            output = self._git.person(clone, "check-attr", "-z", "--stdin", "filter", stdin=names)
            fields = output.split("\0")
            through = [path for path, value in zip(fields[::3], fields[2::3], strict=False) if value in drivers]
            digests = {path: tree.digest(path, repository.object_format) or "" for path in through}
            return Origin(packs, Filters(drivers, digests, sum(tree.size(path) or 0 for path in through)))

    def _take_over(
        self, repository: Repository, person: PrivateRepository, clone: Clone, title: str, scratch: Path
    ) -> str:
        """Return the commit with the work."""
        taken, sent, kept = self._import(repository, clone, scratch)
        commit = self._commit_work(repository, taken, clone, sent, kept, title)
        self._refuse_repositories(taken, clone.base, commit, repository.top)
        export_commits(self._git, taken, person, (commit,), clone.base)
        self._git.refs(self.directory, {f"{clone.ref}-sent": sent, clone.ref: commit})
        return commit

    def _import(self, repository: Repository, clone: Clone, scratch: Path) -> tuple[PrivateRepository, str, str]:
        """Copy the clone to a private repository; return that, the agent's last commit and a tree of all files."""
        origin = Origin.read(_origin_file(clone.path))
        ignoring = replace(repository, excluded=IGNORED_BY_DEFAULT + repository.excluded)
        taken = PrivateRepository(scratch / "taken", ignoring, clone.base)
        with UntrustedTree(clone.path) as tree:
            sent = tip(tree, clone.branch)
            import_commit(tree, self._git, repository, taken, sent, packs=origin.packs, base=clone.base)
            copies, most = scratch / "copies", self._most_bytes
            snapshot = Snapshot(tree, self._git, taken, copies, sent, origin.filters, most)
            return taken, sent, snapshot.write(clone.base)

    def _commit_work(
        self, repository: Repository, taken: PrivateRepository, clone: Clone, sent: str, tree: str, title: str
    ) -> str:
        """Return the agent's last commit if it has all files, else one more, which a repeated call reuses."""
        if tree == self._git.private(taken, "rev-parse", f"{sent}^{{tree}}").decode().strip():
            return sent
        words = ("rev-parse", "-q", "--verify", f"{clone.ref}^{{commit}}")
        if known := self._git.person(self.directory, *words, allowed=(0, 1, 128)):
            _, output, _ = self._git.outcome(taken, "rev-parse", f"{known}^{{tree}}", f"{known}^")
            if output.decode().split() == [tree, sent]:
                return known
        who = self._git.identity(self.directory, repository.configuration)
        return self._git.private(taken, "commit-tree", tree, "-p", sent, "-m", title, variables=who).decode().strip()

    def _refuse_repositories(self, taken: PrivateRepository, base: str, commit: str, top: Path) -> None:
        """Refuse changed submodules, and directories that git would use as bare repositories."""
        changed = parse_changes(self._git.private(taken, *CHANGES, base, commit))
        if submodules := [change.path for change in changed if GITLINK in (change.mode, change.old_mode)]:
            raise WorkRefused(
                f"another repository was added, changed or removed: {shorten(submodules)}",
                suggestion=f"git rm --cached {submodules[0]!r}; submodules are changed by a person",
            )
        refuse_nested(self._git, taken, commit, changed, top)


def runs_directory(root: str, run_id: str) -> str:
    """Return the directory name for a run's clones. Agents may work in a run and in one it delegated to."""
    return root if run_id == root else f"{root}-{hashlib.sha256(run_id.encode()).hexdigest()[:12]}"


def _origin_file(clone: Path) -> Path:
    return clone.with_name(f".{clone.name}.json")


def describe_ref(ref: str) -> str:
    """Describe what is checked out."""
    return "no branch" if ref == "HEAD" else f"the branch {ref.removeprefix('refs/heads/')}"


def shorten(paths: Iterable[str]) -> str:
    """Join the first paths, and count the rest."""
    found = list(paths)
    more = f" and {len(found) - SHOWN_PATHS} more" if len(found) > SHOWN_PATHS else ""
    return ", ".join(found[:SHOWN_PATHS]) + more
