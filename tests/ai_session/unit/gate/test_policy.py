"""Decisions: the table of modes, what rules may lift and what not, hostile and ordinary lines."""

from __future__ import annotations

import dataclasses
import itertools
import time
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ai_session.errors import ConfigInvalid, Denied, InvalidArguments
from ai_session.gate.policy.policy import MODES, Action, Decision, Policy
from ai_session.models import Effect, Principal, SandboxLevel
from ai_session.system.shell_words import parse
from tests.ai_session.support.policy_lines import ALLOWED, HOSTILE, ORDINARY, RULES

AGENT = Principal("mcp", uid=1000, client="codex 0.169")
PERSON = Principal("person", uid=1000)
STRICTNESS = ("allow", "ask", "deny")

READ = Action(AGENT, "read_output", Effect.READ)
RUN = Action(AGENT, "execute_command", Effect.EXECUTE, command="git push")
WRITE = Action(AGENT, "resize_session", Effect.WRITE)
END = Action(AGENT, "close_session", Effect.DESTRUCTIVE, ends_only=True)
DESTROY = Action(AGENT, "delete_everything", Effect.DESTRUCTIVE)
REACH = Action(AGENT, "open_network", Effect.NETWORK)


def unboxed(action: Action, **changes: Any) -> Action:
    return dataclasses.replace(action, level=SandboxLevel.NONE, profile="trusted", **changes)


def run(command: str, **changes: Any) -> Action:
    return unboxed(RUN, command=command, **changes)


def by_person(action: Action) -> Action:
    return dataclasses.replace(action, principal=PERSON)


TABLE = [
    # action, read-only, ask-all, workspace, trusted
    (READ, "allow allow allow allow"),
    (RUN, "deny ask allow allow"),
    (WRITE, "deny ask allow allow"),
    (END, "allow ask allow allow"),
    (DESTROY, "deny ask allow allow"),
    (REACH, "deny ask allow allow"),
    (unboxed(READ), "allow allow allow allow"),
    (unboxed(RUN), "deny ask ask allow"),
    (unboxed(WRITE), "deny ask ask allow"),
    (unboxed(END), "allow ask allow allow"),
    (unboxed(DESTROY), "deny ask ask allow"),
    (dataclasses.replace(RUN, raw_input=True, command=None), "deny ask allow allow"),
    (unboxed(RUN, raw_input=True, command=None), "deny ask ask allow"),
    (dataclasses.replace(RUN, profile="trusted"), "deny ask ask allow"),
    (dataclasses.replace(RUN, outside_workspace=True), "deny ask ask allow"),
    (dataclasses.replace(READ, outside_workspace=True), "ask ask ask allow"),
    (dataclasses.replace(REACH, domain="pypi.org"), "deny ask ask allow"),
    (dataclasses.replace(RUN, loosens=True), "deny ask ask allow"),
    (by_person(READ), "allow allow allow allow"),
    (by_person(RUN), "deny allow allow allow"),
    (by_person(unboxed(RUN)), "deny allow allow allow"),
    (by_person(END), "allow allow allow allow"),
    (
        by_person(dataclasses.replace(RUN, outside_workspace=True, loosens=True, domain="x.org")),
        "deny allow allow allow",
    ),
]


@pytest.mark.parametrize(("action", "verdicts"), TABLE)
def test_the_table(action: Action, verdicts: str) -> None:
    for mode, verdict in zip(MODES, verdicts.split(), strict=True):
        decision = Policy(1000, mode).decide(action)
        assert decision.verdict == verdict, mode
        assert decision.rule.startswith("default:")
        assert (verdict == "allow") == (not decision.reason)
        assert verdict == "allow" or (decision.reason[0].isupper() and decision.reason[-1] == ".")


@pytest.mark.parametrize("level", SandboxLevel)
def test_every_level_but_none_is_a_box(level: SandboxLevel) -> None:
    verdict = Policy(1000).decide(dataclasses.replace(RUN, level=level)).verdict
    assert verdict == ("ask" if level is SandboxLevel.NONE else "allow")


def test_what_asks_is_named_so_that_an_answer_covers_no_more_than_it() -> None:
    policy = Policy(1000)
    rules = [
        policy.decide(action).rule
        for action in (
            unboxed(RUN),
            dataclasses.replace(RUN, outside_workspace=True),
            dataclasses.replace(REACH, domain="pypi.org"),
            dataclasses.replace(RUN, loosens=True),
        )
    ]
    assert rules == ["default:no-box", "default:outside-workspace", "default:new-domain", "default:loosens"]


