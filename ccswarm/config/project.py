"""The runs of the project in whose directory a command is started, among all runs of the user."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ccswarm.config.trust import Source
from ccswarm.models import Execution


@dataclass(frozen=True, slots=True)
class Project:
    """The runs that ``last`` may refer to. They work in ``directory``, where a run started here would work, or were
    started with ``file``, this project's configuration. ``file`` is empty if the configuration in use is the user's
    own."""

    directory: str
    file: str = ""

    @classmethod
    def at(cls, file: Path | None, workspace: str, *, own: bool) -> Project:
        """Return the project of the configuration in use and its workspace. ``own``: it is not the general one."""
        base = file.parent if file else Path.cwd()
        directory = base / Path(workspace).expanduser() if workspace else Path.cwd()
        return cls(str(directory.resolve()), str(file) if file and own else "")

    def has(self, run: Execution) -> bool:
        """Whether the run, given with its payload, belongs to the project."""
        payload: Mapping[str, Any] = run.payload or {}
        files: Sequence[str] = payload.get("files") or ()
        begun_with = str(Source.parse(files[0]).path) if files else ""
        return payload.get("workspace") == self.directory or bool(self.file and begun_with == self.file)
