"""Results on their way out: what a program acts on is told whatever somebody calls a secret; all else is masked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ai_session.gate.redaction.known_secrets import Masking
from ai_session.gate.results import masked
from ai_session.models import ToolResult
from ai_session.system.turns import finished

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
