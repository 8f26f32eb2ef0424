"""Files that both packages have, for neither imports the other, are the same but for the package's name."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TWINS = (
    "wire/access_token",
    "cli/lines",
    "cli/options",
    "cli/table",
    "cli/parser",
    "cli/usage",
    "config/extras",
    "config/mcp_clients",
    "wire/http_protocol",
    "wire/http_wire",
    "system/path_patterns",
    "wire/peers",
    "system/program_path",
    "system/protected_names",
    "system/visible",
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
        found = {
            file.relative_to(ROOT / package).with_suffix("").as_posix()
            for file in (ROOT / package).rglob("*.py")
            if says in file.read_text()
        }
        assert found == set(TWINS)
