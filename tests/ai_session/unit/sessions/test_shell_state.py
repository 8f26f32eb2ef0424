from ai_session.sessions.shell_state import ShellState
from ai_session.terminal.marks import MarkScanner


def state(*marks: str, line_editor: bool = True) -> ShellState:
    result = ShellState("/start", line_editor=line_editor)
    for mark in MarkScanner("n").feed("".join(f"\x1b]7777;n;{m}\x07" for m in marks).encode()):
        result.apply(mark)
    return result


def test_a_prompt_makes_it_ready_and_a_command_ends_that() -> None:
    assert state("R;7;5.2", "A;;0;;;/a", "B").ready
    assert not state("R;7;5.2", "A;;0;;;/a").ready
    assert state("R;7;", "A;;0;;;/a", line_editor=False).ready
    assert not state("R;7;5.2", "B", "C;1;").ready


def test_a_line_typed_by_a_person_is_recognized() -> None:
    assert state("B", "P").human_line
    assert not state("B", "P", "C;1;").human_line
    after = state("B", "P", "A;;3;;hx;/b", "B")
    assert (after.human_line, after.last_exit, after.flags, after.cwd, after.ready) == (False, 3, "hx", "/b", True)


def test_the_end_mark_of_a_command_carries_code_and_directory() -> None:
    after = state("C;4;", "D;4;7;1.5;h;/c")
    assert (after.last_exit, after.cwd) == (7, "/c")


def test_exit_code_is_kept_and_a_new_shell_starts_fresh() -> None:
    after = state("R;7;5.2", "B", "X;;9;;;/d")
    assert after.exit_code == 9
    after.reset()
    assert (after.exit_code, after.up, after.ready, after.version) == (None, False, False, "5.2")
