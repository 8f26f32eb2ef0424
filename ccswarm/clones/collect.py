"""Makes clones, and takes over what was done in them: commits, and as one commit more what is not committed.

Methods block.
"""

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

from ccswarm.clones.checkout import CHANGES, GITLINK, WorkTree, after, changes
from ccswarm.clones.contents import Contents
from ccswarm.clones.difference import Difference, compare
from ccswarm.clones.git import CHECKED_OUT, Git, PrivateRepository, Repository
from ccswarm.clones.nested import refuse_nested
from ccswarm.clones.objects import bring, packs_of, take, tip
from ccswarm.clones.snapshot import NO_FILTERS, Filters, Snapshot
from ccswarm.errors import Conflict, WorkRefused, WorkspaceUnusable
from ccswarm.system.confined_files import remove_tree
from ccswarm.system.untrusted_tree import MOST_COPIED_BYTES, UntrustedTree

SHOWN_PATHS = 10

LOCK_SECONDS = 10.0

BRANCHES = "ccswarm"
"""Below this lie branches for people, and refs of clones."""

REFS = ("", "-base", "-sent", "-merged")
"""Endings of a clone's refs: its work; what it was made from; what its agent committed; the merge that was judged."""

LEFT_BEHIND = b"""\
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
"""What tools leave in a directory and nobody means to keep: ignored unless a .gitignore says otherwise."""


@dataclass(frozen=True, slots=True)
class Clone:
    """One attempt's. ``branch`` is checked out in it, ``ref`` is where its work lies in the repository."""

    path: Path
    branch: str
    ref: str
    base: str
    """The commit it was made from."""
    prefix: str = ""
    """Where in it the agent works; not empty where the workspace is not the top of its repository."""
    onto: str = ""
    """What was checked out when it was made: a branch's ref, HEAD where it was none; not known of an older clone."""

    @property
    def directory(self) -> Path:
        """Where the agent works."""
        return self.path / self.prefix


@dataclass(frozen=True, slots=True)
class Beginning:
    """What a clone began with, kept where the agent cannot change it."""

    packs: tuple[str, ...] = ()
    filters: Filters = NO_FILTERS
    onto: str = ""

    @classmethod
    def read(cls, path: Path) -> Self:
        """Of a clone that was made before this was written down nothing is known."""
        try:
            facts = json.loads(path.read_text())
        except FileNotFoundError:
            return cls()
        filters = Filters(tuple(facts["drivers"]), facts["digests"], facts.get("size", 0))
        return cls(tuple(facts["packs"]), filters, facts.get("onto", ""))

    def write(self, path: Path, repository: Path, ref: str) -> None:
        """For ``read``."""
        filters = {"drivers": self.filters.drivers, "digests": self.filters.digests, "size": self.filters.size}
        whose = {"repository": str(repository), "ref": ref}
        path.write_text(json.dumps({**whose, "packs": self.packs, **filters, "onto": self.onto}))


