"""What is remembered of typed input."""

from __future__ import annotations

from ai_session.sessions.typed_input import TypedInput


def test_a_line_that_was_ended_before_its_prompt_is_not_shown_when_it_is_dropped() -> None:
    """It may have been the answer to something else. A half-typed line was not."""
    for ahead, dropped in ((True, ""), (False, "secret")):
        typed = TypedInput()
        typed.add(b"secret\n", b"\x03", prompts=0, offset=5)
        if ahead:
            typed.owe_prompt()
        typed.prompt_proven(1, held=True)
        assert typed.drop_half() == dropped
        typed.add(b"later", b"\x03", prompts=1, offset=9)
        if ahead:
            typed.owe_prompt()
        assert typed.drop_half() == "later"
