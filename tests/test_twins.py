"""No file that defines something stands in both packages: what both need is in agentwire."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent


def meaning(file: Path) -> str:
    """What a file does, whichever package it is in; empty where it defines nothing."""
    tree = ast.parse(file.read_text().replace("ai_session", "ccswarm"))
    defines = any(isinstance(node, ast.FunctionDef | ast.ClassDef) for node in tree.body)
    without_docstring = tree.body[1:] if isinstance(tree.body[0], ast.Expr) else tree.body
    return "".join(map(ast.dump, without_docstring)) if defines else ""


def defined(file: Path) -> tuple[str, ...]:
    """What a file defines. What does the same defines the same, which is found sooner than what it does."""
    text = file.read_text().replace("ai_session", "ccswarm")
    return tuple(re.findall(r"^(?:async def|def|class) (\w+)", text, re.MULTILINE))


def test_no_file_stands_twice() -> None:
    files = {
        package: {file: defined(file) for file in (ROOT / package).rglob("[!_]*.py")}
        for package in ("ai_session", "ccswarm")
    }
    both = set(files["ai_session"].values()) & set(files["ccswarm"].values())
    ours, others = (
        {meaning(file): file.relative_to(ROOT) for file, names in of_package.items() if names in both}
        for of_package in files.values()
    )
    assert {str(ours[one]): str(others[one]) for one in ours.keys() & others.keys() - {""}} == {}
