"""The tools that think, of a real server with the real engine: with models that are servers of the test and without."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from ccswarm.config.config import settings_of
from ccswarm.models import RunStatus
from ccswarm.runs.status import facts_of, runs
from ccswarm.servers.base import ServerOptions
from ccswarm.servers.mcp.toolsets.base import PARTIAL
from ccswarm.servers.mcp.toolsets.orchestre.base import Refusal
from ccswarm.servers.mcp.toolsets.orchestre.model_tools import TOOLS
from ccswarm.servers.mcp.toolsets.orchestre.schemas import ANALYSIS
from ccswarm.servers.mcp.workbench import Workbench
from tests.ccswarm.support.llm_agents import KEY, SECRET, finish
from tests.ccswarm.support.model_servers import Asked, Behaviour, Fail, ModelServer, Reply, Stall
from tests.ccswarm.support.orchestre_trees import PYTHON, made
from tests.ccswarm.support.runs import MAKER, QUICK, SERVERS, RunVerbs
from tests.ccswarm.support.verbs import agreed
from tests.conftest import environment
from tests.support.bounds import BOUND_SECONDS

pytestmark = pytest.mark.anyio
NEEDED = "- Users log in with OAuth\n- Must export reports as CSV\n- Could send email reminders"
RUN = {tool.name: tool.run for tool in TOOLS}


def thinker(server: ModelServer, name: str, model: str, more: str = 'grants = ["small.*"]') -> str:
    way = f'model = "openai:{model}", base_url = "{server.url}/v1", key = "{KEY}", retries = 0'
    return f'[[agents]]\nname = "{name}"\nbrain = "llm"\n{more}\nsettings = {{ {way} }}\n'


@asynccontextmanager
async def workbench_of(home: Path, *agents: str) -> AsyncGenerator[Workbench]:
    (home / "ccswarm.toml").write_text(QUICK + SERVERS + "".join(agents))
    work = home / "work"
    work.mkdir(exist_ok=True)
    verbs = Workbench(ServerOptions(home / "ccswarm.toml", work))
    with environment({**os.environ, KEY: SECRET}):
        try:
            yield verbs
        finally:
            await verbs.close()


async def called(verbs: Workbench, name: str, /, **given: Any) -> dict[str, Any]:
    """As the wire calls it: arguments that fit, and an answer that is JSON."""
    tool = next(tool for tool in TOOLS if tool.name == name)
    assert tool.arguments.problem(given) == ""
    assert tool.arguments.unusable == ""
    with verbs.in_use():
        answer = await asyncio.wait_for(RUN[name](verbs, given), BOUND_SECONDS)
    return json.loads(json.dumps(answer))


Script = Callable[[Asked], Behaviour]


def answering(answers: Mapping[str, Any]) -> Script:
    """By the name of the model: what it ends its task with, or how it behaves."""

    def script(asked: Asked) -> Behaviour:
        answer = answers[asked.model]
        return answer if isinstance(answer, Reply | Fail | Stall) else Reply(calls=[finish(result=answer)])

    return script


ANALYSED = {
    "summary": "It is small.",
    "complexity": {
        "score": 2,
        "level": "low",
        "factors": {"technical": 2, "integration": 1, "scalability": 1, "security": 4},
    },
    "keyComponents": ["Sessions", "Export of reports"],
    "challenges": [{"area": "Sessions", "severity": "critical", "description": "Cookies", "mitigation": "Care"}],
    "recommendations": {"architecture": "One", "technologies": ["Python"], "patterns": [], "approach": "Now"},
    "risks": [],
    "phases": [{"name": "All", "duration": "2 days", "goals": ["Work"]}],
}


async def test_a_model_fills_the_same_schema_and_is_given_the_counted_facts(home: Path) -> None:
    async with (
        ModelServer(answering({"big": {"analysis": ANALYSED}}), key=SECRET) as server,
        workbench_of(home, thinker(server, "ada", "big")) as verbs,
    ):
        made(home / "work", PYTHON)
        reported: list[str] = []
        PARTIAL.set(reported.append)
        done = await called(verbs, "analyze_project", requirements=NEEDED, context={"timeline": "2 weeks"})
        assert reported[0].startswith("by rules: ")
        assert [reported[1], reported[2].partition(": ")[2].partition(":")[0]] == ["ada is asked", "succeeded"]
        app = await verbs.reading()
        (run,) = await runs(app.engine, 9)
        assert (run.id, run.status) == (done["run"], RunStatus.SUCCEEDED)
        assert (await facts_of(app.engine, run.id))["name"] == "orchestre-analyze"
        payload = (await app.engine.status(run.id)).payload
        kept, _ = await asyncio.to_thread(settings_of, payload["files"])
        assert kept is not None
        assert [agent.grants for agent in kept.agents] == [()]
        assert [task.text for task in kept.tasks] == [task["text"] for task in payload["plan"]["tasks"]]
    assert (done["method"], done["models"], done["notes"]) == ("model", ["openai:big"], [])
    assert done["analysis"] == ANALYSED
    assert done["byRules"]["complexity"]["factors"]["security"] == 4
    assert done["repository"]["tests"]["cases"] == 2
    assert done["usage"] == {"tokens": 110, "dollars": 0.0, "calls": 0}
    (asked,) = server.asked
    assert set(asked.tools) == {"finish", "recall"}
    assert '"cases": 2' in asked.prompt
    assert json.dumps(ANALYSIS, indent=1) in asked.prompt
    assert "2 weeks" in asked.prompt


NO_ANSWERS: tuple[tuple[Any, str], ...] = (
    (
        {"analysis": {**ANALYSED, "complexity": 7}},
        "the answer of openai:big was not used: $.complexity: must be object",
    ),
    (Reply(calls=[finish()]), "the answer of openai:big was not used: $: 'challenges' is a required property"),
    (Reply("I would rather not."), "openai:big did not answer: failed: the model did not call finish"),
    (Reply(calls=[finish("failed", "No.")]), "openai:big did not answer: failed: No."),
    (Fail(401), "openai:big did not answer: failed: "),
)


@pytest.mark.parametrize(
    "no_answers", [NO_ANSWERS[:1], pytest.param(NO_ANSWERS, marks=pytest.mark.torture)], ids=["one", "all"]
)
async def test_what_is_no_analysis_falls_back_to_rules_and_says_so(
    home: Path, no_answers: tuple[tuple[Any, str], ...]
) -> None:
    answers: dict[str, Any] = {}
    async with ModelServer(answering(answers)) as server, workbench_of(home, thinker(server, "ada", "big")) as verbs:
        for answer, reported in no_answers:
            answers["big"] = answer
            done = await called(verbs, "analyze_project", requirements=NEEDED)
            assert done["method"] == "rules"
            assert [one.startswith(reported) for one in done["notes"]] == [True], done["notes"]
            assert done["analysis"]["complexity"]["because"]


@pytest.mark.torture
async def test_budgets_hold_and_agents_that_cannot_think_are_told(home: Path) -> None:
    spent = 'budget = { tokens = 50 }\ngrants = ["small.*"]'
    async with (
        ModelServer(answering({"big": Reply("Let me think.", [("recall", {"id": 1})])})) as server,
        workbench_of(home, thinker(server, "ada", "big", spent)) as verbs,
    ):
        done = await called(verbs, "analyze_project", requirements=NEEDED)
        assert (done["method"], len(server.asked)) == ("rules", 1)
        assert done["notes"][0].startswith("openai:big did not answer: budget_exhausted")
        text = (home / "ccswarm.toml").read_text()
        (home / "ccswarm.toml").write_text(text.replace(KEY, "NO_SUCH_KEY"))
        agreed(home / "ccswarm.toml", home / ".local/state/ccswarm")
        done = await called(verbs, "analyze_project", requirements=NEEDED)
        assert "NO_SUCH_KEY" in done["notes"][0]
        with pytest.raises(Refusal, match="NO_SUCH_KEY") as refused:
            await called(verbs, "multi_llm_review", code="x = 1")
        assert refused.value.code == "NO_MODEL"


def found(line: int, severity: str = "high", **more: Any) -> dict[str, Any]:
    location = {"file": "calc/__init__.py", "line": line, "category": "correctness", "severity": severity}
    return {**location, "message": f"line {line}", "suggestion": "mend it", **more}


async def test_models_review_side_by_side_and_agree_where_they_do(home: Path) -> None:
    answers = {
        "big": {"findings": [found(2), found(40, "low")], "summary": "Two."},
        "small": {"findings": [found(1, "critical")]},
        "odd": Reply(calls=[finish(summary="Looks good to me!")]),
        "chatty": Reply("Looks good to me!"),
        "gone": Fail(500),
    }
    async with ModelServer(answering(answers)) as server:
        team = [thinker(server, name, name) for name in answers]
        again = thinker(server, "twin", "big")
        async with workbench_of(home, *team, again, MAKER) as verbs:
            made(home / "work", PYTHON)
            given = {"files": ["calc/__init__.py", {"path": "new.py", "content": "y" * 20_000}], "focus": ["sums"]}
            done = await called(verbs, "multi_llm_review", **given)
            assert len(await runs((await verbs.reading()).engine, 9)) == 1
    reviews = {one["agent"]: one for one in done["reviews"]}
    assert {name: one["answered"] for name, one in reviews.items()} == {
        "big": True,
        "small": True,
        "odd": False,
        "chatty": False,
        "gone": False,
    }
    assert reviews["odd"]["why"] == "its answer was not of the shape that was asked for"
    assert (done["consensus"]["agreement"], done["consensus"]["confidence"]) == (0.5, 0.2)
    (issue,) = done["consensus"]["priorityIssues"]
    assert (issue["severity"], issue["models"]) == ("critical", ["big (openai:big)", "small (openai:small)"])
    assert [one["kind"] for one in done["disagreements"]] == ["seen by some"]
    assert done["reviewed"] == [
        {"name": "calc/__init__.py", "bytes": 32, "cut": False},
        {"name": "new.py", "bytes": 20_000, "cut": True},
    ]
    prompts = {asked.model: asked.prompt for asked in server.asked}
    assert set(prompts) == set(answers)
    assert "1: def add(a, b):" in prompts["big"]
    assert "above all for: sums" in prompts["big"]
    assert "(cut: 10240 of 20000 bytes are shown)" in prompts["big"]
    assert "y" * 10_300 not in prompts["big"]


async def test_what_is_not_reviewed(home: Path) -> None:
    async with (
        ModelServer(answering({"big": Reply("Hm.")})) as server,
        workbench_of(home, thinker(server, "a", "big")) as verbs,
    ):
        work = made(home / "work", {**PYTHON, ".env": "KEY=1", "bin": b"\0", ".git/config": "x"})
        (home / "outside.py").write_text("secret")
        (work / "out.py").symlink_to(home / "outside.py")
        (work / "key.py").symlink_to(".env")
        refused = {
            ".env": "FILE_REFUSED",
            "key.py": "FILE_REFUSED",
            ".git/config": "FILE_REFUSED",
            "bin": "FILE_REFUSED",
            "gone.py": "FILE_NOT_FOUND",
            "calc": "FILE_NOT_FOUND",
        }
        for name, code in refused.items():
            with pytest.raises(Refusal) as error:
                await called(verbs, "multi_llm_review", files=[name])
            assert error.value.code == code, name
        for name in ("../outside.py", "out.py", str(home / "outside.py")):
            with pytest.raises(Refusal, match="is not in the workspace") as outside:
                await called(verbs, "multi_llm_review", files=[name])
            assert outside.value.code == "PATH_NOT_ALLOWED"
        with pytest.raises(Refusal, match="nothing to review"):
            await called(verbs, "multi_llm_review")
        assert server.asked == []
        with pytest.raises(Refusal, match="no model answered") as nobody:
            await called(verbs, "multi_llm_review", plan={"phases": []})
        assert nobody.value.more["run"].startswith("run_")


@pytest.mark.torture
async def test_research_reads_with_the_tools_that_are_granted(home: Path) -> None:
    def script(asked: Asked) -> Behaviour:
        if not asked.turns:
            assert set(asked.tools) == {"finish", "recall", "small__echo"}
            return Reply(calls=[("small__echo", {"text": "rounding is half to even"})])
        assert "half to even" in asked.results[-1].text
        findings = [{"title": "Half to even", "detail": "It is", "sources": ["small.echo"]}, {"detail": "no title"}, 7]
        return Reply(calls=[finish(result={"findings": findings, "summary": "So.", "openQuestions": ["Why?"]})])

    async with (
        ModelServer(script) as server,
        workbench_of(home, thinker(server, "ada", "big", 'grants = ["small.echo"]')) as verbs,
    ):
        made(home / "work", PYTHON)
        done = await called(verbs, "research", topic="rounding of numbers")
    assert done["findings"] == [{"title": "Half to even", "detail": "It is", "sources": ["small.echo"]}]
    assert (done["summary"], done["openQuestions"], done["toolCalls"], done["method"]) == ("So.", ["Why?"], 1, "model")
    assert done["workspace"]["hits"][0]["path"] == "README.md"
    assert done["notes"] == ["the model made 1 call of tools; sources are as it names them"]


async def test_a_call_that_nobody_waits_for_ends_its_run(home: Path) -> None:
    async with (
        ModelServer(answering({"big": Stall(0)})) as server,
        workbench_of(home, thinker(server, "a", "big")) as verbs,
    ):
        asking = asyncio.create_task(called(verbs, "analyze_project", requirements=NEEDED))
        await server.was_asked(1)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        app = await verbs.reading()
        (run,) = await runs(app.engine, 9)
        ended = await asyncio.wait_for(app.engine.wait(run.id), BOUND_SECONDS)
        assert ended.status is RunStatus.CANCELLED


async def test_without_a_model_the_workspace_is_searched_and_counted(home: Path) -> None:
    async with workbench_of(home, MAKER) as verbs:
        made(home / "work", PYTHON)
        done = await called(verbs, "research", topic="rounding of numbers")
        assert (done["method"], done["findings"]) == ("search", [])
        assert "only the files of the workspace were searched" in done["notes"][0]
        analysis = await called(verbs, "analyze_project", requirements=NEEDED, projectPath="calc")
        assert (analysis["method"], analysis["repository"]["files"]) == ("rules", 2)
        with pytest.raises(Refusal) as refused:
            await called(verbs, "analyze_project", requirements=NEEDED, projectPath="nowhere")
        assert refused.value.code == "PROJECT_NOT_FOUND"
        with pytest.raises(Refusal) as unknown:
            await called(verbs, "generate_plan", requirements=NEEDED, template="nope")
        assert (unknown.value.code, "cloudflare-hono" in unknown.value.more["availableTemplates"]) == (
            "TEMPLATE_NOT_FOUND",
            True,
        )


@pytest.mark.parametrize("circle", [False, pytest.param(True, marks=pytest.mark.torture)])
async def test_a_model_plans_and_what_cannot_be_done_in_order_is_not_used(home: Path, circle: bool) -> None:
    def task(name: str, *needs: str) -> dict[str, Any]:
        facts = {"title": f"Do {name}", "description": "All of it", "effort": "1 day", "priority": "high"}
        return {"id": name, **facts, "dependencies": list(needs), "assignee": "mia"}

    def plan(*tasks: dict[str, Any]) -> dict[str, Any]:
        phase: dict[str, Any] = {"objectives": [], "deliverables": [], "risks": [], "tasks": list(tasks)}
        phases = [{"id": "1", "name": "One", "duration": "2 days", **phase}]
        return {"overview": "o", "methodology": "m", "totalDuration": "2 days", "phases": phases, "milestones": []}

    answers = iter([{"plan": plan(task("1.1"), task("1.2", "1.1"))}, plan(task("1.1", "1.2"), task("1.2", "1.1"))])

    def script(_: Asked) -> Behaviour:
        return Reply(calls=[finish(result=next(answers))])

    async with ModelServer(script) as server, workbench_of(home, MAKER, thinker(server, "ada", "big")) as verbs:
        done = await called(verbs, "generate_plan", requirements=NEEDED)
        assert (done["method"], done["check"]) == ("model", {"valid": True, "problems": []})
        assert 'id = "task-1-2"' in done["ccswarmPlan"]
        assert 'needs = ["task-1-1"]' in done["ccswarmPlan"]
        if circle:
            done = await called(verbs, "generate_plan", requirements=NEEDED)
            assert done["method"] == "rules"
            assert "need each other in a circle" in done["notes"][0]
            assert done["check"]["valid"]


async def test_nobody_can_do_it(home: Path) -> None:
    async with workbench_of(home, '[[agents]]\nname = "idle"\n') as verbs:
        done = await called(verbs, "generate_plan", requirements=NEEDED)
    assert (done["ccswarmPlan"], done["check"]["valid"]) == ("", False)
    assert "give an agent a brain that thinks" in done["check"]["problems"][0]
    (home / "plan.json").write_text(json.dumps(done))
    assert "ccswarmPlan is empty" in (await asyncio.to_thread(RunVerbs(home).run, "run", "plan.json", code=2)).err
    assert {task["assignee"] for phase in done["plan"]["phases"] for task in phase["tasks"]} >= {"researcher", "coder"}


@pytest.mark.torture
def test_the_plan_is_run_as_it_is_and_every_task_ends(home: Path) -> None:
    """By ``ccswarm run``, in the workspace it was made for."""

    async def make() -> dict[str, Any]:
        async with workbench_of(home, MAKER) as verbs:
            return await called(verbs, "generate_plan", requirements=NEEDED, preferences={"methodology": "agile"})

    done = asyncio.run(make())
    assert done["check"] == {"valid": True, "problems": []}
    (home / "plan.json").write_text(json.dumps(done))
    verbs = RunVerbs(home)
    result = verbs.result("run", "plan.json")
    tasks = [task for phase in done["plan"]["phases"] for task in phase["tasks"]]
    assert {name: one["status"] for name, one in result["tasks"].items()} == {
        task["swarmTask"]: "succeeded" for task in tasks
    }
    said = result["tasks"]["task-3-1"]["result"]["steps"]["do"]
    assert "Must export reports as CSV" in json.dumps(said)