ACTIONS = st.builds(
    Action,
    principal=st.builds(
        Principal, st.sampled_from(["mcp", "person"]), st.sampled_from([0, 1000]), client=st.text(max_size=5)
    ),
    tool=st.sampled_from(["execute_command", "send_input", "close_session", "interrupt_command", "read_output", "x"]),
    effect=st.sampled_from([*Effect, None]),
    agent=st.sampled_from(["", "reviewer"]),
    profile=st.sampled_from(["read-only", "workspace", "trusted"]),
    level=st.sampled_from(SandboxLevel),
    command=st.sampled_from([None, "git push", "git status", "ls > x", "$(", "cat /etc/passwd", *HOSTILE[:20]]),
    raw_input=st.booleans(),
    paths=st.sampled_from([(), ("/w/a",), ("/etc/passwd",), ("/w/../etc",)]),
    outside_workspace=st.booleans(),
    domain=st.sampled_from(["", "pypi.org", "evil.org"]),
    loosens=st.booleans(),
    ends_only=st.booleans(),
)
SOME_RULES: list[dict[str, Any]] = [
    {"id": "no-push", "decision": "deny", "commands": ["git push"]},
    {"id": "ask-reviewer", "decision": "ask", "agents": ["rev*"], "effects": ["execute"]},
    {"id": "everyday", "decision": "allow", "commands": ["git status", "ls"]},
    {"id": "w", "decision": "allow", "paths": ["/w/**"]},
    {"id": "pypi", "decision": "allow", "domains": ["pypi.org"]},
    {"id": "keys", "decision": "deny", "paths": ["/etc/**"]},
    {"id": "any", "decision": "allow", "tools": ["*"]},
]
RULE_SETS = st.lists(st.sampled_from(SOME_RULES), max_size=7, unique_by=lambda rule: str(rule["id"]))


@given(ACTIONS, RULE_SETS, st.sampled_from(MODES))
@settings(deadline=None, max_examples=50)
def test_laws_of_every_decision(action: Action, rules: list[dict[str, Any]], mode: str) -> None:
    policy = Policy(1000, mode, rules)
    decision = policy.decide(action)
    assert decision == policy.decide(action)
    if action.effect is None or action.principal.uid != 1000:
        assert decision.verdict == "deny"
        return
    person = action.principal.kind == "person"
    assert not (person and decision.verdict == "ask")
    rank = STRICTNESS.index(decision.verdict)
    limits = [rule for rule in rules if rule["decision"] != "allow"]
    assert STRICTNESS.index(Policy(1000, mode, limits).decide(action).verdict) >= rank, "allow rules only lift"
    leaves = [rule for rule in rules if rule["decision"] == "allow"]
    assert STRICTNESS.index(Policy(1000, mode, leaves).decide(action).verdict) <= rank, "others only tighten"
    bare = Policy(1000, mode).decide(action).verdict
    if bare == "deny":
        assert decision.verdict == "deny", "no rule lifts what the mode denies"
    if bare == "ask" and (action.loosens or (action.raw_input and not action.boxed)):
        assert decision.verdict != "allow"
    if bare == "ask" and decision.verdict == "allow" and action.domain:
        assert action.domain == "pypi.org"
    if bare == "ask" and decision.verdict == "allow" and action.outside_workspace:
        assert action.paths == ("/w/a",)
    if bare == "ask" and decision.verdict == "allow" and action.command is not None and not action.boxed:
        assert action.command == "git status" or action.effect is Effect.READ


@given(ACTIONS, RULE_SETS)
@settings(deadline=None, max_examples=50)
def test_tightening_never_frees_but_what_only_ends_things(action: Action, rules: list[dict[str, Any]]) -> None:
    ranks = [STRICTNESS.index(Policy(1000, mode, rules).decide(action).verdict) for mode in MODES]
    if action.ends_only:
        ranks = ranks[1:]
    assert ranks == sorted(ranks, reverse=True)


@pytest.mark.parametrize("line", HOSTILE, ids=lambda line: repr(line[:30]))
def test_no_hostile_line_is_allowed(line: str) -> None:
    assert Policy(1000, "workspace", RULES).decide(run(line)).verdict == "ask"


@pytest.mark.parametrize("line", ORDINARY)
def test_ordinary_lines_are_allowed(line: str) -> None:
    decision = Policy(1000, "workspace", RULES).decide(run(line))
    assert (decision.verdict, decision.rule) == ("allow", "everyday")


EVERYDAY = Policy(1000, "workspace", RULES)
MUTATIONS = st.tuples(
    st.integers(0, 200), st.sampled_from(["cut", "insert", "swap", "double", "join"]), st.integers(0, 10**6)
)
SPLINTERS = [
    *" ;&|<>(){}$`'\"\\\n\t\r~*?[]!#=%-/.",
    "&&",
    "||",
    "$(",
    "2>&1",
    "-o",
    "--output=",
    "..",
    "/",
    "\u00a0",
    " ls ",
]


