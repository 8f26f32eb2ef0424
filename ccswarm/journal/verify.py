"""What the journal proves: that it is what was written, and that its calls are those a server's audit log has."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ccswarm.journal.chain import GENESIS, RECOVER, Link, is_torn, opened
from ccswarm.journal.files import files, read

MOST_PROBLEMS = 100

CLIENT = "ccswarm"
"""What calls of this project are known by in a server's audit log, beside their ids."""

CALL_PREFIX = "ccall_"
"""How the id of a call begins that a toolbox made."""

Head = tuple[int, str]
"""Number and hash of a record."""


@dataclass(frozen=True, slots=True)
class Problem:
    """``place`` is file and line, a file, or the id of a call."""

    place: str
    what: str


@dataclass(slots=True)
class Findings:
    """Problems; at most 100 are kept, ``broken`` counts all."""

    problems: list[Problem] = field(default_factory=list[Problem])
    broken: int = 0

    @property
    def sound(self) -> bool:
        """Whether nothing is wrong."""
        return not self.broken

    def add(self, location: str, what: str) -> None:
        """One more problem."""
        self.broken += 1
        if len(self.problems) < MOST_PROBLEMS:
            self.problems.append(Problem(location, what))


@dataclass(slots=True)
class Report(Findings):
    """What verifying found. ``heads`` are the newest records, for a later ``verify``; ``unclosed`` the workers whose
    file does not end as one that was closed: they run, were killed, or somebody cut the end off."""

    files: int = 0
    records: int = 0
    recoveries: int = 0
    torn_bytes: int = 0
    unclosed: list[str] = field(default_factory=list[str])
    heads: dict[str, Head] = field(default_factory=dict[str, Head])


@dataclass(slots=True)
class JoinReport(Findings):
    """What holding the journal against the audit log of the servers found. Ids are the journal's.

    ``calls`` were begun, ``joined`` of them stand once in each log; ``open`` have no end (their worker runs, or was
    killed), and ``going_on`` have none at the server; ``refused`` calls were never sent.
    """

    calls: int = 0
    joined: int = 0
    refused: int = 0
    open: list[str] = field(default_factory=list[str])
    going_on: list[str] = field(default_factory=list[str])


def verify(directory: Path, heads: Mapping[str, Head] | None = None) -> Report:
    """Judge every file, also while workers write: changed, added, moved and removed records are found. A file or an
    end that is gone as a whole is found where ``heads``, noted earlier, know of it. Raises OSError."""
    report = Report()
    known = dict(heads or {})
    for worker, path in files(directory).items():
        _File(worker, path, report, known.pop(worker, None)).judge()
    for worker in known:
        report.add(f"{worker}.jsonl", "the file is gone")
    return report


class _File:
    """One worker's file being judged."""

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
                if link := opened(line if line.endswith(b"\n") else line + b"\n"):
                    self._record(count, link)
                else:
                    self._left += line
        report.files += 1
        if self._left and not self._torn():
            report.add(f"{self._path.name}:{count}", "the last bytes are not what was written")
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
        """Judge what lies between the last record and this one: only this one's word makes it what a crash left."""
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
    """A call as the journal has it: ``begins`` and ``ends`` count its records."""

    begins: int = 0
    ends: int = 0
    server_call: str = ""
    found: list[str] = field(default_factory=list[str])
    """The server's ids of the calls that came with its id."""


@dataclass(slots=True)
class _Served:
    """A call as a server's audit log has it."""

    starts: int = 0
    ends: int = 0
    request: str = ""
    ours: bool = False
    lost: bool = False
    """The server was killed before it could say what came of it."""


def join(directory: Path, audit_lines: Iterable[bytes]) -> JoinReport:
    """Hold the journal against the audit logs of the servers its calls went to, given as lines in any order.

    Sound: each call has one begin, and one end unless it is named open; each that a server gave a call id has one
    begin and one end there under that id, with the journal's id as ``request``; and each call a server had from
    ccswarm is in the journal, once. One that was lost because the server was killed may have been asked again; it does
    not count then. Raises OSError.
    """
    report = JoinReport()
    calls = _journalled(directory, report)
    served = _served(audit_lines, report)
    for call_id, had in served.items():
        if call := calls.get(had.request):
            call.found.append(call_id)
        elif had.ours:
            report.add(call_id, "the server received this call from ccswarm, but the journal has no record of it")
    for client_id, call in calls.items():
        _compare(client_id, call, served, report)
    return report


def _journalled(directory: Path, report: JoinReport) -> dict[str, _Call]:
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


def _served(audit_lines: Iterable[bytes], report: JoinReport) -> dict[str, _Served]:
    served: dict[str, _Served] = {}
    for record in _parsed(audit_lines, report):
        event, call_id = record.get("event"), str(record.get("call", ""))
        if event == "tool.start":
            had = served.setdefault(call_id, _Served())
            had.starts += 1
            had.request = str(record.get("request") or "")
            had.ours = had.ours or _is_ours(record)
        elif event == "tool.end":
            had = served.setdefault(call_id, _Served())
            had.ends += 1
            had.lost = record.get("outcome") == "lost"
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
    # The very last one may still be on its way to the disk.


def _is_ours(record: Mapping[str, Any]) -> bool:
    actor: Any = record.get("actor")
    claims = [actor.get("client"), actor.get("agent")] if isinstance(actor, dict) else []  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
    named = any(isinstance(claim, str) and claim.replace("/", " ").split(" ")[0] == CLIENT for claim in claims)  # pyright: ignore[reportUnknownVariableType]
    return named or str(record.get("request") or "").startswith(CALL_PREFIX)


def _compare(client_id: str, call: _Call, served: Mapping[str, _Served], report: JoinReport) -> None:
    wrong = report.broken
    kept = [call_id for call_id in call.found if not served[call_id].lost] or call.found[-1:]
    if len(kept) > 1:
        report.add(client_id, f"the server received it {len(kept)} times: {', '.join(kept[:5])}")
    if call.server_call and call.server_call not in call.found:
        known = served.get(call.server_call)
        other = f"names request {known.request or '(none)'}" if known else "has no record of it"
        report.add(client_id, f"the server called it {call.server_call}, whose audit log {other}")
    for call_id in call.found:
        had = served[call_id]
        if had.starts != 1 or had.ends > 1 or (call_id == call.server_call and not had.ends):
            report.add(client_id, f"the audit log has {had.starts} begin and {had.ends} end records of {call_id}")
        elif not had.ends:
            report.going_on.append(client_id)
    report.joined += len(kept) == 1 and report.broken == wrong
