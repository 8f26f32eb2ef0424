"""Consent: the order of what counts, who may answer, and that nothing but a person's yes lets a call through."""

from __future__ import annotations

import asyncio
import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from ai_session.errors import ConsentNeeded, Denied, InvalidArguments, LimitReached, QuestionNotFound, RateLimited
from ai_session.gate.consent.consent import DECISION, Deferred
from ai_session.gate.consent.store import MAX_OPEN_OF_ONE
from ai_session.models import Answer, Principal, Question
from tests.ai_session.support.questions import NO, PERSON, UID, YES, Asking, Broken, Form, Later

pytestmark = pytest.mark.anyio


@pytest.fixture
def asking(tmp_path: Path) -> Asking:
    return Asking(tmp_path / "consent")


async def test_the_persons_word_by_form_decides(asking: Asking) -> None:
    assert await asking.obtain(Form(YES)) == YES
    with pytest.raises(Denied, match="said no to execute_command"):
        await asking.obtain(Form(NO))
    assert asking.consent.pending() == []
    assert not list(asking.directory.glob("questions/*"))


async def test_nobody_to_ask_leaves_a_question_whose_answer_counts_for_one_call(asking: Asking) -> None:
    with pytest.raises(ConsentNeeded) as caught:
        await asking.obtain()
    (question,) = asking.consent.pending()
    assert f"ai-session approve {question.question_id}; then call again" in caught.value.suggestion
    await asking.consent.answer(question.question_id, Answer(True, reason="go"), PERSON)
    assert asking.consent.pending() == []
    answer = await asking.obtain()
    assert isinstance(answer, Answer)
    assert (answer.allowed, answer.reason) == (True, "go")
    assert answer.by == f"person uid {UID} pid 900, /dev/pts/1 is a window of xterm (pid 3)"
    await asking.open()


async def test_a_rejection_waits_for_its_call_and_carries_its_reason(asking: Asking) -> None:
    await asking.consent.answer(await asking.open(), Answer(False, reason="not on friday"), PERSON)
    with pytest.raises(Denied, match="not on friday"):
        await asking.obtain(Form(YES))
    assert await asking.obtain(Form(YES)) == YES


async def test_a_person_may_think_again_before_the_call_comes(asking: Asking) -> None:
    question_id = await asking.open()
    await asking.consent.answer(question_id, NO, PERSON)
    await asking.consent.answer(question_id, YES, PERSON)
    assert isinstance(await asking.obtain(), Answer)


@pytest.mark.parametrize(
    "changes",
    [
        {"arguments_sha256": "b" * 64},
        {"policy_sha256": "q" * 64},
        {"session": "ses_2"},
        {"tool": "send_input"},
        {"rule": "other"},
        {"principal": Principal(kind="mcp", uid=UID, client="other")},
        {"principal": Principal(kind="mcp", uid=UID, client="agent", working_directory="/elsewhere")},
    ],
)
async def test_an_answer_for_one_call_is_for_no_other(asking: Asking, changes: dict[str, Any]) -> None:
    await asking.consent.answer(await asking.open(), YES, PERSON)
    state = await asking.state(arguments_sha256="c" * 64)
    await asking.open(**changes)
    again = await asking.obtain(Later(), state, {DECISION: YES}, **changes)
    assert isinstance(again, Deferred)


