"""The page about the five documents: no line without an answer, no difference without its reason, and for each a test
that there is."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs/protocols/documents.md").read_text()
LINES = {"VisionFlow": 39, "Orchestre": 35, "FluxLoop": 27, "AgentVault": 22, "ai-session and ccswarm": 44}
ROW = re.compile(r"\| (.+?) \| (.+) \| (exact|different) \| (.*) \| `(test_\w+)` \|\Z")


def rows() -> dict[str, list[tuple[str, ...]]]:
    found: dict[str, list[tuple[str, ...]]] = {}
    for part in PAGE.split("\n## ")[1:]:
        title, *lines = part.splitlines()
        table = [line for line in lines if line.startswith("| ") and not line.startswith("| Line |")]
        matches = [ROW.match(line) for line in table]
        assert all(matches), [line for line, match in zip(table, matches, strict=True) if not match]
        found[title] = [match.groups() for match in matches if match]
        differing = sum(row[2] == "different" for row in found[title])
        assert f"\n{len(table)} lines, {differing} different" in part
    return found


def test_each_line_is_exact_or_different_for_a_reason() -> None:
    found = rows()
    assert {title: len(table) for title, table in found.items()} == LINES
    assert [row for table in found.values() for row in table if row[2] == "different" and len(row[3]) < 20] == []


def test_each_names_a_test_that_there_is() -> None:
    wanted = [row[4] for table in rows().values() for row in table]
    some = re.compile("|".join(map(re.escape, wanted)))  # few files have one of them; only these are parsed
    names = {
        node.name
        for path in (ROOT / "tests").rglob("test_*.py")
        if some.search(source := path.read_text())
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert [name for name in wanted if name not in names] == []
