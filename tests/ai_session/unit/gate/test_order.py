"""The gate's order: what is asked before what, what a refusal keeps from happening, and that all of it is recorded."""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ai_session.audit.files import lines, records
from ai_session.audit.log import WAITING_BYTES, AuditLog
from ai_session.errors import ConsentNeeded, Denied, SessionNotFound, StorageFull, UnknownTool
from ai_session.gate.consent.consent import Deferred
from ai_session.gate.consent.store import covers
from ai_session.gate.gate import ORDER, Gate
from ai_session.gate.hook import Hooks
from ai_session.gate.policy.policy import HookProgram
from ai_session.models import Answer, Principal, ToolCall
from tests.ai_session.support.gates import ASK, CLIENT, DENY, PERSON, SECRET, GateSetup, MemoryConsent, Record
from tests.support.bounds import BOUND_SECONDS
from tests.support.full_disk import no_file_longer_than

pytestmark = pytest.mark.anyio
LOOKED_UP = ["begin", "room", "rate", "validate", "subject", "policy"]
ASKED = [*LOOKED_UP, "mask", "consent"]
ROOT = Path(__file__).parents[4]
END = ["mask", "end"]


async def test_the_order(home: Path) -> None:
    setup, before = GateSetup(home, ASK, mode="workspace"), time.monotonic()
    await setup.call(call_key="k")
    assert setup.journal == [*ASKED, "subject", "key", "run", *END]
    assert setup.record.outcome == "ok"
    assert before <= setup.began <= setup.consent.asked_at  # so that asking is part of the time that a call may take


async def test_the_order_where_nobody_is_asked_and_no_key_is_given(home: Path) -> None:
    setup = GateSetup(home)
    result = await setup.call()
    assert setup.journal == [*LOOKED_UP, "subject", "run", *END]
    assert setup.record == Record(
        "call_1",
        CLIENT,
        "execute",
        {"text": "x"},
        "ok",
        "default:trusted",
        facts={"profile": "trusted", "level": "none", "exit_code": 0, "decision": setup.record.facts["decision"]},
    )
    assert setup.record.facts["decision"]["verdict"] == "allow"
    assert result.call_id == "call_1"
    assert result.meta["ai-session/audit"] == {"seq": 1, "head": "head"}


def test_the_page_of_the_decision_names_the_steps_in_their_order() -> None:
    page = (ROOT / "docs/explanation/decisions/05-one-gate.md").read_text()
    assert re.findall(r"^\d+\. `(\w+)`", page, re.MULTILINE) == [step.__name__ for step in ORDER]


def full(setup: GateSetup) -> None:
    setup.audit.problem = StorageFull("the disk is full", suggestion="free some")


def limited(setup: GateSetup) -> None:
    for _ in range(200):
        try:
            setup.gate.parts.rates.acquire("mcp:0:7", "effect")
        except Exception:
            break
    setup.journal.clear()


def nowhere(setup: GateSetup) -> None:
    setup.problem = SessionNotFound("no session", suggestion="open one")


def refused(setup: GateSetup) -> None:
    setup.consent.word = Denied("a person said no", suggestion="do something else")


def unanswered(setup: GateSetup) -> None:
    setup.consent.word = ConsentNeeded("nobody answered", suggestion="ai-session approve ap_1")


def nothing(setup: GateSetup) -> None:
    pass


REFUSALS: dict[str, tuple[Callable[[GateSetup], None], dict[str, Any], list[str], str, str]] = {
    "full": (full, {}, ["begin", "room"], "tool_error", "storage_full"),
    "limited": (limited, {}, ["begin", "room", "rate"], "limited", "rate_limited"),
    "invalid": (nothing, {"text": "invalid"}, LOOKED_UP[:4], "invalid", "invalid_arguments"),
    "nowhere": (nowhere, {}, LOOKED_UP[:5], "tool_error", "session_not_found"),
    "refused": (refused, {}, ASKED, "denied", "denied"),
    "unanswered": (unanswered, {}, ASKED, "denied", "consent_needed"),
}


@pytest.mark.parametrize("case", REFUSALS)
async def test_nothing_goes_on_after_a_step_that_refuses_and_each_refusal_is_recorded(home: Path, case: str) -> None:
    prepare, given, steps, outcome, code = REFUSALS[case]
    setup = GateSetup(home, ASK, mode="workspace")
    prepare(setup)
    result = await setup.call(**given, call_key="k")
    assert setup.journal == [*steps, *END]
    assert (setup.record.outcome, setup.record.code, setup.ran) == (outcome, code, [])
    assert result.is_error
    assert result.structured["error"]["code"] == code
    assert result.meta["ai-session/audit"]["seq"] == len(setup.audit.records) == 1