@pytest.mark.parametrize("scope", ["session", "always"])
async def test_a_wider_answer_covers_what_it_says(asking: Asking, scope: Any) -> None:
    await asking.consent.answer(await asking.open(), Answer(True, scope=scope), PERSON)
    assert isinstance(await asking.obtain(arguments_sha256="b" * 64), Answer)
    asking.restart()
    assert isinstance(await asking.obtain(arguments_sha256="c" * 64), Answer)
    for other in ({"tool": "send_input"}, {"rule": "other"}, {"detail": "other"}):
        await asking.open(**other)
    elsewhere = asking.obtain(session="ses_2")
    if scope == "always":
        assert isinstance(await elsewhere, Answer)
        assert isinstance(await asking.obtain(policy_sha256="q" * 64), Answer)
    else:
        with pytest.raises(ConsentNeeded):
            await elsewhere
        await asking.open(policy_sha256="q" * 64)
    with pytest.raises(ConsentNeeded):
        await asking.obtain(principal=Principal(kind="mcp", uid=UID, client="other"))
    (grant,) = asking.consent.grants()
    asking.consent.revoke(grant.grant_id, PERSON)
    await asking.open(arguments_sha256="d" * 64)
    with pytest.raises(InvalidArguments):
        asking.consent.revoke(grant.grant_id, PERSON)


LOG = {"rule": "default:no-box", "detail": "git log -5 #x", "prefix": "git log"}


async def test_an_answer_for_a_prefix_covers_what_begins_like_it_and_nothing_else(asking: Asking) -> None:
    await asking.consent.answer(await asking.open(**LOG), Answer(True, scope="prefix"), PERSON)
    asking.restart()
    elsewhere = {"session": "ses_2", "detail": "git log --stat #y", "policy_sha256": "q" * 64}
    assert isinstance(await asking.obtain(**LOG | elsewhere), Answer)
    for number, other in enumerate(
        ({"prefix": "git show"}, {"prefix": ""}, {"rule": "default:ask-all"}, {"tool": "send_input"})
    ):
        await asking.open(**LOG | other | {"arguments_sha256": f"{number}" * 64})
    await asking.open(**LOG | {"principal": Principal(kind="mcp", uid=UID, client="other")})
    (grant,) = asking.consent.grants()
    assert grant.what == "agent, execute_command, default:no-box, plain git log …"


def opening(outside: str, **changes: Any) -> dict[str, Any]:
    """The facts of a question about a session in a folder outside the workspaces."""
    rule = "default:outside-workspace"
    digest = sha256(repr((outside, changes)).encode()).hexdigest()
    facts = {"tool": "create_session", "session": "", "rule": rule, "detail": outside, "folder": outside}
    return {**facts, "arguments_sha256": digest, **changes}


async def test_an_answer_for_a_folder_covers_it_and_all_below_and_nothing_else(asking: Asking) -> None:
    below = await asking.open(**opening("/data/a b/ü/deep"))
    await asking.consent.answer(await asking.open(**opening("/data/a b")), Answer(True, scope="folder"), PERSON)
    assert below not in [question.question_id for question in asking.consent.pending()]
    asking.restart()
    for folder in ("/data/a b", "/data/a b/ü", "/data/a b/ü/deep"):
        assert isinstance(await asking.obtain(**opening(folder, policy_sha256="q" * 64)), Answer)
    for other in ("/data", "/", "/data/a bc", "/data/a", "/data/A b", "/data/b", "a b"):
        await asking.open(**opening(other))
    for other in ({"folder": ""}, {"rule": "default:loosens"}, {"tool": "run_python"}):
        await asking.open(**opening("/data/a b/c", **other))
    await asking.open(**opening("/data/a b/c", principal=Principal(kind="mcp", uid=UID, client="other")))
    (grant,) = asking.consent.grants()
    assert grant.what == "agent, create_session, default:outside-workspace, /data/a b and all below"
    asking.consent.revoke(grant.grant_id, PERSON)
    await asking.open(**opening("/data/a b/d"))