def mutate(line: str, mutations: list[tuple[int, str, int]]) -> str:
    for at, kind, seed in mutations:
        at = at % (len(line) + 1)
        if kind == "cut":
            line = line[:at] + line[at + 1 + seed % 3 :]
        elif kind == "insert":
            line = line[:at] + SPLINTERS[seed % len(SPLINTERS)] + line[at:]
        elif kind == "swap":
            line = line[:at] + line[at : at + 2][::-1] + line[at + 2 :]
        elif kind == "double":
            line = line[:at] + line[at : at + seed % 8] * 2 + line[at + seed % 8 :]
        else:
            line = line[:at] + HOSTILE[seed % len(HOSTILE)][:300]
    return line


TURNING = (
    *("--output", "--exec", "--pre", "--compress-program", "--ext-diff", "--config", "--textconv", "--files0-from"),
    *("--open-files-in-pager", "--in-place", "--no-index", "--delete", "--to-command", "--hostname-bin", "--set"),
)
FINDS = ("-exec", "-execdir", "-delete", "-ok", "-okdir", "-fprint", "-fprint0", "-fprintf", "-fls")


def looks_safe(line: str) -> bool:
    """A second, cruder judge: which plain words RULES could mean. It knows the shell only through ``parse``."""
    parsed = parse(line)
    if parsed.obscure:
        return False
    for words in parsed.commands:
        literal = [word or "" for word in words]
        begins = any(
            len(prefix.split()) <= len(literal)
            and all(want in (word, "*") for want, word in zip(prefix.split(), literal, strict=False))
            for prefix in ALLOWED
        )
        names = [word.partition("=")[0] for word in literal[1:]]
        if not begins or any(full.startswith(name) and len(name) > 2 for full in TURNING for name in names):
            return False
        if literal[0] == "find" and any(name in FINDS for name in names):
            return False
        if any(word.startswith("/") or ".." in word.split("/") or "://" in word for word in literal):
            return False
    return True


@given(st.sampled_from(HOSTILE + ORDINARY).map(lambda line: line[:400]), st.lists(MUTATIONS, max_size=4))
@example("ls", [])
@settings(deadline=None, max_examples=60)
def test_no_mutated_line_is_allowed_unless_its_words_are_listed(
    line: str, mutations: list[tuple[int, str, int]]
) -> None:
    mutated = mutate(line, mutations)
    if EVERYDAY.decide(run(mutated)).verdict == "allow":
        assert looks_safe(mutated)


def test_leave_for_one_thing_is_not_leave_for_another() -> None:
    everything: dict[str, Any] = {"id": "all", "decision": "allow", "tools": ["*"]}
    policy = Policy(1000, "workspace", [everything])
    assert policy.decide(unboxed(WRITE)).rule == "all"
    for asked in (
        unboxed(RUN),
        unboxed(RUN, raw_input=True, command=None),
        dataclasses.replace(RUN, outside_workspace=True, paths=("/x",)),
        dataclasses.replace(REACH, domain="pypi.org"),
        dataclasses.replace(RUN, loosens=True),
    ):
        assert policy.decide(asked).verdict == "ask"
    assert Policy(1000, "ask-all", [everything]).decide(RUN).rule == "all"


def test_paths_and_domains_lift_what_they_name() -> None:
    rules: list[dict[str, Any]] = [
        {"id": "tools", "decision": "allow", "paths": ["/opt/tools/**", "/srv/*/data"]},
        {"id": "pypi", "decision": "allow", "domains": ["pypi.org", "*.pythonhosted.org"]},
    ]
    policy = Policy(1000, "workspace", rules)

    def at(*paths: str) -> str:
        return policy.decide(dataclasses.replace(RUN, outside_workspace=True, paths=paths)).verdict

    assert [at("/opt/tools"), at("/opt/tools/a/b"), at("/srv/x/data"), at("/opt/tools//a/./b")] == ["allow"] * 4
    assert [at(), at("/opt"), at("/opt/toolsx"), at("/srv/x/y/data"), at("/opt/tools/../x")] == ["ask"] * 5
    assert at("/opt/tools", "/etc") == "ask"

    def to(domain: str) -> str:
        return policy.decide(dataclasses.replace(REACH, domain=domain)).verdict

    assert [to("pypi.org"), to("PyPI.org."), to("files.pythonhosted.org")] == ["allow"] * 3
    assert [to("pythonhosted.org"), to("evilpypi.org"), to("pypi.org.evil.com"), to("xpythonhosted.org")] == ["ask"] * 4


