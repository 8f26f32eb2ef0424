"""A conversation within its bounds: whole in memory, shown as far as there is room."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from ccswarm.brains.llm.conversation import KEPT_TURNS, Conversation, ModelCall, describe_outcome
from ccswarm.models import CallOutcome, CallStatus

SYSTEM, TASK = "You are ada.", "Your task: look."


def conversation(*outputs: int, most: int = 5000, each: int = 1000) -> Conversation:
    """Turns of one call, with outputs of that many characters."""
    made = Conversation(SYSTEM, TASK, each, most)
    for size in outputs:
        turn(made, size)
    return made


def turn(made: Conversation, size: int) -> ModelCall:
    call = {"id": f"c{len(made.turns)}", "name": "srv__look", "tool": "srv.look", "arguments": {}}
    (one,) = made.add({"parts": []}, "I look.", [call]).calls
    one.answer = f"first line of {one.number}\n" + "x" * size + "last"
    one.ended = True
    return one


def shown(made: Conversation) -> str:
    return "\n".join(message.text for message in made.messages())


def test_a_long_output_is_shown_by_its_ends() -> None:
    made = conversation(3000)
    text = shown(made)
    assert "first line of 1" in text
    assert text.endswith("last")
    assert "2020 characters left out here; recall(id=1, offset=500) shows them" in text
    assert len(made.shown(made.turns[0].calls[0])) < 1100


def test_what_was_left_out_is_recalled_in_pieces() -> None:
    made = conversation(3000)
    whole = made.turns[0].calls[0].answer
    pieces, offset = "", 0
    while offset < len(whole):
        said = made.recall(1, offset)
        assert said
        head, _, piece = said.partition("\n")
        pieces += piece
        offset += len(piece)
        assert ("continues" in head) == (offset < len(whole))
    assert pieces == whole
    assert made.recall(2, 0) is None


def test_old_outputs_become_references_and_the_newest_stay() -> None:
    made = conversation(*[900] * 12, most=9000)
    made.fit()
    calls = [one for each in made.turns for one in each.calls]
    assert calls[0].shortened
    assert not calls[-1].shortened
    assert "first line of 1 … (920 characters, shortened; recall(id=1) shows them again)" in shown(made)
    assert SYSTEM in shown(made)
    assert TASK in shown(made)
    assert made.chars <= 9000
    assert made.chars > 4000, "no more is shortened than has to be"


def test_then_whole_turns_are_left_out() -> None:
    made = conversation(*[100] * 200)
    made.fit()
    assert 0 < made.left_out <= 200 - KEPT_TURNS
    assert f"Your first {made.left_out} answers are left out here. recall shows the outputs 1 to" in shown(made)
    assert made.recall(1, 0), "what is not shown is still there"
    kinds = [message.kind for message in made.messages()]
    assert kinds[:4] == ["system", "user", "user", "answer"]


def test_what_was_shown_stays_as_it_was_until_there_is_no_room() -> None:
    """A provider keeps the beginning of a conversation that it has seen."""
    made = conversation(most=20_000)
    changes, before = 0, ""
    for _ in range(100):
        turn(made, 900)
        made.fit()
        text = shown(made)
        changes += not text.startswith(before)
        before = text
    assert changes <= 25


def test_a_model_that_takes_less_gets_less() -> None:
    made = conversation(*[900] * 6, most=100_000)
    before = made.chars
    for _ in range(3):
        made.tighten()
        made.fit()
    assert made.chars < before / 2
    assert TASK in shown(made)


@given(st.lists(st.integers(0, 3000), max_size=40), st.integers(3000, 20_000))
def test_every_answer_has_all_its_outputs_and_the_bound_holds(outputs: list[int], most: int) -> None:
    made = conversation(most=most)
    for size in outputs:
        turn(made, size)
        made.fit()
    messages = list(made.messages())
    for at, message in enumerate(messages):
        if message.turn:
            assert [one.call for one in messages[at + 1 : at + 2]] == message.turn.calls
    newest = sum(len(made.shown(call)) for each in made.turns[-KEPT_TURNS:] for call in each.calls)
    assert len(shown(made)) <= most + newest + 500
    assert [message.text for message in messages[:2]] == [SYSTEM, TASK]


def test_the_outcome_of_a_call_is_reported() -> None:
    assert describe_outcome(CallOutcome(CallStatus.OK, "out")) == "out"
    assert describe_outcome(CallOutcome(CallStatus.OK)) == "(no output)"
    assert describe_outcome(CallOutcome(CallStatus.OK, structured={"a": 1})) == '{"a": 1}'
    assert describe_outcome(CallOutcome(CallStatus.OK, "out", message="not kept: image")) == "(not kept: image)\nout"
    refused = CallOutcome(CallStatus.DENIED, code="not_granted", message="it may not", suggestion="use another")
    assert describe_outcome(refused) == "denied (not_granted): it may not\nuse another"
    once = CallOutcome(CallStatus.TOOL_ERROR, "error gone: no such\nnext: look", None, "gone", "no such", "look")
    assert describe_outcome(once) == "tool_error (gone)\nerror gone: no such\nnext: look", "nothing is told twice"
    assert describe_outcome(replace(once, text="bare")) == "tool_error (gone): no such\nlook\nbare"
    for status in (CallStatus.LOST, CallStatus.TIMEOUT):
        said = describe_outcome(CallOutcome(status, message="its server ended"))
        assert "Nobody knows whether this call had its effect" in said
