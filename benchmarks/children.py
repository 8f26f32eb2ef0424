"""Programs that a benchmark starts. What one of them fails with is what the benchmark fails with."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager


class ChildFailed(Exception):
    """A program ended with an exit code other than 0, or before it said what it was to say; the text has its words."""

    def __init__(self, words: Sequence[str], code: int, said: str) -> None:
        shown = " ".join(words)
        super().__init__(f"exit code {code} of {shown}\n{said.rstrip()}")


def output(words: Sequence[str]) -> str:
    """What a program prints. Raises ChildFailed."""
    return outcome(subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))


def outcome(process: subprocess.Popen[str]) -> str:
    """The same of one that runs already, with pipes for output and errors."""
    out, err = process.communicate()
    if process.returncode:
        raise ChildFailed([str(word) for word in process.args], process.returncode, err)  # type: ignore[union-attr]
    return out


@asynccontextmanager
async def serving(*words: str) -> AsyncGenerator[str]:
    """The first line that a program prints, while it runs; it ends with its input, or is ended. Raises ChildFailed."""
    process = await asyncio.create_subprocess_exec(
        *words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdin
    assert process.stdout
    assert process.stderr
    errors = asyncio.create_task(process.stderr.read())
    try:
        line = (await process.stdout.readline()).decode()
        if not line:
            raise ChildFailed(words, await process.wait(), (await errors).decode(errors="replace"))
        yield line
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()
        sys.stderr.write((await errors).decode(errors="replace"))
