"""Python sources, as tests of habits read them."""

from __future__ import annotations

import ast
from collections.abc import Iterator


def statements(source: str, *, in_functions: bool = True) -> Iterator[ast.stmt]:
    """All statements, however deep they stand. No expression is looked at, for a third of what ``ast.walk`` takes."""
    waiting = [*ast.parse(source).body]
    while waiting:
        node = waiting.pop()
        yield node
        if in_functions or not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for inner in (node, *getattr(node, "handlers", ()), *getattr(node, "cases", ())):
                for name in ("body", "orelse", "finalbody"):
                    waiting += getattr(inner, name, ())
