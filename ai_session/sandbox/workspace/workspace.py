"""A workspace as it was last scanned: what is protected in its tree, and where that leads to."""

from __future__ import annotations

import os
import sys
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path

from agentwire.system.path_patterns import patterns
from agentwire.system.protected_names import OF_A_HOME, protected
from ai_session.sandbox.workspace import repositories
from ai_session.sandbox.workspace.git_settings import GitSettings
from ai_session.sandbox.workspace.paths import Names, absolute, below, between, join, some
from ai_session.sandbox.workspace.tree import DEPTH, Led, Name, WorkspaceReader, WorkspaceTree, workspace_tree
from ai_session.system.path_steps import links_below, steps

MOST_WORKSPACES = 16
MOST_LOOKS = 4
"""The maximum of scans in a row: where configs and links lead to, there may be further links."""
MOST_IN_A_HOME = 100
"""The files read from one directory of settings in the home."""


class Workspace:
    """One directory as boxes see it. May be used by several threads, one at a time: take ``tree.lock``."""

    def __init__(self, root: str, own: Sequence[str], masked: Sequence[str]) -> None:
        """``own`` are patterns of settings beyond the built-in ones, ``masked`` those of secrets. Raises ValueError."""
        self.root = root
        self.watchers = 0
        """The number of users of the kernel's reports of its tree; take ``counting`` to change it."""
        self.counting = threading.Lock()
        self.required: frozenset[str] = frozenset()
        """The paths that git's configs certainly name, relative to the root: at the top, a link there is refused."""
        self._git = GitSettings(root)
        self._named_elsewhere: frozenset[str] = frozenset()
        """The paths that git's configs name, and those that links in place of the person's own settings lead to."""
        self._on_the_way: frozenset[str] = frozenset()
        """The links in the workspace that lead there."""
        self._named_in_git: dict[str, list[repositories.Named]] = {}
        self.tree: WorkspaceTree
        self.reader: WorkspaceReader
        self.tree, self.reader = workspace_tree(root, protected(own), patterns(*masked))

    def hold(self) -> None:
        """Let the kernel report changes of the tree, as far as it can, until ``release``. Blocks."""
        with self.tree.lock, self.counting:
            self.watchers += 1
            self.tree.watch()

    def release(self) -> None:
        """End one ``hold``. Blocks."""
        with self.tree.lock, self.counting:
            self.watchers -= 1
            if not self.watchers:
                self.tree.unwatch()

    def update(self, home: str) -> None:
        """Update the tree, with what git's configs name and where links lead."""
        self.tree.update()
        for _ in range(MOST_LOOKS):
            before, led = self.reader.led, self._led(home)
            if led == before:
                break
            self.reader.led = led
            self.tree.reread({os.path.dirname(path) for path in led.named ^ before.named})
            for target, _ in led.aliases ^ before.aliases:
                self.tree.reread_below(target)
            self.tree.update()

    def _led(self, home: str) -> Led:
        self._update_from_git(home)
        self._update_from_home(home)
        self._named_elsewhere |= self._own_packages()
        named, aliases = {*self._named_elsewhere, *self._on_the_way}, set[tuple[str, str]]()
        for path, name in self.names():
            if name.shape == "link" and (name.kind == "link" or self._is_followed(path)):
                on_the_way, target = self._follow(path)
                named |= on_the_way
                if target is None:
                    continue
                if self.reader.leads(path):
                    aliases.add((target, path))
                if not self._only_leads(path) and self._can_be_protected(path, name, target):
                    named.add(target)
        return Led(frozenset(named), frozenset(aliases))

    def _update_from_git(self, home: str) -> None:
        """Store what git's configs name: in repositories' directories, and elsewhere in the workspace."""
        gits = self.repositories()
        inside: dict[str, list[repositories.Named]] = {git: [] for git in gits}
        outside: set[str] = set()
        on_the_way: set[str] = set()
        required: set[str] = set()
        for one in dict.fromkeys(one for named in self._git.named(gits, home).values() for one in named):
            repository = next((outer for outer in between(self.root, one.path) if outer in inside), "")
            if repository:
                inside[repository].append(one)
                continue
            relative = os.path.relpath(one.path, self.root)
            (on_the_way if one.on_the_way else outside).add(relative)
            if one.required:
                required.add(relative)
        self._named_elsewhere = frozenset(outside)
        self.required = frozenset(required)
        self._named_in_git = inside
        self._on_the_way = frozenset(on_the_way)

    def _update_from_home(self, home: str) -> None:
        """Add the person's own settings if links in the home lead here, as in a workspace of dotfiles."""
        if not home.startswith("/") or below(f"{home}/", self.root):
            return
        found, on_the_way = set(self._named_elsewhere), set(self._on_the_way)
        for path in _settings_in(home):
            with suppress(OSError):
                links, end = ([], "") if below(path, self.root) else links_below(path, self.root)
                relative = os.path.relpath(end, self.root) if end else ""
                if end and not self.reader.is_excepted(relative, directory=os.path.isdir(end)):
                    found.add(relative)
                    on_the_way |= {os.path.relpath(link, self.root) for link in links}
        self._named_elsewhere = frozenset(found)
        self._on_the_way = frozenset(on_the_way)

    def _own_packages(self) -> frozenset[str]:
        """Return where this program itself is installed in the workspace: it runs outside, again with the next verb."""
        packages = str(Path(__file__).resolve().parents[3])
        ours = (os.path.join(packages, name) for name in ("agentwire", "ai_session", "ccswarm"))
        prefixes = (sys.prefix, sys.base_prefix, *ours)
        inside = {path for path in map(os.path.realpath, prefixes) if below(path, self.root) and os.path.isdir(path)}
        whole = {own for own in inside if not any(below(own, other) for other in inside)}
        found = (os.path.relpath(own, self.root) for own in whole)
        return frozenset(one for one in found if not self.reader.is_excepted(one, directory=True))

    def named_in(self, git: str) -> list[repositories.Named]:
        """Return what git's configs name in a repository's directory."""
        return self._named_in_git.get(git, [])

    def _is_followed(self, path: str) -> bool:
        """Report whether a link is protected for itself and not only because another one leads through it."""
        return (
            path not in self.reader.led.named
            or path in self._named_elsewhere
            or self.reader.leads(path)
            or self.reader.is_by_name(path)
            or self.reader.is_by_another_name(path)
        )

    def _only_leads(self, path: str) -> bool:
        """Report whether a path is only on the way to settings and not settings itself."""
        return self.reader.leads(path) and path not in self._named_elsewhere and not self.reader.is_by_name(path)

    def _follow(self, path: str) -> tuple[set[str], str | None]:
        """Return the links on a link's way that are in the workspace, and its end, or None if the end is not."""
        try:
            way = list(steps(absolute(self.root, path)))
        except OSError:
            return set(), None
        inside = {one: os.path.relpath(one, self.root) for one in way if below(one, self.root)}
        links = {relative for one, relative in inside.items() if relative != path and os.path.islink(one)}
        if way[-1] == self.root:
            return links, ""
        return links, inside.get(way[-1])

    def _can_be_protected(self, path: str, link: Name, target: str) -> bool:
        """Report whether the target of a link can be read-only as a whole: not the project itself, and no directory
        that a link in a directory of settings leads to, because such directories hold sources and documents."""
        if not target or path.startswith(f"{target}/"):
            return False
        folder = os.path.isdir(absolute(self.root, target))
        return not (folder and link.kind == "link") and not self.reader.is_excepted(target, directory=folder)

    def open_to_writing(self, paths: Iterable[str] | None) -> None:
        """Record that these paths are writable in some box, in addition to known ones; None means everything. Their
        content is compared from now on."""
        with self.tree.lock:
            known = self.reader.open_to_writing
            if known is None:
                return
            if paths is None:
                self.reader.open_to_writing = None
                kept = (path for path, name in self.names() if name.kind == "repository")
                self.tree.reread([*self.tree.facts, *kept])
            elif new := frozenset(os.path.relpath(path, self.root) for path in paths) - known:
                self.reader.open_to_writing = known | new
                self.tree.reread({os.path.dirname(path) for path in new})
            self.tree.update()

    def names(self) -> Iterator[tuple[str, Name]]:
        """Yield everything found, with its path relative to the root, nearest to the root first."""
        for directory in sorted(self.tree.facts, key=_depth):
            for name in self.tree.facts[directory]:
                if name.kind == "gitlink":
                    yield join(directory.rpartition("/")[0], name.name), name
                else:
                    yield (directory if name.name == "." else join(directory, name.name)), name

    def repositories(self) -> list[str]:
        """Return the directories and files named ``.git``, and bare repositories, nearest to the root first."""
        return [absolute(self.root, path) for path, name in self.names() if name.kind == "repository"]

    def unseen(self) -> tuple[str, ...]:
        """Return descriptions of the parts of the tree that were not searched."""
        gaps = self.tree.gaps
        found = [f"it has more than {len(self.tree)} directories"] if gaps.many else []
        if gaps.deep:
            found.append(f"more than {DEPTH} directories deep: {some(gaps.deep)}")
        if gaps.closed:
            found.append(f"not readable: {some(gaps.closed)}")
        if crowded := [path for path, name in self.names() if name.kind == "crowded"]:
            named = some([path or "the workspace itself" for path in crowded])
            found.append(f"too many names in one directory, or in its index: {named}")
        if unread := self._git.unread:
            found.append(f"files that git's settings include: {some(unread)}")
        return tuple(found)


class Workspaces:
    """The latest workspaces with their cached trees. May be used by several threads."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[object, ...], Workspace] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, root: str, own: Sequence[str] = (), masked: Sequence[str] = ()) -> Workspace:
        """Return the workspace with these patterns. Raises ValueError for an invalid pattern."""
        key = (root, tuple(own), tuple(masked))
        with self._lock:
            found = self._known.pop(key, None) or Workspace(root, own, masked)
            self._known[key] = found
            spare = [key for key, one in self._known.items() if one.tree.events is None and one is not found]
            for old in spare[: max(0, len(self._known) - MOST_WORKSPACES)]:
                del self._known[old]
            return found


def _settings_in(home: str) -> Iterator[str]:
    """Yield the settings of a person, and the links inside directories of settings."""
    names = Names(home)
    for name in OF_A_HOME:
        if names.have(name) or ("/" in name and names.have(os.path.dirname(name))):
            path = f"{home}/{name}"
            yield path
            with suppress(OSError), os.scandir(path) as entries:
                yield from (entry.path for entry in islice(entries, MOST_IN_A_HOME) if entry.is_symlink())


def _depth(path: str) -> tuple[int, str]:
    return path.count("/") + bool(path), path
