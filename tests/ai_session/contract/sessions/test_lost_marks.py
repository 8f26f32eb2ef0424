"""Whatever marks are lost or come twice: usable within seconds, no wrong exit code, nothing run twice."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from itertools import combinations
from pathlib import Path
from random import Random

import pytest

from agentwire import plugins
from ai_session.errors import SessionBusy
from ai_session.sessions import wait
from ai_session.sessions.manager import SessionManager
from ai_session.sessions.spec import SessionDefaults
from ai_session.terminal.marks import MarkKind
from tests.ai_session.support.lost_marks import Faults, FaultyManager, FaultySession, play
from tests.ai_session.support.sessions import request, run, runtime_directory, until
from tests.support.bounds import BOUND_SECONDS
from tests.support.products import first

pytestmark = [pytest.mark.anyio, pytest.mark.corners, pytest.mark.either("manager")]

SEED = os.environ.get("MARKS_SEED")
AT_ONCE = 8
"""Sessions at a time: they mostly wait."""

ATTEMPTS = 3
"""Of a plan that took too long: on a busy machine, one within the time shows that it can be."""


@pytest.fixture(params=plugins.names("ai_session.backends"))
async def manager(request: pytest.FixtureRequest, home: Path) -> AsyncIterator[SessionManager]:
    # Where it is missing, fish reads all manual pages of the system first.
    (home / ".local/share/fish/generated_completions").mkdir(parents=True)
    (home / ".config/fish").mkdir(parents=True)
    (home / ".config/fish/config.fish").write_text("function fish_prompt; echo '> '; end")
    manager = FaultyManager(runtime_directory(home), SessionDefaults(backend=request.param, max_sessions=1000))
    yield manager
    await manager.stop()


def plans(every: bool, seed: int) -> list[Faults]:
    """Every kind dropped, and all doubled; or every kind alone and all pairs, dropped and doubled."""
    if not every:
        return [Faults({kind: 0}, seed + number) for number, kind in enumerate(MarkKind)] + [
            Faults(dict.fromkeys(MarkKind, 2), seed)
        ]
    found = [{kind: times} for kind in MarkKind for times in (0, 2)]
    found += [{a: m, b: n} for a, b in combinations(MarkKind, 2) for m in (0, 2) for n in (0, 2)]
    return [Faults(kinds, seed + number) for number, kinds in enumerate(found)]


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.torture)])
@pytest.mark.parametrize("shell", first(("bash", "zsh", "dash", "fish"), "bash"))
async def test_every_mark_lost(manager: SessionManager, shell: str, every: bool, home: Path) -> None:
    """Torture takes another seed each time, or ``$MARKS_SEED``; whatever fails names it."""
    seed = int(SEED or Random().randrange(10**6)) if every else 0
    places = asyncio.Semaphore(AT_ONCE)

    async def in_turn(number: int, faults: Faults) -> list[str]:
        wrong: list[str] = []
        async with places:
            for attempt in range(ATTEMPTS):
                name = f"s{number}-{attempt}"
                try:
                    wrong = await play(manager, shell, name, Faults(faults.kinds, faults.seed), home)
                except Exception as error:
                    error.add_note(f"MARKS_SEED={seed}, {faults}")
                    raise
                if not wrong or any("usable" not in text for text in wrong):
                    break
        return wrong

    found = await asyncio.gather(*(in_turn(number, faults) for number, faults in enumerate(plans(every, seed))))
    assert not [text for wrong in found for text in wrong], f"MARKS_SEED={seed}"


@pytest.mark.parametrize("shell", first(("bash", "zsh", "fish"), "bash"))
async def test_a_shell_that_answers_nothing_at_its_first_prompt_keeps_nobody_waiting(
    manager: SessionManager, shell: str
) -> None:
    FaultySession.plans["main"] = Faults({MarkKind.PROMPT_READY: 0, MarkKind.AT_PROMPT: 0}, 0, share=1)
    session = await manager.create(request(shell=shell))
    # It was not the time for start files that ended.
    assert session.watchdog.start_in_vain
    assert (await run(session, "sh -c 'exit 3'")).exit_code == 3
    del FaultySession.plans["main"]
    assert (await run(session, "sh -c 'exit 4'")).exit_code == 4


@pytest.mark.parametrize("shell", first(("bash", "zsh", "dash", "mksh", "busybox"), "zsh", "dash"))
async def test_nothing_is_typed_into_a_line_that_is_not_complete_when_nobody_was_told(
    manager: SessionManager, shell: str
) -> None:
    session = await manager.create(request(shell=shell))
    FaultySession.plans["main"] = Faults({MarkKind.LINE_CONTINUED: 0}, 0, share=1)
    for begin, end, reported in (
        (b"printf '<%s>' 'abc", b"def'", b"<abc\r\ndef>"),
        (b"cat <<E\nabc", b"def\nE", b"abc\r\ndef\r\n"),
    ):
        session.send(begin + b"\n")
        with pytest.raises(SessionBusy) as refused:
            await session.begin("echo never", command_id="never")
        assert "C-c" in refused.value.suggestion
        session.send(end + b"\n")
        await until(session, lambda reported=reported: session.log.read(0, session.log.end).count(reported))
        result = await run(session, "echo next")
        assert (result.output, result.exit_code) == ("next\n", 0)
    # What was not ended is dropped by the key that the answer names.
    session.send(begin + b"\n")
    with pytest.raises(SessionBusy):
        await session.begin("echo never", command_id="never")
    session.send(b"\x03")
    assert (await run(session, "echo next")).exit_code == 0


@pytest.mark.parametrize("shell", first(("dash", "mksh", "busybox"), "mksh"))
async def test_a_prompt_that_a_person_replaces_keeps_nobody_waiting(manager: SessionManager, shell: str) -> None:
    session = await manager.create(request(shell=shell))
    for lines in (b"PS1=mine\n", b"PS1=\n", b"PS1=\ntrue\n"):
        typed = await session.typed_lines.send_lines(lines, "typed")
        assert typed is not None
        assert await wait.for_command(session, typed, BOUND_SECONDS, until_input=True) == "finished"
        assert (await run(session, "sh -c 'exit 3'")).exit_code == 3
        assert session.latest is not None
        assert not session.latest.dropped
    typed = await session.typed_lines.send_lines(b"PS1=\nread x\n", "typed")
    assert typed is not None
    assert await wait.for_command(session, typed, BOUND_SECONDS, until_input=True) == "input"
    with pytest.raises(SessionBusy):
        await session.begin("echo never", command_id="never")
    session.send(b"line\n")
    assert (await run(session, 'echo "$x"')).output == "line\n"


@pytest.mark.parametrize("shell", first(("bash", "zsh", "fish", "dash", "mksh", "busybox"), "bash", "fish", "dash"))
async def test_a_line_whose_prompt_was_lost_is_found_to_have_ended(manager: SessionManager, shell: str) -> None:
    session = await manager.create(request(shell=shell))
    FaultySession.plans["main"] = Faults({MarkKind.PROMPT_START: 0, MarkKind.PROMPT_READY: 0}, 0, share=1)
    typed = await session.typed_lines.send_lines(b"sh -c 'exit 4'\n", "typed")
    assert typed is not None
    assert await wait.for_command(session, typed, BOUND_SECONDS, until_input=False) == "finished"
    assert (typed.record.status, typed.record.exit_code) == ("finished", 4)
    del FaultySession.plans["main"]
    assert (await run(session, "sh -c 'exit 3'")).exit_code == 3
