"""Descriptions of tools are whole sentences, with every value filled in."""

from __future__ import annotations

from ai_session.daemon.app import installed_tools


def test_no_placeholder_is_left_in_a_description() -> None:
    assert [name for name, tool in installed_tools().items() if "{" in tool.description] == []
