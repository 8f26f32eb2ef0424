"""Signed answers count once, for one act, for a while; who may say which key counts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ai_session.errors import ConfigInvalid, InvalidArguments, SignatureNeeded, SignatureRefused
from ai_session.gate.consent.person_check import NONCE_SECONDS, Signature, parse_signature
from ai_session.gate.consent.person_signature import PrivateKey, about_answer, statement
from ai_session.gate.consent.store import binding
from ai_session.models import Answer, Principal
from tests.ai_session.support.questions import PERSON, UID, YES, Asking

pytestmark = pytest.mark.anyio

KEY, OTHER = PrivateKey("correct horse", cost=1 << 4), PrivateKey("battery staple", cost=1 << 4)
FAR = Principal(kind="person", uid=UID, pid=20)
CUT_OFF = Principal(kind="person", uid=UID, pid=21)
TOOL, INSIDE = Principal(kind="person", uid=UID, pid=12), Principal(kind="person", uid=UID, pid=13)


@pytest.fixture
def asking(tmp_path: Path) -> Asking:
    return Asking(tmp_path)


async def signed(asking: Asking, do: str, about: Mapping[str, Any], key: PrivateKey = KEY) -> Signature:
    facts = await asking.person.facts(FAR)
    return Signature(facts["nonce"], key.sign(statement(do, about, host=facts["host"], nonce=facts["nonce"])))


async def answer(asking: Asking, question_id: str, word: Answer = YES, key: PrivateKey = KEY) -> Signature:
    (question,) = [q for q in asking.consent.pending() if q.question_id == question_id]
    about = about_answer(
        question_id, binding(question), question.message, allowed=word.allowed, scope=word.scope, reason=word.reason
    )
    return await signed(asking, "answer", about, key)


async def enrolled(asking: Asking) -> None:
    await asking.person.enrol(PERSON, KEY.public.line, None)


async def test_from_afar_a_yes_needs_a_signature_and_a_no_does_not(asking: Asking) -> None:
    question_id = await asking.open()
    with pytest.raises(SignatureNeeded, match="came in through sshd") as caught:
        await asking.consent.answer(question_id, YES, FAR)
    assert caught.value.suggestion == (
        f"choose a passphrase, once, with: ai-session person enrol; then: ai-session approve {question_id}"
    )
    assert [name for name, _ in asking.events].count("consent.refused") == 1
    await asking.consent.answer(question_id, Answer(False), FAR)
    question_id = await asking.open(arguments_sha256="c" * 64)
    await enrolled(asking)
    with pytest.raises(SignatureNeeded) as caught:
        await asking.consent.answer(question_id, YES, FAR)
    assert "your passphrase is asked for" in caught.value.suggestion
    await asking.consent.answer(question_id, YES, FAR, await answer(asking, question_id))
    assert f"with key {KEY.public.key_id}" in dict(asking.events)["consent.answer"]["by"]


async def test_a_terminal_from_afar_counts_where_it_is_configured_to(asking: Asking) -> None:
    asking.restart(from_remote="terminal")
    await asking.consent.answer(await asking.open(), YES, FAR)
    with pytest.raises(SignatureNeeded):
        await asking.consent.answer(await asking.open(arguments_sha256="c" * 64), YES, CUT_OFF)


async def test_a_signature_counts_from_wherever_it_comes(asking: Asking) -> None:
    await enrolled(asking)
    for who in (TOOL, INSIDE, CUT_OFF):
        question_id = await asking.open(arguments_sha256=f"{who.pid}" * 32)
        with pytest.raises(SignatureNeeded):
            await asking.consent.answer(question_id, YES, who)
        await asking.consent.answer(question_id, YES, who, await answer(asking, question_id))


async def test_a_signature_is_for_one_question_one_answer_one_time(asking: Asking) -> None:
    await enrolled(asking)
    one, other = await asking.open(), await asking.open(arguments_sha256="c" * 64)

    async def refused(why: str, question_id: str, word: Answer, signature: Signature) -> None:
        with pytest.raises(SignatureRefused, match=why):
            await asking.consent.answer(question_id, word, FAR, signature)

    await refused("for this action", other, YES, await answer(asking, one))
    await refused("for this action", one, Answer(True, scope="always"), await answer(asking, one))
    await refused("for this action", one, Answer(True, reason="x"), await answer(asking, one))
    await refused("for this action", one, YES, await answer(asking, one, key=OTHER))
    spent = await answer(asking, other)
    await asking.consent.answer(other, YES, FAR, spent)
    await refused("used before", one, YES, spent)
    await refused("used before", one, YES, Signature("00" * 16, spent.value))
    old = await answer(asking, one)
    asking.restart()
    await refused("another daemon", one, YES, old)
    events = [facts["why"] for name, facts in asking.events if name == "person.refused"]
    assert len(events) == 7
    await asking.consent.answer(one, YES, FAR, await answer(asking, one))


async def test_a_signature_ages(asking: Asking) -> None:
    await enrolled(asking)
    young, old = await signed(asking, "mode", {}), await signed(asking, "mode", {})
    asking.now += NONCE_SECONDS - 1
    await asking.person.require(FAR, "mode", {}, young, refused="", again="")
    asking.now += 1
    with pytest.raises(SignatureRefused, match="too old"):
        await asking.person.require(FAR, "mode", {}, old, refused="", again="")


async def test_a_refused_signature_cannot_be_tried_again(asking: Asking) -> None:
    await enrolled(asking)
    question_id = await asking.open()
    right = await answer(asking, question_id)
    with pytest.raises(SignatureRefused, match="for this action"):
        await asking.consent.answer(question_id, YES, FAR, Signature(right.nonce, "AAAA"))
    with pytest.raises(SignatureRefused, match="used before"):
        await asking.consent.answer(question_id, YES, FAR, right)


async def test_the_first_key_comes_from_any_terminal_no_agent_owns_and_from_afar_while_no_client_runs(
    asking: Asking,
) -> None:
    for who in (INSIDE, CUT_OFF, Principal(kind="person", uid=UID), Principal(kind="mcp", uid=UID, pid=900)):
        with pytest.raises(SignatureNeeded, match="the key was not changed"):
            await asking.person.enrol(who, KEY.public.line, None)
    asking.windows.client_runs = True
    with pytest.raises(SignatureNeeded, match="while no client of ai-session runs") as caught:
        await asking.person.enrol(FAR, KEY.public.line, None)
    assert "end the agents" in caught.value.suggestion
    asking.windows.client_runs = False
    await asking.person.enrol(FAR, KEY.public.line, None)
    assert asking.events[-1][0] == "person.enrol"


async def test_another_key_takes_the_one_before_or_this_machines_terminal(asking: Asking) -> None:
    await enrolled(asking)
    about = {"key": OTHER.public.line}
    for signature in (None, await signed(asking, "enrol", about, OTHER), await signed(asking, "enrol", {"key": "x"})):
        with pytest.raises((SignatureNeeded, SignatureRefused)):
            await asking.person.enrol(FAR, OTHER.public.line, signature)
    await asking.person.enrol(FAR, OTHER.public.line, await signed(asking, "enrol", about))
    with pytest.raises(SignatureRefused):
        await asking.person.require(FAR, "mode", {}, await signed(asking, "mode", {}), refused="", again="")
    await asking.person.require(FAR, "mode", {}, await signed(asking, "mode", {}, OTHER), refused="", again="")
    await asking.person.enrol(PERSON, KEY.public.line, None)
    asking.restart(from_remote="terminal")
    with pytest.raises(SignatureNeeded, match="the key was not changed"):
        await asking.person.enrol(FAR, OTHER.public.line, None)
    with pytest.raises(SignatureNeeded, match="the key was not changed"):
        await asking.person.remove(FAR, None)
    await asking.person.remove(FAR, await signed(asking, "unenrol", {"key": KEY.public.line}))
    with pytest.raises(InvalidArguments, match="no key is enrolled"):
        await asking.person.remove(PERSON, None)
    assert asking.person.enrolled is None


async def test_the_key_outlives_the_daemon_and_what_cannot_be_read_is_not_taken_for_none(asking: Asking) -> None:
    await enrolled(asking)
    asking.restart()
    assert asking.person.enrolled is not None
    assert asking.person.enrolled.key == KEY.public
    path = asking.directory / "person/key.json"
    assert path.stat().st_mode & 0o777 == 0o600
    for text in ("", "{}", '{"host": "h", "key": {"line": "x"}}'):
        path.write_text(text)
        with pytest.raises(ConfigInvalid, match="cannot be read"):
            asking.restart()


async def test_nonces_are_bounded_and_the_newest_count(asking: Asking) -> None:
    await enrolled(asking)
    first = await signed(asking, "mode", {})
    for _ in range(1000):
        last = await signed(asking, "mode", {})
    with pytest.raises(SignatureRefused, match="used before"):
        await asking.person.require(FAR, "mode", {}, first, refused="", again="")
    await asking.person.require(FAR, "mode", {}, last, refused="", again="")


@pytest.mark.parametrize("value", ["x", 1, {}, {"nonce": 1, "value": "x"}, {"nonce": "n", "value": "v" * 600}])
def test_what_is_no_signature_is_refused(value: object) -> None:
    assert parse_signature(None) is None
    with pytest.raises(InvalidArguments):
        parse_signature(value)
