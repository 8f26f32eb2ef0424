"""What came into a workspace, or was changed there, that programs outside of a box take commands from.

A box cannot be kept from making what was absent when it began: a repository, an entry of git's index, a file of
settings. So the workspace is compared with what it held before.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ai_session.sandbox.workspace.paths import shown
from ai_session.sandbox.workspace.words import Kind
from ai_session.sandbox.workspace.workspace import Workspace

Key = tuple[Kind | Literal["secret"], str]
Found = dict[Key, tuple[int, ...]]
"""Stamps by kind and path relative to the root; longer if a box could change the content."""


@dataclass(frozen=True, slots=True)
class Notice:
    """Something that appeared. ``path`` is relative to the workspace, empty: the workspace as a whole. ``at`` is when
    it was seen; ``session`` and ``command`` are those that may have made it, where there is only one such.
    """

    kind: Kind
    path: str
    at: float = 0.0
    session: str = ""
    command: str = ""

    def facts(self) -> dict[str, Any]:
        """For results: plain values, the path on one line."""
        return {"kind": self.kind, "path": shown(self.path)}


MOST_FOUND = 20_000
"""In one workspace; what is nearest its top, and that there is more."""


def found_in(workspace: Workspace) -> Found:
    """What is there now, as far as it was looked at. Waits for the tree's lock, so not for an event loop."""
    with workspace.tree.lock:
        return _found_in(workspace)


def _found_in(workspace: Workspace) -> Found:
    found: Found = {}
    for path, name in workspace.names():
        if name.kind == "link":
            continue
        if len(found) >= MOST_FOUND:
            found["unseen", ""] = ()
            break
        if name.kind == "crowded":
            found["unseen", path] = ()
        elif name.kind == "rebase":
            found["settings", path] = ()
        elif workspace.expected.get(path) not in (0, *name.stamp[:1]):
            found[name.kind, path] = name.stamp
    gaps = workspace.tree.gaps
    if gaps.many:
        found["unseen", ""] = ()
    for path in (*gaps.deep, *gaps.closed):
        found["unseen", path] = ()
    return found


def differences(
    known: Mapping[Key, tuple[int, ...]], found: Found, noticed: Collection[str] = ()
) -> Iterator[tuple[Kind, str]]:
    """What ``found`` holds beyond what was known, nearest first; nothing of what lies in something else that is new, or
    was ``noticed`` before."""
    new = set(noticed)
    for (kind, path), stamp in sorted(found.items(), key=lambda item: (item[0][1].count("/"), item[0])):
        before = known.get((kind, path))
        if kind == "secret":
            continue
        if before is not None:
            if len(before) > 1 and len(stamp) > 1 and before != stamp:
                yield "changed", path
            continue
        if kind == "settings" and _lies_in(path, new):
            continue
        if kind in ("repository", "settings"):
            new.add(path)
        yield kind, path


def _lies_in(path: str, outer: set[str]) -> bool:
    names = path.split("/")
    return any("/".join(names[:count]) in outer for count in range(1, len(names)))
