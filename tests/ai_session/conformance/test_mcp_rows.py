"""Rows that nothing else shows."""

from __future__ import annotations

import ast
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentwire import plugins
from ai_session.models import Principal
from ai_session.tools.base import MAX_WAIT_SECONDS, Context, Limits, Tool
from tests.ai_session.support.mcp_client import Client, living_in, stop_daemons

PACKAGE = Path(plugins.__file__).parent
TOOLS: list[Tool] = [
    tool for name in plugins.names("ai_session.tools") for tool in plugins.load("ai_session.tools", name)
]
NOTHING: Any = None
DEPRECATED = {"create_message", "list_roots", "send_log_message", "send_ping", "logging", "set_logging_level"}


@pytest.mark.parametrize("asked", [50.0, 51.0, 3600.0, 1e300, float("inf"), -1.0])
@pytest.mark.parametrize("patience", [None, 2.0, 1e9])
def test_14_no_wait_is_longer_than_fifty_seconds(asked: float, patience: float | None) -> None:
    assert MAX_WAIT_SECONDS == 50
    limits = Limits(wait_seconds=1e9, execute_seconds=1e9)
    context = Context(Principal("mcp", 0), NOTHING, NOTHING, limits, patience_seconds=patience)
    seconds, _ = context.bounded(asked, 0, [])
    assert seconds <= min(50, patience or 50)
    for passed in (30.0, 49.5, 60.0):  # while a person was asked, or the prompt was waited for
        late = replace(context, began=time.monotonic() - passed)
        assert 0 <= late.left(seconds) <= max(0.0, min(seconds, 50 - passed))
    waiting = [tool.name for tool in TOOLS if "timeout_seconds" in tool.arguments.model_fields]
    assert {"execute_command", "read_output"} <= set(waiting)


@pytest.mark.parametrize("modern", [False, True])
def test_20_tools_are_few_and_in_one_order(home: Path, modern: bool) -> None:
    names: list[list[str]] = []
    for _ in range(2):
        with Client(env=living_in(home)) as client:
            for _ in range(2):
                listed = client.result("tools/list", {}, modern=modern)["tools"]
                names.append([tool["name"] for tool in listed])
    stop_daemons(home)
    assert names == [sorted(names[0])] * 4
    assert len(names[0]) <= 20


def test_24_handles_are_long_and_never_the_same(home: Path) -> None:
    with Client(env=living_in(home)) as client:
        sessions = [client.call("create_session", name=name)["structuredContent"]["session_id"] for name in "abc"]
        ran = [client.call("execute_command", session_id=session, command="true") for session in sessions]
    stop_daemons(home)
    handles = sessions + [result["structuredContent"]["command_id"] for result in ran]
    handles += [result["_meta"]["ai-session/call_id"] for result in ran]
    assert len(set(handles)) == 9
    for handle in handles:
        _, _, random = handle.partition("_")
        assert len(random) * 6 >= 128


def test_40_nothing_deprecated_is_used() -> None:
    """In our own handlers; the SDK would do it for who asked."""
    used: list[str] = []
    for path in sorted((PACKAGE / "servers").glob("mcp*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and node.attr in DEPRECATED:
                used.append(f"{path.name}: {node.attr}")
            if isinstance(node, ast.keyword) and node.arg in {"on_set_logging_level", "on_roots_list_changed"}:
                used.append(f"{path.name}: {node.arg}")
    assert used == []
