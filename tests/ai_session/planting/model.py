"""What a case is. In its words ``@name@`` stands for a value of ``tests.ai_session.escape.target``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from tests.ai_session.escape.evidence import Evidence
from tests.ai_session.escape.model import Severity

Group = Literal[
    "git",
    "agents",
    "editors",
    "package managers and build tools",
    "shells and other tools",
    "other names and ways",
    "secrets",
    "denied commands",
]
GROUPS: tuple[Group, ...] = get_args(Group)

Outcome = Literal["stopped", "noticed", "missed"]
"""``stopped``: what was planted is not there, or nothing runs it. ``noticed``: it is, and within a second of the
command's end its result, both lists of sessions and the audit log said so."""


@dataclass(frozen=True)
class Plant:
    """``typed`` is the command that plants; ``python`` lies in the workspace as attack.py, which it may run.

    ``before`` is what the project's owner did in it before the session began, and ``meanwhile`` what is done outside
    while it lives, which exposes the protected path ``exposes`` for a moment. ``uses`` are directories of the owner's
    home. ``works`` is the evidence that a program outside would take it. ``denied`` is a command that a rule denies in
    every box.
    """

    name: str
    group: Group
    severity: Severity
    works: Evidence
    typed: str = "python3 attack.py"
    before: str = ""
    meanwhile: str = ""
    exposes: str = ""
    uses: tuple[str, ...] = ()
    python: str = ""
    denied: str = ""
