"""Grants: what the patterns say and nothing else, and no server is asked that none of them can mean."""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccswarm.toolbox.grants import Grants

NAMES = st.text("ab.-_*[]?\n", max_size=8)
PATTERNS = st.lists(st.text("ab.-_*?[]!", max_size=8), max_size=4)


@pytest.mark.parametrize(
    ("patterns", "tool", "allowed"),
    [
        ((), "s.t", False),
        (("*",), "s.t", True),
        (("s.*",), "s.t", True),
        (("s.*",), "s.a.b", True),
        (("s.*",), "s2.t", False),
        (("s.t",), "s.T", False),
        (("s.t",), "s.tt", False),
        (("s",), "s.t", False),
        (("x.y", "s.read_*"), "s.read_file", True),
        (("s.[!w]*",), "s.write", False),
        (("s.t?",), "s.t1", True),
        (("s.t",), "s.t\n", False),
        (("s+.t",), "ss.t", False),
    ],
)
def test_patterns(patterns: tuple[str, ...], tool: str, allowed: bool) -> None:
    assert Grants(patterns).allows(tool) is allowed


@given(PATTERNS, NAMES)
def test_all_patterns_together_are_each_of_them(patterns: list[str], name: str) -> None:
    assert Grants(patterns).allows(name) == any(fnmatchcase(name, pattern) for pattern in patterns)


@given(PATTERNS, PATTERNS, NAMES)
def test_more_patterns_never_take_a_tool_away(patterns: list[str], more: list[str], name: str) -> None:
    assert Grants(patterns + more).allows(name) >= Grants(patterns).allows(name)


@given(PATTERNS, st.text("ab-_", max_size=4), NAMES)
def test_a_server_with_a_granted_tool_is_asked(patterns: list[str], server: str, tool: str) -> None:
    grants = Grants(patterns)
    assert grants.covers_server(server) >= grants.allows(f"{server}.{tool}")


@pytest.mark.parametrize(
    ("pattern", "reached"),
    [
        ("ai-session.*", ["ai-session"]),
        ("ai-session.run", ["ai-session"]),
        ("ai-*", ["ai-session", "ai-other"]),
        ("*.run", ["ai-session", "ai-other", "git"]),
        ("gi", []),
        ("git", []),
        ("", []),
    ],
)
def test_servers_that_cannot_be_meant_are_left_alone(pattern: str, reached: list[str]) -> None:
    assert [
        server for server in ("ai-session", "ai-other", "git") if Grants([pattern]).covers_server(server)
    ] == reached
