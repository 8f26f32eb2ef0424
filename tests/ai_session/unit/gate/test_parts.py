import ast
from pathlib import Path
from typing import Annotated

import pytest
from pydantic import Field

from agentwire import plugins
from ai_session.daemon.app import installed_tools
from ai_session.errors import InvalidArguments
from ai_session.gate.policy.policy import Action, Policy
from ai_session.gate.results import validate
from ai_session.models import Effect, Principal, ToolResult
from ai_session.tools.base import Arguments, Context, Tool, output

GATE = Path(__file__).parents[4] / "ai_session/gate"
ME = Principal("mcp", uid=1000, client="test")


class Sample(Arguments):
    name: Annotated[str, Field(min_length=1)]
    count: Annotated[int, Field(ge=1)] = 1


async def run(context: Context, arguments: Sample) -> ToolResult:
    return ToolResult("", {})


TOOL = Tool("sample", "Sample", "Sample.", Effect.READ, Sample, run, output("name"))


def test_every_problem_is_named_and_no_value_is_echoed() -> None:
    with pytest.raises(InvalidArguments) as caught:
        validate(TOOL, {"name": "", "count": "s3cret", "cuont": 1})
    assert "name" in caught.value.message
    assert "count" in caught.value.message
    assert "did you mean 'count'" in caught.value.message
    assert "s3cret" not in caught.value.message
    assert caught.value.suggestion == "arguments: name, count?"


def test_unknown_arguments_are_ignored_but_named_and_null_means_absent() -> None:
    arguments, note = validate(TOOL, {"name": "a", "count": None, "wait_for_previous": True})
    assert arguments == Sample(name="a", count=1)
    assert "wait_for_previous" in note


def test_schemas_are_flat() -> None:
    assert TOOL.input_schema == {
        "type": "object",
        "properties": {"name": {"type": "string"}, "count": {"type": "integer"}},
        "required": ["name"],
        "additionalProperties": False,
    }


def test_the_gate_knows_no_tool_by_its_name() -> None:
    """It knows them by their fields, so that a new tool gets what is due to it. Explanations name examples."""
    names = installed_tools().keys()
    files = sorted(set(GATE.rglob("*.py")) - {GATE / "policy/explain.py"})
    found = [
        f"{file.name}:{node.lineno}: {node.value}"
        for file in files
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Constant) and node.value in names
    ]
    assert (len(names) > 20, len(files) > 20, found) == (True, True, [])


def test_policy_denies_other_users_and_tools_without_effect() -> None:
    policy = Policy(1000)
    assert policy.decide(Action(ME, "sample", Effect.READ)).verdict == "allow"
    assert policy.decide(Action(ME, "sample", None)).verdict == "deny"
    assert policy.decide(Action(Principal("mcp", uid=0), "sample", Effect.READ)).verdict == "deny"


@pytest.mark.parametrize(
    ("tool", "arguments", "problem"),
    [
        ("execute_command", {"session_id": "s", "command": "a\0b"}, "command: contains a NUL"),
        ("execute_command", {"session_id": "s", "command": "\ud83d"}, "command: contains an unpaired surrogate"),
        (
            "create_session",
            {"name": "s", "env": {"A=B": "s3cret"}},
            "env: has 'A=B', which is not the name of a variable",
        ),
        ("create_session", {"name": "s", "env": {"A": "\0"}}, "env: A: contains a NUL"),
        ("create_session", {"name": "../s"}, "name: "),
    ],
)
def test_what_no_shell_can_take_is_refused(tool: str, arguments: dict[str, object], problem: str) -> None:
    tools = {t.name: t for name in plugins.names("ai_session.tools") for t in plugins.load("ai_session.tools", name)}
    with pytest.raises(InvalidArguments) as caught:
        validate(tools[tool], arguments)
    assert problem in caught.value.message
    assert "s3cret" not in caught.value.message
