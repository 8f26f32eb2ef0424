"""No file or function that defines something stands in two packages: what both need is in agentwire."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
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


def functions(source: str) -> Iterator[tuple[int, str]]:
    """The line of each function of more than one statement, and what it does: without its docstring, its own name and
    the names that it gives."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        body = node.body[ast.get_docstring(node) is not None :]
        if not body or (len(body) == 1 and not isinstance(body[0], ast.If | ast.For | ast.While | ast.Try | ast.With)):
            continue
        given = [one.arg for one in ast.walk(node.args) if isinstance(one, ast.arg)]
        names = {name: f"name{number}" for number, name in enumerate([node.name, *given])}
        for one in (one for statement in body for one in ast.walk(statement) if isinstance(one, ast.Name)):
            if isinstance(one.ctx, ast.Store) or one.id in names:
                one.id = names.setdefault(one.id, f"name{len(names)}")
        yield node.lineno, "".join(map(ast.dump, body))


def test_no_function_stands_in_two_packages() -> None:
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for package in ("agentwire", "ai_session", "ccswarm"):
        for file in (ROOT / package).rglob("*.py"):
            for line, what in functions(file.read_text()):
                found[what][package] = f"{file.relative_to(ROOT)}:{line}"
    assert [where for where in found.values() if len(where) > 1] == []


def test_functions_that_differ_in_names_only_are_found() -> None:
    one = "def f(a):\n    b = a + 1\n    return f(b)\n"
    other = 'async def g(x):\n    """Something."""\n    y = x + 1\n    return g(y)\n'
    assert [what for _, what in functions(one)] == [what for _, what in functions(other)]
    assert [what for _, what in functions(one.replace("+", "-"))] != [what for _, what in functions(one)]