@pytest.mark.parametrize(
    ("changes", "scopes"),
    [
        ({}, ("once", "session", "always")),
        ({"session": ""}, ("once", "always")),
        ({"prefix": "ls"}, ("once", "session", "always", "prefix")),
        ({"folder": "/w", "session": ""}, ("once", "always", "folder")),
    ],
)
async def test_an_answer_reaches_no_further_than_was_offered(
    asking: Asking, changes: dict[str, Any], scopes: tuple[str, ...]
) -> None:
    for scope in ("once", "session", "always", "prefix", "folder"):
        word = Answer(True, scope=scope)
        changes = {**changes, "arguments_sha256": scope.ljust(64)}
        state = await asking.state(**changes)
        if scope in scopes:
            assert await asking.obtain(Later(), state, {DECISION: word}, **changes) == word
            for grant in asking.consent.grants():
                asking.consent.revoke(grant.grant_id, PERSON)
            continue
        with pytest.raises(Denied, match="came back empty"):
            await asking.obtain(Later(), state, {DECISION: word}, **changes)
        with pytest.raises(InvalidArguments, match="cannot be allowed"):
            await asking.consent.answer(asking.consent.pending()[-1].question_id, word, PERSON)
        assert asking.consent.grants() == []


@pytest.mark.parametrize("asker", [Form(None), Broken()], ids=["none", "broken"])
async def test_a_client_that_cannot_ask_is_no_yes_and_no_no(asking: Asking, asker: Form) -> None:
    with pytest.raises(ConsentNeeded):
        await asking.obtain(asker)
    assert len(asking.consent.pending()) == 1


async def test_a_form_nobody_filled_in_denies_and_leaves_the_question_to_others(asking: Asking) -> None:
    with pytest.raises(Denied) as caught:
        await asking.obtain(Form(Answer(False, reason="cancelled")))
    (question,) = asking.consent.pending()
    assert f"ai-session approve {question.question_id}" in caught.value.suggestion
    await asking.consent.answer(question.question_id, YES, PERSON)
    assert isinstance(await asking.obtain(Form(Answer(False, reason="cancelled"))), Answer)


async def test_an_answer_from_elsewhere_overtakes_the_form(asking: Asking) -> None:
    form = Form(NO, waits=True)
    call = asyncio.ensure_future(asking.obtain(form))
    with await asking.consent.watch(PERSON) as watch:
        while not watch.questions():
            await watch.changed()
        await asking.consent.answer(watch.questions()[0].question_id, YES, PERSON)
        assert isinstance(await call, Answer)
    assert form.given_up


async def test_one_answer_for_good_releases_all_it_covers(asking: Asking) -> None:
    with await asking.consent.watch(PERSON) as watch:
        calls = [asyncio.ensure_future(asking.obtain(arguments_sha256=f"{n}" * 64)) for n in range(3)]
        other = asyncio.ensure_future(asking.obtain(rule="other"))
        while len(watch.questions()) < 4:
            await watch.changed()
        await asking.consent.answer(watch.questions()[1].question_id, Answer(True, scope="session"), PERSON)
        assert all(isinstance(answer, Answer) for answer in await asyncio.gather(*calls))
        (left,) = watch.questions()
        await asking.consent.answer(left.question_id, NO, PERSON)
        with pytest.raises(Denied):
            await other


async def test_two_equal_calls_at_once_are_two_questions(asking: Asking) -> None:
    with await asking.consent.watch(PERSON) as watch:
        first, second = (asyncio.ensure_future(asking.obtain()) for _ in range(2))
        while len(watch.questions()) < 2:
            await watch.changed()
        one, other = watch.questions()
        await asking.consent.answer(one.question_id, YES, PERSON)
        await asking.consent.answer(other.question_id, NO, PERSON)
        assert isinstance(await first, Answer)
        with pytest.raises(Denied):
            await second


