"""Habits that hold for every file of the project."""

from __future__ import annotations

import ast
import asyncio
import re
from pathlib import Path

import pytest
from blockbuster import BlockingError

ROOT = Path(__file__).parent.parent
FOLDERS = ("agentwire", "ai_session", "ccswarm", "tests", "benchmarks", "scripts")
SOURCES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
FORBIDDEN_NAMES = {"utils", "helpers", "common", "core", "services", "misc"}
FORBIDDEN = re.compile(
    r"time\.sleep|(asyncio|anyio|trio)\.sleep\((?!0\))|mock\.|MagicMock|monkeypatch\.setattr"
    r"|pytest\.(skip|importorskip|mark\.skip)"
)
"""Matched at the start of names used and calls made; text inside strings is somebody else's program."""
SUSPECTED = re.compile(FORBIDDEN.pattern.replace(r"\.", r"[\s)]*\.\s*").replace(r"\((", r"\s*\(\s*("))
"""Found wherever one of them is used, however the line is broken."""
SUSPECTS = {"time", "asyncio", "anyio", "trio", "mock", "MagicMock", "monkeypatch", "pytest"}


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def begins_of(node: ast.AST) -> str:
    """The first name of an attribute or a call; most are none of the SUSPECTS, and writing each out takes long."""
    if not isinstance(node, (ast.Attribute, ast.Call)):
        return ""
    inner: ast.AST = node
    while isinstance(inner, (ast.Attribute, ast.Call)):
        inner = inner.value if isinstance(inner, ast.Attribute) else inner.func
    return inner.id if isinstance(inner, ast.Name) else ""


def forbidden_in(path: Path) -> set[str]:
    """Names used in a file that nobody may use."""
    source = path.read_text()
    if not SUSPECTED.search(source):
        return set()  # for a tenth of what parsing takes
    return {
        f"{name_of(path)}:{node.lineno} {text}"
        for node in ast.walk(ast.parse(source))
        if begins_of(node) in SUSPECTS and FORBIDDEN.match(text := ast.unparse(node))
    }


def test_nothing_sleeps_mocks_or_skips() -> None:
    assert [used for path in SOURCES if (used := forbidden_in(path))] == []


def test_no_file_or_folder_is_named_after_nothing() -> None:
    names = {path: {*path.relative_to(ROOT).with_suffix("").parts} for path in SOURCES}
    assert [name_of(path) for path in SOURCES if names[path] & FORBIDDEN_NAMES] == []


def test_a_call_of_ours_that_blocks_the_loop_fails() -> None:
    """Shows that the guard of conftest can fail: the code below counts as ours by its file name."""
    package = next(path for path in (ROOT / "ai_session", ROOT / "ccswarm") if path.is_dir())
    space: dict[str, object] = {}
    text = "import time\nasync def block():\n    time.sleep(0.001)\n"
    exec(compile(text, str(package / "blocking.py"), "exec"), space)
    with pytest.raises(BlockingError):
        asyncio.run(space["block"]())  # type: ignore[operator]
