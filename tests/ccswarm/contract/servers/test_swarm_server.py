"""``ccswarm mcp-server`` with real servers behind its agents: what each tool answers, and what it refuses."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from ccswarm.servers.mcp.toolsets.orchestre.plugin import BY_NAME as ORCHESTRE
from tests.ccswarm.support.mcp_server_process import INITIALIZE, MODERN, ROOT, ServerClient, serving
from tests.ccswarm.support.runs import BASE, SMALL, TWO, RunVerbs, step, task
from tests.conftest import client_environment, environment
from tests.support import forked

BIG = task("big", *(step(f"say{at}", "small.echo", text="x" * 20_000) for at in range(4)), more='agent = "ada"')
PARTS = ("result", "events", "journal")
ONE = task("only", step("say"), more='agent = "bob"')


@pytest.fixture(scope="module")
def verbs(shared_home: Path) -> RunVerbs:
    return RunVerbs(shared_home, SMALL + TWO)


@pytest.fixture(scope="module")
def client(verbs: RunVerbs) -> Iterator[ServerClient]:
    with environment(client_environment(verbs.home)), serving(verbs.home, "--workspace", str(verbs.home)) as client:
        yield client


@pytest.fixture(scope="module")
def done(client: ServerClient) -> str:
    """A run of ONE that has ended."""
    run = client.tool("start_run", plan=ONE, call_key="for all tests")["run"]
    client.follow(run)
    return run


def test_a_run_is_started_followed_and_read(client: ServerClient, verbs: RunVerbs) -> None:
    started = client.tool("start_run", name="mine")
    run = started["run"]
    events = client.follow(run)
    assert [(one["event"], one.get("task")) for one in events] == [
        ("run.started", None),
        ("task.started", "one"),
        ("task.ended", "one"),
        ("task.started", "two"),
        ("task.ended", "two"),
        ("run.ended", None),
    ]
    assert events[2]["sentence"] == "one: succeeded: 1 step done"
    status = client.tool("run_status", run=run[:14])
    assert (status["name"], status["status"], status["over"], status["workspace"]) == (
        "mine",
        "succeeded",
        True,
        str(verbs.home),
    )
    assert [(one["task"], one["status"], one["agent"]) for one in status["tasks"]] == [
        ("one", "succeeded", "ada"),
        ("two", "succeeded", "bob"),
    ]
    assert status["usage"]["calls"] == 2
    assert client.tool("list_runs", limit=1)["runs"][0]["run"] == run
    read = client.tool("read_result", run=run, task="two")
    assert json.loads(read["text"])["steps"]["say"]["params"]["arguments"]["text"] == "say"
    assert json.loads(client.tool("read_result", run=run)["text"])["tasks"]["one"]["summary"] == "1 step done"
    shown = json.loads(client.ask("resources/read", {"uri": f"run://{run}/result"})["contents"][0]["text"])
    assert shown["tasks"]["two"]["status"] == "succeeded"
    journal = client.ask("resources/read", {"uri": f"run://{run}/journal"})["contents"][0]["text"]
    calls = [json.loads(line) for line in journal.splitlines()]
    assert [(one["event"], one["agent"]) for one in calls if one["event"].startswith("call.")] == [
        ("call.begin", "ada"),
        ("call.end", "ada"),
        ("call.begin", "bob"),
        ("call.end", "bob"),
    ]
    with environment(client_environment(verbs.home)):
        assert verbs.json("status", run)["status"] == "succeeded"


@pytest.mark.parametrize(
    "plan",
    [
        pytest.param(ONE, marks=pytest.mark.torture),
        "plans/one.toml",
        pytest.param("{home}/plans/one.toml", marks=pytest.mark.torture),
    ],
)
def test_a_plan_is_given_as_text_or_as_a_file_of_the_workspace(
    client: ServerClient, verbs: RunVerbs, plan: str
) -> None:
    (verbs.home / "plans").mkdir(exist_ok=True)
    (verbs.home / "plans/one.toml").write_text(ONE)
    run = client.tool("start_run", plan=plan.replace("{home}", str(verbs.home)), workspace="plans")["run"]
    client.follow(run)
    status = client.tool("run_status", run=run)
    assert (status["status"], status["workspace"]) == ("succeeded", str(verbs.home / "plans"))
    assert [one["task"] for one in status["tasks"]] == ["only"]


def test_a_whole_run_is_followed_with_one_call_and_its_events_and_long_results_come_in_pages(
    client: ServerClient,
) -> None:
    plan = BIG + "".join(task(f"t{number}", step("say")) for number in range(2))
    run = client.tool("start_run", plan=plan)["run"]
    whole, reported = client.follow_whole(run)
    assert (reported["over"], reported["status"], len(whole)) == (True, "succeeded", 2 + 2 * 3)
    found, cursor, more = [], "", True
    while more:
        reported = client.tool("run_events", run=run, cursor=cursor, limit=3)
        found, cursor, more = found + reported["events"], reported["cursor"], reported["more"]
        assert len(reported["events"]) <= 3
        assert reported["over"] is not more
    key = lambda one: (one["event"], one.get("task", ""))  # noqa: E731
    assert sorted(map(key, found)) == sorted(map(key, whole))
    assert len(found) == 2 + 2 * 3
    assert client.tool("run_events", run=run, cursor=cursor)["events"] == []
    result_is_read_page_by_page(client, run)


def result_is_read_page_by_page(client: ServerClient, run: str) -> None:
    """Require that of a run of BIG."""
    text, offset, more = "", 0, True
    while more:
        page = client.tool("read_result", run=run, task="big", offset=offset)
        assert page["offset"] == offset
        assert len(page["text"]) <= 7000
        text, offset, more = text + page["text"], page["next_offset"], page["more"]
    assert len(text) == page["total_chars"] > 7000
    assert json.loads(text)["steps"]["say3"]["status"] == "ok"
    assert client.tool("read_result", run=run, offset=10**9)["text"] == ""


def test_the_same_call_key_starts_one_run(client: ServerClient, done: str) -> None:
    first = client.tool("start_run", plan=ONE, call_key="k1")
    again = client.tool("start_run", plan=ONE, call_key="k1")
    assert (again["run"], again["notes"]) == (first["run"], ["it was started before with this call_key"])
    assert first["run"] != done
    client.follow(first["run"])


BAD_PLAN = """
[[tasks]]
id = "a"
needs = ["zed"]
[[tasks.steps]]
id = "x"
tool = "smal.echo"
[[tasks]]
id = "b"
agent = "carl"
"""


def test_a_plan_is_checked_and_every_problem_has_its_place(client: ServerClient) -> None:
    good = client.tool("check_plan")
    assert good["valid"]
    assert good["stages"] == [["one"], ["two"]]
    assert good["tasks"][1] == {
        "task": "two",
        "text": "",
        "agents": ["bob"],
        "needs": ["one"],
        "steps": ["say: small.echo"],
    }
    bad = client.tool("check_plan", plan=BAD_PLAN)
    assert not bad["valid"]
    assert {(one["location"], one["problem"].split(" (")[0]) for one in bad["problems"]} == {
        ("task a", "needs zed, which does not exist"),
        ("task a: step x", "server smal, which does not exist"),
        ("task b", "is for agent carl, which does not exist"),
    }
    toml = client.tool("check_plan", plan="[[tasks]]\nid = 'a'\ncolour = 'red'\n[[tasks.steps]]\nid = 7")
    assert {one["location"] for one in toml["problems"]} == {
        "[tasks.a] colour",
        "[tasks.a.steps.#1] id",
        "[tasks.a.steps.#1] tool",
    }
    assert client.tool("check_plan", plan="[[tasks]\n")["problems"][0]["problem"].startswith("Expected ']]'")
    unknown = client.tool("check_plan", plan=task("a", step("x", "small.ecko")))
    assert unknown["problems"][0] == {
        "location": "task a: step x",
        "problem": "tool small.ecko, which does not exist (did you mean small.echo?)",
    }
    assert client.tool("check_plan", plan=task("a", step("x", "small.ecko")), offline=True)["valid"]
    error = client.refused("start_run", plan=task("a", step("x", "small.ecko")))
    assert error["code"] == "plan_invalid"
    assert "step x: tool small.ecko" in error["message"]


WIDER = '[[agents]]\nname = "ada"\ngrants = ["*"]\n'


@pytest.mark.parametrize(
    ("arguments", "code", "reported"),
    [
        ({"plan": "../plan.toml"}, "usage_invalid", "is not in the workspace"),
        ({"plan": "/etc/passwd"}, "usage_invalid", "is not in the workspace"),
        ({"plan": "out/passwd"}, "usage_invalid", "is not in the workspace"),
        ({"plan": "a\0b"}, "usage_invalid", "is not in the workspace"),
        ({"plan": "absent.toml"}, "usage_invalid", "is not a plan"),
        ({"plan": "."}, "usage_invalid", "is not a plan"),
        ({"workspace": "/"}, "usage_invalid", "is not in the workspace"),
        ({"workspace": "out"}, "usage_invalid", "is not in the workspace"),
        ({"workspace": "nowhere"}, "usage_invalid", "is not a directory"),
        ({"plan": ONE, "task": "both"}, "usage_invalid", "both a task and a plan"),
        ({"task": "make it so"}, "usage_invalid", "needs an agent that takes words"),
        ({"plan": ONE + WIDER}, "plan_invalid", "[agents] can only be set in the person's configuration"),
        (
            {"plan": ONE + "[swarm]\nmax_agents = 99\n"},
            "plan_invalid",
            "[swarm] max_agents can only be set in the person's",
        ),
        ({"plan": ONE + '[[mcp.servers]]\nname = "x"\ncommand = "touch x"\n'}, "plan_invalid", "[mcp] can only"),
        ({"plan": "[swarm]\nname = 'x'"}, "plan_invalid", "there are no tasks"),
        ({"plan": ONE, "name": "not a name"}, "invalid_arguments", "$.name: must match pattern"),
        ({"paln": ONE}, "invalid_arguments", "has no 'paln'"),
        ({"plan": 7, "workspace": []}, "invalid_arguments", "$.plan: must be string; $.workspace: must be string"),
    ],
)
def test_runs_that_may_not_be_started_are_reported(
    client: ServerClient, verbs: RunVerbs, arguments: dict[str, object], code: str, reported: str
) -> None:
    link = verbs.home / "out"
    if not link.exists():
        link.symlink_to("/etc")
    before = [one["run"] for one in client.tool("list_runs")["runs"]]
    error = client.refused("start_run", **arguments)
    assert error["code"] == code
    assert reported in error["message"]
    assert error["suggestion"]
    assert [one["run"] for one in client.tool("list_runs")["runs"]] == before


@pytest.mark.usefixtures("done")
@pytest.mark.parametrize(
    ("name", "arguments", "code"),
    [
        ("run_status", {"run": "run_nowhere"}, "run_not_found"),
        ("run_status", {"run": ""}, "invalid_arguments"),
        ("run_status", {}, "invalid_arguments"),
        ("run_status", {"run": "%' OR 1=1 --"}, "run_not_found"),
        ("run_events", {"run": "last", "cursor": "x" * 300}, "invalid_arguments"),
        ("run_events", {"run": "last", "wait_seconds": 46}, "invalid_arguments"),
        ("run_events", {"run": "last", "limit": 0}, "invalid_arguments"),
        ("read_result", {"run": "last", "task": "nobody"}, "invalid_arguments"),
        ("read_result", {"run": "last", "offset": -1}, "invalid_arguments"),
        ("cancel_run", {"run": "last"}, "usage_invalid"),
        ("pause_run", {"run": "last"}, "usage_invalid"),
        ("resume_run", {"run": "last"}, "usage_invalid"),
        ("list_approvals", {"run": "run_nowhere"}, "run_not_found"),
    ],
)
def test_wrong_calls_are_reported_with_the_next_step(
    client: ServerClient, name: str, arguments: dict[str, object], code: str
) -> None:
    error = client.refused(name, **arguments)
    assert error["code"] == code
    assert error["suggestion"]
    assert "ccswarm runs" not in error["suggestion"]


def test_there_is_no_way_to_answer_an_approval(client: ServerClient) -> None:
    names = [tool["name"] for tool in client.ask("tools/list")["tools"]]
    assert [name for name in names if name not in ORCHESTRE] == [
        "cancel_run",
        "check_plan",
        "list_agents",
        "list_approvals",
        "list_runs",
        "pause_run",
        "read_result",
        "resume_run",
        "run_events",
        "run_status",
        "start_run",
    ]
    for name in ("approve", "answer", "swarm.answer", "reject_approval"):
        answer = client.answer(client.begin("tools/call", {"name": name, "arguments": {}}))
        assert answer["error"]["code"] == -32602


def test_agents_are_listed_without_their_prompts_and_secrets(home: Path) -> None:
    secret = '[[agents]]\nname = "eve"\nprompt = "hush"\nsettings = { key = "hush" }\nbrain = "llm"\n'
    verbs = RunVerbs(home, BASE + secret + '[[mcp.servers]]\nname = "x"\ncommand = "y"\nenv = { KEY = "hush" }\n')
    (home / "project").mkdir()
    with serving(verbs.home, "--workspace", "project") as client:
        result = client.call("list_agents")
        assert "hush" not in json.dumps(result)
        facts = result["structuredContent"]
        assert [one["name"] for one in facts["agents"]] == ["ada", "bob", "eve"]
        assert facts["agents"][0]["grants"] == ["small.*", "pipe.*"]
        assert facts["servers"] == ["small", "pipe", "x"]
        assert facts["workspace"] == str(home / "project")


def test_it_is_said_who_takes_a_task_in_words(home: Path) -> None:
    verbs = RunVerbs(home, SMALL)
    (home / "project").mkdir()
    with serving(verbs.home, "--workspace", "project") as client:
        assert client.tool("list_agents")["next"] == "start_run with a plan: no agent here takes words"
        verbs.rewrite(SMALL + '[[agents]]\nname = "wanda"\nsettings = { words = "playbooks" }\n')
        assert client.tool("list_agents")["next"] == "start_run with a task in words, or a plan"


def test_a_home_is_no_workspace_unless_somebody_says_so(home: Path) -> None:
    verbs = RunVerbs(home, BASE + TWO)
    with serving(verbs.home) as client:
        assert client.tool("list_agents")["workspace"] == str(home / "ccswarm-workspace")
        verbs.rewrite(f'[swarm]\nworkspace = "{home}"\n' + BASE + TWO)
        assert client.tool("list_agents")["workspace"] == str(home)


def test_a_wrong_configuration_is_told_by_the_tools_and_read_again_when_mended(home: Path) -> None:
    verbs = RunVerbs(home, "[swarm]\nname = 7\n")
    with serving(verbs.home, "--workspace", str(home)) as client:
        error = client.refused("start_run")
        assert (error["code"], "[swarm] name" in error["message"]) == ("config_invalid", True)
        verbs.rewrite(SMALL + TWO)
        assert client.tool("check_plan")["stages"] == [["one"], ["two"]]


def test_tools_are_described_for_every_client(client: ServerClient) -> None:
    assert len(client.ask("initialize", INITIALIZE)["instructions"]) <= 2048
    for tool in client.ask("tools/list")["tools"]:
        assert len(tool["description"]) <= 2048
        assert set(tool["annotations"]) == {
            "title",
            "readOnlyHint",
            "destructiveHint",
            "idempotentHint",
            "openWorldHint",
        }
        Draft202012Validator.check_schema(tool["inputSchema"])
        assert not {"anyOf", "oneOf", "allOf"} & {*tool["inputSchema"], *tool.get("outputSchema", {})}
        if tool["name"] not in ORCHESTRE:
            Draft202012Validator.check_schema(tool["outputSchema"])
            assert tool["inputSchema"]["additionalProperties"] is False


def test_text_and_facts_say_the_same_and_fit_the_schema(client: ServerClient, done: str) -> None:
    schemas = {tool["name"]: tool.get("outputSchema") for tool in client.ask("tools/list")["tools"]}
    for name, arguments in (
        ("list_agents", {}),
        ("list_runs", {}),
        ("list_approvals", {}),
        ("check_plan", {}),
        ("run_status", {"run": done}),
        ("run_events", {"run": done}),
        ("read_result", {"run": done}),
    ):
        result = client.call(name, **arguments)
        Draft202012Validator(schemas[name]).validate(result["structuredContent"])
        assert result["structuredContent"]["next"] in result["content"][0]["text"]
        assert done in result["content"][0]["text"] or not arguments


@pytest.mark.usefixtures("done")
def test_resources_are_listed_page_by_page(client: ServerClient) -> None:
    found, cursor = [], None
    while True:
        page = client.ask("resources/list", {"cursor": cursor} if cursor else {})
        found += [one["uri"] for one in page["resources"]]
        cursor = page.get("nextCursor")
        if not cursor:
            break
    runs = [one["run"] for one in client.tool("list_runs", limit=100)["runs"]]
    assert found == ["run://list", *(f"run://{run}/{part}" for run in runs for part in PARTS)]
    templates = client.ask("resources/templates/list")["resourceTemplates"]
    assert [one["uriTemplate"] for one in templates] == [
        f"run://{{run}}/{part}" for part in ("result", "events", "journal")
    ]
    for uri in (
        "run://nowhere/result",
        "run://../../etc/passwd",
        "file:///etc/passwd",
        "run://last/plan",
        "run://list/x",
    ):
        error = client.answer(client.begin("resources/read", {"uri": uri}))["error"]
        assert (error["code"], error["data"]["uri"]) == (-32602, uri)
    for method in ("resources/list", "resources/templates/list"):
        assert client.answer(client.begin(method, {"cursor": "x"}))["error"]["code"] == -32602, method
    listed = json.loads(client.ask("resources/read", {"uri": "run://list"})["contents"][0]["text"])
    assert [one["run"] for one in listed] == runs


def test_both_eras_on_one_pipe_in_any_order(client: ServerClient) -> None:
    found = client.ask("server/discover", {"_meta": MODERN})
    assert "2026-07-28" in found["supportedVersions"]
    assert found["instructions"]
    called = client.ask("tools/call", {"name": "list_runs", "arguments": {}, "_meta": MODERN})
    assert called["resultType"] == "complete"
    for version in ("2024-11-05", "2025-03-26", "2025-11-25", "2030-01-01"):
        again = client.ask("initialize", {**INITIALIZE, "protocolVersion": version})
        assert again["protocolVersion"] == (version if version < "2026" else "2025-11-25")
    assert "runs" in client.tool("list_runs")


def test_first_answers_are_those_of_the_sdk() -> None:
    env, script = {**os.environ, "PYTHONPATH": str(ROOT)}, str(ROOT / "scripts/first_answers_swarm.py")
    code, _, errors = forked.run("ccswarm", ["--check"], cwd=ROOT, env=env, script=script)
    assert code == 0, errors