@pytest.mark.parametrize(
    ("who", "why"),
    [
        (Principal(kind="mcp", uid=UID, pid=900), "only the person"),
        (Principal(kind="person", uid=UID + 1, pid=900), "only the person"),
        (Principal(kind="person", uid=UID, pid=10), "cannot answer itself"),
        (Principal(kind="person", uid=UID, pid=11), "cannot answer itself"),
        (Principal(kind="person", uid=UID, pid=12), "cannot answer itself"),
        (Principal(kind="person", uid=UID, pid=13), "inside a session"),
        (Principal(kind="person", uid=UID, pid=900, env={"AI_SESSION_ID": "x"}), "inside a session"),
        (Principal(kind="person", uid=UID, pid=None), "nothing is known"),
        (Principal(kind="person", uid=UID, pid=21), "its parents are gone"),
    ],
)
async def test_the_side_that_asks_never_answers(asking: Asking, who: Principal, why: str) -> None:
    question_id = await asking.open()
    asking.restart()
    with pytest.raises(Denied, match=why):
        await asking.consent.answer(question_id, Answer(True, scope="always"), who)
    with await asking.consent.watch(who) as watch:
        assert watch.questions() == []
        with pytest.raises(ConsentNeeded):
            await asking.obtain()
    assert [q.question_id for q in asking.consent.pending()] == [question_id]


async def test_a_relay_started_again_still_cannot_answer(asking: Asking) -> None:
    question_id = await asking.open()
    with pytest.raises(ConsentNeeded, match=question_id):
        await asking.obtain(principal=Principal(kind="mcp", uid=UID, pid=900, client="agent"))
    with pytest.raises(Denied):
        await asking.consent.answer(question_id, YES, PERSON)


async def test_a_state_brings_the_answer_back_once(asking: Asking) -> None:
    state = await asking.state()
    assert await asking.obtain(Later(), state, {DECISION: YES}) == YES
    with pytest.raises(InvalidArguments, match="used before"):
        await asking.obtain(Later(), state, {DECISION: YES})
    asking.restart()
    with pytest.raises(InvalidArguments, match="used before"):
        await asking.obtain(Later(), state, {DECISION: YES})


async def test_a_state_without_an_answer_is_asked_about_again_and_only_the_new_one_counts(asking: Asking) -> None:
    old = await asking.state()
    for nothing in ({}, {DECISION: "once"}, {"other": YES}):
        again = await asking.obtain(Later(), old, nothing)
        assert isinstance(again, Deferred)
        with pytest.raises(InvalidArguments, match="used before"):
            await asking.obtain(Later(), old, {DECISION: YES})
        old = again.state
    assert await asking.obtain(Later(), old, {DECISION: YES}) == YES


async def test_two_forms_of_equal_calls_do_not_disturb_each_other(asking: Asking) -> None:
    first, second = await asking.state(), await asking.state()
    assert await asking.obtain(Later(), first, {DECISION: YES}) == YES
    with pytest.raises(Denied):
        await asking.obtain(Later(), second, {DECISION: NO})


async def test_a_state_survives_a_restart_but_not_five_minutes_nor_another_installation(
    asking: Asking, tmp_path: Path
) -> None:
    state, old = await asking.state(), await asking.state(rule="old")
    asking.restart()
    assert await asking.obtain(Later(), state, {DECISION: YES}) == YES
    asking.now += 300
    with pytest.raises(InvalidArguments, match="too old"):
        await asking.obtain(Later(), old, {DECISION: YES}, rule="old")
    with pytest.raises(InvalidArguments, match="not issued here"):
        await Asking(tmp_path / "other").obtain(Later(), state, {DECISION: YES})


async def test_a_denial_by_state_is_a_denial(asking: Asking) -> None:
    state = await asking.state()
    with pytest.raises(Denied):
        await asking.obtain(Later(), state, {DECISION: NO})
    assert asking.consent.pending() == []
    state = await asking.state()
    with pytest.raises(Denied):
        await asking.obtain(Later(), state, {DECISION: Answer(False, reason="declined")})
    assert len(asking.consent.pending()) == 1
    with pytest.raises(InvalidArguments):
        await asking.obtain(Later(), state, {DECISION: YES})


