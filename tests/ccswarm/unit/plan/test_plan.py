"""What is wrong with a plan is found before anything runs, and what would run is told in order."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccswarm.config import parsing
from ccswarm.config.settings import Settings, TaskSettings
from ccswarm.errors import PlanInvalid
from ccswarm.models import ToolInfo
from ccswarm.plan import check
from ccswarm.plan.steps import cycle_problems, needs_of, predecessors

SERVERS = '[mcp]\nservers = [{ name = "sh", command = "sh-server" }]\n[swarm]\nshell = "sh"\n'
AGENT = '[[agents]]\nname = "ada"\ngrants = ["sh.*"]\n'


def tool(name: str, required: Sequence[str] = (), properties: Sequence[str] = (), closed: bool = True) -> ToolInfo:
    schema: dict[str, Any] = {"type": "object", "properties": {key: {} for key in (*required, *properties)}}
    schema |= {"required": list(required)} if required else {}
    schema |= {"additionalProperties": False} if closed else {}
    return ToolInfo("sh", name, input_schema=schema)


TOOLS = {
    info.full_name: info
    for info in (
        tool("run", ("session", "command"), ("timeout",)),
        tool("open", (), ("name",)),
        tool("any", closed=False),
    )
}


def problems(text: str, tools: Any = TOOLS) -> list[str]:
    return check.plan_problems(parsing.parse(SERVERS + text), tools)


def step(name: str, **facts: Any) -> str:
    facts = {"tool": "sh.any"} | facts
    lines = "".join(
        f"{key} = {json.dumps(value, ensure_ascii=False)}\n" for key, value in facts.items() if key != "args"
    )
    args = "".join(f"{key} = {json.dumps(value)}\n" for key, value in facts.get("args", {}).items())
    return f'[[tasks.steps]]\nid = "{name}"\n{lines}' + (f"[tasks.steps.args]\n{args}" if args else "")


def task(name: str, *steps: str, **facts: Any) -> str:
    lines = "".join(f"{key} = {json.dumps(value)}\n" for key, value in facts.items())
    return f'[[tasks]]\nid = "{name}"\n{lines}' + "".join(steps)


def test_a_plan_that_is_right_has_no_problems() -> None:
    text = AGENT + task(
        "t",
        step("open", tool="sh.open", save_as="terminal"),
        step("list", tool="sh.run", args={"session": "${steps.terminal.id}", "command": "ls $${HOME}"}),
        step("each", for_each="${steps.list.files}", when="${item} != x", args={"x": "${item.name} ${run.id}"}),
        step("both", needs=["list", "each"], args={"x": "${steps.each[0].y} ${agent.name} ${workspace}"}),
    )
    text += task("u", step("a", args={"x": "${needs.t.steps.both.z} ${needs.t.steps.terminal.id}"}), needs=["t"])
    assert problems(text) == []
    assert problems(text, None) == []


def test_a_configuration_without_tasks_is_no_bad_plan() -> None:
    assert problems("") == []


ONE = step("a")
TASKS = {
    "there are tasks but no agents: add an [[agents]]": task("t", ONE),
    "task t: needs tt, which does not exist (did you mean t?)": AGENT + task("t", ONE, needs=["tt"]),
    "task t: is for agent adda, which does not exist (did you mean ada?)": AGENT + task("t", ONE, agent="adda"),
    "task t: no agent can do it: none is of type poet": AGENT + task("t", ONE, type="poet"),
    "task t: no agent can do it: none is called ada and capable of fly, sing": AGENT
    + task("t", ONE, agent="ada", capabilities=["fly", "sing"]),
    "task t: has no steps, and the brain of ada is a playbook, which does only steps": AGENT + task("t"),
    "task t: gate 1: needs either a command or a tool": AGENT + task("t", ONE) + "gates = [{}]\n",
    "task t: gate 2: tool sh.anny, which does not exist (did you mean sh.any?)": AGENT
    + task("t", ONE)
    + '[[tasks.gates]]\ncommand = "x"\n[[tasks.gates]]\ntool = "sh.anny"\n',
    "task t: gate 1: swarm.shell is sh, which does not exist": AGENT.replace("sh.*", "other.*")
    + task("t", step("a", tool="other.any"))
    + '[[tasks.gates]]\ncommand = "x"\n',
}


@pytest.mark.parametrize("said", TASKS)
def test_problems_of_tasks(said: str) -> None:
    text = TASKS[said].replace("gates = [{}]", "[[tasks.gates]]")
    other = '[mcp]\nservers = [{ name = "other", command = "x" }]\n[swarm]\nshell = "sh"\n'
    tools = {"other.any": ToolInfo("other", "any")}
    found = check.plan_problems(parsing.parse(other + text), tools) if "other.*" in text else problems(text)
    assert found == [said]


STEPS = {
    "a: is for agent bob, which does not exist": step("a", agent="bob"),
    "a: agent eve has no grant for sh.any": step("a", agent="eve"),
    "a: 'any' is not SERVER.TOOL (did you mean sh.any?)": step("a", tool="any"),
    "a: 'nothing' is not SERVER.TOOL": step("a", tool="nothing"),
    "a: server s, which does not exist (did you mean sh?)": step("a", tool="s.any"),
    "a: tool sh.runn, which does not exist (did you mean sh.run?)": step("a", tool="sh.runn"),
    "a: sh.run needs session, command": step("a", tool="sh.run"),
    "a: sh.run needs command": step("a", tool="sh.run", args={"session": "x"}),
    "a: sh.open takes no bogus (it takes name)": step("a", tool="sh.open", args={"bogus": 3}),
    "a: sh.open takes no nam (did you mean name?)": step("a", tool="sh.open", args={"nam": 3}),
    "b needs c, which does not exist": ONE + step("b", needs=["c"]),
    "a needs itself": step("a", needs=["a"]),
    "a: ${steps.b.y} refers to b, which does not exist": step("a", args={"x": "${steps.b.y}"}),
    "a: ${steps.a.y} refers to the result of its own step": step("a", args={"x": "${steps.a.y}"}),
    "a: ${steps.a.y} refers to the result of its own step ": step("a", when="${steps.a.y} == 1"),
    "a: ${steps.o.y} refers to the result of its own step": step("a", save_as="o", args={"x": "${steps.o.y}"}),
    "a: ${steps.b.y} refers to a step that runs after it: put b above it": step("a", args={"x": ["in ${steps.b.y}"]})
    + step("m")
    + step("b"),
    "a: ${steps.b.y} refers to a step that does not run before it: add b to its needs": step(
        "a", args={"x": "${steps.b.y}"}
    )
    + step("b", needs=[]),
    "a: ${steps.b.y} refers to a step that waits for it: b": step("a", args={"x": "${steps.b.y}"})
    + step("b", needs=["a"]),
    "a: ${steps.b.y} refers to a step that waits for it: b always runs at the end": step(
        "a", args={"x": "${steps.b.y}"}
    )
    + step("b", always=True),
    "b: ${steps.a} refers to a step that does not run before it: add a to its needs": ONE
    + step("b", needs=[], when="${steps.a} == 1"),
    "b: ${steps.a} refers to a step that does not run before it: add a to its needs ": ONE
    + step("b", needs=[], for_each="${steps.a}"),
    "a: ${needs.u.steps.a} refers to a task that its own task does not need: add u to the task's needs": step(
        "a", args={"x": "${needs.u.steps.a}"}
    ),
    "a: ${needs.q.x} refers to task q, which does not exist": step("a", args={"x": "${needs.q.x}"}),
    "a: ${needs.t.x} refers to its own task: write ${steps.ID…}": step("a", args={"x": "${needs.t.x}"}),
    "a: ${needs.w.x} refers to a task that waits for its own: w": step("a", args={"x": "${needs.w.x}"}),
    "a: ${needs.v.steps.b} refers to b, which does not exist": step("a", args={"x": "${needs.v.steps.b}"}),
    "a: ${needs.v.z} is not a result of a playbook: write ${needs.v.steps.ID…}": step("a", args={"x": "${needs.v.z}"}),
    "a: ${item} is outside a for_each": step("a", args={"x": "${item}"}),
    "a: ${item} is outside a for_each ": step("a", for_each="${item}"),
    "a: ${HOME} is not a reference (valid: ${steps.ID…}, ${needs.TASK…}, ${item}, ${run.id}, ${task.id}, "
    "${task.attempt} or ${task.text}, ${agent.name}, ${workspace}; write $${ for a literal ${)": step(
        "a", args={"x": "${HOME}"}
    ),
    "a: '${run.id} === 1' is not a condition": step("a", when="${run.id} === 1"),
    "a: '1 == 1' is not a condition": step("a", when="1 == 1"),
    "a: expect.matches is not a valid regular expression: missing ), unterminated subpattern at position 0": ONE
    + '[tasks.steps.expect]\nmatches = "("\n',
    "a: gate ends the task at once, but always runs the step at its end: use only one of them": step(
        "a", gate=True, always=True
    ),
    "b → c → b wait for each other": step("b", needs=["c"]) + step("c", always=True),
    "a: 'x..y' is not a path": ONE + '[tasks.steps.expect]\nequals = { "x..y" = 1 }\n',
}


@pytest.mark.parametrize("said", STEPS)
def test_problems_of_steps(said: str) -> None:
    eve = '[[agents]]\nname = "eve"\ngrants = ["sh.run"]\n'
    found = problems(
        AGENT
        + eve
        + task("v", step("z"), agent="ada")
        + task("u", ONE, agent="ada")
        + task("t", STEPS[said], agent="ada", needs=["v"])
        + task("w", ONE, agent="ada", needs=["t"])
    )
    assert found == [f"task t: step {said.strip()}"]


def test_a_condition_that_is_malformed_and_about_its_own_step_is_reported_as_both() -> None:
    assert problems(AGENT + task("t", step("a", when="${steps.a.y} === 1"))) == [
        "task t: step a: '${steps.a.y} === 1' is not a condition",
        "task t: step a: ${steps.a.y} refers to the result of its own step",
    ]


def test_arguments_are_checked_as_by_the_run_except_for_values_that_are_not_known_yet() -> None:
    """Those of gates have no references."""
    whole = {"type": "object", "additionalProperties": {"type": "string"}}
    schema = {
        "type": "object",
        "properties": {"rows": {"type": "integer"}, "env": whole, "mode": {"enum": ["a", "${b}"]}, "call_key": {}},
        "patternProperties": {"^x_": {"type": "integer"}},
        "additionalProperties": False,
        "required": ["rows", "call_key"],
    }
    tools = {"sh.new": ToolInfo("sh", "new", input_schema=schema)}

    def found(args: str, gate: str = "{ rows = 1 }") -> list[str]:
        steps = f'[[tasks.steps]]\nid = "s"\ntool = "sh.new"\nargs = {args}\n'
        return problems(AGENT + task("t", steps) + f'[[tasks.gates]]\ntool = "sh.new"\nargs = {gate}\n', tools)

    for right in ('{ rows = "${item.n}", env = { A = "$${x" } }', '{ rows = 1, x_a = "${steps.r.n}", mode = "$${b}" }'):
        assert [one for one in found(right) if "${item" not in one and "${steps" not in one] == []
    where = "task t: step s: sh.new: $"
    for text in ("run.id", "task.id", "task.attempt", "task.text", "agent.name", "workspace", "q:run.id"):
        assert found(f'{{ rows = "${{{text}}}" }}')[-1:] == [f"{where}.rows: must be integer"]
    assert found('{ rows = "many", env = { A = 1, B = "${run.id}", C = [2] } }') == [
        f"{where}.env.A: must be string",
        f"{where}.env.C: must be string",
        f"{where}.rows: must be integer",
    ]
    assert found('{ mode = "c", y-a = 1, x_a = "b" }') == [
        "task t: step s: sh.new needs rows",
        f'{where}.mode: must be one of ["a", "${{b}}"]',
        f"{where}.x_a: must be integer",
        f"{where}: has no 'y-a'",
    ]
    assert found("{ rows = 1 }", '{ rows = "${run.id}" }') == ["task t: gate 1: sh.new: $.rows: must be integer"]


def test_the_items_that_a_plan_lists_are_checked_each() -> None:
    """Unless their condition is false, or not known yet: then it may be false for the wrong one."""
    schema = {"type": "object", "properties": {"n": {"type": "integer"}, "t": {"type": "string"}}, "required": ["n"]}
    tools = {"sh.new": ToolInfo("sh", "new", input_schema=schema)}

    def found(each: str, args: str = '{ n = "${item}" }', when: str = "") -> list[str]:
        first = '[[tasks.steps]]\nid = "r"\ntool = "sh.new"\nargs = { n = 1 }\n'
        each = f'[[tasks.steps]]\nid = "s"\ntool = "sh.new"\nargs = {args}\nfor_each = {each}\nwhen = "{when}"\n'
        where = "task t: step s: "
        return [one.removeprefix(where) for one in problems(AGENT + task("t", first + each), tools)]

    must = "sh.new: $.n: must be integer"
    assert found("[1, 2]") == found("[]") == found('["${run.id}", 1]') == found('"${steps.r.lines}"') == []
    assert found('[1, "two", 3, "4${run.id}"]') == [f"for_each[1]: {must}"]
    assert found('"""\none\n\ntwo\n"""') == [f"for_each[0]: {must}", f"for_each[1]: {must}"]
    assert found('[1, "two"]', when="${item} == 1") == []
    for when in ("${item} != two", "${item} == ${steps.r.n}", "${task.id} == other", "${task.text}"):
        assert found('[1, "two"]', when=when) == found('[1, "${run.id}", "two"]', when=when) == []
    for when in ("${steps.r.ok}", "${item} != 1", "${item} != ${task.id}", "${task.id} == t", "${task.attempt} == 1"):
        assert found('[1, "two"]', when=when) == [f"for_each[1]: {must}"]
    assert found(
        '[{ m = "x", on = true }, { m = "x", on = false }, { m = 1 }]', '{ n = "${item.m}" }', "${item.on}"
    ) == [
        f"for_each[0]: {must}",
        "for_each[2]: ${item.on} has no value: there is no on",
    ]
    assert found('[1, "two"]', "{ n = true }", "${item} == ${steps.r.n}") == [must]
    assert found("[1, 2]", "{ n = true }", "${item} == 3") == found("[]", "{ n = true }") == []
    assert [one.partition(" (")[0] for one in found('["two"]', when="${item} =")] == ["'${item} =' is not a condition"]
    assert found('[1, "$${x"]', '{ n = 1, t = "${item}" }') == ["for_each[0]: sh.new: $.t: must be string"]
    assert found("[1, 2]", '{ n = 1, t = "<${item}>" }') == []
    assert found('[{ m = 1 }, { m = "x" }, 3]', '{ n = "${item.m}" }') == [
        f"for_each[1]: {must}",
        "for_each[2]: ${item.m} has no value: there is no m",
    ]
    malformed = found('[1, "two"]', '{ n = "${item" }')
    assert [one.partition(" (")[0] for one in malformed] == ["${item is not a reference"]


REVIEWS = {
    "review: by dan, which does not exist": 'by = ["dan"]\n',
    "review: a quorum of 2 of 1 cannot be reached": 'by = ["bob"]\nquorum = 2\n',
    "review: ada would judge its own work": 'by = ["ada"]\n',
    "review: has no steps, and the brain of bob is a playbook": 'by = ["bob"]\n',
    "review: step look: agent bob has no grant for sh.any": (
        'by = ["bob"]\n[[tasks.review.steps]]\nid = "look"\ntool = "sh.any"\n'
    ),
    "review: step look: ${steps.s.x} refers to": (
        'by = ["bob"]\n[[tasks.review.steps]]\nid = "look"\ntool = "sh.any"\nargs = { a = "${steps.s.x}" }\n'
    ),
    "review: step look: ${needs.t.x} refers to a task: reviews have no needs": (
        'by = ["bob"]\n[[tasks.review.steps]]\nid = "look"\ntool = "sh.any"\nargs = { a = "${needs.t.x}" }\n'
    ),
    "review: step o is the name of 2 results: change an id or save_as": (
        'by = ["bob"]\n[[tasks.review.steps]]\nid = "o"\nsave_as = "o"\ntool = "sh.any"\n'
    ),
}


@pytest.mark.parametrize("said", REVIEWS)
def test_problems_of_reviews(said: str) -> None:
    other = '[[agents]]\nname = "bob"\ngrants = ["other.*"]\n'
    found = problems(AGENT + other + task("t", step("s"), agent="ada") + "[tasks.review]\n" + REVIEWS[said])
    assert [one for one in found if one.startswith(f"task t: {said}")], found


MORE_SERVERS = '{ name = "files", command = "f", trusted = true }, { name = "others", command = "o" }'


def test_who_reviews_in_a_shared_workspace_has_no_tools_that_are_known_to_write() -> None:
    """Terminals, and what a trusted server does not say only reads; of a playbook only what its steps call."""
    names = ("sh.create_session", "sh.run", "files.read", "files.write", "others.any", "swarm.send_message")
    tools = {
        name: ToolInfo(name.partition(".")[0], name.partition(".")[2], read_only=name == "files.read") for name in names
    }
    thinks = '[[agents]]\nname = "bob"\nbrain = "llm"\ngrants = ["*"]\n'

    def found(location: str, who: str, calls: str = "") -> list[str]:
        steps = f'[[tasks.review.steps]]\nid = "look"\ntool = "{calls}"\n' if calls else ""
        text = AGENT + f'workspace = "{location}"\n' + who + task("t", step("s", tool="sh.run"), agent="ada")
        servers = SERVERS.replace(" }]", f" }}, {MORE_SERVERS}]")
        settings = parsing.parse(servers + text + '[tasks.review]\nby = ["bob"]\n' + steps)
        return check.plan_problems(settings, tools)

    assert found("shared", thinks) == [
        (
            "task t: review: bob could change the work in the shared workspace with files.write, sh.create_session, "
            'sh.run: give ada workspace = "clone", or bob tools that only read'
        )
    ]
    assert found("clone", thinks) == []
    follows = thinks.replace("llm", "playbook")
    assert found("shared", follows, "files.read") == found("shared", follows, "others.any") == []
    assert "with sh.run:" in found("shared", follows, "sh.run")[0]


def test_attempts_side_by_side_need_a_judge_and_a_tree_each() -> None:
    found = problems(AGENT + task("t", "attempts = 3\n" + step("s"), agent="ada"))
    assert found == [
        "task t: has 3 attempts, but no gate or review to decide between them",
        'task t: has 3 attempts, which need clones: set workspace = "clone" for agent ada',
    ]


def test_all_problems_are_reported() -> None:
    text = AGENT + task("a", ONE, needs=["b"]) + task("b", step("x", tool="sh.x"), step("y", tool="no.no"), needs=["a"])
    assert problems(text) == [
        "a → b → a wait for each other",
        "task b: step x: tool sh.x, which does not exist",
        "task b: step y: server no, which does not exist",
    ]


def test_every_agent_that_may_get_the_task_needs_the_grants() -> None:
    agents = "".join(
        f'[[agents]]\nname = "{name}"\ntype = "{kind}"\n' for name, kind in (("bob", "coder"), ("eve", "x"))
    )
    assert problems(agents + task("t", ONE, type="coder")) == ["task t: step a: agent bob has no grant for sh.any"]
    assert problems(agents + AGENT + task("t", step("a", agent="ada"), type="coder")) == []


def test_agents_beyond_the_number_that_may_exist_do_nothing() -> None:
    text = "max_agents = 1\n" + AGENT + '[[agents]]\nname = "bob"\n' + task("t", ONE) + task("u", ONE, agent="bob")
    assert problems(text) == ["task u: is for agent bob, who is beyond swarm.max_agents (1)"]


def test_a_server_without_tools_is_named_and_not_each_tool() -> None:
    text = AGENT + task("t", ONE, step("b", tool="sh.nonsense"))
    assert problems(text, {}) == [
        "task t: step a: server sh offers no tools",
        "task t: step b: server sh offers no tools",
    ]
    assert problems(text, None) == []


def test_every_swarm_has_a_server_of_its_own() -> None:
    agent = AGENT.replace('["sh.*"]', '["swarm.*"]')
    text = agent + task("t", step("a", tool="swarm.send", args={"to": "bob"}))
    assert problems(text) == problems(text, None) == []
    known = TOOLS | {"swarm.send": ToolInfo("swarm", "send", input_schema={"required": ["to", "text"]})}
    assert problems(text, known) == ["task t: step a: swarm.send needs text"]
    assert problems(text.replace("swarm.*", "sh.*")) == ["task t: step a: agent ada has no grant for swarm.send"]


def test_a_task_for_another_brain_needs_no_steps_and_may_return_anything() -> None:
    agent = AGENT + '[[agents]]\nname = "bob"\nbrain = "llm"\n'
    text = task("think", agent="bob") + task(
        "t", step("a", args={"x": "${needs.think.answer}"}), needs=["think"], agent="ada"
    )
    assert problems(agent + text) == []


def test_a_schema_that_takes_more_takes_anything() -> None:
    assert problems(AGENT + task("t", step("a", args={"what": "ever"}))) == []
    bare = {"sh.any": ToolInfo("sh", "any", input_schema={})}
    assert problems(AGENT + task("t", step("a", args={"what": "ever"})), bare) == []


def test_the_steps_that_would_run_are_listed_in_order() -> None:
    text = (
        AGENT
        + '[[agents]]\nname = "bob"\ngrants = ["sh.*"]\n'
        + task("last", ONE, needs=["low", "high"])
        + task("low", ONE, priority="low", text="Look.")
        + task("high", step("a", tool="sh.open", args={"name": "${run.id}"}), step("b"), priority="high", agent="bob")
    )
    reported = check.describe(parsing.parse(SERVERS + text))
    assert json.loads(json.dumps(reported)) == reported
    assert reported["stages"] == [["high", "low"], ["last"]]
    assert [(facts["id"], facts["agents"]) for facts in reported["tasks"]] == [
        ("high", ["bob"]),
        ("low", ["ada", "bob"]),
        ("last", ["ada", "bob"]),
    ]
    assert reported["tasks"][0]["steps"] == [
        {"id": "a", "tool": "sh.open", "args": {"name": "${run.id}"}, "needs": []},
        {"id": "b", "tool": "sh.any", "needs": ["a"]},
    ]
    assert reported["tasks"][1]["text"] == "Look."


@pytest.mark.parametrize(
    ("needs", "said"), [(["t"], "t needs itself"), (["x"], "task t needs x, which does not exist")]
)
def test_an_order_that_there_is_not_is_refused(needs: list[str], said: str) -> None:
    settings = Settings(tasks=(TaskSettings(id="t", needs=tuple(needs)),))
    with pytest.raises(PlanInvalid, match=said):
        check.describe(settings)


@pytest.mark.parametrize("count", [500, pytest.param(3000, marks=pytest.mark.torture)])
def test_a_long_plan_is_checked_and_reported_quickly(count: int) -> None:
    """With a look at every task for every task, a chain of 3,000 takes a minute."""
    tasks = [TaskSettings.model_validate({"id": "t0", "steps": [{"id": "a", "tool": "sh.any"}]})]
    tasks += [tasks[0].model_copy(update={"id": f"t{n}", "needs": (f"t{n - 1}",)}) for n in range(1, count)]
    settings = parsing.parse(SERVERS + AGENT).model_copy(update={"tasks": tuple(tasks)})
    assert check.plan_problems(settings, TOOLS) == []
    assert len(check.describe(settings)["stages"]) == count


def test_steps_need_the_one_above_unless_they_say_otherwise() -> None:
    text = task("t", ONE, step("b", save_as="bee"), step("c", needs=[]), step("d"), step("e", needs=["bee", "a", "b"]))
    assert needs_of(parsing.parse(text).tasks[0].steps) == {"a": (), "b": ("a",), "c": (), "d": ("c",), "e": ("b", "a")}
    text = task("t", step("x", always=True), ONE, step("b"), step("y", always=True), step("z", always=True, needs=[]))
    ends = {"x": ("a", "b"), "y": ("a", "b", "x"), "z": ("a", "b")}
    assert needs_of(parsing.parse(text).tasks[0].steps) == {"a": (), "b": ("a",), **ends}


GRAPHS = (
    st.integers(1, 8)
    .flatmap(lambda count: st.lists(st.lists(st.integers(0, count - 1), max_size=3), min_size=count, max_size=count))
    .map(lambda rows: {str(at): [str(need) for need in needs] for at, needs in enumerate(rows)})
)


@given(GRAPHS)
def test_circles_are_found_where_there_are_some(needs: dict[str, list[str]]) -> None:
    on_circles = {name for name, earlier in predecessors(needs).items() if name in earlier}
    found = cycle_problems(needs)
    assert bool(found) == bool(on_circles)
    assert {word for reported in found for word in reported.split() if word.isdigit()} <= on_circles
