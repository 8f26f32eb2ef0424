"""Files that both packages have, for neither imports the other, are the same but for the package's name."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TWINS = (
    "access_token",
    "cli_lines",
    "cli_options",
    "cli_table",
    "cli_typer",
    "cli_usage",
    "client_configs",
    "http_protocol",
    "http_wire",
    "path_patterns",
    "peers",
    "program_path",
    "protected_names",
    "visible",
)


def meaning(package: str, name: str) -> str:
    """What a file says to ccswarm, however its lines are broken."""
    return ast.dump(ast.parse((ROOT / package / f"{name}.py").read_text().replace("ai_session", "ccswarm")))


@pytest.mark.parametrize("name", TWINS)
def test_twins_are_alike(name: str) -> None:
    assert meaning("ai_session", name) == meaning("ccswarm", name)


def test_whatever_says_it_is_a_twin_is_one() -> None:
    says = "The twin of this file in the other package is the same but for the package's name."
    for package in ("ai_session", "ccswarm"):
        found = {file.stem for file in (ROOT / package).rglob("*.py") if says in file.read_text()}
        assert found == set(TWINS)
