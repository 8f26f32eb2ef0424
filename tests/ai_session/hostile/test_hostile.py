"""Whatever a command or a start file does to its shell or terminal: its output, its exit code and the directory are
exact, and so are those of the next commands. The cases are tables beside this file, see model.py."""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from agentwire import plugins
from ai_session.models import CommandRecord, SessionState
from ai_session.sessions import wait
from ai_session.sessions.manager import SessionManager
from ai_session.sessions.session import Session
from ai_session.sessions.spec import NewSession, SessionDefaults
from ai_session.terminal.marks import strip_marks
from tests.ai_session.contract.sessions.test_semantics import happened
from tests.ai_session.hostile.model import HERE, KINDS, SHELLS, Case, cases
from tests.ai_session.support.sessions import runtime_directory, text_of, workspace
from tests.ai_session.support.shells import start_file
from tests.support.bounds import BOUND_SECONDS, pause_awaited

pytestmark = pytest.mark.anyio

AT_ONCE = 8
"""Sessions at a time: those that find out what became of a command mostly wait."""
REAL = HERE.parents[2] / ".venv/frameworks"
"""Where scripts/frameworks unpacks what others have published."""
ALL = tuple(cases())
EVERY_SHELL = sorted({case.shell for case in ALL})
INTERNAL = ("/shell'/", "7777;")
"""What the session types and its marks."""
NAMES = "__ais_"
"""Begins those of the session's own, of which the shell speaks where they are taken away."""
Way = Callable[[Session, Case, Path], Awaitable[list[str]]]
"""How a case is tried: gives what is wrong."""


@pytest.fixture(params=plugins.names("ai_session.backends"))
async def manager(request: pytest.FixtureRequest, home: Path) -> AsyncIterator[SessionManager]:
    manager = SessionManager(runtime_directory(home), SessionDefaults(backend=request.param, max_sessions=1000))
    yield manager
    await manager.stop()


@pytest.mark.torture
@pytest.mark.parametrize("shell", EVERY_SHELL)
@pytest.mark.parametrize("kind", KINDS)
async def test_every_case(manager: SessionManager, kind: str, shell: str) -> None:
    chosen = [case for case in ALL if (case.kind, case.shell) == (kind, shell)]
    await try_all(manager, chosen)


FAILED = {
    (kind, shell): chosen
    for kind in KINDS
    for shell in EVERY_SHELL
    if (chosen := [case for case in ALL if case.failed and (case.kind, case.shell) == (kind, shell)])
}


@pytest.mark.corners
@pytest.mark.either("manager")
@pytest.mark.parametrize(("kind", "shell"), FAILED)
async def test_cases_that_once_failed(manager: SessionManager, kind: str, shell: str) -> None:
    await try_all(manager, FAILED[kind, shell])


def test_there_are_enough_of_every_kind_and_each_says_why() -> None:
    for kind in KINDS:
        assert {case.shell for case in ALL if case.kind == kind} >= set(SHELLS), kind
    assert all(case.why for case in ALL)
    assert len({(case.kind, case.shell, case.run, case.start) for case in ALL}) == len(ALL)


def test_the_documentation_counts_them() -> None:
    page = (HERE.parents[2] / "docs/explanation/terminals.md").read_text()
    for kind in KINDS:
        counts = [sum((case.kind, case.shell) == (kind, shell) for case in ALL) for shell in SHELLS]
        row = " | ".join(map(str, counts))
        assert re.search(rf"^\| {kind.split('_')[0]}\b[^|]* \| {re.escape(row)} \|$", page, re.MULTILINE), (kind, row)
    assert f"{len({case.needs + case.shell + case.named for case in ALL if case.needs})} are published" in page


async def try_all(manager: SessionManager, chosen: Sequence[Case]) -> None:
    """Try each as a command and, where it says how it ends then, typed."""
    places = asyncio.Semaphore(AT_ONCE)

    async def in_turn(number: int, case: Case, way: Way) -> list[str]:
        async with places:
            return [f"{case.name}: {what}" for what in await wrong_in(manager, number, case, way)]

    installed = [case for case in chosen if not case.needs or (REAL / case.needs).exists()]
    ways = [(case, _wrong_in) for case in installed]
    ways += [(case, _wrong_when_typed) for case in installed if case.typed is not None]
    found = await asyncio.gather(*(in_turn(number, case, way) for number, (case, way) in enumerate(ways)))
    problems = [line for lines in found for line in lines]
    assert not problems, "\n".join(problems)


