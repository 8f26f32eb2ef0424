"""A screen that nobody has looked at yet: programs that ask about it are answered, and nobody waits for that."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import textwrap
from pathlib import Path

from ai_session.system.turns import Turns
from ai_session.terminal.display import Display, preload
from ai_session.terminal.log import MappedLog
from tests.support.bounds import BOUND_SECONDS

ROOT = Path(__file__).parents[4]


def test_who_asks_while_the_emulator_is_loaded_is_answered_afterwards(home: Path) -> None:
    """In a process of its own, as it is loaded once: nothing is said before the loop goes on."""
    program = """
        import asyncio, os
        from pathlib import Path
        from ai_session.terminal.display import Display
        from ai_session.terminal.log import MappedLog
        from ai_session.system.turns import Turns

        def printed(log, data):
            reader, writer = os.pipe()
            os.write(writer, data)
            return log.fill(lambda into: os.readv(reader, [into]))

        async def main():
            log, other, answers, answered = MappedLog(Path("log")), MappedLog(Path("other")), [], asyncio.Semaphore(0)
            turns = Turns()
            display, looked_at = Display(log, 24, 80, turns, 1), Display(other, 24, 80, turns, 2)

            def reply(data):
                answers.append(data)
                answered.release()

            for question in (b"\\x1b[6n", b"x\\x1b[6", b"n"):
                display.answer(printed(log, question), reply)
            looked_at.answer(printed(other, b"123\\x1b[6n"), reply)
            print(answers)
            print((await looked_at.snapshot()).lines[0])
            async with asyncio.timeout(180):
                for _ in range(2):
                    await answered.acquire()
            print(sorted(answers))

        asyncio.run(main())
    """
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
    line = [sys.executable, "-c", textwrap.dedent(program)]
    done = subprocess.run(line, cwd=home, env=env, capture_output=True, text=True, timeout=BOUND_SECONDS, check=False)
    assert done.stdout.splitlines() == ["[]", "123", r"[b'\x1b[1;1R\x1b[1;2R', b'\x1b[1;4R']"], done


def test_who_gives_up_waiting_for_the_emulator_does_so_for_nobody_else() -> None:
    assert not preload().cancel()
    preload().result(BOUND_SECONDS)


def test_a_question_of_a_session_that_is_closed_meanwhile_is_let_go_of(home: Path) -> None:
    async def answering() -> None:
        log = MappedLog(home / "log")
        reader, writer = os.pipe()
        os.write(writer, b"\x1b[6n")
        display = Display(log, 24, 80, Turns(), 1)
        display.answer(log.fill(lambda into: os.readv(reader, [into])), lambda _: None)
        for end in (reader, writer):
            os.close(end)
        log.close()
        await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}))

    asyncio.run(answering())
