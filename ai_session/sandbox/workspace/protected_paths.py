"""What of a workspace a box must not change, move or read: git's own, settings of other programs, secrets.

Such files are later read by programs outside of the box: git, editors, shells, other agents. Which names they have is
in protected_names.py; here they are looked for, and fitted into what a box can protect.
"""

from __future__ import annotations

import os
import stat
import sys
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Literal

from agentwire.system.path_patterns import patterns
from agentwire.system.protected_names import OF_A_HOME, protected
from ai_session.errors import SandboxRefused
from ai_session.sandbox.workspace import repositories
from ai_session.sandbox.workspace.directory_cache import DirectoryTree, Inner
from ai_session.sandbox.workspace.git_settings import GitSettings
from ai_session.sandbox.workspace.tree import DEPTH, Led, Name, WorkspaceReader, WorkspaceTree, workspace_tree
from ai_session.system.directory_events import ATTRIB, LISTED
from ai_session.system.path_steps import led_to, steps

MOST, MOST_BY_BUBBLEWRAP, MOST_ALONE = 2000, 80, 240
"""Mounts of what is protected in one box; as many as bubblewrap makes itself, for its time grows with their square; and
as many as it makes where nobody else can."""

SYSTEM_DEPTH, SYSTEM_DIRECTORIES = 20, 10_000
MOST_WORKSPACES = 16
MOST_LOOKS = 4
"""Where configs and links lead to there may be further links."""
MOST_IN_A_HOME = 100
"""Files of one directory of settings there."""
EXAMPLES, MOST_SHOWN = 3, 160
"""Paths named in a text, and characters of each."""

PLACEHOLDERS = (
    *(".claude", ".codex", ".cursor", ".gemini", ".agents", ".ai-session", ".vscode", ".idea", ".husky"),
    ".devcontainer",
)
"""Directories that a box finds at the top of its workspace, empty, where they are absent."""

PLACEHOLDERS_WHERE_USED = (
    *(".opencode", ".windsurf", ".kiro", ".roo", ".kilocode", ".amazonq", ".continue", ".cline", ".augment", ".trae"),
    *(".junie", ".qwen", ".crush", ".goose", ".factory", ".amp", ".copilot", ".zed", ".fleet", ".helix", ".mise"),
)
"""The same for whom a directory in the home shows that they use the program."""

TRACES = (".config", ".local/share")
"""Where else in the home such a directory leaves a trace, by its name without the dot."""

Why = Literal["link", "special", "linked", "beyond"]


@dataclass(frozen=True, slots=True)
class Placeholder:
    """Something absent that is put there for a box's life: an empty directory, which git is to ignore where it would
    otherwise see it, or a file with this content."""

    path: str
    content: bytes | None = None
    ignored: bool = False


@dataclass(frozen=True, slots=True)
class Unprotected:
    """Something that should be protected and is not, or not wholly: a symbolic ``link``; a ``special`` file; ``linked``
    under another name as well; ``beyond`` what fits into a box."""

    path: str
    why: Why


@dataclass(frozen=True, slots=True)
class Protection:
    """``read_only`` exist and are no links; ``pins`` are the directories on the way to them, which must not be moved
    away; ``masked`` are to be found empty. ``closed`` are repositories in which no commits can be made. ``unseen`` are
    the parts of the tree that were not looked at, in words."""

    read_only: tuple[str, ...] = ()
    pins: tuple[str, ...] = ()
    masked: tuple[str, ...] = ()
    placeholders: tuple[Placeholder, ...] = ()
    unprotected: tuple[Unprotected, ...] = ()
    closed: tuple[str, ...] = ()
    unseen: tuple[str, ...] = ()

    @property
    def mounts(self) -> int:
        """How many there are in a box."""
        return len(self.read_only) + len(self.pins) + len(self.masked) + len(self.placeholders)

    def guards(self) -> list[tuple[str, str]]:
        """Each path and its kind, as sandbox/guard.py takes them."""
        closed = (*self.read_only, *(placeholder.path for placeholder in self.placeholders))
        return [
            *((path, "kept") for path in self.pins),
            *((path, "closed") for path in closed),
            *((path, "hidden") for path in self.masked),
        ]


