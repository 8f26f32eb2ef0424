"""docs/explanation/escape-battery.md: written from what was measured, and read back to compare with what is measured.

``python -m tests.ai_session.escape.page [SETTING...]`` measures and writes it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from tests.ai_session.escape import battery
from tests.ai_session.escape.battery import ATTACKS, SETTINGS, WORKS
from tests.ai_session.escape.model import Group, Severity

PAGE = Path(__file__).parents[3] / "docs/explanation/escape-battery.md"
INTRODUCTION = f"""# The escape battery

{len(ATTACKS)} attacks and {len(WORKS)} pieces of ordinary work, typed into real sessions of a real daemon by
a user who is not root. Whether an attack got out is judged from outside: by files that were created or changed, secrets
that were printed, listeners that received something, processes that ended, and by the descriptors, namespaces and
memory that the kernel reports as held.

The settings: `none` is the profile `trusted` and shows that an escape is noticed; `read-only` is that profile, the
others are `workspace`. `bwrap-noproc` runs where part of /proc is masked, and `landlock` where namespaces are refused,
as in containers. If Landlock is refused as well, no session starts.

What gets out at level `bwrap`:

- `git-new-repository`: the config of a repository that is created inside cannot be protected before it exists.
- `git-log-through-a-link`: commits must be possible, so one of git's logs can be replaced by a link, which git follows
  when it is used outside. A program outside should fetch from a repository that an agent wrote to, not work in it.
- `many-large-files`: the size of each file is limited, but not their sum, because there is no quota.

The cases are tables in `tests/ai_session/escape/`. `pytest -m torture tests/ai_session/escape` repeats the measurement
and compares; `python -m tests.ai_session.escape.page` writes this page.
"""


@dataclass(frozen=True)
class Measured:
    """The attacks that got out and the work that failed in one setting."""

    escaped: frozenset[str]
    failed: frozenset[str]

    def stopped(self, group: Group | None = None, severity: Severity | None = None) -> int:
        return sum(
            case.name not in self.escaped
            for case in ATTACKS
            if group in (None, case.group) and severity in (None, case.severity)
        )


def render(measured: Mapping[str, Measured]) -> str:
    """The page as Markdown."""
    columns = list(measured.values())
    rows = [["stopped", *measured], ["---"] * (len(columns) + 1)]
    groups: tuple[Group, ...] = get_args(Group)
    severities: tuple[Severity, ...] = get_args(Severity)
    for group in groups:
        total = sum(case.group == group for case in ATTACKS)
        rows.append([f"{group}, of {total}", *(str(one.stopped(group)) for one in columns)])
    rows.append([f"**attacks, of {len(ATTACKS)}**", *(f"**{one.stopped()}**" for one in columns)])
    for severity in severities:
        total = sum(case.severity == severity for case in ATTACKS)
        rows.append([f"{severity}, of {total}", *(str(one.stopped(severity=severity)) for one in columns)])
    works = {setting.name: setting.works for setting in SETTINGS}
    done = [f"**{len(WORKS) - len(one.failed)}**" if works[name] else "" for name, one in measured.items()]
    rows.append([f"**work done, of {len(WORKS)}**", *done])
    attacks = [["attack", "class", "severity", "succeeds in"], ["---"] * 4]
    attacks += [[f"`{case.name}`", case.group, case.severity, _names(measured, case.name)] for case in ATTACKS]
    work = [["work", "fails in"], ["---"] * 2, *([f"`{case.name}`", _names(measured, case.name)] for case in WORKS)]
    return "\n".join(
        [INTRODUCTION, *_table(rows), "\n## Attacks\n", *_table(attacks), "\n## Work\n", *_table(work), ""]
    )


def read(text: str) -> dict[str, Measured]:
    """The results written on a page; the inverse of ``render``."""
    found: dict[str, set[str]] = {setting.name: set() for setting in SETTINGS}
    for line in text.splitlines():
        if row := re.fullmatch(r"\| `([^`]+)` \|(?:.*\|)? ([^|]*) \|", line):
            for name in filter(None, row[2].split(", ")):
                found[name].add(row[1])
    attacks, work = {case.name for case in ATTACKS}, {case.name for case in WORKS}
    return {name: Measured(frozenset(cases & attacks), frozenset(cases & work)) for name, cases in found.items()}


def _names(measured: Mapping[str, Measured], case: str) -> str:
    return ", ".join(name for name, one in measured.items() if case in one.escaped | one.failed)


def _table(rows: Collection[Collection[str]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in rows]


def main() -> None:
    """Measures the settings named as arguments, or all, and writes the page."""
    measured = read(PAGE.read_text()) if PAGE.exists() else {}
    for setting in SETTINGS:
        if setting.name not in (sys.argv[1:] or [setting.name]):
            continue
        outcome = battery.run(setting)
        assert len(outcome.attacks) == len(ATTACKS), "to be run by root, who becomes somebody else"
        assert len(outcome.works) in (0, len(WORKS)), "programs are missing"
        measured[setting.name] = Measured(frozenset(outcome.escaped), frozenset(outcome.failed))
        print(setting.name, *outcome.notes.items(), sep="\n  ")
    PAGE.write_text(render(measured))


if __name__ == "__main__":
    main()
