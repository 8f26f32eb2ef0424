"""Redaction: time per megabyte of ordinary output, and the cost of a flood of secrets."""

from __future__ import annotations

import base64
import random
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median

from ai_session.gate.redaction.known_secrets import MAX_KNOWN, Masking
from ai_session.gate.redaction.redactor import Redactor
from ai_session.system.turns import finished
from ai_session.terminal.log import READ_BYTES, MappedLog
from ai_session.terminal.masking import Spans
from ai_session.terminal.transcript import Transcript
from benchmarks.report import Report
from benchmarks.size import sized

ROOT = Path(__file__).parent.parent
MEGABYTES, PAGED_BYTES, OFFSETS = sized((3, 100_000_000, 40), (1, 2_000_000, 2))
MOST_MS = 10.0
"""Per megabyte: 100 MB/s."""


def samples() -> dict[str, bytes]:
    """Return output without secrets, including some that needs many states of the matcher."""
    chance = random.Random(1)
    logs = b"".join(path.read_bytes() for path in sorted((ROOT / "tests" / "data" / "logs").glob("*.raw")))
    packages = [path for name in ("ai_session", "ccswarm") for path in sorted((ROOT / name).rglob("*.py"))]
    sources = b"".join(path.read_bytes() for path in packages)
    kinds = {
        "build logs": logs,
        "sources": sources,
        "plain lines": b"".join(b"line %d of the numbered text file\r\n" % number for number in range(60_000)),
        "base64": base64.b64encode(chance.randbytes(3 << 20)),
        "hexadecimal": chance.randbytes(2 << 20).hex().encode(),
        "unicode": "héllo wörld 世界你好 😀🚀 text\r\n".encode() * 60_000,
    }
    size = MEGABYTES * 1_000_000
    return {kind: (data * (1 + size // len(data)))[:size] for kind, data in kinds.items()}


def milliseconds(work: Callable[[], object], tries: int = 3) -> float:
    """Return the least processor time of several tries; the first one also builds the matcher's states."""
    times: list[float] = []
    for _ in range(tries):
        begin = time.process_time()
        work()
        times.append((time.process_time() - begin) * 1e3)
    return min(times)


def pages(report: Report, directory: Path, masking: Masking) -> None:
    """Read at random positions of 100 MB, searching around them, with and without redaction."""
    chance = random.Random(3)
    report.title("pages of 100 MB of output with secrets hidden")
    for kind in ("plain lines", "build logs"):
        data = samples()[kind]
        log = MappedLog(directory / kind)
        for at in range(0, PAGED_BYTES, READ_BYTES):
            piece = data[at % (len(data) - READ_BYTES) :][:READ_BYTES]
            log.fill(lambda room, piece=piece: len(copied(room, piece)))
        offsets = [chance.randrange(log.first, log.end - 500_000) for _ in range(OFFSETS)]
        for chars in (7000, 200_000):
            bare, hidden = reading(log, offsets, chars, None), reading(log, offsets, chars, masking.spans)
            report.row(f"{kind}: {chars} characters", hidden, "ms", most=10 + chars / 2000, note=f"bare {bare:.2f} ms")
        log.close()


def reading(log: MappedLog, offsets: Sequence[int], chars: int, spans: Spans | None) -> float:
    """Return the milliseconds for a page, the median over ``offsets``."""

    def page(at: int) -> object:
        return finished(Transcript(log, 0, log.end, "n", spans).page(at, chars))

    return median(milliseconds(partial(page, at), 1) for at in offsets)


def copied(room: memoryview, piece: bytes) -> bytes:
    """Write ``piece`` into ``room`` and return it."""
    room[: len(piece)] = piece
    return piece


async def run(report: Report, directory: Path) -> None:
    """Measure with a hundred known values, each in all its spellings."""
    chance = random.Random(2)
    known = [(f"NAME_{number}", base64.b64encode(chance.randbytes(24)).decode()) for number in range(100)]
    redactor = Redactor(known, [r"ACME-[0-9]{8}"], b"key")
    report.title("redaction, 100 known values")
    report.row("a new redactor", milliseconds(lambda: Redactor(known, [], b"key")), "ms", most=100)
    for kind, data in samples().items():
        spent = milliseconds(lambda data=data: redactor.redact_bytes(data)) / MEGABYTES
        report.row(kind, spent, "ms/MB", most=MOST_MS, note=f"{1000 / spent:.0f} MB/s")
    logs = samples()["build logs"]
    text = logs.decode(errors="replace")
    spent = milliseconds(lambda: redactor.redact_text(text)) / MEGABYTES
    report.row("build logs as text", spent, "ms/MB", most=MOST_MS, note=f"{1000 / spent:.0f} MB/s")

    def streamed() -> None:
        stream = redactor.stream()
        for at in range(0, len(logs), 65536):
            stream.feed(logs[at : at + 65536])
        stream.finish()

    spent = milliseconds(streamed) / MEGABYTES
    report.row("build logs as a stream of 64 kB chunks", spent, "ms/MB", most=MOST_MS, note=f"{1000 / spent:.0f} MB/s")
    flood = b"".join(b"token=%032x\n" % chance.getrandbits(128) for _ in range(10_000))
    spent = milliseconds(lambda: redactor.redact_bytes(flood)) / 10_000 * 1e3
    report.row("one of a flood of secrets", spent, "us", most=50)
    full = [(f"N{number}", base64.b64encode(chance.randbytes(24)).decode()) for number in range(MAX_KNOWN)]
    report.row("a new redactor for the most values", milliseconds(lambda: Redactor(full, [], b"key")), "ms", most=200)
    most = Redactor(full, [], b"key")
    spent = milliseconds(lambda: most.redact_bytes(logs)) / MEGABYTES
    report.row("build logs, the most values", spent, "ms/MB", most=MOST_MS, note=f"{1000 / spent:.0f} MB/s")
    masking = Masking(directory / "key", ["NAME_*"], [])
    masking.learn(dict(known))
    pages(report, directory, masking)
