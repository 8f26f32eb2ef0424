"""Programs of tests/support/forked.py with the used parts of ``asyncio.subprocess.Process``."""

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
    """A forked program for asyncio. ``stdin`` is None unless the program reads."""

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
        """Connect the program's pipes with the streams of this object."""
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
        """Write ``given``, close the input and return the rest of output and errors once it has ended."""
        if self.stdin:
            self.stdin.write(given)
            self.stdin.close()
        said = await asyncio.gather(self.stdout.read(), self.stderr.read())
        await self.wait()
        return said[0], said[1]

    async def close(self) -> None:
        """Kill it if it has not ended, and close its streams."""
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
    """Yield a running program, which is killed afterwards if it has not ended."""
    process = Awaited(forked.piped(package, words, cwd=cwd, env=env, reads=reads, script=script))
    try:
        await process.connect()
        yield process
    finally:
        await process.close()
