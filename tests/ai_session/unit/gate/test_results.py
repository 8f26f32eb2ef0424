"""Results on their way out: what a program acts on is told whatever somebody calls a secret; all else is masked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import Field

from ai_session.errors import InvalidArguments
from ai_session.gate.redaction.known_secrets import Masking
from ai_session.gate.results import masked, unknown_tool, validate
from ai_session.models import Effect, ToolResult
from ai_session.system.turns import finished
from ai_session.tools.base import Arguments, Context, Tool, output
from tests.support.processor_time import computing_seconds, once_within

SESSION = "ses_rAfCJjXHdI9Rmkj9FLdAJg"
COMMAND = "cmd_3ThnlBrzFpyDh6mGQ4XnOQ"


def shown(home: Path, facts: dict[str, Any], *secrets: str) -> dict[str, Any]:
    masking = Masking(home / "redaction.key", ("*_TOKEN",), ())
    masking.learn({f"N{number}_TOKEN": value for number, value in enumerate(secrets)})
    return dict(finished(masked(ToolResult("", facts), masking.mask, masking.is_clean))[0].structured)


@pytest.mark.parametrize(
    "facts",
    [
        {"status": "finished"},
        {"state": "waiting_input"},
        {"error": {"code": "session_not_found"}},
        {"sessions": [{"session_id": SESSION, "sandbox": "workspace (bwrap, network off)"}]},
        {"last": {"command_id": COMMAND}},
    ],
)
def test_no_variable_changes_what_programs_act_on(home: Path, facts: dict[str, Any]) -> None:
    secrets = ("finished", "waiting_input", "session_not_found", SESSION, SESSION[:12], COMMAND, "workspace")
    assert shown(home, facts, *secrets) == facts


@pytest.mark.parametrize("name", ["session_id", "command_id", "status", "code", "sandbox", "output"])
def test_what_callers_can_put_there_is_masked(home: Path, name: str) -> None:
    secret = "Ab12 Cd34 Ef56"
    assert secret not in shown(home, {name: secret}, secret)[name]
    assert "finished" not in shown(home, {name: "finished: 1"}, "finished")[name]


class Sample(Arguments):
    command: str
    env: dict[str, str] = Field(default_factory=dict[str, str])


async def nothing(_: Context, __: Any) -> ToolResult:
    return ToolResult("", {})


TOOL = Tool("execute_command", "Sample", "Sample.", Effect.EXECUTE, Sample, nothing, output())


def test_some_of_many_unknown_arguments_and_problems_are_named_and_all_are_counted() -> None:
    many = {f"comand{number}": 1 for number in range(20)}
    _, note = validate(TOOL, {"command": "true", **many})
    assert note.startswith("unknown arguments ignored: 'comand0' (did you mean 'command'?), ")
    assert note.endswith("'comand7' (did you mean 'command'?) and 12 more")
    with pytest.raises(InvalidArguments, match=r"env.A0: should be a text; .*A6: [a-z ]+ and 4 more"):
        validate(TOOL, {"env": {f"A{number}": 1 for number in range(11)}})


@pytest.mark.parametrize("given", [{f"k{number}": 1 for number in range(30_000)}, {"k" * 3_000_000: 1}])
def test_arguments_that_nobody_knows_hold_nobody_up(given: dict[str, Any]) -> None:
    once_within(0.3, lambda: computing_seconds(lambda: validate(TOOL, {"command": "true", **given})))
    once_within(0.3, lambda: computing_seconds(lambda: unknown_tool(next(iter(given)), ["execute_command"])))