async def test_a_denial_is_recorded_with_its_rule_and_runs_nothing(home: Path) -> None:
    setup = GateSetup(home, ASK, DENY)
    result = await setup.call(call_key="k")
    assert setup.journal == [*LOOKED_UP, *END]
    assert (setup.record.outcome, setup.record.code, setup.record.rule) == ("denied", "denied", "never")
    assert setup.record.facts["decision"]["verdict"] == "deny"
    assert (setup.ran, setup.consent.questions) == ([], [])
    assert "never" in result.text


async def test_a_policy_that_became_stricter_while_a_person_was_asked_holds(home: Path) -> None:
    setup = GateSetup(home, ASK, mode="workspace")
    parts = setup.gate.parts

    class Tightening(MemoryConsent):
        mode = ""

        async def obtain(self, *given: Any) -> Answer | Deferred:
            answer = await super().obtain(*given)
            parts.policy.set_mode(self.mode, by_person=True)
            return answer

    consent: Any = Tightening(setup.journal)
    setup.gate = Gate(replace(parts, consent=consent))
    for mode, outcome in (("ask-all", "ok"), ("read-only", "denied")):
        consent.mode = mode
        result = await setup.call()
        assert (setup.record.outcome, result.is_error) == (outcome, outcome == "denied")
    assert setup.ran == ["x"]
    assert "the policy was changed while the question about execute was open" in result.text


async def test_a_mode_that_became_stricter_while_a_hook_ran_holds(home: Path) -> None:
    setup = GateSetup(home)
    answer = home / "answer"
    os.mkfifo(answer)
    hook = HookProgram(("/bin/cat", str(answer)), BOUND_SECONDS, "the configuration")
    setup.gate = Gate(replace(setup.gate.parts, hooks=Hooks((hook,), setup.gate.parts.written)))
    call = asyncio.ensure_future(setup.call())
    said = await asyncio.to_thread(answer.open, "w")  # which the hook is there to read
    setup.gate.parts.policy.set_mode("read-only", by_person=False)
    with said:
        said.write('{"decision": "allow"}')
    assert (await call).is_error
    assert (setup.record.rule, setup.ran) == ("default:read-only", [])


async def test_an_unknown_tool_is_recorded_and_looked_up_before_anything_is_counted(home: Path) -> None:
    setup = GateSetup(home)
    full(setup)
    with pytest.raises(UnknownTool) as caught:
        await setup.call("exekute")
    assert caught.value.suggestion == "did you mean 'execute'?"
    assert setup.journal == ["begin", *END]
    assert (setup.record.tool, setup.record.outcome, setup.record.code) == ("exekute", "invalid", "unknown_tool")


async def test_what_the_system_refuses_is_recorded(home: Path) -> None:
    setup = GateSetup(home)

    async def act() -> None:
        raise OSError(28, "No space left on device")

    setup.act = act
    result = await setup.call()
    assert setup.journal == [*LOOKED_UP, "subject", "run", *END]
    assert (setup.record.outcome, setup.record.code) == ("tool_error", "storage_full")
    assert result.structured["error"]["code"] == "storage_full"


async def test_a_crash_is_recorded_and_raised(home: Path) -> None:
    setup = GateSetup(home)

    async def act() -> None:
        raise ZeroDivisionError

    setup.act = act
    with pytest.raises(ZeroDivisionError):
        await setup.call()
    assert setup.journal == [*LOOKED_UP, "subject", "run", "end"]
    assert setup.record.outcome == "crash"


@pytest.mark.parametrize("where", ["begin", "consent", "run"])
async def test_a_call_that_is_given_up_is_recorded_wherever_it_was(home: Path, where: str) -> None:
    audit = AuditLog(home / "audit")
    setup = GateSetup(home, ASK, mode="workspace", audit=audit)
    running, over = asyncio.Event(), asyncio.Event()

    async def act() -> None:
        running.set()
        await over.wait()

    setup.act = act
    if where == "consent":
        setup.consent.word = None
    task = asyncio.create_task(setup.call())
    await asyncio.sleep(0)
    if where != "begin":
        await (running if where == "run" else setup.consent.waiting).wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    audit.close()
    (end,) = (record for record in records(lines(home / "audit")) if record["event"] == "tool.end")
    assert (end["call"], end["outcome"], setup.ran) == ("call_1", "cancelled", [])


async def test_a_deferred_question_is_recorded_and_runs_nothing_until_it_is_answered(home: Path) -> None:
    setup = GateSetup(home, ASK, mode="workspace")
    setup.consent.word = Deferred("state", None)  # type: ignore[arg-type]
    result = await setup.call()
    assert setup.journal == [*ASKED, "end"]
    assert (result.state, result.question) == ("state", setup.consent.questions[0])
    assert (setup.record.outcome, setup.ran) == ("denied", [])
    assert setup.record.facts["consent"] == {"id": result.question.question_id, "deferred": True}
    setup.consent.word = Answer(True, scope="session", by="person uid 0")
    await setup.call()
    assert (setup.record.outcome, setup.ran) == ("ok", ["x"])
    assert setup.record.facts["consent"] == {"by": "person uid 0", "scope": "session"}


