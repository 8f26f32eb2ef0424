"""docs/explanation/planting-battery.md: written from what was measured, and read back to compare with what is measured.

``python -m tests.ai_session.planting.page [SETTING...]`` measures and writes it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import get_args

from tests.ai_session.escape.model import Severity
from tests.ai_session.planting import battery
from tests.ai_session.planting.battery import SETTINGS
from tests.ai_session.planting.cases import CASES
from tests.ai_session.planting.model import GROUPS, Outcome

PAGE = Path(__file__).parents[3] / "docs/explanation/planting-battery.md"
Outcomes = Mapping[str, Outcome]
INTRODUCTION = f"""# The planting battery

{len(CASES)} ways to leave something in a workspace from which a program outside the box takes commands: git, an editor,
another agent, a package manager, a shell that enters the directory. Each is typed into a session of a real daemon by a
user who is not root, in a project of its own, and judged from outside: by git, which runs what was planted, by the
contents of the file that a program would read, or by secrets that were printed.

- **stopped**: it does not exist, or nothing runs it.
- **noticed**: it cannot be prevented inside, and was reported within a second of the command's end: in the command's
  result, in `ai-session ls` and `info`, and in the audit log.
- **missed**: neither.

The settings: `none` is the profile `trusted`, which shows that the case works; `landlock` is a machine where namespaces
are refused, so nothing in the workspace is protected. `by-a-mount` never works without root, and for
`program-of-a-server-of-ccswarm` ccswarm asks first, whatever the box. The cases of `denied commands` run under a rule
that denies `touch`, except with the setting `none`.

What is missed at level `bwrap`:

- `objects-from-elsewhere`: git then reads objects of another repository, which contains data but names no programs.
- `repository-far-below-node-modules`: in `node_modules`, `.venv`, `target` and `__pycache__` only two levels are
  searched, three below a package scope, because programs fill these with tens of thousands of directories. git uses a
  repository there only if somebody enters its directory.

At level `landlock` nothing hides secrets, and reading them is not noticed; nor are writes through another name of a
file (`by-a-hard-link`), or into a directory of hooks inside `.git` that did not exist (`hooks-path-inside-of-git`).

The program of `policy.hook` has no case: it runs in `/` with a PATH of its own, and if a box may write what its words
or its first line name, every call is denied (`tests/ai_session/unit/gate/test_hook.py`).

[The sandbox](sandbox.md) explains what is protected, and what to do about a notice. The cases are tables in
`tests/ai_session/planting/`. `pytest -m torture tests/ai_session/planting` repeats the measurement and compares;
`python -m tests.ai_session.planting.page` writes this page.
"""


def render(measured: Mapping[str, Outcomes]) -> str:
    """The page as Markdown."""
    severities: tuple[Severity, ...] = get_args(Severity)
    rows = [["stopped, noticed, missed", *measured], ["---"] * (len(measured) + 1)]
    for group in GROUPS:
        names = [case.name for case in CASES if case.group == group]
        rows.append([f"{group}, of {len(names)}", *(_counts(one, names) for one in measured.values())])
    for severity in severities:
        names = [case.name for case in CASES if case.severity == severity]
        rows.append([f"{severity}, of {len(names)}", *(_counts(one, names) for one in measured.values())])
    everything = [case.name for case in CASES]
    rows.append([f"**all, of {len(CASES)}**", *(f"**{_counts(one, everything)}**" for one in measured.values())])
    table = [["case", "class", "severity", *measured], ["---"] * (len(measured) + 3)]
    table += (
        [f"`{case.name}`", case.group, case.severity, *(one[case.name] for one in measured.values())] for case in CASES
    )
    return "\n".join([INTRODUCTION, *_table(rows), "\n## Cases\n", *_table(table), ""])


def _counts(outcomes: Outcomes, names: Collection[str]) -> str:
    kinds: tuple[Outcome, ...] = get_args(Outcome)
    return ", ".join(str(sum(outcomes[name] == kind for name in names)) for kind in kinds)


def read(text: str) -> dict[str, dict[str, Outcome]]:
    """The results written on a page; the inverse of ``render``."""
    said: dict[str, dict[str, Outcome]] = {setting.name: {} for setting in SETTINGS}
    kinds: tuple[Outcome, ...] = get_args(Outcome)
    for line in text.splitlines():
        if row := re.fullmatch(r"\| `([^`]+)` \|(.*)\|", line):
            cells = [cell.strip() for cell in row[2].split("|")][2:]
            for setting, cell in zip(SETTINGS, cells, strict=True):
                said[setting.name][row[1]] = next(kind for kind in kinds if kind == cell)
    return said


def _table(rows: Collection[Collection[str]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in rows]


def main() -> None:
    """Measures the settings named as arguments, or all, and writes the page."""
    measured = read(PAGE.read_text()) if PAGE.exists() else {}
    for setting in SETTINGS:
        if setting.name in (sys.argv[1:] or [setting.name]):
            found = battery.run(setting)
            measured[setting.name] = found.outcomes
            print(setting.name, f"late {found.late:.3f}", *found.notes.items(), sep="\n  ")
        if all(len(measured.get(one.name, ())) == len(CASES) for one in SETTINGS):
            PAGE.write_text(render({setting.name: measured[setting.name] for setting in SETTINGS}))


if __name__ == "__main__":
    main()
