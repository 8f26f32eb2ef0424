"""Descriptions of tools are whole sentences, with every value filled in."""

from __future__ import annotations

import re
from pathlib import Path

from ai_session.daemon.app import installed_tools

README = Path(__file__).parents[4] / "README.md"


def test_no_placeholder_is_left_in_a_description() -> None:
    assert [name for name, tool in installed_tools().items() if "{" in tool.description] == []


def test_the_table_of_the_readme_has_every_tool_that_clients_list() -> None:
    table = README.read_text().partition("| Tool | What it does |\n")[2].partition("\n\n")[0]
    named = [name for row in table.splitlines()[1:] for name in re.findall(r"`(\w+)`", row.split("|")[1])]
    assert sorted(named) == [name for name, tool in installed_tools().items() if tool.listed]
