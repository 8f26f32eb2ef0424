"""Programs of tests/support/forked.py as asyncio has processes: what is used of ``asyncio.subprocess.Process``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import BinaryIO

from tests.support import forked
from tests.support.bounds import BOUND_SECONDS
from tests.support.forked import Forked


class Awaited:
    """``stdin`` is there where the program reads."""

    def __init__(self, program: Forked) -> None:
        self._program = program
        self._transports: list[asyncio.BaseTransport] = []
        self.pid = program.pid
        self.send_signal = program.send_signal
        self.kill = program.kill
        self.terminate = program.terminate
        self.stdin: asyncio.StreamWriter | None = None
        self.stdout = asyncio.StreamReader()
        self.stderr = asyncio.StreamReader()

    async def connect(self) -> None:
        """The program's streams are those of this object."""
        program, loop = self._program, asyncio.get_running_loop()
        for reader, pipe in ((self.stdout, program.stdout), (self.stderr, program.stderr)):
            await self._read(reader, pipe)
        if program.stdin:
            transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, program.stdin)
            self.stdin = asyncio.StreamWriter(transport, protocol, None, loop)
            self._transports.append(transport)

    async def _read(self, reader: asyncio.StreamReader, pipe: BinaryIO | None) -> None:
        assert pipe
        connected = asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
        self._transports.append((await connected)[0])

    @property
    def returncode(self) -> int | None:
        return self._program.poll()

    async def wait(self) -> int:
        return await asyncio.to_thread(self._program.wait, BOUND_SECONDS)

    async def communicate(self, given: bytes = b"") -> tuple[bytes, bytes]:
        """What is left of its output and errors, once it has ended; its input ends with ``given``."""
        if self.stdin:
            self.stdin.write(given)
            self.stdin.close()
        said = await asyncio.gather(self.stdout.read(), self.stderr.read())
        await self.wait()
        return said[0], said[1]

    async def close(self) -> None:
        """Killed if it has not ended."""
        self._program.kill()
        await self.wait()
        for transport in self._transports:
            transport.close()
        await asyncio.sleep(0)  # they close their pipes in the next round of the loop
        self._program.close()


@asynccontextmanager
async def awaited(
    package: str, words: Sequence[str], *, cwd: Path, env: Mapping[str, str], reads: bool = False, script: str = ""
) -> AsyncGenerator[Awaited]:
    """While the test needs it; afterwards it has ended."""
    process = Awaited(forked.piped(package, words, cwd=cwd, env=env, reads=reads, script=script))
    try:
        await process.connect()
        yield process
    finally:
        await process.close()
