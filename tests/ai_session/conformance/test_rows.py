"""Each row is shown by tests that are there, and docs/reference/conformance.md says the same."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from scripts.conformance_table import PAGE, rows_table
from tests.ai_session.conformance.rows import ROWS, Row

ROOT = Path(__file__).parents[3]


def functions(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


@pytest.mark.parametrize("row", ROWS, ids=[f"row-{row.number}-{row.name}" for row in ROWS])
def test_row(row: Row) -> None:
    assert row.proofs
    for proof in row.proofs:
        path, _, name = proof.partition("::")
        assert name in functions(ROOT / path), proof


def test_there_are_forty() -> None:
    assert [row.number for row in ROWS] == list(range(1, 41))
    assert len({row.name for row in ROWS}) == 40


def test_the_page_says_the_same() -> None:
    assert rows_table(ROWS) in PAGE.read_text(), "run scripts/conformance_table.py --rows"
