"""Proof that the journal was not altered, and that its calls match those in a server's audit log."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentwire.chain import Findings
from ccswarm.journal.chain import GENESIS, RECOVER, Link, is_torn, parse_line
from ccswarm.journal.files import files, read

CLIENT = "ccswarm"
"""The name of this project's calls in a server's audit log, in addition to their ids."""

CALL_PREFIX = "ccall_"
"""The prefix of the ids of calls that a toolbox made."""

Head = tuple[int, str]
"""The number and the hash of a record."""


@dataclass(slots=True)
class Report(Findings):
    """The result of verifying a journal. ``heads`` are the newest records, to pass to a later ``verify``. ``unclosed``
    are the workers whose file does not end with a close record: they are running, were killed, or the end of the file
    was cut off."""

    files: int = 0
    records: int = 0
    recoveries: int = 0
    torn_bytes: int = 0
    unclosed: list[str] = field(default_factory=list[str])
    heads: dict[str, Head] = field(default_factory=dict[str, Head])


@dataclass(slots=True)
class JoinReport(Findings):
    """The result of comparing the journal with the servers' audit logs. Ids are the journal's. ``calls`` counts the
    calls begun; ``joined`` of them are once in each log. ``open`` calls have no end record because their worker is
    running or was killed; ``in_progress`` calls have none at the server. ``refused`` calls were never sent."""

    calls: int = 0
    joined: int = 0
    refused: int = 0
    open: list[str] = field(default_factory=list[str])
    in_progress: list[str] = field(default_factory=list[str])


def verify(directory: Path, heads: Mapping[str, Head] | None = None) -> Report:
    """Check every file for changed, added, moved and removed records. Safe while workers write. A missing file or a cut
    end is only found if ``heads``, noted earlier, name them. Raises OSError."""
    report = Report()
    known = dict(heads or {})
    for worker, path in files(directory).items():
        _File(worker, path, report, known.pop(worker, None)).judge()
    for worker in known:
        report.add(f"{worker}.jsonl", "the file is missing")
    return report


class _File:
    """The check of one worker's file."""

    def __init__(self, worker: str, path: Path, report: Report, noted: Head | None) -> None:
        self._worker = worker
        self._path = path
        self._report = report
        self._noted = noted
        self._left = b""
        self._next: tuple[int, str | None] = (1, GENESIS)
        self._event = ""

    def judge(self) -> None:
        report, count = self._report, 0
        with self._path.open("rb") as file:
            for count, line in enumerate(file, 1):
                if link := parse_line(line if line.endswith(b"\n") else line + b"\n"):
                    self._record(count, link)
                else:
                    self._left += line
        report.files += 1
        if self._left and not self._torn():
            report.add(f"{self._path.name}:{count}", "the last bytes were altered")
        if self._event != "journal.close":
            report.unclosed.append(self._worker)
        head = report.heads.get(self._worker, (0, GENESIS))
        if self._noted and self._noted[0] > head[0]:
            report.add(self._path.name, f"it ends with record {head[0]}, but had {self._noted[0]}: its end was cut off")

    def _record(self, count: int, link: Link) -> None:
        record, location = link.record, f"{self._path.name}:{count}"
        self._between(location, link)
        seq, prev = self._next
        if record.seq != seq or prev not in (None, link.prev):
            missing = record.seq - seq
            why = f"{missing} missing" if missing > 0 else "records were changed, added, moved or removed here"
            self._report.add(location, f"record {record.seq} does not follow record {seq - 1}: {why}")
        if record.worker != self._worker:
            self._report.add(location, f"it is a record of worker {record.worker}")
        if self._noted and self._noted[0] == record.seq and self._noted[1] != link.digest:
            self._report.add(location, f"record {record.seq} is not the one that was noted: the file was rebuilt")
        self._next = (record.seq + 1, link.digest)
        self._event = record.event
        self._report.heads[self._worker] = (record.seq, link.digest)
        self._report.records += 1

    def _between(self, location: str, link: Link) -> None:
        """Judge the bytes between the last record and this one. Only a recovery record explains them by a crash."""
        recovery = link.record.facts if link.record.event == RECOVER else None
        left = self._left.removesuffix(b"\n")
        if recovery is not None:
            same = recovery.get("bytes") == len(left) and recovery.get("sha256") == hashlib.sha256(left).hexdigest()
            if same and self._torn():
                self._report.recoveries += 1
            else:
                self._report.add(location, "it reports torn bytes that do not exist")
        elif self._left:
            self._report.add(location, "the data before it was changed")
            self._next = (self._next[0] + self._left.count(b"\n"), None)
        self._left = b""

    def _torn(self) -> bool:
        left = self._left.removesuffix(b"\n")
        self._report.torn_bytes += len(left)
        return is_torn(left)


