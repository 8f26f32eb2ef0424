import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from ai_session.models import CommandRecord
from ai_session.sessions.commands import (
    KEPT,
    MISSING,
    CommandHistory,
    RunningCommand,
    corrupted_by_cuts,
    header_of,
    parse_header,
)

pytestmark = pytest.mark.anyio
RECORD = CommandRecord("cmd_1", 3, "echo 'a\nb' # ü", "running", 12.5, 100, call_key="k", stderr_path="/x/e")


def test_the_header_restores_what_was_begun(home: Path) -> None:
    (home / "c").write_text(f"# {header_of(RECORD, 90)}\neval 'x'\n")
    assert parse_header(home) == (replace(RECORD, start_offset=90), 90)


@pytest.mark.parametrize("text", ["", "eval x\n", "# ai-session {\n", '# ai-session {"id": 1}\n', "# ai-session []\n"])
def test_a_command_file_without_a_whole_header_tells_nothing(home: Path, text: str) -> None:
    (home / "c").write_text(text)
    assert parse_header(home) is None


def test_history_survives_and_forgets_the_oldest_in_memory(home: Path) -> None:
    history = CommandHistory(home)
    for number in range(KEPT + 5):
        history.append(replace(RECORD, command_id=f"cmd_{number}", call_key=f"k{number}"))
    history.close()
    with open(home / "history.jsonl", "ab") as file:
        file.write(b'{"command_id": "torn')
    again = CommandHistory(home)
    assert again.get("cmd_4") is None
    assert again.get("cmd_9") == replace(RECORD, command_id="cmd_9", call_key="k9")
    assert again.by_key("k20") == again.get("cmd_20")
    assert again.last is not None
    assert again.last.command_id == f"cmd_{KEPT + 4}"
    again.append(replace(RECORD, command_id="after"))
    again.close()
    last = CommandHistory(home)
    assert last.last == replace(RECORD, command_id="after")
    last.close()


async def test_a_running_command_resolves_once_with_its_final_record() -> None:
    future: asyncio.Future[CommandRecord] = asyncio.get_running_loop().create_future()
    running = RunningCommand(RECORD, future, 100)
    running.start_at(120)
    record = running.finish("finished", 150, 0, "/tmp", 0.25)
    assert await future == record
    assert (record.start_offset, record.end_offset, record.exit_code, record.cwd) == (120, 150, 0, "/tmp")


async def test_what_ends_in_the_moment_in_which_the_time_is_up_has_ended() -> None:
    running = RunningCommand(RECORD, asyncio.get_running_loop().create_future(), 100)
    waiting = asyncio.ensure_future(running.ends(1000))
    await asyncio.sleep(0)
    running.waiters[0].set_result(False)
    running.finish("finished", 150, 0, "/tmp", 0.25)
    assert await waiting


async def test_a_command_says_that_some_of_its_output_could_not_be_stored_beside_its_own_note() -> None:
    running = RunningCommand(RECORD, asyncio.get_running_loop().create_future(), 100)
    running.miss()
    assert running.record.note == MISSING
    running.note = "more"
    assert running.finish("finished", 150, 0, "/tmp", 0.25).note == f"{MISSING}; more"


@pytest.mark.parametrize(
    ("version", "affected"),
    [
        ("5.2.15(1)-release", True),
        ("4.4.20(1)-release", True),
        ("5.2.21(1)-release", False),
        ("5.3.0(1)-beta", False),
        ("5.9", False),
        ("3.6.0", False),
        ("@(#)MIRBSD KSH R59 2020/10/31", False),
        ("", False),
    ],
)
def test_which_bash_must_not_evaluate_what_is_cut_off(version: str, affected: bool) -> None:
    assert corrupted_by_cuts(version) is affected
