"""The uncommitted files of an agent's clone as a git tree, as ``git add --all`` would make it. Methods block.

git is not run in the clone. Changed files are copied to a private directory, with the files that define ignored names
and text conversion; git only sees that directory.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from agentwire.system.path_patterns import parents
from ccswarm.clones.checkout import GITLINK
from ccswarm.clones.git import Git, PrivateRepository
from ccswarm.errors import WorkRefused
from ccswarm.system.untrusted_tree import Entry, Listing, UntrustedTree

RULES = (".gitignore", ".gitattributes")
MOST_RULE_BYTES = 1 << 20
MARKS_OF_CACHES = ("CACHEDIR.TAG", "pyvenv.cfg")
"""Files by which tools mark directories that they can recreate: Rust's target, Python's environments."""

IN_ONE_PACK = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "core.bigFileThreshold", "GIT_CONFIG_VALUE_0": "1"}
"""Settings by which git adds files that need no conversion to one pack: four times as fast as one file each."""


@dataclass(frozen=True, slots=True)
class SnapshotEntry:
    """One path of a commit. ``size`` is 0 unless it is a file."""

    mode: str
    oid: str
    size: int


@dataclass(frozen=True, slots=True)
class Filters:
    """The person's filters, which change files on their way into the repository (Git LFS is one). They run when a clone
    is made, never on an agent's files. ``digests`` are those of the filtered files that a clone began with, by path;
    ``size`` is their total in bytes."""

    drivers: tuple[str, ...]
    digests: Mapping[str, str]
    size: int = 0


NO_FILTERS = Filters((), {})


class Snapshot:
    """The snapshot of ``tree``, whose branch is at ``commit``. At most ``most_bytes`` are copied to ``copies``, and as
    many more read for comparison than the clone began with."""

    def __init__(
        self,
        tree: UntrustedTree,
        git: Git,
        repository: PrivateRepository,
        copies: Path,
        commit: str,
        filters: Filters,
        most_bytes: int,
    ) -> None:
        self._tree = tree
        self._git = git
        self._repository = repository
        self._copies = copies
        self._commit = commit
        self._filters = filters
        self._committed = self._list_commit(commit)
        self._most_bytes = most_bytes
        self._hashable = most_bytes + filters.size
        self._base = commit
        self._counted = False
        self._compared = 0.0
        self._folders = {parent for path in self._committed for parent in parents(path)}
        self._bytes_left = most_bytes

    def write(self, base: str) -> str:
        """Return the id of the tree, written to the private repository. ``base`` is the commit of the clone's origin.
        Raises WorkRefused for repositories inside, and for files that need a filter."""
        self._copies.mkdir(mode=0o700)
        self._base = base
        changed: list[Entry] = []
        seen: set[str] = set()
        level = [""]
        while level:
            below: list[str] = []
            found: list[tuple[str, Entry | None]] = []
            for directory in level:
                listing = self._tree.list(directory)
                if directory and directory not in self._folders and _is_cache(listing):
                    continue
                self._refuse_repositories(directory, listing.git)
                self._copy_rules(listing.entries)
                found += [(path, None) for path in listing.directories]
                found += [(entry.path, entry) for entry in listing.entries]
            ignored = self._ignored(found)
            for path, entry in found:
                if entry is None:
                    below += self._to_descend(path, ignored)
                elif path in self._committed or path not in ignored:
                    seen.add(path)
                    changed += self._changed(entry)
            level = below
        tree = self._write_tree(changed, [path for path in self._committed if path not in seen])
        self._refuse_filtered(changed, (base, tree))
        return tree

    def _list_commit(self, commit: str) -> dict[str, SnapshotEntry]:
        output = self._git.private(self._repository, "ls-tree", "-r", "-l", "-z", "--full-tree", commit)
        found: dict[str, SnapshotEntry] = {}
        for line in output.decode(errors="surrogateescape").split("\0")[:-1]:
            facts, _, path = line.partition("\t")
            mode, _, oid, size = facts.split()
            found[path] = SnapshotEntry(mode, oid, int(size) if size.isdigit() else 0)
        return found

    def _refuse_repositories(self, directory: str, git: Iterable[str]) -> None:
        for path in git:
            if path != ".git":
                where = directory or path
                raise WorkRefused(
                    f"{where!r} is a git repository of its own, whose configuration runs programs",
                    suggestion=f"remove {path!r}, or name {where!r} in .gitignore",
                )

    def _copy_rules(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            if entry.link is None and entry.path.rpartition("/")[2] in RULES:
                data = self._tree.read(entry.path, MOST_RULE_BYTES)
                if data is not None:
                    self._copy_path(entry.path).write_bytes(data)

    def _ignored(self, found: Iterable[tuple[str, Entry | None]]) -> set[str]:
        """Return the paths that are ignored. Creates directories, because some patterns apply only to these."""
        paths: list[str] = []
        for path, entry in found:
            if entry is None:
                (self._copies / path).mkdir(parents=True, exist_ok=True)
            if path not in self._committed:
                paths.append(path)
        if not paths:
            return set()
        stdin = b"".join(b"./%b\0" % os.fsencode(path) for path in paths)  # so that no name is read as a pattern
        words = ("check-ignore", "--no-index", "--verbose", "--non-matching", "-z", "--stdin")
        began = time.monotonic()
        code, output, why = self._git.outcome(self._repository, *words, stdin=stdin, work_tree=self._copies)
        self._compared += time.monotonic() - began
        if self._compared > (most := self._git.comparing.seconds):
            raise WorkRefused(
                f"comparing all names with the .gitignore files takes longer than {most:g} seconds",
                suggestion="use fewer * in their patterns",
            )
        patterns = output.decode(errors="surrogateescape").split("\0")[2::4]
        if code not in (0, 1) or len(patterns) != len(paths):
            raise WorkRefused(f"git cannot determine what is ignored: {why}", suggestion="check its .gitignore files")
        return {path for path, pattern in zip(paths, patterns, strict=True) if pattern and pattern[0] != "!"}

    def _to_descend(self, directory: str, ignored: set[str]) -> list[str]:
        kept = self._committed.get(directory)
        if kept and kept.mode == GITLINK:
            listing = self._tree.list(directory)
            self._refuse_repositories(directory, listing.git)
            if listing.entries or listing.directories:
                raise WorkRefused(
                    f"{directory!r} is a submodule, so files written into it belong to another repository",
                    suggestion=f"move what is in {directory!r} elsewhere; submodules are changed by a person",
                )
            return []
        return [directory] if directory in self._folders or directory not in ignored else []

    def _changed(self, entry: Entry) -> list[Entry]:
        """Copy the entry and return it, unless it equals the committed one."""
        kept = self._committed.get(entry.path)
        if entry.link is not None:
            self._copy_path(entry.path).symlink_to(os.fsdecode(entry.link))
            return [entry]
        if kept and (kept.mode == entry.mode or (kept.mode.startswith("100") and not self._repository.keeps_modes)):
            known = self._filters.digests.get(entry.path)
            if self._digest(entry, kept, known) in (kept.oid, None, known or kept.oid):
                return []
        copy = self._copy_path(entry.path)
        copy.unlink(missing_ok=True)
        copied = self._tree.copy(entry.path, copy, self._bytes_left)
        if copied < 0:
            return []
        self._bytes_left -= copied
        copy.chmod(0o700 if entry.executable else 0o600)
        return [entry]

    def _digest(self, entry: Entry, kept: SnapshotEntry, known: str | None) -> str | None:
        """Return the id as ``UntrustedTree.digest`` does; empty, without reading, if the size shows a change."""
        size = self._tree.size(entry.path)
        if size is not None and size != kept.size and not known:
            return ""
        self._hashable -= size or 0
        if self._hashable < 0 and not self._counted:
            self._counted = True
            self._hashable += sum(kept.size for kept in self._list_commit(self._base).values())
        if self._hashable < 0:
            raise WorkRefused(
                f"the files have grown by more than {self._most_bytes} bytes since the clone was made: {entry.path!r}",
                suggestion="remove large files, or name them in .gitignore",
            )
        return self._tree.digest(entry.path, self._repository.object_format, size or 0)

    def _copy_path(self, path: str) -> Path:
        copy = self._copies / path
        copy.parent.mkdir(parents=True, exist_ok=True)
        return copy

    def _refuse_filtered(self, changed: Iterable[Entry], trees: Iterable[str]) -> None:
        """Refuse files that need a filter by the person's attributes, before or after the agent's changes to them."""
        paths = [entry.path for entry in changed if entry.link is None]
        for tree in trees:
            found = self._git.through_filters(self._repository, tree, paths, self._filters.drivers)
            for path, driver in found.items():
                raise WorkRefused(
                    f"{path!r} goes through the filter {driver!r} when committed, but no program is run on an agent's"
                    " files",
                    suggestion="commit it yourself, or have the agent restore it",
                )

    def _write_tree(self, changed: Iterable[Entry], removed_paths: Iterable[str]) -> str:
        code, _, said = self._git.outcome(self._repository, "read-tree", self._commit)
        if code:
            raise WorkRefused(
                f"git cannot check out what the agent committed: {said}", suggestion="commit again without it"
            )
        zero = "0" * len(self._commit)
        removed = [path for path in removed_paths if self._committed[path].mode != GITLINK]
        self._update("--index-info", [f"0 {zero}\t{path}" for path in removed])
        added = [entry.path for entry in changed]
        code, said = self._update("--stdin", added)
        if code:
            raise WorkRefused(f"git cannot store the agent's work: {said}", suggestion="remove it")
        return self._git.private(self._repository, "write-tree").decode().strip()

    def _update(self, how: str, lines: Iterable[str]) -> tuple[int, str]:
        stdin = b"".join(os.fsencode(line) + b"\0" for line in lines)
        if not stdin:
            return 0, ""
        words = ("update-index", "--add", "--replace", "-z", how)
        code, _, errors = self._git.outcome(
            self._repository, *words, stdin=stdin, work_tree=self._copies, variables=IN_ONE_PACK
        )
        return code, errors


def _is_cache(listing: Listing) -> bool:
    return any(entry.path.rpartition("/")[2] in MARKS_OF_CACHES for entry in listing.entries)