class Clones:
    """Those of the repository that ``directory`` lies in, below ``root``. ``most_bytes`` are copied of one, and so
    many are read to compare them beyond what it began with. Implements ``Workspaces`` and ``Looker``."""

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
        """As it is now. Raises WorkspaceUnusable where nothing is committed."""
        return self._git.repository(self.directory)

    def checked_out(self) -> tuple[str, str]:
        """The commit that is checked out in the repository, and the ref of its branch; HEAD where it is none."""
        head, onto, _ = self._git.person(self.directory, "rev-parse", *CHECKED_OUT).split("\n")
        return head, onto

    def work(self, clone: Clone) -> str:
        """The commit that was made of a clone's work when it was last collected."""
        return self._git.person(self.directory, "rev-parse", "--verify", f"{clone.ref}^{{commit}}")

    def make(self, run_id: str, name: str) -> Clone:
        """The clone of the attempt ``name``, made if there is none. Raises WorkspaceUnusable."""
        return self._made(self.repository(), run_id, name)

    def _made(self, repository: Repository, run_id: str, name: str) -> Clone:
        path = self._root / run_id / name
        branch, ref = f"agent/{run_id}/{name}", f"refs/{BRANCHES}/{run_id}/{name}"
        if path.is_dir():
            base = self._git.person(self.directory, "rev-parse", "--verify", f"{ref}-base")
            onto = Beginning.read(_facts_of(path)).onto
        else:
            base, onto = repository.head, repository.onto
            unfinished = self._unfinished(repository, path, branch, base)
            beginning = replace(self._beginning(unfinished, repository), onto=onto)
            beginning.write(_facts_of(path), self.directory, ref)
            self._git.person(self.directory, "update-ref", f"{ref}-base", base)
            unfinished.rename(path)
        prefix = "" if repository.prefix == Path() else str(repository.prefix)
        return Clone(path, branch, ref, base, prefix, onto)

    def require(self, clone: Clone, merged: Mapping[str, str]) -> None:
        """Raises Conflict unless the clone began with every commit of ``merged``, which are named by their tasks."""
        repository = self.repository()
        for task, commit in merged.items():
            try:
                lacks = self.unmerged(repository, commit, clone.base)
            except WorkspaceUnusable:  # it is not even there
                lacks = 1
            if lacks:
                raise Conflict(
                    f"the work of {task!r} was merged as {commit[:12]}, which is not part of what is checked out in"
                    f" {self.directory}, {named(clone.onto)}",
                    suggestion=f"check out the branch that contains it (git branch --contains {commit[:12]}), "
                    f"or git merge {commit[:12]}; then ccswarm resume",
                )

    def copy(self, clone: Clone, commit: str, name: str) -> Clone:
        path = clone.path.with_name(f"{clone.path.name}.{name}")
        if not path.is_dir():
            repository = self.repository()
            unfinished = self._unfinished(repository, path, clone.branch, clone.base)
            self._bring_to(repository, unfinished, clone, commit)
            unfinished.rename(path)
        return Clone(path, clone.branch, clone.ref, clone.base, clone.prefix)

    def _unfinished(self, repository: Repository, path: Path, branch: str, base: str) -> Path:
        """A clone of what is committed at ``base``, beside where it belongs."""
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        unfinished = path.with_name(f".{path.name}.new")
        if unfinished.exists():
            remove_tree(unfinished)
        source, target = str(repository.top), str(unfinished)
        self._git.person(self.directory, "clone", "-q", "--no-hardlinks", "--no-tags", "--", source, target)
        self._identify(unfinished)
        if f"refs/heads/{branch}".startswith(f"{repository.onto}/"):  # git has no branch below another
            self._git.person(unfinished, "update-ref", "--no-deref", "HEAD", base)
            self._git.person(unfinished, "update-ref", "-d", repository.onto)
        self._git.person(unfinished, "checkout", "-q", "-B", branch, base)
        excluded = unfinished / ".git/info/exclude"
        excluded.parent.mkdir(exist_ok=True)
        excluded.write_bytes(LEFT_BEHIND)
        return unfinished

    def _identify(self, clone: Path) -> None:
        """Who commits, where the repository alone says it: a clone has none of its settings."""
        asked = ("config", "--local", "-z", "--get-regexp", r"^user\.(name|email)$")
        for entry in self._git.person(self.directory, *asked, allowed=(0, 1)).split("\0")[:-1]:
            name, _, value = entry.partition("\n")
            self._git.person(clone, "config", "--local", name, value)

    def _bring_to(self, repository: Repository, made: Path, clone: Clone, commit: str) -> None:
        """``commit`` checked out in a clone of ``clone.base`` that nobody has worked in yet. The files that differ are
        put there by us: no filter of the person's is run on what an agent wrote."""
        inner = self._git.repository(made)
        with tempfile.TemporaryDirectory(prefix=".scratch-", dir=made.parent) as path:
            scratch = Path(path)
            # Ends of lines are those of the rest of the clone, which has none of the repository's settings.
            ours = PrivateRepository(scratch / "ours", replace(repository, settings=inner.settings), clone.base)
            bring(
                self._git,
                ours,
                PrivateRepository(scratch / "inner", inner, clone.base, writing=True),
                (commit,),
                clone.base,
            )
            wanted = changes(self._git.private(ours, *CHANGES, clone.base, commit))
            with Contents(self._git, ours, scratch / "new", commit, after(wanted)) as new, WorkTree(made) as files:
                files.write(wanted, new)
            index = {"GIT_INDEX_FILE": str(scratch / "index")}
            self._git.private(ours, "read-tree", commit, variables=index)
            shutil.copyfile(scratch / "index", inner.index)
        self._git.person(made, "update-ref", f"refs/heads/{clone.branch}", commit)

    def remove(self, clone: Clone) -> None:
        """The clone's directory, whatever is in it. Raises WorkspaceUnusable."""
        if clone.path.is_dir():
            remove_tree(clone.path)
        _facts_of(clone.path).unlink(missing_ok=True)

    def forget(self, clone: Clone) -> None:
        self.remove(clone)
        self._git.refs(self.directory, dict.fromkeys((clone.ref + ending for ending in REFS), ""))

    def unmerged(self, repository: Repository, commit: str, head: str = "") -> int:
        """How many commits up to ``commit`` are not in ``head``, or in what is checked out."""
        head = head or repository.head
        with self.scratch() as scratch:
            person = PrivateRepository(scratch / "person", repository, head)
            return int(self._git.private(person, "rev-list", "--count", commit, "--not", head))

    def collect(self, clone: Clone, title: str) -> int:
        repository = self.repository()
        with self.scratch() as scratch:
            person = PrivateRepository(scratch / "person", repository, repository.head, writing=True)
            if clone.path.is_dir():
                try:
                    self._take_over(repository, person, clone, title, scratch)
                except WorkRefused as refused:
                    where = f"{refused.suggestion}; the clone is {clone.path}"
                    raise WorkRefused(refused.message, suggestion=where) from None
            listed = self._git.private(person, "rev-list", "--count", self.work(clone), "--not", repository.head)
            return int(listed)

    def difference(self, base: str, commit: str, scratch: Path) -> Difference:
        """``scratch`` is an empty directory of ours."""
        return compare(self._git, PrivateRepository(scratch / "person", self.repository(), base), base, commit)

    def under_way(self, run_id: str, name: str, scratch: Path) -> Difference | None:
        """``scratch`` is an empty directory of ours."""
        if not (self._root / run_id / name).is_dir():
            return None
        repository = self.repository()
        clone = self._made(repository, run_id, name)
        taken, _, tree = self._taken(repository, clone, scratch)
        return compare(self._git, taken, clone.base, tree)

    def require_branches(self) -> None:
        """Raises Conflict where no branch can be made for work that is left on one."""
        asked = ("rev-parse", "-q", "--verify", f"refs/heads/{BRANCHES}")
        if self._git.person(self.directory, *asked, allowed=(0, 1, 128)):
            raise Conflict(
                f"{self.directory} has a branch {BRANCHES!r}, so work cannot be left on branches below {BRANCHES}/",
                suggestion=f"git branch -m {BRANCHES} another-name; then ccswarm resume",
            )

    def leave_on_branch(self, clone: Clone, commit: str) -> tuple[str, bool]:
        name = clone.ref.removeprefix("refs/").rpartition(".")[0]
        if commit == clone.base or not self.unmerged(self.repository(), commit):
            return name, True
        asked = ("rev-parse", "-q", "--verify", f"refs/heads/{name}^{{commit}}")
        if not self._git.person(self.directory, *asked, allowed=(0, 1, 128)):
            try:
                self._git.person(self.directory, "update-ref", "-m", "accepted", f"refs/heads/{name}", commit)
            except WorkspaceUnusable as failed:
                raise Conflict(
                    f"branch {name} cannot be created: {failed.message}",
                    suggestion=f"rename the conflicting branch; its work is at {clone.ref}",
                ) from None
        return name, False

    def merging(self, repository: Repository) -> Path:
        """Where it is written down while a merge is put into what is checked out."""
        return self._root / f".merging-{hashlib.sha256(os.fsencode(repository.git_dir)).hexdigest()[:16]}"

    @contextmanager
    def scratch(self) -> Generator[Path]:
        """A directory of ours for as long as it is needed; what an earlier process left is removed. One at a time."""
        for old in self._root.glob(".scratch-*"):
            shutil.rmtree(old, ignore_errors=True)
        with tempfile.TemporaryDirectory(prefix=".scratch-", dir=self._root) as path:
            yield Path(path)

    def _beginning(self, clone: Path, repository: Repository) -> Beginning:
        with UntrustedTree(clone) as tree:
            packs = tuple(packs_of(tree))
            if not (drivers := self._git.filters(self.directory)):
                return Beginning(packs)
            names = self._git.person(clone, "ls-files", "-z").encode(errors="surrogateescape")
            said = self._git.person(clone, "check-attr", "-z", "--stdin", "filter", stdin=names)
            fields = said.split("\0")
            through = [path for path, value in zip(fields[::3], fields[2::3], strict=False) if value in drivers]
            digests = {path: tree.digest(path, repository.object_format) or "" for path in through}
            return Beginning(packs, Filters(drivers, digests, sum(tree.size(path) or 0 for path in through)))

    def _take_over(
        self, repository: Repository, person: PrivateRepository, clone: Clone, title: str, scratch: Path
    ) -> None:
        taken, sent, kept = self._taken(repository, clone, scratch)
        commit = self._committed(taken, clone, sent, kept, title)
        self._refuse_repositories(taken, clone.base, commit, repository.top)
        bring(self._git, taken, person, (commit,), clone.base)
        self._git.refs(self.directory, {f"{clone.ref}-sent": sent, clone.ref: commit})

    def _taken(self, repository: Repository, clone: Clone, scratch: Path) -> tuple[PrivateRepository, str, str]:
        """A repository of ours with what is in the clone; what its agent committed last, and a tree of all there is."""
        beginning = Beginning.read(_facts_of(clone.path))
        ignoring = replace(repository, excluded=LEFT_BEHIND + repository.excluded)
        taken = PrivateRepository(scratch / "taken", ignoring, clone.base)
        with UntrustedTree(clone.path) as tree:
            sent = tip(tree, clone.branch)
            take(tree, self._git, repository, taken, sent, packs=beginning.packs, base=clone.base)
            copies, most = scratch / "copies", self._most_bytes
            snapshot = Snapshot(tree, self._git, taken, copies, sent, beginning.filters, most)
            return taken, sent, snapshot.write(clone.base)

    def _committed(self, taken: PrivateRepository, clone: Clone, sent: str, tree: str, title: str) -> str:
        """The agent's own last commit where that holds all; one more where it does not, the same as the last time."""
        if tree == self._git.private(taken, "rev-parse", f"{sent}^{{tree}}").decode().strip():
            return sent
        asked = ("rev-parse", "-q", "--verify", f"{clone.ref}^{{commit}}")
        if known := self._git.person(self.directory, *asked, allowed=(0, 1, 128)):
            _, said, _ = self._git.outcome(taken, "rev-parse", f"{known}^{{tree}}", f"{known}^")
            if said.decode().split() == [tree, sent]:
                return known
        who = self._git.identity(self.directory)
        return self._git.private(taken, "commit-tree", tree, "-p", sent, "-m", title, variables=who).decode().strip()

    def _refuse_repositories(self, taken: PrivateRepository, base: str, commit: str, top: Path) -> None:
        """Submodules that were changed, and directories that git would take for a repository without a work tree."""
        changed = changes(self._git.private(taken, *CHANGES, base, commit))
        if submodules := [change.path for change in changed if GITLINK in (change.mode, change.old_mode)]:
            raise WorkRefused(
                f"another repository was added, changed or removed: {few(submodules)}",
                suggestion=f"git rm --cached {submodules[0]!r}; submodules are changed by a person",
            )
        refuse_nested(self._git, taken, commit, changed, top)


def runs_directory(root: str, run_id: str) -> str:
    """What the clones of a run, or of what was handed on in it, are kept under: an agent may be at work in both."""
    return root if run_id == root else f"{root}-{hashlib.sha256(run_id.encode()).hexdigest()[:12]}"


def _facts_of(clone: Path) -> Path:
    return clone.with_name(f".{clone.name}.json")


def named(ref: str) -> str:
    """What is checked out, as a person calls it."""
    return "no branch" if ref == "HEAD" else f"the branch {ref.removeprefix('refs/heads/')}"


def few(paths: Iterable[str]) -> str:
    """The first of them, and how many more there are."""
    found = list(paths)
    more = f" and {len(found) - SHOWN_PATHS} more" if len(found) > SHOWN_PATHS else ""
    return ", ".join(found[:SHOWN_PATHS]) + more
