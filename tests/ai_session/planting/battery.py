"""Plants each case in a project of its own and judges it from outside; those with a rule of their own with a daemon of
their own."""

from __future__ import annotations

import shutil
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Any

from ai_session.audit.files import lines, records
from tests.ai_session.escape.battery import BOXED, NO_NAMESPACES, UNBOXED, Setting, ready
from tests.ai_session.escape.session import Session
from tests.ai_session.escape.target import Target
from tests.ai_session.planting.cases import CASES
from tests.ai_session.planting.model import Outcome, Plant
from tests.support.bounds import BOUND_SECONDS, pause

SETTINGS = (
    Setting("none", "none", "pty", UNBOXED),
    Setting("bwrap pty", "bwrap, network off", "pty", BOXED),
    Setting("bwrap tmux", "bwrap, network off", "tmux", BOXED),
    Setting("landlock pty", "landlock, network off", "pty", BOXED, NO_NAMESPACES),
)
DENY = '\n[[policy.rules]]\nid = "no"\ndecision = "deny"\ncommands = ["{}"]\n'
NOTICE_SECONDS = 1.0
"""After the command's end."""


@dataclass
class Measured:
    """What came of one run; ``late`` is how long after the command's end the last notice was recorded, in seconds."""

    setting: Setting
    outcomes: dict[str, Outcome] = field(default_factory=dict[str, Outcome])
    late: float = 0.0
    notes: dict[str, str] = field(default_factory=dict[str, str])

    def of(self, outcome: Outcome) -> set[str]:
        return {name for name, one in self.outcomes.items() if one == outcome}


def run(setting: Setting, cases: Sequence[Plant] = CASES) -> Measured:
    """Each case in a session of its own, all with one daemon."""
    measured = Measured(setting)
    for denied, alike in groupby(cases, lambda case: case.denied if setting.config == BOXED else ""):
        rule = DENY.format(denied) if denied else ""
        with ready(replace(setting, config=setting.config + rule)) as target:
            for case in alike:
                target.begin()
                with _session(target, setting, case) as session:
                    _judge(target, session, case, measured)
                target.end_attackers()
    return measured


@contextmanager
def _session(target: Target, setting: Setting, case: Plant) -> Generator[Session]:
    for name in case.uses:
        (target.home / name).mkdir(parents=True)
        for folder in (target.home / name, (target.home / name).parent):
            target.own(folder)
    project = target.project()
    for script in filter(None, (case.before,)):
        done = target.run("/bin/bash", "-ec", target.fill(script), cwd=project)
        assert done.returncode == 0, (case.name, done.stderr)
    attack = project / "attack.py"
    attack.write_text(target.fill(case.python))
    target.own(attack)
    try:
        with Session(target, project, setting.backend, setting.wrapper, typing=False) as session:
            assert setting.level in session.level, session.level
            if case.meanwhile:
                _meanwhile(target, session, case, project)
                if setting.level.startswith("bwrap"):
                    _protected_again(session, case)
            yield session
    finally:
        for name in case.uses:
            shutil.rmtree(target.home / name.partition("/")[0], ignore_errors=True)


def _meanwhile(target: Target, session: Session, case: Plant, project: Path) -> None:
    """What is done outside, between two commands."""
    session.run("true")
    done = target.run("/bin/bash", "-ec", target.fill(case.meanwhile), cwd=project)
    assert done.returncode == 0, (case.name, done.stderr)
    session.run("true")


def _protected_again(session: Session, case: Plant) -> None:
    """Wait for the notice that what was replaced is protected again: a command waits for it only a second."""
    deadline = time.monotonic() + BOUND_SECONDS
    while not all(("exposed", case.exposes) in notices for notices in session.notices()):
        assert time.monotonic() < deadline, (case.name, "was never protected again")
        pause()


def _judge(target: Target, session: Session, case: Plant, measured: Measured) -> None:
    before, seen = len(_records(target)), len(session.text)
    facts = session.run(target.fill(case.typed))
    printed = session.text[seen:]  # where nothing is masked
    rows: list[dict[str, Any]] = list(facts.get("notices", []))
    listed = session.notices()
    # Whatever comes too late is in the record all the same.
    session.run("true")
    fresh = _records(target)[before:]
    notices = [record for record in fresh if record["event"] == "workspace.notice"]
    began = next((record["ts"] for record in fresh if record["event"] == "tool.start"), 0)
    ended = began / 1e6 + float(facts.get("duration_seconds") or 0.0)
    late = max((record["ts"] / 1e6 - ended for record in notices), default=0.0)
    said = {(row["kind"], row["path"]) for row in rows}
    everywhere = [*listed, {(record["kind"], record["path"]) for record in notices}]
    if not case.works(target, printed):
        measured.outcomes[case.name] = "stopped"
    elif said and late <= NOTICE_SECONDS and all(said <= one for one in everywhere):
        measured.outcomes[case.name] = "noticed"
        measured.late = max(measured.late, late)
    else:
        measured.outcomes[case.name] = "missed"
    measured.notes[case.name] = f"{measured.outcomes[case.name]} {rows} {listed} {late:.3f} {printed[-300:]!r}"


def _records(target: Target) -> list[dict[str, Any]]:
    return list(records(lines(Path(target.values["state_directory"]) / "audit")))
