"""Boxes on machines that lack something: the level is told, and what the level promises holds."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from ai_session.cli.doctor import sandbox
from ai_session.models import SandboxLevel
from tests.ai_session.support.poor_machines import OUTER, Machine, ask, machines
from tests.ai_session.support.sandbox_verbs import USERS
from tests.support.products import first

ROOT = Path(__file__).parents[4]
MACHINES = ("masked /proc", "no bash", "old bubblewrap")
BOXES, VERB = ("test_sandbox.py", "test_sandbox_refusals.py"), ("test_sandbox_verb.py",)
AS_EVER = [
    ("masked /proc", BOXES, "not probe and not setting_of_the_kernel"),  # /proc is read-only, its masks are devices
    ("no bash", BOXES, "not probe and not inherited"),  # dash closes no descriptor above 9
    ("old bubblewrap", BOXES, "not probe"),
    ("masked /proc", VERB, ""),
    # No terminals, semaphores, network of its own; and it warns, where the other two expect silence.
    ("no bubblewrap", VERB, "not tmux and not days and not allowed and not end_is_the_verbs and not pipes_carry"),
]


@pytest.fixture(scope="module")
def directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="aim-", dir="/tmp") as path:
        os.chmod(path, 0o755)
        yield Path(path)


@cache
def asked(name: str, directory: Path) -> dict[str, Any]:
    """What a machine says when an ordinary user asks."""
    return ask(machines(directory)[name], USERS[-1], *(["box"] if name in MACHINES else []), "doctor")


@pytest.mark.parametrize("name", first(MACHINES, "masked /proc"))
def test_a_box_holds(name: str, directory: Path) -> None:
    holds(machines(directory)[name], asked(name, directory)["box"])


@pytest.mark.torture
@pytest.mark.parametrize("name", MACHINES)
def test_a_box_of_roots_holds(name: str, directory: Path) -> None:
    machine = machines(directory)[name]
    reported = ask(machine, USERS[0], "box")["box"]
    reported["reasons"] = [reason for reason in reported["reasons"] if not reason.startswith("root's boxes")]
    holds(machine, reported)


def holds(machine: Machine, reported: dict[str, Any]) -> None:
    assert reported["level"] == machine.level
    assert len(reported["reasons"]) == len(machine.said)
    assert all(said in reason for said, reason in zip(machine.said, reported["reasons"], strict=True)), reported[
        "reasons"
    ]
    assert reported["out"].split() == ["2", "Seccomp:", "2", "lo", "scratch"], reported
    assert reported["err"].count("Read-only file system") == 4, reported
    assert "Device or resource busy" in reported["err"]
    assert reported["kept"].endswith("[user]\n\tname = a\n\temail = a@b\n"), reported
    assert reported["left"] == ["two", "was"]


@pytest.mark.parametrize("name", first((*MACHINES, "no bubblewrap", "no namespaces"), "masked /proc"))
def test_doctor_says_what_is_missing_and_how_to_get_it(name: str, directory: Path) -> None:
    machine = machines(directory)[name]
    box, *others = asked(name, directory)["doctor"]
    assert box["detail"].startswith(f"level {machine.level} (")
    assert box["detail"].partition("): ")[2]
    assert box["state"] == ("ok" if machine.level is SandboxLevel.BWRAP else "warn")
    assert {finding["check"] for finding in others} <= {"sandbox", "sandbox limits"}, "nothing that only root lacks"
    about = [f"{finding['detail']}: {finding['advice']}" for finding in others if finding["check"] == "sandbox"]
    assert len(about) == len(machine.said)
    assert all(said in finding for said, finding in zip(machine.said, about, strict=True)), about
    assert all(finding["advice"] for finding in others if finding["state"] == "warn")


def test_doctor_tells_root_what_root_lacks(home: Path) -> None:
    (home / ".config/ai-session/config.toml").unlink()  # sessions without a box lack nothing
    checks = [finding.check for finding in sandbox()]
    assert checks == ["sandbox", "sandbox limits", *(["sandbox user"] if USERS[0] == "root" else [])]


@pytest.mark.torture
@pytest.mark.parametrize(("name", "files", "chosen"), AS_EVER)
def test_all_that_boxes_promise(name: str, files: tuple[str, ...], chosen: str, directory: Path) -> None:
    line = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "", "-k", chosen]
    rights = ("--cap-add", "ALL") if os.geteuid() == 0 else ()
    words = [*OUTER, *machines(directory)[name].words, *rights, "--", *line]
    done = subprocess.run(
        [*words, *(f"{Path(__file__).parent}/{file}" for file in files)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
