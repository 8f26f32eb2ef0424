"""What is done about a command whose end was not reported follows from evidence; time only says when to look."""

from __future__ import annotations

from dataclasses import replace

from ai_session.sessions.recovery import Evidence, Recovery, Step

LADDER = [Step.PROBE, Step.CLEAR, Step.REINTEGRATE, Step.RESTORE, Step.GIVE_UP]
READS = Evidence(leads=True, reads=True, stopped=False, executing=None, replaced=False, printed=10, switches=1)


def steps(recovery: Recovery, *seen: Evidence, started: bool = True, answers: bool = True) -> list[Step]:
    return [recovery.next(one, started=started, answers=answers) for one in seen]


def woken(count: int, seen: Evidence = READS) -> list[Evidence]:
    """The same again and again; each time it had gone to sleep anew."""
    return [replace(seen, switches=seen.switches + number) for number in range(count)]


def test_nothing_is_done_before_two_looks_agree() -> None:
    later = replace(READS, printed=11)
    assert steps(Recovery(), READS, later, later) == [Step.WAIT, Step.WAIT, Step.ASK]


def test_a_shell_that_does_not_answer_reads_for_its_command_and_is_left_alone() -> None:
    recovery = Recovery()
    recovery.confirm()
    assert steps(recovery, READS, *woken(2), replace(READS, switches=3)) == [Step.WAIT, Step.ASK, Step.ASK, Step.WAIT]
    assert recovery.in_vain


def test_what_has_not_met_what_was_typed_is_given_no_more() -> None:
    assert steps(Recovery(), READS, READS, READS, READS) == [Step.WAIT, Step.ASK, Step.WAIT, Step.WAIT]


def test_no_key_is_pressed_where_no_line_editor_could_answer() -> None:
    unedited = replace(READS, edited=False)
    taken = steps(Recovery(), unedited, *woken(5, unedited), started=False)
    assert taken == [Step.WAIT, Step.CLEAR, Step.REINTEGRATE, Step.RESTORE, Step.GIVE_UP, Step.WAIT]
    assert steps(Recovery(), *woken(3, unedited)) == [Step.WAIT] * 3


def test_an_answer_is_proof_and_then_the_ladder_ends() -> None:
    recovery = Recovery()
    steps(recovery, READS, READS)
    recovery.confirm()
    assert steps(recovery, *woken(6, replace(READS, switches=2))) == [*LADDER, Step.WAIT]


def test_an_open_command_file_tells_whether_the_command_runs() -> None:
    runs, idle = replace(READS, executing=True), replace(READS, executing=False)
    assert steps(Recovery(), runs, runs, runs) == [Step.WAIT] * 3
    assert steps(Recovery(), runs, started=False) == [Step.STARTED]
    assert steps(Recovery(), idle, idle) == [Step.WAIT, Step.PROBE]


def test_a_replaced_shell_reads_the_integration_and_a_stopped_one_goes_on() -> None:
    replaced = replace(READS, replaced=True)
    assert steps(Recovery(), replaced, replaced) == [Step.WAIT, Step.REINTEGRATE]
    assert steps(Recovery(), replace(READS, reads=False, stopped=True)) == [Step.CONTINUE]


def test_programs_that_a_shell_runs_for_what_it_is_asked_do_not_begin_the_ladder_anew() -> None:
    away = replace(READS, leads=False, reads=False)
    for proof in (replace(READS, at_prompt=True), replace(READS, executing=False)):
        recovery = Recovery()
        steps(recovery, proof)
        taken = [
            steps(recovery, replace(proof, switches=1)),
            *(steps(recovery, away, one) for one in woken(6, proof)[1:]),
        ]
        assert [some[-1] for some in taken] == [*LADDER, Step.WAIT]


def test_another_program_in_front_is_waited_for() -> None:
    away = replace(READS, leads=False, reads=False)
    assert steps(Recovery(), READS, READS, away, away) == [Step.WAIT, Step.ASK, Step.WAIT, Step.WAIT]


def test_a_shell_that_reads_where_it_does_at_its_prompt_need_not_be_asked_whether_it_is_there() -> None:
    there = replace(READS, at_prompt=True)
    assert steps(Recovery(), there, there) == [Step.WAIT, Step.PROBE]
    # Before the command has begun it says nothing of its end.
    assert steps(Recovery(), there, there, started=False) == [Step.WAIT, Step.ASK]


def test_a_shell_that_cannot_be_asked_and_reads_elsewhere_is_left_alone() -> None:
    recovery = Recovery()
    assert steps(recovery, READS, READS, READS, answers=False) == [Step.WAIT] * 3
    assert recovery.in_vain
    there = replace(READS, at_prompt=True)
    assert steps(recovery, there, there, answers=False) == [Step.WAIT, Step.PROBE]
