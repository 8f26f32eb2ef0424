"""A workspace as it was last looked at: what its tree holds of what is protected, and where that leads to."""

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
from ai_session.system.path_steps import led_to, steps

MOST_WORKSPACES = 16
MOST_LOOKS = 4
"""Where configs and links lead to there may be further links."""
MOST_IN_A_HOME = 100
"""Files of one directory of settings there."""


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
            around = next((outer for outer in between(self.root, one.path) if outer in inside), "")
            if around:
                inside[around].append(one)
                continue
            relative = os.path.relpath(one.path, self.root)
            (on_the_way if one.on_the_way else outside).add(relative)
            if one.required:
                required.add(relative)
        self._by_others = frozenset(outside)
        self.required = frozenset(required)
        self._in_git = inside
        self._on_the_way = frozenset(on_the_way)

    def _ask_home(self, home: str) -> None:
        """What the person's own settings are where links in the home lead here: in a workspace of dotfiles."""
        if not home.startswith("/") or below(f"{home}/", self.root):
            return
        found, on_the_way = set(self._by_others), set(self._on_the_way)
        for path in _settings_in(home):
            with suppress(OSError):
                links, end = ([], "") if below(path, self.root) else led_to(path, self.root)
                relative = os.path.relpath(end, self.root) if end else ""
                if end and not self.reader.is_excepted(relative, directory=os.path.isdir(end)):
                    found.add(relative)
                    on_the_way |= {os.path.relpath(link, self.root) for link in links}
        self._by_others = frozenset(found)
        self._on_the_way = frozenset(on_the_way)

    def _own(self) -> frozenset[str]:
        """Where this program itself lies, if that is in the workspace: it runs outside, again with the next verb."""
        packages = str(Path(__file__).resolve().parents[3])
        ours = (os.path.join(packages, name) for name in ("agentwire", "ai_session", "ccswarm"))
        prefixes = (sys.prefix, sys.base_prefix, *ours)
        inside = {path for path in map(os.path.realpath, prefixes) if below(path, self.root) and os.path.isdir(path)}
        whole = {own for own in inside if not any(below(own, other) for other in inside)}
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
            way = list(steps(absolute(self.root, path)))
        except OSError:
            return set(), None
        inside = {one: os.path.relpath(one, self.root) for one in way if below(one, self.root)}
        links = {relative for one, relative in inside.items() if relative != path and os.path.islink(one)}
        if way[-1] == self.root:
            return links, ""
        return links, inside.get(way[-1])

    def _can_be_kept(self, path: str, link: Name, target: str) -> bool:
        """Whether what a link leads to can be read-only as a whole: not the project itself, and of what lies in a
        directory of settings no other directory, for these hold sources and documents."""
        if not target or path.startswith(f"{target}/"):
            return False
        folder = os.path.isdir(absolute(self.root, target))
        return not (folder and link.kind == "link") and not self.reader.is_excepted(target, directory=folder)

    def open_to_writing(self, paths: Iterable[str] | None) -> None:
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
            elif new := frozenset(os.path.relpath(path, self.root) for path in paths) - known:
                self.reader.open_to_writing = known | new
                self.tree.look_again_at({os.path.dirname(path) for path in new})
            self.tree.look()

    def names(self) -> Iterator[tuple[str, Name]]:
        """All that was found, by its path relative to the root, nearest first."""
        for directory in sorted(self.tree.facts, key=_depth):
            for name in self.tree.facts[directory]:
                if name.kind == "gitlink":
                    yield join(directory.rpartition("/")[0], name.name), name
                else:
                    yield (directory if name.name == "." else join(directory, name.name)), name

    def repositories(self) -> list[str]:
        """Directories and files called ``.git``, and bare repositories, nearest first."""
        return [absolute(self.root, path) for path, name in self.names() if name.kind == "repository"]

    def unseen(self) -> tuple[str, ...]:
        """What of the tree was not looked at, in words."""
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


def _settings_in(home: str) -> Iterator[str]:
    """Settings of a person, and the links that lie in directories of them."""
    names = Names(home)
    for name in OF_A_HOME:
        if names.have(name) or ("/" in name and names.have(os.path.dirname(name))):
            path = f"{home}/{name}"
            yield path
            with suppress(OSError), os.scandir(path) as entries:
                yield from (entry.path for entry in islice(entries, MOST_IN_A_HOME) if entry.is_symlink())


def _depth(path: str) -> tuple[int, str]:
    return path.count("/") + bool(path), path