async def wrong_in(manager: SessionManager, number: int, case: Case, way: Way) -> list[str]:
    """What is wrong in the case or after it; nothing when all is right."""
    home = home_of(case, number)
    session = await manager.create(
        NewSession(
            name=f"s{number}",
            shell=case.shell,
            working_directory=str(workspace(Path(os.environ["HOME"]))),
            client_env={**os.environ, "HOME": str(home), **own_start_file(case, home)},
            env={},
        )
    )
    try:
        return await way(session, case, home)
    except Exception as error:
        return [repr(error)]
    finally:
        await manager.close(session)


def home_of(case: Case, number: int) -> Path:
    home = Path(os.environ["HOME"]) / f"h{number}"
    # Where it is missing, fish reads all manual pages of the system first.
    (home / ".local/share/fish/generated_completions").mkdir(parents=True)
    file = home / start_file(case.shell)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(placed(case.start, home))
    return home


def own_start_file(case: Case, home: Path) -> dict[str, str]:
    """What names the start file of those who read only what they are told to."""
    return {"ENV": str(home / ".shrc")} if start_file(case.shell) == ".shrc" else {}


def placed(text: str, home: Path) -> str:
    return text.replace("@HOME@", str(home)).replace("@REAL@", str(REAL))


def printed(session: Session, record: CommandRecord, case: Case) -> str:
    """Every byte with LF line ends; after a start file the text, as hooks may draw what is not seen."""
    if case.start:
        return text_of(session, record)
    end = session.log.end if record.end_offset is None else record.end_offset
    raw = strip_marks(session.log.read(record.start_offset, end), session.spec.nonce)
    return raw.replace(b"\r\n", b"\n").decode(errors="replace")


async def _wrong_in(session: Session, case: Case, home: Path) -> list[str]:
    before = session.cwd
    wrong = await tried(session, case, home)
    if wrong or case.ended:
        return wrong
    became = os.path.basename(session.spec.shell)
    if case.becomes and became != case.becomes:
        wrong.append(f"the shell counts as {became}")
    for code in (4, 7):
        wrong += await after(session, case, f"/bin/sh -c 'echo next; exit {code}'", case.next, code)
    if not wrong:
        wrong += await typed_after(session, case)
    if case.start:
        wrong += await daily(session, case)
    elif session.cwd != (placed(case.cwd, home) or before):
        wrong.append(f"the directory is {session.cwd}")
    return wrong


async def tried(session: Session, case: Case, home: Path) -> list[str]:
    running = await session.begin(placed(case.run, home), command_id="cmd")
    for event, typed in case.keys:
        if not await happened(session, event):
            return [f"{event} never happened, {session.state()}, {printed(session, running.record, case)!r}"]
        session.send(typed.encode())
    reason = await wait.for_command(session, running, BOUND_SECONDS, until_input=not case.keys)
    if reason != "finished":
        return [f"{reason}, {session.state()}, {printed(session, running.record, case)!r}"]
    wrong: list[str] = []
    record, said = running.record, printed(session, running.record, case)
    if case.output is not None and said != placed(case.output, home):
        wrong.append(f"printed {said!r}")
    if case.lost and not (record.status == "lost" and record.exit_code is None and record.note):
        wrong.append(f"is said to be {record.status} with {record.exit_code}, {record.note!r}")
    if case.exit_code is not None and (record.exit_code, record.status) != (case.exit_code, "finished"):
        wrong.append(f"{record.status} with exit code {record.exit_code}")
    if case.ended and not await wait.for_output(session, BOUND_SECONDS, lambda: session.exit is not None):
        wrong.append("the shell has not ended")
    if not case.ended and session.exit is not None:
        wrong.append(f"the shell has ended, {session.exit}")
    return wrong


async def after(session: Session, case: Case, command: str, wanted: str | None, code: int) -> list[str]:
    """What is wrong in a command that comes after the case."""
    running = await session.begin(command, command_id="next")
    reason = await wait.for_command(session, running, BOUND_SECONDS, until_input=True)
    if reason != "finished":
        return [f"then {command!r}: {reason}, {session.state()}, {printed(session, running.record, case)!r}"]
    said, record = printed(session, running.record, case), running.record
    exact = wanted is None or said == wanted.replace("@code@", str(code))
    if exact and (record.exit_code, record.status) == (code, "finished"):
        return []
    return [f"then {command!r}: {record.status} with exit code {record.exit_code}, printed {said!r}"]


