"""The integration tools behind gate and daemon: a caller reads where it may work, and nowhere else."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from ai_session.tools.integration.recipes.fastapi import SOURCE
from tests.ai_session.support.entries import Audit
from tests.ai_session.support.fluxloop_client import Flux
from tests.ai_session.support.integration_projects import APPS, EXPRESS_TS, FASTAPI_MODULE, apply_plan
from tests.ai_session.support.mcp_client import Client, living_in, runtime, stop_daemons
from tests.conftest import new_home

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CONFIG = """
[sandbox]
workspaces = ["~/w"]
masked = ["own.*"]

[rates]
questions_per_minute = 1000

[[policy.rules]]
decision = "deny"
paths = ["**/w/closed/**"]
"""
PROFILE = {
    "root",
    "languages",
    "packageManagers",
    "entryPoints",
    "frameworkCandidates",
    "riskFlags",
    "stats",
    "evidence",
}


@pytest.fixture(scope="module")
def boxed(homes: Path) -> Iterator[Path]:
    """A HOME whose sessions may work in ``w``, with projects there and beside it."""
    home = new_home(homes, CONFIG)
    FASTAPI_MODULE.write(home / "w/shop")
    FASTAPI_MODULE.write(home / "w/closed")
    EXPRESS_TS.write(home / "w/express")
    FASTAPI_MODULE.write(home / "private")
    (home / "w/shop/link").symlink_to(home / "private")
    yield home
    stop_daemons(home)


@pytest.fixture(scope="module")
def flux(boxed: Path) -> Iterator[Flux]:
    with Flux(boxed) as client:
        yield client


def result(flux: Flux, tool: str, **params: Any) -> dict[str, Any]:
    answer = flux.tool(tool, **params)
    assert answer["type"] == "response", answer
    return answer["result"]


def refusal(flux: Flux, tool: str, **params: Any) -> tuple[str, str]:
    """The protocol's code, and ours."""
    answer = flux.tool(tool, **params)
    assert answer["type"] == "error", answer
    return answer["error"]["code"], answer["error"]["details"]["code"]


def test_from_repository_to_plan_over_the_wire(flux: Flux, boxed: Path) -> None:
    root = boxed / "w/shop"
    profile = result(flux, "analyze_repository", root=str(root))
    assert profile.keys() == PROFILE
    assert profile["stats"] == {"files": 2, "loc": 21}
    found = result(flux, "detect_frameworks", repository_profile=profile)
    assert [row["name"] for row in found["frameworks"]] == ["fastapi"]
    assert found["recommended_patterns"][0]["doc_url"] == "docs/howto/integrate.md#fastapi"
    way = result(flux, "generate_integration_steps", framework="fastapi", repository_profile=profile)
    assert (way["package_manager"], len(way["steps"])) == ("uv", 5)
    plan = result(flux, "propose_edit_plan", framework="fastapi", repository_profile=profile)
    assert plan["edits"][0]["payload"]["code"] == SOURCE
    verdict = result(flux, "validate_edit_plan", plan=plan, root=str(root))
    assert (verdict["valid"], verdict["issues"], verdict["warnings"]) == (True, [], [])
    apply_plan(root, plan)
    assert "already present" in result(flux, "propose_edit_plan", framework="fastapi", root=str(root))["warnings"][0]
    again = result(flux, "validate_edit_plan", plan=plan, root=str(root))
    assert again["valid"]
    assert all("already present" in warning for warning in again["warnings"])


def test_the_whole_workflow_is_the_parts_of_it(flux: Flux, boxed: Path) -> None:
    root = str(boxed / "w/express")
    whole = result(flux, "run_integration_workflow", root=root)
    assert list(whole) == ["profile", "detection", "integration_steps", "edit_plan", "validation"]
    profile = result(flux, "analyze_repository", root=root)
    assert whole["profile"] == profile
    assert whole["detection"] == result(flux, "detect_frameworks", repository_profile=profile)
    plan = result(flux, "propose_edit_plan", framework="express", root=root)
    assert whole["edit_plan"] == plan
    assert whole["validation"] == result(flux, "validate_edit_plan", plan=plan, root=root)
    steps = result(flux, "generate_integration_steps", framework="express", repository_profile=profile)
    assert whole["integration_steps"] == steps
    named = result(flux, "run_integration_workflow", root=root, question="And for Cursor?")
    assert named["edit_plan"]["edits"][0]["filepath"] == ".cursor/mcp.json"


@pytest.mark.parametrize("name", APPS)
def test_no_mask_is_put_into_a_plan(flux: Flux, boxed: Path, name: str) -> None:
    root = APPS[name].write(boxed / "w" / name)
    plan = result(flux, "propose_edit_plan", framework=APPS[name].framework, root=str(root))
    assert plan["edits"]
    assert "[REDACTED" not in json.dumps(plan).upper()
    assert result(flux, "validate_edit_plan", plan=plan, root=str(root))["valid"]