async def test_a_lasting_answer_is_for_the_profile_that_the_person_was_shown(home: Path) -> None:
    setup = GateSetup(home, ASK, mode="workspace")
    for profile in ("workspace", "trusted"):
        await setup.gate.call(ToolCall(CLIENT, "execute", {"text": "x"}, f"call_{profile}", profile=profile))
    first, second = setup.consent.questions
    assert "profile: workspace" in first.message
    assert "profile: trusted" in second.message
    assert covers(first, "always") != covers(second, "always")


async def test_the_same_key_runs_once_and_each_call_is_judged_and_recorded(home: Path) -> None:
    setup = GateSetup(home)
    first, second = await setup.call(call_key="k"), await setup.call(call_key="k")
    assert setup.journal == [*LOOKED_UP, "subject", "key", "run", *END, *LOOKED_UP, "subject", "key", *END]
    assert (setup.ran, first.text) == (["x"], second.text)
    assert [record.outcome for record in setup.audit.records] == ["ok", "ok"]
    assert [record.facts.get("repeated", False) for record in setup.audit.records] == [False, True]


async def test_secrets_are_masked_before_the_end_is_recorded_and_counted_in_it(home: Path) -> None:
    setup = GateSetup(home)
    setup.text = f"the key is {SECRET}."
    result = await setup.call()
    assert SECRET not in result.text + str(result.structured)
    assert setup.record.facts["redactions"] == 1


async def test_no_number_of_further_arguments_keeps_what_a_tool_is_given_out_of_the_audit_log(home: Path) -> None:
    setup = GateSetup(home)
    audit = AuditLog(home / "audit")
    setup.gate = Gate(replace(setup.gate.parts, audit=audit))
    given = {**{f"k{number}": 1 for number in range(100)}, "text": "what runs"}
    await setup.gate.call(ToolCall(CLIENT, "execute", given, "call_1"))
    audit.close()
    (start,) = (line for line in lines(home / "audit") if b"tool.start" in line)
    assert setup.ran == ["what runs"]
    assert b'"text":{"chars":9' in start


async def test_a_clients_secrets_are_known_before_its_first_call_is_recorded(home: Path) -> None:
    setup = GateSetup(home)
    client = Principal("mcp", CLIENT.uid, 7, env={"MY_TOKEN": "not-looking-like-one"})
    audit = AuditLog(home / "audit", redact=setup.gate.parts.masking.masked)
    setup.gate = Gate(replace(setup.gate.parts, audit=audit))
    await setup.call(principal=client, command="echo not-looking-like-one")
    async with setup.gate.person.sandboxed(
        Principal("person", CLIENT.uid, 9, env={"OTHER_TOKEN": "neither-does-this"}),
        ("echo", "neither-does-this"),
        profile="workspace",
        workspace="/w",
        domains=(),
    ):
        pass
    audit.close()
    written = b"".join(lines(home / "audit"))
    assert b"not-looking-like-one" not in written
    assert b"neither-does-this" not in written


async def test_without_an_audit_log_nothing_is_changed_while_looking_and_ending_go_on(home: Path) -> None:
    audit = AuditLog(home / "audit")
    setup = GateSetup(home, audit=audit)
    left: list[bool] = []
    with no_file_longer_than(0):
        done = {name: not (await setup.call(name)).is_error for name in ("read", "write", "execute", "network")}
        done["destructive"] = not (await setup.call("destructive")).is_error
        assert done == {"read": True, "write": False, "execute": False, "network": False, "destructive": True}
        assert len(setup.ran) == 2
        with pytest.raises(StorageFull):
            await setup.gate.person.rename(PERSON, "s", "t")
        with pytest.raises(StorageFull):
            async with setup.gate.person.sandboxed(PERSON, ("true",), profile="workspace", workspace="/w", domains=()):
                raise AssertionError
        await setup.gate.person.approvals(PERSON)
        problem = await setup.gate.person.stop(PERSON, lambda: left.append(True), sessions=True)
        assert "the audit log cannot be written" in problem
        while audit.waiting <= WAITING_BYTES:
            audit.event("note", why="n" * 4000)
        assert (await setup.call("read")).is_error
        assert await setup.gate.person.stop(PERSON, lambda: left.append(True), sessions=False)
    assert left == [True, True]
    assert await setup.gate.person.stop(PERSON, lambda: left.append(True), sessions=False) == ""
    audit.close()
    found = list(records(lines(home / "audit")))
    starts = {record["seq"]: record["tool"] for record in found if record["event"] == "tool.start"}
    ends = [record for record in found if record["event"] == "tool.end"]
    assert {end["start"]: end["tool"] for end in ends} == starts
    assert len(ends) == len(starts) == 12
    assert [end["outcome"] for end in ends if end["tool"] == "stop"] == ["ok", "ok", "ok"]
