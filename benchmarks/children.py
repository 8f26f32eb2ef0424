"""Programs that a benchmark starts. If one of them fails, the benchmark fails with its message."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager


class ChildFailed(Exception):
    """A program exited with a code other than 0, or before its expected output; the message has its errors."""

    def __init__(self, argv: Sequence[str], code: int, errors: str) -> None:
        command = " ".join(argv)
        super().__init__(f"exit code {code} of {command}\n{errors.rstrip()}")


def output(argv: Sequence[str]) -> str:
    """Return what a program prints. Raises ChildFailed."""
    return outcome(subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))


def outcome(process: subprocess.Popen[str]) -> str:
    """Return the output of a started program with pipes for output and errors. Raises ChildFailed."""
    out, err = process.communicate()
    if process.returncode:
        raise ChildFailed([str(word) for word in process.args], process.returncode, err)  # type: ignore[union-attr]
    return out


@asynccontextmanager
async def serving(*argv: str) -> AsyncGenerator[str]:
    """Yield the first line that a program prints, then end it with its input or terminate it. Raises ChildFailed."""
    process = await asyncio.create_subprocess_exec(
        *argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdin
    assert process.stdout
    assert process.stderr
    errors = asyncio.create_task(process.stderr.read())
    try:
        line = (await process.stdout.readline()).decode()
        if not line:
            raise ChildFailed(argv, await process.wait(), (await errors).decode(errors="replace"))
        yield line
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()
        sys.stderr.write((await errors).decode(errors="replace"))
