"""What a case is. In its words ``@name@`` stands for a path or a value of the target: see ``Target.values``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tests.ai_session.escape.evidence import Evidence

Severity = Literal["critical", "high", "medium", "low"]
Group = Literal[
    "writing files",
    "planting code",
    "traps for the set-up",
    "reading secrets",
    "processes",
    "terminals",
    "local channels",
    "network",
    "kernel",
    "resources",
]


@dataclass(frozen=True)
class Attack:
    """``typed`` is one line for the shell; ``python`` lies in the workspace as attack.py and is run unless something
    else is typed. An attack that calls ``hold()`` stands still while it is judged.

    Attacks share a session; ``alone`` has a project and a session of its own, and is judged when that has ended.
    ``trap`` names what lay in the workspace before the session began.
    """

    name: str
    group: Group
    severity: Severity
    succeeded: Evidence
    typed: str = "python3 attack.py @nonce@"
    python: str = ""
    alone: bool = False
    trap: str = ""


@dataclass(frozen=True)
class Type:
    """A line and Enter."""

    text: str


@dataclass(frozen=True)
class Press:
    key: str


@dataclass(frozen=True)
class Resize:
    rows: int
    cols: int


@dataclass(frozen=True)
class See:
    """A regular expression that the output since the last one must come to fit."""

    pattern: str


@dataclass(frozen=True)
class Work:
    """Something that must go on working. ``python`` lies in the workspace as work.py. ``needs`` are programs without
    which the case says nothing about the box."""

    name: str
    steps: tuple[Type | Press | Resize | See, ...]
    python: str = ""
    needs: tuple[str, ...] = ()
