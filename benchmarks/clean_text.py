"""Clean text: speed compared with a blind removal of escape sequences, and how much of real logs a caller gets."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

from ai_session.system.turns import finished
from ai_session.terminal.log import READ_BYTES, MappedLog
from ai_session.terminal.text import clean
from ai_session.terminal.transcript import Transcript
from benchmarks.report import Report
from benchmarks.size import sized

LOGS = Path(__file__).parent.parent / "tests" / "data" / "logs"
MAX_CHARS = 7000
SAMPLE_BYTES, SAMPLE_LINES = sized((2_000_000, 100_000), (20_000, 1_000))

BLIND_STRIP = re.compile(
    rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[PX^_][^\x1b]*(?:\x1b\\)?|[ -/]+[0-~]|[0-~])"
    rb"|[\x00-\x06\x0e-\x1a\x7f]"
)
"""What many tools do; it is wrong wherever a line is overwritten or the cursor moves."""


def samples() -> dict[str, bytes]:
    """Return synthetic output by kind."""
    numbers = range(SAMPLE_LINES)
    kinds = {
        "plain": b"".join(b"line %d of the numbered text file\r\n" % n for n in numbers),
        "coloured log": b"\x1b[0m\x1b[32mINFO\x1b[0m 2026-11-20 \x1b[1mmodule\x1b[22m: value = 12345 and more\r\n"
        * (SAMPLE_LINES // 2),
        "unicode": "héllo wörld 世界你好 😀🚀 text\r\n".encode() * SAMPLE_LINES,
        "one-line bar": b"".join(b"\r\x1b[Kfile %3d%% [%s]" % (n % 100, b"#" * (n % 50)) for n in numbers),
        "cargo-like": b"".join(
            b"\r\x1b[K\x1b[1m\x1b[32m   Compiling\x1b[0m crate%d\r\n\x1b[1m\x1b[36m    Building\x1b[0m [=>] %d: x, y"
            % (n, n)
            for n in numbers
        ),
        "several lines redrawn": b"".join(
            b"\x1b[2A\x1b[2Klayer1: %d%%\r\n\x1b[2Klayer2: %d%%\r\n" % (n % 100, n % 77) for n in numbers
        ),
    }
    return {kind: data[:SAMPLE_BYTES] for kind, data in kinds.items()}


def rate(work: Callable[[bytes], object], data: bytes) -> float:
    """Return the speed in MB/s, the best of three."""
    best = float("inf")
    for _ in range(3):
        start = time.perf_counter()
        work(data)
        best = min(best, time.perf_counter() - start)
    return len(data) / best / 1e6


def rendered(data: bytes, directory: Path) -> str:
    """Return the text that a call returns for a command that printed ``data``."""
    log = MappedLog(directory / f"log-{len(data)}")

    for begin in range(0, len(data), READ_BYTES):

        def source(room: memoryview, piece: bytes = data[begin : begin + READ_BYTES]) -> int:
            room[: len(piece)] = piece
            return len(piece)

        log.fill(source)
    try:
        return finished(Transcript(log, 0, log.end).render(MAX_CHARS)).text
    finally:
        log.close()


async def run(report: Report, directory: Path) -> None:
    report.title("clean text, speed (floor: blind strip of escape sequences)")
    for kind, data in samples().items():
        report.row(kind, rate(clean, data), "MB/s", floor=rate(lambda raw: BLIND_STRIP.sub(b"", raw), data))
    report.title(f"characters of real logs (floor: raw bytes; returned: at most {MAX_CHARS})")
    for path in sorted(LOGS.glob("*.raw")):
        data = path.read_bytes()
        report.row(f"{path.stem}, clean", len(clean(data)), "chars", floor=len(data))
        report.row(f"{path.stem}, returned", len(rendered(data, directory)), "chars", floor=len(data), most=MAX_CHARS)
