"""What a box must not change, move or read in a workspace: git's own files, settings of other programs, secrets.

Programs outside of the box read such files later: git, editors, shells, other agents. Their names are in
protected_names.py, their locations come from workspace.py; here they are fitted into what a box can protect.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from ai_session.errors import SandboxRefused
from ai_session.sandbox.workspace import repositories
from ai_session.sandbox.workspace.paths import Names, absolute, below, between, some
from ai_session.sandbox.workspace.tree import Name
from ai_session.sandbox.workspace.workspace import Workspace

MOST, MOST_BY_BUBBLEWRAP, MOST_ALONE = 2000, 80, 240
"""The maximum of mounts that protect something in one box; of those that bubblewrap makes itself, whose time grows with
their square; and of those it makes if no other program can."""

PLACEHOLDERS = (
    *(".claude", ".codex", ".cursor", ".gemini", ".agents", ".ai-session", ".vscode", ".idea", ".husky"),
    ".devcontainer",
)
"""The directories that are empty in a box at the top of its workspace if they do not exist."""

PLACEHOLDERS_WHERE_USED = (
    *(".opencode", ".windsurf", ".kiro", ".roo", ".kilocode", ".amazonq", ".continue", ".cline", ".augment", ".trae"),
    *(".junie", ".qwen", ".crush", ".goose", ".factory", ".amp", ".copilot", ".zed", ".fleet", ".helix", ".mise"),
)
"""Further ones, for persons whose home has a directory that shows they use the program."""

TRACES = (".config", ".local/share")
"""Where else in the home such a directory may be, by its name without the dot."""

Why = Literal["link", "special", "linked", "beyond"]


@dataclass(frozen=True, slots=True)
class Placeholder:
    """Something missing that exists while a box does: an empty directory, ``ignored`` by git if git would otherwise see
    it, or a file with this content."""

    path: str
    content: bytes | None = None
    ignored: bool = False


@dataclass(frozen=True, slots=True)
class Unprotected:
    """Something that should be protected and is not, or not completely: a symbolic ``link``; a ``special`` file; a file
    ``linked`` under another name too; or one ``beyond`` what fits into a box."""

    path: str
    why: Why


@dataclass(frozen=True, slots=True)
class Protection:
    """What a box protects. ``read_only`` paths exist and are not links; ``pins`` are the directories above them, which
    must not be moved away; ``masked`` paths appear empty. ``closed`` are repositories in which no commits can be made.
    ``unseen`` describes the parts of the tree that were not searched."""

    read_only: tuple[str, ...] = ()
    pins: tuple[str, ...] = ()
    masked: tuple[str, ...] = ()
    placeholders: tuple[Placeholder, ...] = ()
    unprotected: tuple[Unprotected, ...] = ()
    closed: tuple[str, ...] = ()
    unseen: tuple[str, ...] = ()

    @property
    def mounts(self) -> int:
        """The number of mounts in a box."""
        return len(self.read_only) + len(self.pins) + len(self.masked) + len(self.placeholders)

    def guards(self) -> list[tuple[str, str]]:
        """Return each path and its kind, as sandbox/guard.py expects them."""
        closed = (*self.read_only, *(placeholder.path for placeholder in self.placeholders))
        return [
            *((path, "kept") for path in self.pins),
            *((path, "closed") for path in closed),
            *((path, "hidden") for path in self.masked),
        ]


def find_protection(workspace: Workspace, home: str, *, most: int = MOST, made: bool = True) -> Protection:
    """Return what is to be protected in at most ``most`` mounts; if ``made``, including what is missing.

    Raises SandboxRefused if it cannot be done, or OSError.
    """
    with workspace.tree.lock:
        workspace.update(home)
        found = list(workspace.names())
        plan = _Fit(workspace, most)
        if made:
            plan.add_placeholders(_placeholders(workspace.root, home))
        for path, name in found:
            if name.kind != "repository" and "/" not in path:
                plan.settings_or_secret(path, name)
        plan.repositories(workspace.repositories())
        for path, name in found:
            if name.kind != "repository" and "/" in path:
                plan.settings_or_secret(path, name)
        plan.open_repositories()
        return plan.protection(workspace.unseen())


def secrets(workspace: Workspace, *, most: int = MOST) -> Protection:
    """Return what a read-only box masks."""
    with workspace.tree.lock:
        workspace.tree.update()
        plan = _Fit(workspace, most)
        for path, name in workspace.names():
            if name.kind == "secret":
                plan.settings_or_secret(path, name)
        return plan.protection(workspace.unseen())


class _Fit:
    """Fits what was found into a number of mounts. What does not fit is noted; repositories that do not are refused."""

    def __init__(self, workspace: Workspace, most: int) -> None:
        self._workspace = workspace
        self._root = workspace.root
        self._most = most
        self._read_only: dict[str, None] = {}
        self._masked: dict[str, None] = {}
        self._pins: dict[str, None] = {}
        self._placeholders: dict[str, Placeholder] = {}
        self._unprotected: dict[str, Unprotected] = {}
        self._repositories: list[str] = []
        self._closed: dict[str, None] = {}

    def add_placeholders(self, placeholders: Iterable[Placeholder]) -> None:
        """Plan mounts for what is missing."""
        for placeholder in placeholders:
            self._placeholders[placeholder.path] = placeholder

    def settings_or_secret(self, path: str, name: Name) -> None:
        """Plan the protection of one path, as far as a box can protect it."""
        full = absolute(self._root, path)
        if name.kind in ("gitlink", "rebase", "crowded"):
            return
        if name.kind == "secret":
            # A link is masked where it leads to, if that can be seen inside.
            real = os.path.realpath(full)
            if not below(real, self._root) or not os.path.exists(real):
                return
            if name.names > 1:
                self._unprotected[real] = Unprotected(real, "linked")
            if not self._mount(self._masked, real):
                self._unprotected[real] = Unprotected(real, "beyond")
            return
        if name.kind == "link":
            real = os.path.realpath(full)
            if os.path.isdir(real) and below(real, self._root):
                self._unprotected[full] = Unprotected(full, "link")
            return
        if name.shape in ("link", "other"):
            if "/" not in path and (path in self._workspace.required or self._workspace.reader.is_by_name(path)):
                _refuse_link(full, self._root)
            self._unprotected[full] = Unprotected(full, "link" if name.shape == "link" else "special")
            return
        if name.names > 1:
            self._unprotected[full] = Unprotected(full, "linked")
        if any(outer in self._read_only for outer in between(self._root, full)):
            return
        _refuse_link(full, self._root)
        if not self._mount(self._read_only, full):
            self._unprotected[full] = Unprotected(full, "beyond")

    def repositories(self, found: Sequence[str]) -> None:
        """Plan the nearest repository so that commits can be made in it, and all others read-only as a whole. Raises
        SandboxRefused if even that does not fit."""
        self._repositories = list(found)
        for git in found:
            _refuse_link(git, self._root)
        for git in found[1:] if found else ():
            if git != self._root and not self._mount(self._read_only, git):
                raise SandboxRefused(
                    f"{self._root!r} contains {len(found)} repositories, more than can be protected",
                    suggestion="choose the directory of one project as the workspace",
                )
        if found and not self._open(found[0]):
            raise SandboxRefused(
                f"the repository {found[0]!r} has too many worktrees, more than can be protected",
                suggestion="remove those that are not needed: git worktree prune",
            )

    def open_repositories(self) -> None:
        """Use the mounts that are left to allow commits in the other repositories too, nearest first."""
        for git in self._repositories[1:]:
            del self._read_only[git]
            if not self._open(git):
                self._read_only[git] = None
                self._closed[git] = None

    def _open(self, git: str) -> bool:
        """Plan read-only mounts of what decides about programs, or return False and change nothing if that does not
        fit."""
        if len(repositories.worktrees(git)) > repositories.MOST_WORKTREES:
            return False
        there = dict.fromkeys(repositories.deciding(git))
        absent = {path: Placeholder(path, content) for path, content in repositories.absent(git)}
        for one in self._workspace.named_in(git):
            if any(outer in there for outer in (one.path, *between(git, one.path), git)):
                continue
            if os.path.islink(one.path) and not one.required:
                self._unprotected[one.path] = Unprotected(one.path, "link")
            elif os.path.lexists(one.path):
                there[one.path] = None
            else:
                placeholder = _placeholder(git, one)
                absent.setdefault(placeholder.path, placeholder)
        paths = [*there, *absent]
        for path in paths:
            _refuse_link(path, self._root)
        pins = {pin for path in paths for pin in between(self._root, path)}
        if self._mounts + len(paths) + len(pins - self._pins.keys()) > self._most and git != self._root:
            return False
        self._read_only |= there
        self._pins |= dict.fromkeys(pins)
        self.add_placeholders(absent.values())
        return True

    @property
    def _mounts(self) -> int:
        return len(self._read_only) + len(self._masked) + len(self._pins) + len(self._placeholders)

    def _mount(self, kind: dict[str, None], path: str) -> bool:
        pins = [pin for pin in between(self._root, path) if pin not in self._pins]
        if path not in kind and self._mounts + len(pins) + 1 > self._most:
            return False
        kind[path] = None
        self._pins |= dict.fromkeys(pins)
        return True

    def protection(self, unseen: tuple[str, ...]) -> Protection:
        """Return the whole plan."""
        read_only = tuple(path for path in self._read_only if path not in self._masked)
        # The directories above a repository that is closed as a whole are pinned already.
        pins = tuple(pin for pin in self._pins if pin not in self._read_only)
        placeholders = tuple(one for path, one in self._placeholders.items() if path not in self._read_only)
        unprotected = tuple(self._unprotected.values())
        return Protection(read_only, pins, tuple(self._masked), placeholders, unprotected, tuple(self._closed), unseen)


def _placeholder(git: str, named: repositories.Named) -> Placeholder:
    """Return a placeholder for something missing in a repository, or for the outermost missing directory above it."""
    outermost = [outer for outer in between(git, named.path) if not os.path.lexists(outer)]
    if outermost:
        return Placeholder(outermost[-1])
    return Placeholder(named.path, None if named.directory else b"")


def _placeholders(root: str, home: str) -> Iterator[Placeholder]:
    """Yield placeholders for directories of settings that are missing at the top."""
    for name in (*PLACEHOLDERS, *(_used(home) if home else ())):
        if not os.path.lexists(path := absolute(root, name)):
            yield Placeholder(path, ignored=True)


def _used(home: str) -> Iterator[str]:
    """Yield the directories of those programs that the person uses, judged by the home."""
    here, *plain = [Names(os.path.join(home, folder)) for folder in ("", *TRACES)]
    for name in PLACEHOLDERS_WHERE_USED:
        if here.have(name) or any(names.have(name.lstrip(".")) for names in plain):
            yield name


REASONS: dict[Why, str] = {
    "beyond": "not protected, because there are more settings and secrets than fit into a box",
    "link": "not protected, because it is a symbolic link",
    "special": "not protected, because it is neither a file nor a directory",
    "linked": "not safe, because it has another name (a hard link)",
}


def describe(protection: Protection) -> tuple[str, ...]:
    """Return what is not protected, one short line for each reason, with the count and some examples."""
    lines: list[str] = []
    for why, reason in REASONS.items():
        if paths := [one.path for one in protection.unprotected if one.why == why]:
            lines.append(f"{reason}: {len(paths)} ({some(paths)})")
    if protection.closed:
        closed = protection.closed
        lines.append(
            f"no commits can be made, because there are more repositories than fit: {len(closed)} ({some(closed)})"
        )
    return (*lines, *(f"not searched: {words}" for words in protection.unseen))


def _refuse_link(path: str, root: str) -> None:
    """Raise SandboxRefused if a part of the path is a link: mounts follow links and would protect something else."""
    for part in (path, *between(root, path)):
        if os.path.islink(part):
            raise SandboxRefused(
                f"{part!r} is a symbolic link, so {path!r} cannot be protected",
                suggestion="replace the link with its target, or choose another workspace",
            )
    if os.path.lexists(path) and stat.S_IFMT(os.lstat(path).st_mode) not in (stat.S_IFREG, stat.S_IFDIR):
        raise SandboxRefused(
            f"{path!r} is neither a file nor a directory and cannot be protected", suggestion="remove it"
        )
