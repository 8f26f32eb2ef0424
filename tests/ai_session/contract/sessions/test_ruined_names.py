"""Whatever a command does to the names by which its shell reports: nothing runs twice, and no wrong code is told."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from agentwire import plugins
from ai_session.sessions.manager import SessionManager
from ai_session.sessions.spec import SessionDefaults
from tests.ai_session.support.ruined_names import SOURCES, play, ruins
from tests.ai_session.support.sessions import runtime_directory

pytestmark = pytest.mark.anyio

AT_ONCE = 8
"""Sessions at a time: those that find out what became of a command mostly wait."""

KINDS = {
    "bash": ("readonly __ais_r", "readonly __ais_w", "unset -f __ais_b", "declare -i __ais_B=0"),
    "zsh": ("alias -g eval=false", "typeset -u __ais_t", "disable -r {", "readonly __ais_l"),
    "dash": ("alias __ais_b=false",),
    "mksh": ("typeset -i __ais_t=0",),
    "busybox": ("readonly __ais_J",),
    "fish": ("set -e __ais_f",),
}


async def played(backend: str, home: Path, cases: list[tuple[str, str]]) -> list[str]:
    # Where it is missing, fish reads all manual pages of the system first.
    (home / ".local/share/fish/generated_completions").mkdir(parents=True)
    defaults = SessionDefaults(backend=backend, max_sessions=len(cases), user_rc=False)
    manager = SessionManager(runtime_directory(home), defaults)
    places = asyncio.Semaphore(AT_ONCE)

    async def in_turn(number: int, shell: str, ruin: str) -> list[str]:
        async with places:
            return await play(manager, shell, f"s{number}", ruin, home)

    try:
        wrong = await asyncio.gather(*(in_turn(number, *case) for number, case in enumerate(cases)))
    finally:
        await manager.stop()
    return [text for texts in wrong for text in texts]


@pytest.mark.corners
@pytest.mark.either("backend")
@pytest.mark.parametrize("backend", plugins.names("ai_session.backends"))
async def test_names_that_were_ruined(backend: str, home: Path) -> None:
    assert not await played(backend, home, [(shell, ruin) for shell, all_ in KINDS.items() for ruin in all_])


@pytest.mark.torture
@pytest.mark.parametrize("backend", plugins.names("ai_session.backends"))
@pytest.mark.parametrize("shell", SOURCES)
async def test_every_name_ruined_in_every_way(backend: str, shell: str, home: Path) -> None:
    problems = await played(backend, home, [(shell, ruin) for ruin in ruins(shell)])
    assert not problems, "\n".join(problems)
