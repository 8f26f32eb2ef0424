"""Edits of files in the form sent to clients, and the content of a file after one. No I/O.

There are three strategies: ``create_file`` writes ``payload.code`` to a file that does not exist yet; ``insert`` puts
``payload.import`` and then ``payload.code`` directly after the text of its one anchor, which matches character for
character and occurs exactly once; ``append`` puts them at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ai_session.tools.integration.project.source_text import anchor, line_end, newline_of

MAX_TRIED = 10
"""The number of entry points that are tried for an edit."""

LEAST_CHARS = 10
"""Shorter lines, a bracket or a name, occur anywhere."""

STRATEGIES = ("create_file", "insert", "append")


@dataclass(frozen=True, slots=True)
class Edit:
    """One change of one file."""

    filepath: str
    strategy: str
    code: str
    imports: str = ""
    anchor: str = ""

    @property
    def text(self) -> str:
        """Everything that is put into the file."""
        return self.imports + self.code

    def facts(self) -> dict[str, Any]:
        """Return the JSON object that clients receive."""
        anchors = [{"type": "after_match", "pattern": self.anchor}] if self.anchor else []
        return {
            "filepath": self.filepath,
            "strategy": self.strategy,
            "anchors": anchors,
            "payload": {"import": self.imports, "code": self.code},
        }

    def applied(self, before: str | None) -> str:
        """Return the text after the edit. ``before`` is None if there is no file."""
        if self.strategy == "insert" and before is not None:
            end = before.index(self.anchor) + len(self.anchor)
            return before[:end] + self.text + before[end:]
        return (before or "") + self.text

    def present(self, before: str | None) -> bool:
        """Report whether the file contains the edit already: at that position, or as lines of their own elsewhere."""
        if before is None:
            return False
        if self.strategy == "insert" and self.anchor + self.text in before:
            return True
        plain = self.text.replace("\r\n", "\n").strip()
        lines = "\n".join(line.strip() for line in before.splitlines())
        own = "\n".join(line.strip() for line in plain.splitlines())
        return len(plain) >= LEAST_CHARS and f"\n{own}\n" in f"\n{lines}\n"


@dataclass(frozen=True, slots=True)
class Proposal:
    """What a recipe proposes for one repository. ``present`` means that all of it exists already."""

    summary: str
    edits: tuple[Edit, ...] = ()
    checks: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    present: bool = False

    def facts(self) -> dict[str, Any]:
        """Return the plan as clients see it."""
        made = [edit.filepath for edit in self.edits if edit.strategy == "create_file"]
        changed = dict.fromkeys(edit.filepath for edit in self.edits if edit.strategy != "create_file")
        ways = [f"remove {', '.join(made)}"] if made else []
        ways += [f"run: git restore -- {' '.join(changed)}"] if changed else []
        return {
            "summary": self.summary,
            "edits": [edit.facts() for edit in self.edits],
            "postChecks": list(self.checks if self.edits else ()),
            "rollback": {"instruction": "; ".join(ways) or "nothing to undo"},
            "warnings": list(self.warnings),
        }


def insert_line(path: str, text: str, start: int, end: int, line: str, *, is_import: bool = False) -> Edit | None:
    """Return an edit that inserts ``line`` below that of ``end``, with an anchor that begins at ``start``, or None."""
    end = line_end(text, end)
    found = anchor(text, text.rfind("\n", 0, start) + 1, end)
    newline = newline_of(text)
    code = newline + line.replace("\n", newline)
    return _insertion(path, found, code, is_import=is_import)


def insert_here(path: str, text: str, start: int, end: int, code: str) -> Edit | None:
    """Return an edit that inserts ``code`` directly after ``end``, or None if no anchor is unique."""
    found = anchor(text, text.rfind("\n", 0, start) + 1, end)
    return _insertion(path, found, code, is_import=False)


def _insertion(path: str, found: str, code: str, *, is_import: bool) -> Edit | None:
    if not found:
        return None
    return Edit(path, "insert", "" if is_import else code, code if is_import else "", found)


def folder_of(path: str) -> str:
    """Return the folder of a file with its slash; empty at the top."""
    return path[: path.rfind("/") + 1]


def nearest(path: str, names: Sequence[str], paths: Sequence[str]) -> str:
    """Return the file with one of these names that is nearest above ``path``; empty if there is none."""
    folder = folder_of(path)
    known = set(paths)
    while True:
        for name in names:
            if folder + name in known:
                return folder + name
        if not folder:
            return ""
        folder = folder_of(folder[:-1])