class Workspace:
    """One directory as boxes see it. May be used by several threads, one after the other: take ``tree.lock``."""

    def __init__(self, root: str, own: Sequence[str], masked: Sequence[str]) -> None:
        """``own`` and ``masked`` are patterns, of settings beyond the table and of secrets. Raises ValueError."""
        self.root = root
        self.watchers = 0
        """How many need the kernel's reports of its tree; ``counting`` is held to change it."""
        self.counting = threading.Lock()
        self.expected: dict[str, int] = {}
        """What is put there for boxes, relative to the root, and its identity; 0 while it is being made."""
        self.required: frozenset[str] = frozenset()
        """What git's configs name for certain, relative to the root: a link in its place, at the top, is refused."""
        self._git = GitSettings(root)
        self._by_others: frozenset[str] = frozenset()
        """What git's configs name, and what links in the place of the person's own settings lead to."""
        self._on_the_way: frozenset[str] = frozenset()
        """Links there that these go through."""
        self._in_git: dict[str, list[repositories.Named]] = {}
        self.tree: WorkspaceTree
        self.reader: WorkspaceReader
        self.tree, self.reader = workspace_tree(root, protected(own), patterns(*masked))

    def hold(self) -> None:
        """From now on the kernel reports changes of its tree, as far as it can, until ``release``. Blocks."""
        with self.tree.lock, self.counting:
            self.watchers += 1
            self.tree.watch()

    def release(self) -> None:
        """One that needed these reports does no longer. Blocks."""
        with self.tree.lock, self.counting:
            self.watchers -= 1
            if not self.watchers:
                self.tree.unwatch()

    def look(self, home: str) -> None:
        """Brings the tree up to date, with what git's configs name and where links lead to."""
        self.tree.look()
        for _ in range(MOST_LOOKS):
            before, led = self.reader.led, self._led(home)
            if led == before:
                break
            self.reader.led = led
            self.tree.look_again_at({os.path.dirname(path) for path in led.named ^ before.named})
            for target, _ in led.aliases ^ before.aliases:
                self.tree.look_again_below(target)
            self.tree.look()

    def _led(self, home: str) -> Led:
        self._ask_git(home)
        self._ask_home(home)
        self._by_others |= self._own()
        named, aliases = {*self._by_others, *self._on_the_way}, set[tuple[str, str]]()
        for path, name in self.names():
            if name.shape == "link" and (name.kind == "link" or self._is_followed(path)):
                on_the_way, target = self._follow(path)
                named |= on_the_way
                if target is None:
                    continue
                if self.reader.leads(path):
                    aliases.add((target, path))
                if not self._leads_alone(path) and self._can_be_kept(path, name, target):
                    named.add(target)
        return Led(frozenset(named), frozenset(aliases))

    def _ask_git(self, home: str) -> None:
        """What its configs name: in directories of repositories, and elsewhere in the workspace."""
        gits = self.repositories()
        inside: dict[str, list[repositories.Named]] = {git: [] for git in gits}
        outside: set[str] = set()
        on_the_way: set[str] = set()
        required: set[str] = set()
        for one in dict.fromkeys(one for named in self._git.named(gits, home).values() for one in named):
            around = next((outer for outer in _between(self.root, one.path) if outer in inside), "")
            if around:
                inside[around].append(one)
                continue
            relative = os.path.relpath(one.path, self.root)
            (on_the_way if one.on_the_way else outside).add(relative)
            if one.required:
                required.add(relative)
        self._by_others, self.required, self._in_git = frozenset(outside), frozenset(required), inside
        self._on_the_way = frozenset(on_the_way)

    def _ask_home(self, home: str) -> None:
        """What the person's own settings are where links in the home lead here: in a workspace of dotfiles."""
        if not home.startswith("/") or _below(f"{home}/", self.root):
            return
        found, on_the_way = set(self._by_others), set(self._on_the_way)
        for path in _settings_in(home):
            with suppress(OSError):
                links, end = ([], "") if _below(path, self.root) else led_to(path, self.root)
                relative = os.path.relpath(end, self.root) if end else ""
                if end and not self.reader.is_excepted(relative, directory=os.path.isdir(end)):
                    found.add(relative)
                    on_the_way |= {os.path.relpath(link, self.root) for link in links}
        self._by_others, self._on_the_way = frozenset(found), frozenset(on_the_way)

    def _own(self) -> frozenset[str]:
        """Where this program itself lies, if that is in the workspace: it runs outside, again with the next verb."""
        packages = str(Path(__file__).resolve().parents[3])
        ours = (os.path.join(packages, name) for name in ("agentwire", "ai_session", "ccswarm"))
        prefixes = (sys.prefix, sys.base_prefix, *ours)
        inside = {path for path in map(os.path.realpath, prefixes) if _below(path, self.root) and os.path.isdir(path)}
        whole = {own for own in inside if not any(_below(own, other) for other in inside)}
        found = (os.path.relpath(own, self.root) for own in whole)
        return frozenset(one for one in found if not self.reader.is_excepted(one, directory=True))

    def named_in(self, git: str) -> list[repositories.Named]:
        """What git's configs name in the directory of a repository."""
        return self._in_git.get(git, [])

    def _is_followed(self, path: str) -> bool:
        """Not where a link is protected for another one leads through it."""
        return (
            path not in self.reader.led.named
            or path in self._by_others
            or self.reader.leads(path)
            or self.reader.is_by_name(path)
            or self.reader.is_by_another_name(path)
        )

    def _leads_alone(self, path: str) -> bool:
        """Whether a path is no settings itself, but on the way to some."""
        return self.reader.leads(path) and path not in self._by_others and not self.reader.is_by_name(path)

    def _follow(self, path: str) -> tuple[set[str], str | None]:
        """The other links on the way that a link leads, and its end; only what lies in the workspace, and None where
        the end does not."""
        try:
            way = list(steps(_absolute(self.root, path)))
        except OSError:
            return set(), None
        inside = {one: os.path.relpath(one, self.root) for one in way if _below(one, self.root)}
        links = {relative for one, relative in inside.items() if relative != path and os.path.islink(one)}
        if way[-1] == self.root:
            return links, ""
        return links, inside.get(way[-1])

    def _can_be_kept(self, path: str, link: Name, target: str) -> bool:
        """Whether what a link leads to can be read-only as a whole: not the project itself, and of what lies in a
        directory of settings no other directory, for these hold sources and documents."""
        if not target or path.startswith(f"{target}/"):
            return False
        folder = os.path.isdir(_absolute(self.root, target))
        return not (folder and link.kind == "link") and not self.reader.is_excepted(target, directory=folder)

    def open_to_writing(self, paths: Iterable[Unprotected] | None) -> None:
        """In some box these are not read-only, in addition to what was known; None: nothing is. Their content is looked
        at from now on."""
        with self.tree.lock:
            known = self.reader.open_to_writing
            if known is None:
                return
            if paths is None:
                self.reader.open_to_writing = None
                kept = (path for path, name in self.names() if name.kind == "repository")
                self.tree.look_again_at([*self.tree.facts, *kept])
            elif new := frozenset(os.path.relpath(one.path, self.root) for one in paths) - known:
                self.reader.open_to_writing = known | new
                self.tree.look_again_at({os.path.dirname(path) for path in new})
            self.tree.look()

    def names(self) -> Iterator[tuple[str, Name]]:
        """All that was found, by its path relative to the root, nearest first."""
        for directory in sorted(self.tree.facts, key=_depth):
            for name in self.tree.facts[directory]:
                if name.kind == "gitlink":
                    yield _join(directory.rpartition("/")[0], name.name), name
                else:
                    yield (directory if name.name == "." else _join(directory, name.name)), name

    def repositories(self) -> list[str]:
        """Directories and files called ``.git``, and bare repositories, nearest first."""
        return [_absolute(self.root, path) for path, name in self.names() if name.kind == "repository"]

    def unseen(self) -> tuple[str, ...]:
        """What of the tree was not looked at, in words."""
        gaps = self.tree.gaps
        found = [f"it has more than {len(self.tree)} directories"] if gaps.many else []
        if gaps.deep:
            found.append(f"more than {DEPTH} directories deep: {_some(gaps.deep)}")
        if gaps.closed:
            found.append(f"closed to you: {_some(gaps.closed)}")
        if crowded := [path for path, name in self.names() if name.kind == "crowded"]:
            named = _some([path or "the workspace itself" for path in crowded])
            found.append(f"too many names in one directory, or in its index: {named}")
        if unread := self._git.unread:
            found.append(f"what git's settings name, in all files that they include: {_some(unread)}")
        return tuple(found)


