"""Verbs about the audit log; they read its files and need no daemon."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from agentwire.cli.options import Argument, Group, Json, Option
from agentwire.cli.output import EXIT_ERROR, Leave, leave, remark, say, show_facts, show_json, show_rows, write_bytes
from agentwire.cli.refusals import describe
from agentwire.counts import counted
from agentwire.system import whole_files
from ai_session.cli.output import EXIT_NOT_FOUND, report
from ai_session.errors import AiSessionError, AuditBroken, InvalidArguments

if TYPE_CHECKING:
    from ai_session.audit.chain import Anchor, Report

app = Group(
    "What was asked, decided and done: every call of every client and person.",
    epilog="Exit codes: 0 done, or the log is sound; 1 the log was changed, or an error; 2 wrong usage; "
    "3 no log, or no such record.",
)

Directory = Annotated[Path | None, Option("--directory", help="A log in another directory, such as a copy.")]

COLUMNS = ("at", "seq", "event", "what", "session", "who", "outcome")


@app.command()
def tail(
    lines: Annotated[int, Option("--lines", "-n", least=1, help="How many records.")] = 20,
    directory: Directory = None,
    as_json: Json = False,
) -> None:
    """Show the newest records."""
    from ai_session.audit import files

    found = list(files.records(files.last_lines(_log(directory, as_json), lines)))
    if as_json:
        show_json(found)
    else:
        show_rows([_row(record) for record in found], COLUMNS)


@app.command()
def show(
    reference: Annotated[str, Argument(help="A call's id, or a record's number.")],
    directory: Directory = None,
    as_json: Json = False,
) -> None:
    """Show both records of a call, or one record."""
    from ai_session.audit import files

    log = _log(directory, as_json)
    needle = f'"seq":{reference},' if reference.isdigit() else f'"call":{json.dumps(reference)}'
    found = list(files.records(line for line in files.lines(log) if needle.encode() in line))
    if not found:
        leave(report(AiSessionError(f"no record of {reference!r}"), as_json=as_json, exit_code=EXIT_NOT_FOUND))
    if as_json:
        show_json(found)
        return
    for record in found:
        show_facts({"at": _time(record), **{k: v for k, v in record.items() if k not in ("ts", "mono", "v")}})
        say("")


@app.command()
def verify(
    anchor: Annotated[
        list[str] | None,
        Option("--anchor", help="SEQ:HEAD as a result's _meta or the system's log showed it; may be repeated."),
    ] = None,
    directory: Directory = None,
    as_json: Json = False,
) -> None:
    """Check that no record was changed, added, moved or removed. Remembers a valid log's end for the next check."""
    from ai_session.audit import files, keys

    remembered = None if directory else _remembered()
    log = _log(directory, as_json, remembered)
    anchors = [_anchor(text) for text in anchor or []] + ([remembered] if remembered else [])
    key = keys.public_key(log.parent / "audit.key")
    result = files.verify(log, keys.check, key=key, anchors=anchors)
    if as_json:
        show_json({"sound": not result.broken, "log": str(log), **asdict(result)})
    else:
        _show_report(log, result)
    if result.broken:
        if not as_json:
            suggestion = "compare with a copy" if directory else _removal_hint()
            report(AuditBroken(f"the log in {log} was changed", suggestion=suggestion), as_json=False)
        leave(EXIT_ERROR)
    if not directory:
        try:
            _remember(result)
        except OSError as error:
            remark(f"not saved for the next check: {describe(error)}")


@app.command()
def export(
    to: Annotated[
        Literal["jsonl", "ocsf", "otel"],
        Option("--format", help="jsonl: the records as they are; ocsf: OCSF events; otel: OTLP/JSON."),
    ] = "jsonl",
    since: Annotated[int, Option("--since", least=1, help="Begin with this record.")] = 1,
    directory: Directory = None,
) -> None:
    """Write the log to standard output, one JSON document a line."""
    from ai_session.audit import export as audit_export
    from ai_session.audit import files

    lines = files.lines(_log(directory, as_json=False))
    chosen = (pair for line in lines if (pair := (line, files.unseal(line)))[1] and pair[1]["seq"] >= since)
    if to == "jsonl":
        for line, _ in chosen:
            write_bytes(line)
        return
    converted = {"ocsf": audit_export.ocsf, "otel": audit_export.otel}[to]
    for document in converted(record for _, record in chosen if record):
        write_bytes(json.dumps(document, separators=(",", ":")).encode() + b"\n")


