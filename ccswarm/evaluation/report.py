"""What came of an evaluation: one result for each try, totals of each entrant, reports and what differs in them."""

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
    """One try. ``passed`` is whether the gates held, and nothing else; ``expected`` whether they were to. ``why`` is
    what the first gate said that did not, or what kept them from being asked; ``status`` and ``summary`` are what the
    agent's own task came to. ``seconds`` are the agent's, from its task's start to its end."""

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
    """Where the repository is as it was left, if it was kept."""

    @property
    def good(self) -> bool:
        """Whether it came out as it was to."""
        return self.passed == self.expected


def rows(results: Iterable[Result]) -> list[dict[str, Any]]:
    """One for each case and entrant, in the order they were first tried: all its attempts together, sums of what they
    used."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for one in results:
        row = found.setdefault(
            (one.case, one.entrant), {"case": one.case, "entrant": one.entrant, **_none(), "why": ""}
        )
        _add(row, one)
        if not one.good:
            row["why"] = row["why"] or one.why or "the gates passed, but should not have"
    return list(found.values())


def totals(results: Iterable[Result]) -> list[dict[str, Any]]:
    """One for each entrant."""
    found: dict[str, dict[str, Any]] = {}
    for one in results:
        _add(found.setdefault(one.entrant, {"entrant": one.entrant, **_none()}), one)
    return [{**row, "rate": round(row["passed"] / row["attempts"], 4)} for row in found.values()]


def _none() -> dict[str, Any]:
    return {"good": True, "passed": 0, "attempts": 0, **dict.fromkeys(COUNTED, 0)}


def _add(row: dict[str, Any], one: Result) -> None:
    row["good"] = row["good"] and one.good
    row["passed"] += one.passed
    row["attempts"] += 1
    for name in COUNTED:
        row[name] = round(row[name] + getattr(one, name), 6)


def document(about: Mapping[str, Any], results: Sequence[Result], *, complete: bool) -> dict[str, Any]:
    """The report: what was tried, every result, and the totals. ``complete``: it was not interrupted."""
    facts = [asdict(one) for one in results]
    return {"report": FORMAT, **about, "complete": complete, "totals": totals(results), "results": facts}


def write(path: Path, report: Mapping[str, Any]) -> None:
    """All of it or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    whole_files.replace(path, (json.dumps(report, indent=1, ensure_ascii=False) + "\n").encode(), 0o666)


def read(path: Path) -> list[Result]:
    """The results in a report. Raises UsageInvalid for a file that is none."""
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
    """A row for each case and entrant in either, with what changed: ``broken`` (it passed less often), ``fixed``,
    ``same``, ``new`` or ``gone``. Where each report has one entrant, it is the same one whatever it is called."""
    alone = len({one.entrant for one in before}) == len({one.entrant for one in after}) == 1
    first, second = _table(before, alone), _table(after, alone)
    found: list[dict[str, Any]] = []
    for key in [*first, *(key for key in second if key not in first)]:
        old, new = first.get(key), second.get(key)
        row: dict[str, Any] = {"case": key[0], "entrant": key[1], "change": _change(old, new)}
        row |= {"before": _rate(old), "after": _rate(new)}
        if old and new:
            row |= {name: round(new[name] / new["attempts"] - old[name] / old["attempts"], 6) for name in COUNTED}
        found.append(row)
    return found


def _table(results: Sequence[Result], alone: bool) -> dict[tuple[str, str], dict[str, Any]]:
    return {(row["case"], "" if alone else row["entrant"]): row for row in rows(results)}


def _change(old: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> str:
    if old is None or new is None:
        return "new" if old is None else "gone"
    before, after = old["passed"] * new["attempts"], new["passed"] * old["attempts"]
    return "same" if before == after else "fixed" if after > before else "broken"


def _rate(row: Mapping[str, Any] | None) -> str:
    return f"{row['passed']}/{row['attempts']}" if row else ""
