"""The results of an evaluation, one for each try; the totals of each entrant, reports, and comparisons of reports."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from agentwire.system import whole_files
from ccswarm.errors import UsageInvalid

FORMAT = 1
COUNTED = ("calls", "tokens", "dollars", "seconds")


@dataclass(frozen=True, slots=True)
class Result:
    """One try. ``passed`` says whether the gates passed, ``expected`` whether they should. ``why`` is the message of
    the first gate that failed, or what kept the gates from running; ``status`` and ``summary`` are those of the agent's
    task. ``seconds`` is the time from the task's start to its end."""

    case: str
    entrant: str
    attempt: int
    passed: bool
    expected: bool = True
    why: str = ""
    status: str = ""
    summary: str = ""
    calls: int = 0
    tokens: int = 0
    dollars: float = 0.0
    seconds: float = 0.0
    kept: str = ""
    """Where the repository was kept as the try left it; empty if it was not."""

    @property
    def good(self) -> bool:
        """Whether the result is the expected one."""
        return self.passed == self.expected


def rows(results: Iterable[Result]) -> list[dict[str, Any]]:
    """Return a row for each case and entrant, in the order they were first tried, with the sums over all attempts."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for one in results:
        row = found.setdefault(
            (one.case, one.entrant), {"case": one.case, "entrant": one.entrant, **_empty_row(), "why": ""}
        )
        _add(row, one)
        if not one.good:
            row["why"] = row["why"] or one.why or "the gates passed, but should not have"
    return list(found.values())


def totals(results: Iterable[Result]) -> list[dict[str, Any]]:
    """Return a row for each entrant."""
    found: dict[str, dict[str, Any]] = {}
    for one in results:
        _add(found.setdefault(one.entrant, {"entrant": one.entrant, **_empty_row()}), one)
    return [{**row, "rate": round(row["passed"] / row["attempts"], 4)} for row in found.values()]


def _empty_row() -> dict[str, Any]:
    return {"good": True, "passed": 0, "attempts": 0, **dict.fromkeys(COUNTED, 0)}


def _add(row: dict[str, Any], one: Result) -> None:
    row["good"] = row["good"] and one.good
    row["passed"] += one.passed
    row["attempts"] += 1
    for name in COUNTED:
        row[name] = round(row[name] + getattr(one, name), 6)


def document(about: Mapping[str, Any], results: Sequence[Result], *, complete: bool) -> dict[str, Any]:
    """Return the report: the options, every result, and the totals. ``complete`` means not interrupted."""
    facts = [asdict(one) for one in results]
    return {"report": FORMAT, **about, "complete": complete, "totals": totals(results), "results": facts}


def write(path: Path, report: Mapping[str, Any]) -> None:
    """Write the report atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    whole_files.replace(path, (json.dumps(report, indent=1, ensure_ascii=False) + "\n").encode(), 0o666)


def read(path: Path) -> list[Result]:
    """Return the results in a report. Raises UsageInvalid for a file that is not a report."""
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
        if facts["report"] != FORMAT:
            raise ValueError(f"report format {facts['report']}")
        return [Result(**one) for one in facts["results"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageInvalid(
            f"{path} is not a report of an evaluation: {error}",
            suggestion="ccswarm eval SUITE --report FILE writes one",
        ) from None


def compare(before: Sequence[Result], after: Sequence[Result]) -> list[dict[str, Any]]:
    """Return a row for each case and entrant in either report, with what changed: ``broken`` (it passed less often),
    ``fixed``, ``same``, ``new`` or ``gone``. If each report has a single entrant, their names may differ."""
    single = len({one.entrant for one in before}) == len({one.entrant for one in after}) == 1
    first, second = _table(before, single), _table(after, single)
    found: list[dict[str, Any]] = []
    for key in [*first, *(key for key in second if key not in first)]:
        old, new = first.get(key), second.get(key)
        row: dict[str, Any] = {"case": key[0], "entrant": key[1], "change": _change(old, new)}
        row |= {"before": _rate(old), "after": _rate(new)}
        if old and new:
            row |= {name: round(new[name] / new["attempts"] - old[name] / old["attempts"], 6) for name in COUNTED}
        found.append(row)
    return found


def _table(results: Sequence[Result], single: bool) -> dict[tuple[str, str], dict[str, Any]]:
    return {(row["case"], "" if single else row["entrant"]): row for row in rows(results)}


def _change(old: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> str:
    if old is None or new is None:
        return "new" if old is None else "gone"
    before, after = old["passed"] * new["attempts"], new["passed"] * old["attempts"]
    return "same" if before == after else "fixed" if after > before else "broken"


def _rate(row: Mapping[str, Any] | None) -> str:
    return f"{row['passed']}/{row['attempts']}" if row else ""
