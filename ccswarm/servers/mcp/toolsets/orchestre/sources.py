"""The sources of a review: files of the workspace, or texts in the call."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ccswarm.config.config import Loaded
from ccswarm.errors import UsageInvalid
from ccswarm.servers._json_values import items, table
from ccswarm.servers.mcp.toolsets.orchestre.base import Refusal
from ccswarm.servers.mcp.toolsets.orchestre.repository.tree import VERSIONED, secret
from ccswarm.servers.mcp.workbench import Workbench
from ccswarm.system.confined_files import read_beginning

MOST_FILES = 10
MOST_BYTES = 10_240
"""The limit of each source in a question."""


@dataclass(frozen=True, slots=True)
class Source:
    """A source. ``name`` is a path, code or plan; ``size`` is the complete size in bytes."""

    name: str
    text: str
    size: int

    @property
    def numbered(self) -> str:
        """The text with line numbers, for a prompt."""
        lines = [f"{number}: {line}" for number, line in enumerate(self.text.splitlines(), 1)]
        return "\n".join(lines) + (f"\n(cut: {MOST_BYTES} of {self.size} bytes are shown)" if self.cut else "")

    @property
    def cut(self) -> bool:
        return self.size > MOST_BYTES

    def shown(self) -> dict[str, Any]:
        return {"name": self.name, "bytes": self.size, "cut": self.cut}


def sources_of(workbench: Workbench, loaded: Loaded, given: Mapping[str, Any]) -> list[Source]:
    """Return the sources in the arguments. Raises Refusal. Blocks."""
    found: list[Source] = []
    for one in items(given.get("files")):
        file = table(one)
        path = str(file.get("path") or file.get("name") or ("" if file else one))
        content = file.get("content")
        found.append(_given(path or "file", str(content)) if content is not None else _read(workbench, loaded, path))
    texts = {name: given[name] for name in ("code", "content", "plan") if given.get(name)}
    found += [_given(name, one if isinstance(one, str) else json.dumps(one, indent=1)) for name, one in texts.items()]
    if not found:
        raise Refusal(
            "there is nothing to review", "MISSING_FILES", "give files: paths in the workspace; or code, or plan"
        )
    if len(found) > MOST_FILES:
        raise Refusal(f"{len(found)} are too many", "TOO_MANY_FILES", f"give at most {MOST_FILES}")
    return found


def within(workbench: Workbench, loaded: Loaded, path: str) -> Path:
    """Return a path in the workspace with links resolved. Raises Refusal if it leads out of the workspace."""
    root = workbench.root(loaded)
    try:
        return workbench.within(path, loaded)
    except UsageInvalid as error:
        raise Refusal(error.message, "PATH_NOT_ALLOWED", f"Give a path in {root}") from None


def _given(name: str, text: str) -> Source:
    data = text.encode(errors="replace")
    return Source(name[:200], data[:MOST_BYTES].decode(errors="ignore"), len(data))


def _read(workbench: Workbench, loaded: Loaded, path: str) -> Source:
    file = within(workbench, loaded, path)
    inside = file.relative_to(workbench.root(loaded).resolve())
    if secret(file.name) or any(part in VERSIONED for part in inside.parts):
        raise Refusal(f"{path[:200]!r} may hold secrets and is not shown to models", "FILE_REFUSED", "leave it out")
    found = read_beginning(file, MOST_BYTES)
    if found is None:
        raise Refusal(f"{str(file)[:200]!r} cannot be read", "FILE_NOT_FOUND", "give paths of files in the workspace")
    data, size = found
    if b"\0" in data:
        raise Refusal(f"{path[:200]!r} is not text", "FILE_REFUSED", "leave it out")
    return Source(inside.as_posix(), data[:MOST_BYTES].decode(errors="replace"), size)