async def _wrong_when_typed(session: Session, case: Case, home: Path) -> list[str]:
    """What is wrong where it is typed at the prompt, and after it."""
    running = await session.typed_lines.send_lines(placed(case.run, home).encode() + b"\n", "typed")
    assert running is not None
    reason = await wait.for_command(session, running, BOUND_SECONDS, until_input=False)
    record, said = running.record, printed(session, running.record, case)
    if reason != "finished":
        return [f"typed: {reason}, {session.state()}, {said!r}"]
    exact = (record.status, record.exit_code) == ("finished", case.typed)
    if not exact and not (case.typed == "lost" == record.status and record.note):
        return [f"typed: {record.status} with {record.exit_code}, {record.note!r}"]
    if own := [text for text in (*INTERNAL, *([] if case.output is None else [NAMES])) if text in said]:
        return [f"typed: {own} in {said!r}"]
    if case.becomes and os.path.basename(session.spec.shell) != case.becomes:
        return [f"typed: the shell counts as {session.spec.shell}"]
    wrong = await typed_after(session, case)
    for code in (4, 7):
        wrong += await after(session, case, f"/bin/sh -c 'echo next; exit {code}'", case.next, code)
    return wrong or await typed_after(session, case)


async def typed_after(session: Session, case: Case) -> list[str]:
    """What is wrong in a line that is typed after the case: it may be lost, and is never said to have ended otherwise
    than it has."""
    code = 0 if "e" in session.at.flags else 6  # under `set -e` another one would end the shell
    ran = workspace(Path(os.environ["HOME"])) / f"ran-{session.spec.name}-{session.log.end}"
    # Where too few files may be opened it cannot say that it ran.
    line = f"/bin/sh -c '(echo x >>{ran}) && exit {code}'\n"
    running = await session.typed_lines.send_lines(line.encode(), "after")
    if running is None:
        return [f"then typed: it is taken for input, {session.state()}"]
    reason = await wait.for_command(session, running, BOUND_SECONDS, until_input=False)
    record = running.record
    times = ran.read_text().count("x") if ran.exists() else 0
    if reason != "finished":
        return [f"then typed: {reason}, {session.state()}, ran {times} times"]
    known = record.status == "finished" and record.exit_code is not None
    right = times == int(record.exit_code == code) if known else times <= 1
    lost = record.status == "lost" and record.exit_code is None and record.note
    return (
        [] if right and (known or lost) else [f"then typed: {record.status} with {record.exit_code}, ran {times} times"]
    )


async def daily(session: Session, case: Case) -> list[str]:
    """What is wrong in what is done every day: several lines, a loop, a failure, another directory, Ctrl-C, a line that
    a person types."""
    fish = os.path.basename(session.spec.shell) == "fish"
    loop = "for i in 1 2\n  echo $i\nend" if fish else "for i in 1 2; do\n  echo $i\ndone"
    status = "$status" if fish else "$?"
    wrong = [
        *await after(session, case, "echo a; echo b >&2; printf c", "a\nb\nc", 0),
        *await after(session, case, loop, "1\n2\n", 0),
        *await after(session, case, "false", "", 1),
        *await after(session, case, f"echo {status}", "1\n", 0),
        *await after(session, case, "cd /usr && pwd", "/usr\n", 0),
    ]
    if wrong:
        return wrong
    if session.cwd != "/usr":
        wrong.append(f"the directory is {session.cwd}")
    running = await session.begin("sleep 20", command_id="sleep")
    await happened(session, "foreground")
    session.send(b"\x03")
    reason = await wait.for_command(session, running, BOUND_SECONDS, until_input=False)
    if (reason, running.record.exit_code) != ("finished", 130):
        wrong.append(f"Ctrl-C: {reason}, exit code {running.record.exit_code}")
    wrong += await after(session, case, "echo on", "on\n", 0)
    return wrong + await typed_line(session, case, status)


async def at_prompt(session: Session) -> bool:
    """Look again and again, because the kernel's part in the state is not announced."""
    end = time.monotonic() + BOUND_SECONDS
    while not (ready := session.state() is SessionState.READY) and time.monotonic() < end:
        await pause_awaited()
    return ready  # a hook of the prompt may have a program at work a moment later


async def typed_line(session: Session, case: Case, status: str) -> list[str]:
    """What is wrong around a line that a person types."""
    if not await at_prompt(session):
        return [f"no prompt, {session.state()}"]
    mark = workspace(Path(os.environ["HOME"])) / f"typed-{session.spec.name}"
    session.send(f"touch {mark}; sh -c 'exit 3'\r".encode())
    if not await wait.for_output(session, BOUND_SECONDS, mark.exists):
        return ["a typed line did not run"]
    if not await at_prompt(session):
        return [f"after a typed line: {session.state()}"]
    return await after(session, case, f"echo {status}", "3\n", 0)