@pytest.mark.parametrize(
    "tool", ["analyze_repository", "propose_edit_plan", "validate_edit_plan", "run_integration_workflow"]
)
def test_what_lies_elsewhere_is_asked_for_or_refused(flux: Flux, boxed: Path, tool: str) -> None:
    given: dict[str, Any] = {"framework": "fastapi", "plan": {"edits": []}}
    given = {
        name: given[name] for name in {"propose_edit_plan": ["framework"], "validate_edit_plan": ["plan"]}.get(tool, [])
    }

    def refused(root: str) -> tuple[str, str]:
        return refusal(flux, tool, root=root, **given)

    assert refused(str(boxed / "private")) == ("tool_error", "consent_needed")
    assert refused(str(boxed / "w/shop/link")) == ("tool_error", "consent_needed")
    assert refused(str(boxed / "w/../private")) == ("tool_error", "consent_needed")
    assert refused(str(boxed / "w/closed")) == ("tool_error", "denied")
    assert refused("/etc") == ("tool_error", "sandbox_refused")
    assert refused(str(boxed)) == ("tool_error", "sandbox_refused")
    assert refused(str(runtime(boxed) / "audit")) == ("tool_error", "sandbox_refused")
    assert refused(str(boxed / "w/nowhere")) == ("tool_error", "directory_unusable")
    assert refused(str(boxed / "w/shop/uv.lock")) == ("tool_error", "directory_unusable")
    assert refused("\0") == ("tool_error", "directory_unusable")
    assert refused("x" * 5000) == ("invalid_payload", "invalid_arguments")


def test_a_profile_s_root_is_judged_like_any(flux: Flux, boxed: Path) -> None:
    profile = {"root": str(boxed / "private"), "entryPoints": ["../../private/app/main.py"]}
    refused = refusal(flux, "propose_edit_plan", framework="fastapi", repository_profile=profile)
    assert refused == ("tool_error", "consent_needed")


def test_a_plan_reaches_no_file_outside_and_no_secret(flux: Flux, boxed: Path) -> None:
    root = boxed / "w/secrets"
    root.mkdir()
    (root / "own.txt").write_text("hidden = 1\n")
    (root / ".env").write_text("A=1\n")
    (root / "link").symlink_to(boxed / "private")
    for path in ("own.txt", ".env", "link/app/main.py", "../shop/app/main.py", "/etc/passwd"):
        edit = {"filepath": path, "strategy": "append", "anchors": [], "payload": {"code": "hidden = 1\n"}}
        verdict = result(flux, "validate_edit_plan", plan={"edits": [edit]}, root=str(root))
        assert (verdict["valid"], len(verdict["issues"])) == (False, 1)
        assert "present" not in str(verdict["warnings"])


def test_a_rule_of_paths_speaks_of_each_file_of_a_plan(flux: Flux, boxed: Path) -> None:
    edit = {"filepath": "closed/app/main.py", "strategy": "insert", "payload": {"code": "x"}}
    edit["anchors"] = [{"type": "after_match", "pattern": "app = FastAPI("}]
    plan = {"edits": [5, {**edit, "filepath": "../private/app/main.py"}, edit]}
    assert refusal(flux, "validate_edit_plan", plan=plan, root=str(boxed / "w")) == ("tool_error", "denied")


def test_a_secret_is_neither_planned_nor_shown(flux: Flux, boxed: Path) -> None:
    token = "ghp_" + "a1B2c3D4e5" * 4
    edit = {"filepath": "new.py", "strategy": "create_file", "anchors": [], "payload": {"code": f"key = '{token}'\n"}}
    verdict = result(flux, "validate_edit_plan", plan={"edits": [edit]}, root=str(boxed / "w/express"))
    assert "secret" in verdict["issues"][0]
    assert token not in json.dumps(verdict)


@pytest.mark.parametrize(
    ("tool", "params"),
    [
        ("propose_edit_plan", {}),
        ("propose_edit_plan", {"framework": 5}),
        ("propose_edit_plan", {"framework": "rails"}),
        ("generate_integration_steps", {"framework": ""}),
        ("detect_frameworks", {"repository_profile": [1]}),
        ("validate_edit_plan", {"plan": "x"}),
        ("analyze_repository", {"globs": "*.py"}),
        ("analyze_repository", {"globs": ["x"] * 51}),
        ("run_integration_workflow", {"root": 1}),
    ],
)
def test_arguments_that_do_not_fit_are_refused(flux: Flux, tool: str, params: dict[str, Any]) -> None:
    assert refusal(flux, tool, **params) == ("invalid_payload", "invalid_arguments")


def test_calls_are_recorded_with_the_directory_they_read(flux: Flux, boxed: Path) -> None:
    audit = Audit(runtime(boxed))
    result(flux, "analyze_repository", root=str(boxed / "w/shop"))
    ((begin, end),) = audit.calls()
    assert (begin["tool"], end["outcome"], end["cwd"]) == ("analyze_repository", "ok", str(boxed / "w/shop"))


def test_mcp_neither_lists_nor_calls_them(flux: Flux, boxed: Path) -> None:
    result(flux, "detect_frameworks")
    with Client(env=living_in(boxed)) as client:
        client.initialize()
        assert "analyze_repository" not in {tool["name"] for tool in client.result("tools/list")["tools"]}
        params = {"name": "analyze_repository", "arguments": {"root": str(boxed / "w/shop")}}
        assert "unknown tool" in client.ask("tools/call", params)["error"]["message"]
