"""An option before its verb is no mystery: the error says how the line is meant, and that line works."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path

import pytest
import typer

from agentwire.cli.usage import in_order
from ai_session.cli import main as ai_session
from ccswarm.cli import main as ccswarm
from tests.support import forked

CCSWARM = [
    ("-c X run", "run -c X"),
    ("--config X run", "run --config X"),
    ("--config=X run", "run --config=X"),
    ("-cX run plan.toml", "run -cX plan.toml"),
    ("-c run run", "run -c run"),
    ("-c X --workspace /w run plan.toml --json", "run -c X --workspace /w plan.toml --json"),
    ("--json status last", "status --json last"),
    ("-c X runs list", "runs list -c X"),
    ("runs --limit 3 list", "runs list --limit 3"),
    ("--json runs --limit 3 list", "runs list --json --limit 3"),
    ("-w /w mcp-server --stdio", "mcp-server -w /w --stdio"),
    ("-c 'a b' run", "run -c 'a b'"),
]
AI_SESSION = [
    ("--json ls", "ls --json"),
    ("--cwd /tmp new x", "new --cwd /tmp x"),
    ("--json policy show", "policy show --json"),
]
OTHERS = ["--nope run", "-c run", "run --nope", "X run -c", "--json=1 runs list", "-- -c X run", "-c", "--limit 3 run"]


def answer(package: str, line: str) -> tuple[int, str, str]:
    code, out, err = forked.run(package, shlex.split(line), cwd=Path.cwd(), env=os.environ)
    return code, out.decode(), err.decode()


@pytest.mark.parametrize(
    ("app", "line", "meant"),
    [*((ccswarm.app, *one) for one in CCSWARM), *((ai_session.program(), *one) for one in AI_SESSION)],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_options_go_behind_the_verb(app: typer.Typer, line: str, meant: str) -> None:
    assert shlex.join(in_order(typer.main.get_command(app), shlex.split(line)) or ()) == meant


@pytest.mark.parametrize("line", OTHERS)
def test_what_is_wrong_otherwise_is_left_alone(line: str) -> None:
    assert in_order(typer.main.get_command(ccswarm.app), shlex.split(line)) is None


def test_the_error_says_how_the_line_is_meant(home: Path) -> None:
    code, out, err = answer("ccswarm", f"-c {home}/x.toml config path")
    assert (code, out) == (2, "")
    assert (
        err == f"error usage_invalid: option -c must come after its verb\nnext: ccswarm config path -c {home}/x.toml\n"
    )
    assert answer("ccswarm", err.partition("next: ccswarm ")[2])[:2] == (1, f"{home}/x.toml\n")
    code, out, _ = answer("ai_session", "--json policy show")
    error = json.loads(out)["error"]
    assert (code, error["code"], error["suggestion"]) == (2, "invalid_arguments", "ai-session policy show --json")
    assert "no such option: --nope" in answer("ccswarm", "--nope run")[2]