async def test_several_wait_at_once_survive_a_restart_and_expire(asking: Asking) -> None:
    ids = [await asking.open(arguments_sha256=f"{n}" * 64) for n in range(3)]
    asking.now += 1
    asking.restart()
    assert [q.question_id for q in asking.consent.pending()] == ids
    await asking.consent.answer(ids[1], YES, PERSON)
    asking.restart()
    assert isinstance(await asking.obtain(arguments_sha256="1" * 64), Answer)
    asking.now += 601
    assert asking.consent.pending() == []
    with pytest.raises(QuestionNotFound, match="no question"):
        await asking.consent.answer(ids[0], YES, PERSON)
    assert not list(asking.directory.glob("questions/*"))


async def test_a_client_cannot_heap_up_questions(asking: Asking) -> None:
    for number in range(MAX_OPEN_OF_ONE):
        await asking.open(arguments_sha256=f"{number:064d}")
    with pytest.raises(LimitReached):
        await asking.obtain(Form(YES))
    assert await asking.obtain(Form(YES), principal=Principal(kind="mcp", uid=UID, client="other")) == YES
    with pytest.raises(ConsentNeeded):  # the one that waits already is no other question
        await asking.obtain(arguments_sha256=f"{0:064d}")


async def test_a_person_is_asked_no_more_often_than_admitted_but_grants_need_nobody(asking: Asking) -> None:
    def refuse(question: Question) -> None:
        raise RateLimited("too many questions", retry_after_seconds=3)

    await asking.consent.answer(await asking.open(), Answer(True, scope="session"), PERSON)
    asking.admit = refuse
    assert isinstance(await asking.obtain(), Answer)
    with pytest.raises(RateLimited):
        await asking.obtain(Form(YES), rule="other")
    assert asking.consent.pending() == []


async def test_a_call_given_up_leaves_its_question_open(asking: Asking) -> None:
    form = Form(YES, waits=True)
    call = asyncio.ensure_future(asking.obtain(form))
    with await asking.consent.watch(PERSON) as watch:
        while not watch.questions():
            await watch.changed()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert form.given_up
    assert len(asking.consent.pending()) == 1


async def test_another_policy_withdraws_what_was_asked_under_this_one(asking: Asking) -> None:
    form = Form(YES, waits=True)
    call = asyncio.ensure_future(asking.obtain(form))
    with await asking.consent.watch(PERSON) as watch:
        while not watch.questions():
            await watch.changed()
    state = await asking.state(arguments_sha256="b" * 64)
    await asking.consent.answer(await asking.open(arguments_sha256="c" * 64), YES, PERSON)
    kept = await asking.open(policy_sha256="q" * 64)
    asking.consent.policy_changed("q" * 64)
    with pytest.raises(Denied, match="the policy was changed while the question about execute_command was open"):
        await call
    assert form.given_up
    assert [q.question_id for q in asking.consent.pending()] == [kept]
    with pytest.raises(InvalidArguments, match="no longer waits"):
        await asking.obtain(Later(), state, {DECISION: YES}, arguments_sha256="b" * 64)
    await asking.open(arguments_sha256="c" * 64)


async def test_the_end_of_a_session_ends_its_questions(asking: Asking) -> None:
    await asking.open()
    await asking.open(session="ses_2")
    asking.consent.end_session("ses_1")
    assert [q.session for q in asking.consent.pending()] == ["ses_2"]


async def test_everything_is_reported_and_no_secret_is_stored(asking: Asking) -> None:
    await asking.consent.answer(await asking.open(), Answer(True, scope="always", reason="ok"), PERSON)
    await asking.obtain()
    asking.consent.revoke(asking.consent.grants()[0].grant_id, PERSON)
    assert [name for name, _ in asking.events] == ["consent.ask", "consent.answer", "consent.use", "consent.revoke"]
    assert "s3cret" not in json.dumps(asking.events)
    for path in [p for p in asking.directory.rglob("*") if p.is_file()]:
        assert b"s3cret" not in path.read_bytes()
        assert path.stat().st_mode & 0o777 == 0o600
    assert asking.directory.stat().st_mode & 0o777 == 0o700
