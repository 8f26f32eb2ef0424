"""The verbs of the journal: which calls were made, and the proof that the records are unchanged."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentwire.cli.options import Group
from agentwire.cli.output import EXIT_ERROR, leave, remark, show_facts, show_json, show_rows
from ccswarm.cli.output import Json, report
from ccswarm.cli.parameters import Config, LastRun, open_app
from ccswarm.errors import JournalBroken, UsageInvalid
from ccswarm.runs.status import LAST, run_id_of

if TYPE_CHECKING:
    from ccswarm.journal.chain import Record
    from ccswarm.journal.verify import Findings

app = Group(
    "Verify and show the record of calls.",
    epilog="Exit codes: 0 shown, or verified; 1 verification failed; 2 wrong usage.",
)

COLUMNS = ("at", "worker", "seq", "event", "task", "agent", "tool", "status", "exit_code", "seconds")


@app.command()
def verify(
    audit: Annotated[
        list[Path] | None,
        typer.Option(
            help="Audit log of a server, to compare the journal's calls with: a file, or a directory of files; may be"
            " repeated. ai-session's: ~/.local/state/ai-session/audit, or what ai-session audit export writes."
        ),
    ] = None,
    directory: Annotated[
        Path | None, typer.Option("--directory", help="A journal in another directory, such as a copy.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Check that no record of the journal was changed, added, moved or removed; with --audit also that every call is
    recorded once in the journal and once in the server's log, and that the log has no call that the journal does not.

    Exit codes: 0 everything holds, 1 something does not, 2 there is no journal, or no such log.
    """
    from ccswarm.journal import verify as journal_proof

    journal = _journal(directory)
    found = journal_proof.verify(journal)
    joined = journal_proof.join(journal, _lines(_logs(audit))) if audit else None
    sound = found.sound and (joined is None or joined.sound)
    if as_json:
        facts: dict[str, Any] = {"sound": sound, "directory": str(journal), "journal": asdict(found)}
        show_json(facts | ({"audit": asdict(joined)} if joined else {}))
    else:
        counts = {name: value for name, value in asdict(found).items() if name not in ("problems", "broken", "heads")}
        show_facts({"directory": journal, "verdict": "sound" if found.sound else "changed", **counts})
        _print_problems(found)
        if joined:
            show_facts({f"audit_{name}": value for name, value in asdict(joined).items() if name != "problems"})
            _print_problems(joined)
    if not sound:
        if not as_json:
            report(JournalBroken("verification failed", suggestion="compare with a copy"), as_json=False)
        leave(EXIT_ERROR)


@app.command()
def show(run: LastRun = LAST, config: Config = None, as_json: Json = False) -> None:
    """Show the journal's records of a run, in chronological order.

    Exit codes: 0 shown, 2 there is no such run.
    """
    from ccswarm.config import config as files
    from ccswarm.journal import files as journal_files

    run_id = asyncio.run(_run(run, config))
    records = list(journal_files.read(journal_files.directory_of(files.state_directory()), run_id))
    if as_json:
        show_json([asdict(record) for record in records])
    else:
        show_rows([_row(record, run_id) for record in records], COLUMNS)


async def _run(text: str, config: Path | None) -> str:
    async with open_app(config) as opened:
        return await run_id_of(opened.engine, text, opened.project)


def _journal(directory: Path | None) -> Path:
    from ccswarm.config import config as files
    from ccswarm.journal import files as journal_files

    journal = directory or files.state_directory() / "journal"
    if not journal_files.files(journal):
        raise UsageInvalid(f"there is no journal in {journal}", suggestion="ccswarm run writes one")
    return journal


def _logs(given: list[Path] | None) -> list[Path]:
    found: list[Path] = []
    for path in given or ():
        inside = sorted(path.glob("*.jsonl")) if path.is_dir() else [path]
        if not inside or not all(one.is_file() for one in inside):
            raise UsageInvalid(f"there is no audit log {path}", suggestion="ai-session audit export > FILE writes one")
        found += inside
    return found


def _lines(logs: list[Path]) -> Iterator[bytes]:
    for log in logs:
        with log.open("rb") as file:
            yield from file


def _print_problems(found: Findings) -> None:
    for problem in found.problems:
        remark(f"{problem.location}: {problem.what}")
    if found.broken > len(found.problems):
        remark(f"and {found.broken - len(found.problems)} more")


def _row(record: Record, run_id: str) -> dict[str, Any]:
    facts = record.facts
    at = time.strftime("%H:%M:%S", time.localtime(record.at)) + f".{int(record.at % 1 * 1000):03}"
    task = str(facts.get("task", "")).removeprefix(f"{run_id}.")
    shown = {"at": at, "worker": record.worker, "seq": record.seq, "event": record.event}
    return {**facts, **shown, "task": task}