def test_several_rules_may_share_a_line_and_are_all_named() -> None:
    rules: list[dict[str, Any]] = [
        {"id": "git", "decision": "allow", "commands": ["git status"]},
        {"id": "ls", "decision": "allow", "commands": ["ls"], "paths": ["/usr/share/**"]},
    ]
    policy = Policy(1000, "workspace", rules)
    assert policy.decide(run("git status && ls /usr/share/doc")).rule == "git+ls"
    assert policy.decide(run("git status && ls /usr")).verdict == "ask"
    assert policy.decide(run("git status && rm x")).verdict == "ask"
    asked = policy.decide(run("git status > x"))
    assert asked.rule == "default:no-box"
    assert "a redirection" in asked.reason


def test_the_strictest_rule_wins_whatever_the_order() -> None:
    rules: list[dict[str, Any]] = [
        {"id": "a", "decision": "allow", "commands": ["git"]},
        {"id": "b", "decision": "ask", "commands": ["git push"]},
        {"id": "c", "decision": "deny", "commands": ["git push --force"], "reason": "History is shared."},
    ]
    for order in itertools.permutations(rules):
        policy = Policy(1000, "workspace", order)
        assert policy.decide(run("git status")).rule == "a"
        assert policy.decide(run("git push")).rule == "b"
        assert policy.decide(run("git push --force")) == Decision("deny", "c", "History is shared.")


def test_a_person_is_never_asked_but_can_be_denied() -> None:
    rules: list[dict[str, Any]] = [
        {"id": "ask", "decision": "ask", "commands": ["git push"]},
        {"id": "deny", "decision": "deny", "commands": ["shutdown"]},
        {"id": "agents-only", "decision": "deny", "commands": ["reboot"], "principals": ["mcp"]},
    ]
    policy = Policy(1000, "ask-all", rules)
    verdicts = [policy.decide(by_person(run(line))).verdict for line in ("git push", "$(x)", "shutdown now", "reboot")]
    assert verdicts == ["allow", "allow", "deny", "allow"]


def test_what_cannot_be_read_may_be_what_a_rule_is_about() -> None:
    policy = Policy(1000, "workspace", [{"id": "no-push", "decision": "deny", "commands": ["git push"]}])
    boxed = [policy.decide(dataclasses.replace(RUN, command=line)) for line in ("ls )", "$X", "git $X", "x" * 10_000)]
    assert {(decision.verdict, decision.rule) for decision in boxed} == {("ask", "no-push")}
    assert "not valid" in boxed[0].reason
    assert policy.decide(dataclasses.replace(RUN, command=None, raw_input=True)).verdict == "ask"
    assert policy.decide(dataclasses.replace(RUN, command="for f in *; do wc $f; done")).verdict == "allow"


def test_anyone_tightens_and_only_a_person_loosens() -> None:
    policy = Policy(1000, "workspace", RULES)
    for mode in ("read-only", "ask-all", "workspace"):
        assert policy.with_mode(mode, by_person=False).mode == mode
    with pytest.raises(Denied) as caught:
        policy.with_mode("read-only", by_person=False).with_mode("ask-all", by_person=False)
    assert "policy mode ask-all" in caught.value.suggestion
    loose = policy.with_mode("trusted", by_person=True)
    assert loose.mode == "trusted"
    assert loose.decide(run("rm x")).verdict == "allow"
    assert policy.decide(run("rm x")).verdict == "ask"
    with pytest.raises(InvalidArguments):
        policy.with_mode("yolo", by_person=True)
    with pytest.raises(ConfigInvalid) as invalid:
        Policy(1000, "workspaces")
    assert invalid.value.suggestion == "did you mean workspace?"


def test_the_digest_is_that_of_the_mode_and_the_rules() -> None:
    split = [{**RULES[0], "commands": [line.split() for line in ALLOWED]}]
    policy = Policy(1000, "workspace", RULES)
    assert len(policy.digest) == 64
    assert (
        policy.digest == Policy(1, "workspace", split).digest == policy.with_mode("workspace", by_person=False).digest
    )
    others = [
        Policy(1000),
        policy.with_mode("read-only", by_person=False),
        Policy(1000, "workspace", [{**RULES[0], "id": "x"}]),
    ]
    assert len({policy.digest, *(other.digest for other in others)}) == 4


def test_a_decision_is_fast() -> None:
    policy, ruled = Policy(1000), Policy(1000, "workspace", RULES)
    cases = [
        (policy, RUN, 20e-6),
        (policy, unboxed(RUN), 20e-6),
        (ruled, RUN, 100e-6),
        (ruled, run("git status"), 300e-6),
    ]
    for judge, action, bound in cases:
        best = min(timed(judge, action) for _ in range(5))
        assert best < bound


def timed(policy: Policy, action: Action) -> float:
    begun = time.process_time()
    for _ in range(200):
        policy.decide(action)
    return (time.process_time() - begun) / 200