@dataclass(slots=True)
class _Call:
    """A call in the journal. ``begins`` and ``ends`` count its records."""

    begins: int = 0
    ends: int = 0
    server_call: str = ""
    found: list[str] = field(default_factory=list[str])
    """The server's ids of the calls that carried this call's id."""


@dataclass(slots=True)
class _Served:
    """A call in a server's audit log."""

    starts: int = 0
    ends: int = 0
    request: str = ""
    ours: bool = False
    apart: bool = False
    """Whether it need not be the only one: the server was killed before it recorded the result, or it repeats a call
    whose answer was lost."""


def join(directory: Path, audit_lines: Iterable[bytes]) -> JoinReport:
    """Compare the journal with the audit logs of the servers it called, given as lines in any order.

    The result is sound if each call has one begin and, unless listed as open, one end; if each call to which a server
    gave an id has one begin and one end there, with the journal's id as ``request``; and if each call that a server
    received from ccswarm is in the journal once. A call whose answer was lost because the server was killed may have
    been repeated; the lost one, or the repeated one if the server knew its key, then does not count. Raises OSError.
    """
    report = JoinReport()
    calls = _journal_calls(directory, report)
    served = _audit_calls(audit_lines, report)
    for call_id, entry in served.items():
        if call := calls.get(entry.request):
            call.found.append(call_id)
        elif entry.ours:
            report.add(call_id, "the server received this call from ccswarm, but the journal has no record of it")
    for client_id, call in calls.items():
        _compare(client_id, call, served, report)
    return report


def _journal_calls(directory: Path, report: JoinReport) -> dict[str, _Call]:
    calls: dict[str, _Call] = {}
    for record in read(directory):
        call_id = str(record.facts.get("call", ""))
        if record.event == "call.refused":
            report.refused += 1
        elif record.event == "call.begin":
            calls.setdefault(call_id, _Call()).begins += 1
        elif record.event == "call.end":
            call = calls.setdefault(call_id, _Call())
            call.ends += 1
            call.server_call = str(record.facts.get("server_call", ""))
    for call_id, call in calls.items():
        if call.begins != 1 or call.ends > 1:
            report.add(call_id, f"the journal has {call.begins} begin and {call.ends} end records of it")
        if not call.ends:
            report.open.append(call_id)
    report.calls = len(calls)
    return calls


def _audit_calls(audit_lines: Iterable[bytes], report: JoinReport) -> dict[str, _Served]:
    served: dict[str, _Served] = {}
    for record in _parsed(audit_lines, report):
        event, call_id = record.get("event"), str(record.get("call", ""))
        if event == "tool.start":
            entry = served.setdefault(call_id, _Served())
            entry.starts += 1
            entry.request = str(record.get("request") or "")
            entry.ours = entry.ours or _is_ours(record)
        elif event == "tool.end":
            entry = served.setdefault(call_id, _Served())
            entry.ends += 1
            entry.apart = record.get("outcome") == "lost" or record.get("repeated") is True
    return served


def _parsed(audit_lines: Iterable[bytes], report: JoinReport) -> Iterator[dict[str, Any]]:
    unread = 0
    for count, line in enumerate(audit_lines, 1):
        if unread:
            report.add(f"audit:{unread}", "it is not a record")
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            record = None
        unread = 0 if isinstance(record, dict) else count
        if isinstance(record, dict):
            yield record  # pyright: ignore[reportUnknownVariableType]
    # The last line may still be incomplete on disk.


def _is_ours(record: Mapping[str, Any]) -> bool:
    actor: Any = record.get("actor")
    claims = [actor.get("client"), actor.get("agent")] if isinstance(actor, dict) else []  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
    named = any(isinstance(claim, str) and claim.replace("/", " ").split(" ")[0] == CLIENT for claim in claims)  # pyright: ignore[reportUnknownVariableType]
    return named or str(record.get("request") or "").startswith(CALL_PREFIX)


def _compare(client_id: str, call: _Call, served: Mapping[str, _Served], report: JoinReport) -> None:
    wrong = report.broken
    counted = [call_id for call_id in call.found if not served[call_id].apart] or call.found[-1:]
    if len(counted) > 1:
        report.add(client_id, f"the server received it {len(counted)} times: {', '.join(counted[:5])}")
    if call.server_call and call.server_call not in call.found:
        known = served.get(call.server_call)
        other = f"names request {known.request or '(none)'}" if known else "has no record of it"
        report.add(client_id, f"the server called it {call.server_call}, whose audit log {other}")
    for call_id in call.found:
        entry = served[call_id]
        if entry.starts != 1 or entry.ends > 1 or (call_id == call.server_call and not entry.ends):
            report.add(client_id, f"the audit log has {entry.starts} begin and {entry.ends} end records of {call_id}")
        elif not entry.ends:
            report.in_progress.append(client_id)
    report.joined += len(counted) == 1 and report.broken == wrong