class Workspaces:
    """The latest of them, with what is known of their trees. May be used by several threads."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[object, ...], Workspace] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, root: str, own: Sequence[str] = (), masked: Sequence[str] = ()) -> Workspace:
        """The one with these patterns. Raises ValueError for what are none."""
        key = (root, tuple(own), tuple(masked))
        with self._lock:
            found = self._known.pop(key, None) or Workspace(root, own, masked)
            self._known[key] = found
            spare = [key for key, one in self._known.items() if one.tree.events is None and one is not found]
            for old in spare[: max(0, len(self._known) - MOST_WORKSPACES)]:
                del self._known[old]
            return found


def survey(workspace: Workspace, home: str, *, most: int = MOST, made: bool = True) -> Protection:
    """What is to be protected there, in at most so many mounts; with ``made`` also what is absent.

    Raises SandboxRefused where it cannot be done, OSError.
    """
    with workspace.tree.lock:
        workspace.look(home)
        found = list(workspace.names())
        plan = _Fit(workspace, most)
        if made:
            plan.put(_placeholders(workspace.root, home))
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
    """What a box finds empty where it can change nothing anyway."""
    with workspace.tree.lock:
        workspace.tree.look()
        plan = _Fit(workspace, most)
        for path, name in workspace.names():
            if name.kind == "secret":
                plan.settings_or_secret(path, name)
        return plan.protection(workspace.unseen())


class _Fit:
    """Fits what was found into so many mounts. What does not fit is noted, a repository that does not is refused."""

    def __init__(self, workspace: Workspace, most: int) -> None:
        self._workspace, self._root, self._most = workspace, workspace.root, most
        self._read_only: dict[str, None] = {}
        self._masked: dict[str, None] = {}
        self._pins: dict[str, None] = {}
        self._placeholders: dict[str, Placeholder] = {}
        self._unprotected: dict[str, Unprotected] = {}
        self._repositories: list[str] = []
        self._closed: dict[str, None] = {}

    def put(self, placeholders: Iterable[Placeholder]) -> None:
        """For what is absent."""
        for placeholder in placeholders:
            self._placeholders[placeholder.path] = placeholder

    def settings_or_secret(self, path: str, name: Name) -> None:
        """One that was found, as far as a box can protect it."""
        absolute = _absolute(self._root, path)
        if name.kind in ("gitlink", "rebase", "crowded"):
            return
        if name.kind == "secret":
            # A link is masked where it leads to, if that can be seen inside.
            real = os.path.realpath(absolute)
            if not _below(real, self._root) or not os.path.exists(real):
                return
            if name.names > 1:
                self._unprotected[real] = Unprotected(real, "linked")
            if not self._mount(self._masked, real):
                self._unprotected[real] = Unprotected(real, "beyond")
            return
        if name.kind == "link":
            real = os.path.realpath(absolute)
            if os.path.isdir(real) and _below(real, self._root):
                self._unprotected[absolute] = Unprotected(absolute, "link")
            return
        if name.shape in ("link", "other"):
            if "/" not in path and (path in self._workspace.required or self._workspace.reader.is_by_name(path)):
                _refuse_link(absolute, self._root)
            self._unprotected[absolute] = Unprotected(absolute, "link" if name.shape == "link" else "special")
            return
        if name.names > 1:
            self._unprotected[absolute] = Unprotected(absolute, "linked")
        if any(outer in self._read_only for outer in _between(self._root, absolute)):
            return
        _refuse_link(absolute, self._root)
        if not self._mount(self._read_only, absolute):
            self._unprotected[absolute] = Unprotected(absolute, "beyond")

    def repositories(self, found: Sequence[str]) -> None:
        """The nearest as it must be for commits in it, all others closed as a whole; raises SandboxRefused where even
        that does not fit."""
        self._repositories = list(found)
        for git in found:
            _refuse_link(git, self._root)
        for git in found[1:] if found else ():
            if git != self._root and not self._mount(self._read_only, git):
                raise SandboxRefused(
                    f"{self._root!r} holds {len(found)} repositories, more than can be protected",
                    suggestion="choose the directory of one project as the workspace",
                )
        if found and not self._open(found[0]):
            raise SandboxRefused(
                f"the repository {found[0]!r} has too many worktrees, more than can be protected",
                suggestion="remove those that are not needed: git worktree prune",
            )

    def open_repositories(self) -> None:
        """What is left of the mounts lets commits be made in the other repositories too, nearest first."""
        for git in self._repositories[1:]:
            del self._read_only[git]
            if not self._open(git):
                self._read_only[git] = None
                self._closed[git] = None

    def _open(self, git: str) -> bool:
        """Only what decides about programs is read-only; False, and nothing is changed, where that does not fit."""
        if len(repositories.worktrees(git)) > repositories.MOST_WORKTREES:
            return False
        there = dict.fromkeys(repositories.deciding(git))
        absent = {path: Placeholder(path, content) for path, content in repositories.absent(git)}
        for one in self._workspace.named_in(git):
            if any(outer in there for outer in (one.path, *_between(git, one.path), git)):
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
        pins = {pin for path in paths for pin in _between(self._root, path)}
        if self._taken + len(paths) + len(pins - self._pins.keys()) > self._most and git != self._root:
            return False
        self._read_only |= there
        self._pins |= dict.fromkeys(pins)
        self.put(absent.values())
        return True

    @property
    def _taken(self) -> int:
        return len(self._read_only) + len(self._masked) + len(self._pins) + len(self._placeholders)

    def _mount(self, kind: dict[str, None], path: str) -> bool:
        pins = [pin for pin in _between(self._root, path) if pin not in self._pins]
        if path not in kind and self._taken + len(pins) + 1 > self._most:
            return False
        kind[path] = None
        self._pins |= dict.fromkeys(pins)
        return True

    def protection(self, unseen: tuple[str, ...]) -> Protection:
        """All of it."""
        read_only = tuple(path for path in self._read_only if path not in self._masked)
        # The way to a repository that is closed as a whole is pinned already.
        pins = tuple(pin for pin in self._pins if pin not in self._read_only)
        placeholders = tuple(one for path, one in self._placeholders.items() if path not in self._read_only)
        unprotected = tuple(self._unprotected.values())
        return Protection(read_only, pins, tuple(self._masked), placeholders, unprotected, tuple(self._closed), unseen)


def _placeholder(git: str, named: repositories.Named) -> Placeholder:
    """For something absent in a repository's directory, or for the outermost directory on the way to it that is."""
    outermost = [outer for outer in _between(git, named.path) if not os.path.lexists(outer)]
    if outermost:
        return Placeholder(outermost[-1])
    return Placeholder(named.path, None if named.directory else b"")


