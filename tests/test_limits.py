"""Sizes and habits that hold for every file of the project."""

from __future__ import annotations

import ast
import asyncio
import re
from functools import cache
from pathlib import Path

import pytest
from blockbuster import BlockingError

ROOT = Path(__file__).parent.parent
FOLDERS = ("ai_session", "ccswarm", "tests", "benchmarks", "scripts")
SOURCES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
SHELL_SCRIPTS = sorted(
    path for pattern in ("*.bash", "*.zsh", "*.fish", "*.sh") for path in (ROOT / "ai_session").rglob(pattern)
)
MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60
FORBIDDEN_NAMES = {"utils", "helpers", "common", "core", "services", "misc"}
FORBIDDEN = re.compile(
    r"time\.sleep|(asyncio|anyio|trio)\.sleep\((?!0\))|mock\.|MagicMock|monkeypatch\.setattr"
    r"|pytest\.(skip|importorskip|mark\.skip)"
)
"""Matched at the start of names used and calls made; text inside strings is somebody else's program."""
SUSPECTS = {"time", "asyncio", "anyio", "trio", "mock", "MagicMock", "monkeypatch", "pytest"}

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


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


@cache
def faults_of(path: Path) -> tuple[dict[str, int], set[str]]:
    """Functions that are too long, with their lines, and names used that nobody may use. No tree is kept: with all of
    them alive the garbage collector takes three times as long as the parser."""
    long: dict[str, int] = {}
    used: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, FUNCTIONS):
            lines = (node.end_lineno or 0) - node.lineno + 1
            if lines > MAX_FUNCTION_LINES:
                long[f"{name_of(path)}:{node.lineno} {node.name}"] = lines
        elif begins_of(node) in SUSPECTS and FORBIDDEN.match(text := ast.unparse(node)):
            used.add(f"{name_of(path)}:{node.lineno} {text}")
    return long, used


def test_files_are_short() -> None:
    lengths = {name_of(path): len(path.read_text().splitlines()) for path in [*SOURCES, *SHELL_SCRIPTS]}
    assert {name: lines for name, lines in lengths.items() if lines > MAX_FILE_LINES} == {}


def test_functions_are_short() -> None:
    assert [long for path in SOURCES if (long := faults_of(path)[0])] == []


def test_nothing_sleeps_mocks_or_skips() -> None:
    assert [used for path in SOURCES if (used := faults_of(path)[1])] == []


def test_no_file_is_named_after_nothing() -> None:
    assert [name_of(path) for path in SOURCES if path.stem in FORBIDDEN_NAMES] == []


def test_a_call_of_ours_that_blocks_the_loop_fails() -> None:
    """Shows that the guard of conftest can fail: the code below counts as ours by its file name."""
    package = next(path for path in (ROOT / "ai_session", ROOT / "ccswarm") if path.is_dir())
    space: dict[str, object] = {}
    text = "import time\nasync def block():\n    time.sleep(0.001)\n"
    exec(compile(text, str(package / "blocking.py"), "exec"), space)
    with pytest.raises(BlockingError):
        asyncio.run(space["block"]())  # type: ignore[operator]