def _log(directory: Path | None, as_json: bool, remembered: Anchor | None = None) -> Path:
    """Return the log's directory; exit with 3 if there is none, with 1 if there was one."""
    from ai_session.audit import files
    from ai_session.config import config

    homes = config.runtime_directories(config.home_directory(), os.getuid())
    candidates = [directory] if directory else [home / "audit" for home in homes]
    for candidate in candidates:
        if files.segments(candidate):
            return candidate
    error = AiSessionError(
        f"no audit log in {candidates[0]}", suggestion="nothing has been recorded yet; --directory names another log"
    )
    if remembered:
        error = AuditBroken(
            f"the log in {candidates[0]} is gone; it had {counted(remembered.seq, 'record')}",
            suggestion=_removal_hint(),
        )
    raise Leave(report(error, as_json=as_json, exit_code=EXIT_ERROR if remembered else EXIT_NOT_FOUND))


def _removal_hint() -> str:
    return f"compare with a copy; if it was removed on purpose: rm {_anchor_file()}"


def _anchor_file() -> Path:
    """Return where the log's end is remembered: apart from the log, so that removing one leaves the other."""
    from ai_session.config import config

    return config.home_directory() / ".local/share/ai-session/audit-anchor.json"


def _remembered() -> Anchor | None:
    from ai_session.audit.chain import Anchor

    path = _anchor_file()
    try:
        known: dict[str, Any] = json.loads(path.read_bytes())
        return Anchor(int(known["seq"]), str(known["head"]), str(known["key"]))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise AuditBroken(f"{path}: {error}", suggestion=f"check it, then remove it: rm {path}") from None


def _remember(result: Report) -> None:
    path = _anchor_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    facts = {"seq": result.last_seq, "head": result.head, "key": result.key, "at": int(time.time())}
    whole_files.replace(path, (json.dumps(facts) + "\n").encode())


def _anchor(text: str) -> Anchor:
    from ai_session.audit.chain import Anchor

    seq, _, head = text.partition(":")
    if not seq.isdigit() or len(head) != 64:
        raise InvalidArguments(
            f"{text[:80]!r} is not an anchor", suggestion="write SEQ:HEAD: a number, a colon and 64 hexadecimal digits"
        )
    return Anchor(int(seq), head.lower())


def _show_report(log: Path, result: Report) -> None:
    facts = {name: value for name, value in asdict(result).items() if name not in ("problems", "broken")}
    after = {"records_after_signature": result.last_seq - result.signed_seq}
    after |= {"records_after_anchor": result.last_seq - result.anchored_seq} if result.anchored_seq else {}
    show_facts({"log": log, "verdict": "changed" if result.broken else "sound", **facts, **after})
    for problem in result.problems:
        remark(f"{problem.location}: {problem.what}" if problem.location else problem.what)
    if result.broken > len(result.problems):
        remark(f"and {result.broken - len(result.problems)} more")


def _row(record: Mapping[str, Any]) -> dict[str, Any]:
    args: Mapping[str, Any] = record.get("args", {})
    actor: Mapping[str, Any] = record.get("actor", {})
    command: Mapping[str, Any] = args.get("command", {})
    return {
        "at": _time(record),
        "seq": record["seq"],
        "event": record.get("event"),
        "what": " ".join(filter(None, (record.get("tool") or record.get("host"), command.get("text", "")[:80]))),
        "session": record.get("session") or args.get("session_id") or args.get("name"),
        "who": actor.get("client") or actor.get("kind"),
        "outcome": record.get("outcome"),
    }


def _time(record: Mapping[str, Any]) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record["ts"] / 1e6))