def _placeholders(root: str, home: str) -> Iterator[Placeholder]:
    """Directories of settings that are absent at the top."""
    for name in (*PLACEHOLDERS, *(_used(home) if home else ())):
        if not os.path.lexists(path := _absolute(root, name)):
            yield Placeholder(path, ignored=True)


def _used(home: str) -> Iterator[str]:
    """Directories that are read by programs of which the home shows that somebody uses them."""
    here, *plain = [_Names(os.path.join(home, folder)) for folder in ("", *TRACES)]
    for name in PLACEHOLDERS_WHERE_USED:
        if here.have(name) or any(names.have(name.lstrip(".")) for names in plain):
            yield name


class _Names:
    """What one directory holds, listed once: asking for each of many names takes longer than all else of a survey."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        try:
            self._names: set[str] | None = {name.casefold() for name in os.listdir(directory)}
        except FileNotFoundError:
            self._names = set()
        except OSError:
            self._names = None  # what cannot be listed may still be searched

    def have(self, path: str) -> bool:
        """Whether there is something, a link that leads nowhere as well."""
        known = self._names is None or path.partition("/")[0].casefold() in self._names
        return known and os.path.lexists(os.path.join(self._directory, path))


def _between(root: str, path: str) -> Iterator[str]:
    """Directories above ``path`` and below ``root``."""
    directory = os.path.dirname(path)
    while _below(directory, root):
        yield directory
        directory = os.path.dirname(directory)


def _settings_in(home: str) -> Iterator[str]:
    """Settings of a person, and the links that lie in directories of them."""
    names = _Names(home)
    for name in OF_A_HOME:
        if names.have(name) or ("/" in name and names.have(os.path.dirname(name))):
            path = f"{home}/{name}"
            yield path
            with suppress(OSError), os.scandir(path) as entries:
                yield from (entry.path for entry in islice(entries, MOST_IN_A_HOME) if entry.is_symlink())


def _below(path: str, root: str) -> bool:
    return path.startswith(root.rstrip("/") + "/")


REASONS: dict[Why, str] = {
    "beyond": "not protected, for there are more settings and secrets than fit into a box",
    "link": "not protected, for it is a symbolic link",
    "special": "not protected, for it is neither a file nor a directory",
    "linked": "not safe, for it has another name (a hard link) as well",
}


def describe(protection: Protection) -> tuple[str, ...]:
    """What is not protected, one short line for each reason, with the count and some examples."""
    lines: list[str] = []
    for why, reason in REASONS.items():
        if paths := [one.path for one in protection.unprotected if one.why == why]:
            lines.append(f"{reason}: {len(paths)} ({_some(paths)})")
    if protection.closed:
        closed = protection.closed
        lines.append(
            f"no commits can be made, for there are more repositories than fit: {len(closed)} ({_some(closed)})"
        )
    return (*lines, *(f"not looked through: {words}" for words in protection.unseen))


def _depth(path: str) -> tuple[int, str]:
    return path.count("/") + bool(path), path


def _join(directory: str, name: str) -> str:
    return f"{directory}/{name}" if directory else name


def _absolute(root: str, path: str) -> str:
    return f"{root.rstrip('/')}/{path}" if path else root


def _some(paths: Sequence[str]) -> str:
    return ", ".join(map(shown, paths[:EXAMPLES])) + (", …" if len(paths) > EXAMPLES else "")


def shown(path: str) -> str:
    """A path of a tree that others may write to, to be put into a text: one short line, nothing invisible."""
    plain = path if path.isprintable() else repr(path)[1:-1]
    return plain if len(plain) <= MOST_SHOWN else f"{plain[: MOST_SHOWN // 2]}…{plain[-MOST_SHOWN // 2 :]}"


def _refuse_link(path: str, root: str) -> None:
    """A mount follows links: what is bound would be somewhere else than what is protected."""
    for part in (path, *_between(root, path)):
        if os.path.islink(part):
            raise SandboxRefused(
                f"{part!r} is a symbolic link, so that {path!r} cannot be protected",
                suggestion="replace the link by what it leads to, or choose another workspace",
            )
    if os.path.lexists(path) and stat.S_IFMT(os.lstat(path).st_mode) not in (stat.S_IFREG, stat.S_IFDIR):
        raise SandboxRefused(
            f"{path!r} is neither a file nor a directory and cannot be protected", suggestion="remove it"
        )


class ClosedFiles:
    """What lies under system directories, is closed to other users, but could be read by this one.

    For root, whose own these files are, no permission would stand in the way inside a box. May be used by several
    threads.
    """

    def __init__(self, tops: Sequence[str] = ("/etc", "/opt")) -> None:
        self._trees = [
            DirectoryTree(top, _ClosedReader(), None, depth=SYSTEM_DEPTH, most=SYSTEM_DIRECTORIES) for top in tops
        ]
        self._lock = threading.Lock()

    def find(self) -> tuple[list[str], list[str]]:
        """Such files and directories, and those of the tops that are too large to be looked through."""
        found: list[str] = []
        unknown: list[str] = []
        with self._lock:
            for tree in self._trees:
                tree.look()
                if tree.gaps.many or tree.gaps.deep:
                    unknown.append(tree.root)
                else:
                    found += [_absolute(tree.root, path) for paths in tree.facts.values() for path in paths]
        # What lies in a directory that was closed meanwhile may still be known.
        whole = set(found)
        return [path for path in found if whole.isdisjoint(_above(path))], unknown

    def watch(self) -> None:
        """From now on the kernel reports changes, those of a mode alone as well, as far as it can."""
        with self._lock:
            for tree in self._trees:
                tree.watch()
                tree.look()

    def close(self) -> None:
        """Changes are not reported any more."""
        with self._lock:
            for tree in self._trees:
                tree.unwatch()


def _above(path: str) -> Iterator[str]:
    while path := path.rpartition("/")[0]:
        yield path


class _ClosedReader:
    """Finds what is closed to others."""

    def read(self, fd: int, path: str, state: None) -> tuple[list[Inner[None]], tuple[str, ...] | None]:
        del state
        own = {os.getegid(), *os.getgroups()}
        inner: list[Inner[None]] = []
        found: list[str] = []
        with os.scandir(fd) as entries:
            for entry in entries:
                if entry.is_symlink():
                    continue
                folder = entry.is_dir(follow_symlinks=False)
                try:
                    info = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                needed = 0o005 if folder else 0o004
                if info.st_mode & needed == needed:
                    if folder:
                        inner.append(Inner(entry.name, None))
                elif os.geteuid() in (0, info.st_uid) or info.st_gid in own:
                    found.append(_join(path, entry.name))
        return inner, tuple(found) or None

    def matters(self, name: str, state: None, *, directory: bool) -> bool:
        del name, state, directory
        return True

    def mask(self, state: None, fact: tuple[str, ...] | None) -> int:
        del state, fact
        return LISTED | ATTRIB

    def lasts(self, state: None, fact: tuple[str, ...] | None) -> bool:
        del state, fact
        return True

    def shared(self, fact: tuple[str, ...] | None) -> tuple[str, ...]:
        del fact
        return ()
