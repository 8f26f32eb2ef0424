"""The tools that think over the wire of ``ccswarm mcp-server``: composed as Orchestre's document composes them, up to a
run of the plan; and whatever fits their schemas."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccswarm.servers.base import ServerOptions
from ccswarm.servers.mcp.toolsets.orchestre.base import Refusal
from ccswarm.servers.mcp.toolsets.orchestre.model_tools import TOOLS
from ccswarm.servers.mcp.toolsets.orchestre.schemas import analysis_problem, plan_problem
from ccswarm.servers.mcp.workbench import Workbench
from tests.ccswarm.support.mcp_server_process import ServerClient, serving
from tests.ccswarm.support.orchestre_trees import MIXED, committed, made
from tests.ccswarm.support.runs import MAKER, QUICK, SERVERS, RunVerbs
from tests.conftest import BY_CHANCE, client_environment, environment
from tests.support.bounds import BOUND_SECONDS

SAAS = "Build SaaS with auth and billing"


@pytest.fixture(scope="module")
def verbs(shared_home: Path) -> RunVerbs:
    work = made(shared_home / "work", MIXED)
    with environment(client_environment(shared_home)):
        committed(work)
    return RunVerbs(shared_home, QUICK + SERVERS + MAKER)


@pytest.fixture(scope="module")
def client(verbs: RunVerbs) -> Iterator[ServerClient]:
    work = str(verbs.home / "work")
    with (
        environment(client_environment(verbs.home)),
        serving(verbs.home, "--workspace", work, "--config", str(verbs.file)) as client,
    ):
        yield client


def reported(client: ServerClient, number: int) -> Any:
    result = client.answer(number)["result"]
    assert not result["isError"], result
    return json.loads(result["content"][0]["text"])


def asked(client: ServerClient, name: str, /, **arguments: Any) -> int:
    return client.begin("tools/call", {"name": name, "arguments": arguments})


def test_an_analysis_becomes_a_plan_that_can_be_run(client: ServerClient) -> None:
    planned(client)


def planned(client: ServerClient) -> Any:
    """The plan of an analysis."""
    analysis = reported(client, asked(client, "analyze_project", requirements=SAAS))
    assert analysis_problem(analysis["analysis"]) == ""
    assert (analysis["method"], analysis["repository"]["git"]["commits"]) == ("rules", 1)
    plan = reported(client, asked(client, "generate_plan", requirements=SAAS, analysis=analysis))
    assert plan_problem(plan["plan"]) == ""
    assert plan["check"] == {"valid": True, "problems": []}
    checked = client.tool("check_plan", plan=plan["ccswarmPlan"])
    assert checked["valid"], checked["problems"]
    return plan


@pytest.mark.torture
def test_a_plan_of_an_analysis_is_a_run_that_ends(client: ServerClient) -> None:
    plan = planned(client)
    run = client.tool("start_run", plan=plan["ccswarmPlan"])["run"]
    client.follow(run)
    tasks = client.tool("run_status", run=run)["tasks"]
    wanted = [task["swarmTask"] for phase in plan["plan"]["phases"] for task in phase["tasks"]]
    assert {one["task"]: one["status"] for one in tasks} == dict.fromkeys(wanted, "succeeded")


def test_all_of_them_side_by_side(client: ServerClient) -> None:
    numbers = [
        asked(client, "analyze_project", requirements=SAAS),
        asked(client, "research", topic="Tests in TypeScript"),
        asked(client, "generate_plan", requirements=SAAS, template="cloudflare-hono"),
    ]
    refused = client.answer(asked(client, "multi_llm_review", files=["app.py"]))["result"]
    assert (refused["isError"], json.loads(refused["content"][0]["text"])["code"]) == (True, "NO_MODEL")
    analysis, research, plan = (reported(client, number) for number in numbers)
    assert analysis["repository"]["tests"]["command"] == "make test"
    assert (research["method"], research["workspace"]["hits"][0]["path"]) == ("search", "web/package.json")
    assert plan["plan"]["phases"][0]["tasks"][0]["title"] == "Start from the template cloudflare-hono"


def test_nothing_outside_the_workspace_is_looked_at(client: ServerClient, verbs: RunVerbs) -> None:
    (verbs.home / "work/out").symlink_to(verbs.home)
    for path in ("..", "/", "out", "out/.config/../..", "\0"):
        result = client.answer(asked(client, "analyze_project", requirements=SAAS, projectPath=path))["result"]
        assert json.loads(result["content"][0]["text"])["code"] == "PATH_NOT_ALLOWED", path
    (verbs.home / "work/out").unlink()


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=6,
)
TABLES = st.dictionaries(st.text(max_size=9), JUNK, max_size=3)
WORDS = st.text(min_size=1, max_size=40) | st.sampled_from(
    ["login\n- must pay", "calc", "app.py", "..", "/", "api/", "\0"]
)
VALUES: Mapping[str, st.SearchStrategy[Any]] = {
    "requirements": st.text(min_size=10, max_size=200).filter(lambda text: len(text.strip()) >= 10),
    "constraints": st.lists(WORDS, max_size=3),
    "existingCode": WORDS,
    "projectPath": WORDS,
    "context": st.dictionaries(st.sampled_from(["existingStack", "teamSize", "timeline", "x"]), JUNK, max_size=3),
    "analysis": TABLES,
    "template": WORDS,
    "preferences": TABLES,
    "files": st.lists(JUNK | st.fixed_dictionaries({"path": WORDS, "content": JUNK}), max_size=4),
    "code": WORDS,
    "content": WORDS,
    "plan": JUNK,
    "focus": JUNK,
    "topic": st.text(min_size=2, max_size=60),
}


@pytest.mark.parametrize("examples", [2, pytest.param(8, marks=pytest.mark.torture)])
@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
def test_whatever_fits_the_schema_is_answered(shared_home: Path, verbs: RunVerbs, tool: Any, examples: int) -> None:
    properties, required = tool.input_schema["properties"], tool.input_schema.get("required", ())
    kinds: dict[str, st.SearchStrategy[Any]] = {
        name: WORDS if name == "context" and properties[name]["type"] == "string" else VALUES[name]
        for name in properties
    }
    arguments = st.fixed_dictionaries(
        {name: kinds[name] for name in required},
        optional={name: kinds[name] for name in properties if name not in required},
    )

    @settings(max_examples=examples, suppress_health_check=BY_CHANCE)
    @given(arguments)
    def tried(arguments: dict[str, Any]) -> None:
        if tool.arguments.problem(arguments):
            return

        async def call() -> None:
            here = Workbench(ServerOptions(verbs.file, shared_home / "work"))
            try:
                async with asyncio.timeout(BOUND_SECONDS):
                    json.dumps(await tool.run(here, arguments))
            except Refusal as refusal:
                json.dumps([refusal.code, refusal.suggestion, refusal.more])
            finally:
                await here.close()

        asyncio.run(call())

    tried()
