"""What appeared or changed in a workspace that programs outside of a box take commands from.

A box cannot be prevented from making what was absent when it began: a repository, an entry in git's index, a settings
file. So the workspace is compared with what it contained before.
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
"""Stamps by kind and path relative to the root. A stamp is longer if a box could change the content."""


@dataclass(frozen=True, slots=True)
class Notice:
    """Something that appeared. ``path`` is relative to the workspace; empty means the workspace as a whole. ``at`` is
    when it was seen; ``session`` and ``command`` are given if only one can have made it."""

    kind: Kind
    path: str
    at: float = 0.0
    session: str = ""
    command: str = ""

    def facts(self) -> dict[str, Any]:
        """Return the kind and path as plain values for results; the path is one line."""
        return {"kind": self.kind, "path": shown(self.path)}


MOST_FOUND = 20_000
"""The maximum for one workspace, the ones nearest its top, plus a notice that there are more."""


def found_in(workspace: Workspace) -> Found:
    """Return what is known to be there now. Waits for the tree's lock, so do not call it on the event loop."""
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
        else:
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
    """Yield what ``found`` has beyond ``known``, nearest to the top first, without what is inside something else that
    is new or was ``noticed`` before."""
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
