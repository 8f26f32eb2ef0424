"""Which runs, of all that one user's store has, are those of the place where somebody asks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ccswarm.config.trust import Source
from ccswarm.models import Execution


@dataclass(frozen=True, slots=True)
class Project:
    """Which runs ``last`` is one of: those that work in ``directory``, where a run begun here would work, and those
    that were begun with ``file``, the configuration of this place; empty where it is the user's own, for all places."""

    directory: str
    file: str = ""

    @classmethod
    def at(cls, file: Path | None, workspace: str, *, own: bool) -> Project:
        """By the configuration that is used here, what it says of the workspace, and whether it is ``own`` to this
        place, or was named."""
        base = file.parent if file else Path.cwd()
        directory = base / Path(workspace).expanduser() if workspace else Path.cwd()
        return cls(str(directory.resolve()), str(file) if file and own else "")

    def has(self, run: Execution) -> bool:
        """Whether that run, with its payload, is one of them."""
        payload: Mapping[str, Any] = run.payload or {}
        files: Sequence[str] = payload.get("files") or ()
        begun_with = str(Source.parse(files[0]).path) if files else ""
        return payload.get("workspace") == self.directory or bool(self.file and begun_with == self.file)
