"""The tokens of a job, by what is sent with each question: four characters count as one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.report import Report
from benchmarks.size import sized
from tests.ccswarm.support.llm_job import job

MANY = sized(99, 9)
JOBS: dict[str, tuple[int, int, int]] = {
    "29 commands, one an answer": (29, 1, 153_500),
    "29 commands, two an answer": (29, 2, 0),
    f"{MANY} commands, one an answer": (MANY, 1, 0),
}
"""The number of commands, the number in one answer, and the limit of tokens sent."""

BILLED_NEW, BILLED_KEPT = 1.25, 0.1
"""Anthropic's prices relative to a normal input token: of one that is written to the cache, and of one read from it."""


async def run(report: Report, directory: Path) -> None:
    """Ask a provider on loopback, whose answers are always the same."""
    del directory
    report.title("Tokens")
    for name, (commands, each, most) in JOBS.items():
        await rows(report, name, commands, each, most)
        await rows(report, "  all outputs whole", commands, each, 0, keep_outputs=0)


async def rows(report: Report, name: str, commands: int, each: int, most: int, **settings: Any) -> None:
    done = await job(commands, each, **settings)
    sent, new = sum(done.sent), sum(done.new)
    note = f"in {len(done.sent)} questions, {max(done.sent)} in the longest"
    report.row(name, sent, "tokens", most=most or None, note=note)
    report.row("    not sent before", new, "tokens", note="the rest a provider may have kept")
    report.row("    as billed by Anthropic", BILLED_NEW * new + BILLED_KEPT * (sent - new), "tokens")
