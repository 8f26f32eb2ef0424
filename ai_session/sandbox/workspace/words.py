"""Texts about what appeared in a workspace. Light, because the verbs that print them import nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

Kind = Literal["repository", "gitlink", "settings", "changed", "exposed", "unseen"]

WORDS: Mapping[str, str] = {
    "repository": "new repository",
    "gitlink": "index entry that leads git into another repository",
    "settings": "new settings",
    "changed": "changed settings",
    "exposed": "replaced from outside, so briefly not protected:",
    "unseen": "not watched:",
}
WHOLE = "part of the workspace, which changes too fast or is too large to be watched"
MOST_NAMED = 10
"""The number of paths named in one text."""
RISK = "programs outside the sandbox may run their contents; tell the person before git or an editor is used here"


def sentence(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the facts of notices as a sentence, for a result or a person."""
    named = [f"{WORDS[row['kind']]} {row['path'] or WHOLE}" for row in rows[:MOST_NAMED]]
    more = f" and {len(rows) - MOST_NAMED} more" if len(rows) > MOST_NAMED else ""
    return f"{', '.join(named)}{more}: {RISK}"


def summary(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the facts of notices in a few words, for a list: how many, and the first."""
    return f"{len(rows)}: {rows[0]['path'] or '…'}" + (", …" if len(rows) > 1 else "") if rows else ""
