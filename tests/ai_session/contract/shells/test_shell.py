"""Every shell plug-in does what a session needs, with real shells on a real pseudo-terminal."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from agentwire import plugins
from tests.ai_session.support import shell_cases
from tests.ai_session.support.shell_cases import Case
from tests.ai_session.support.shells import PLUGINS, Outcome, RawSession, cases_of


def problem(case: Case, outcome: Outcome) -> str:
    """What is wrong with ``outcome``, empty when nothing is."""
    if outcome.ended and not case.ends_shell:
        return f"{case.name}: ended with {outcome.exit_code}"
    if case.output is not None and outcome.output != case.output:
        return f"{case.name}: output {outcome.output[-200:]!r}"
    if case.exit_code is not None and outcome.exit_code != case.exit_code:
        return f"{case.name}: exit code {outcome.exit_code}, output {outcome.output[-100:]!r}"
    return ""


def run_case(session: RawSession, scratch: Path, case: Case) -> str:
    """Run one case; what is wrong, empty when nothing is."""
    (scratch / "old.log").write_bytes(bytes(session.log))
    session.begin(case.command.replace("@DIR@", str(scratch)))
    for when, keys in case.keys:
        session.wait_when(when)
        session.send(keys)
    outcome = session.finish()
    if case.ends_shell:
        session.wait_end()
    return problem(case, outcome)


def run_all(session_of: Callable[[int], RawSession], scratch: Path, cases: Sequence[Case]) -> str:
    """Run ``cases`` one after the other, in a new session after one that ended or went wrong; what is wrong."""
    problems: list[str] = []
    session: RawSession | None = None
    try:
        for number, case in enumerate(cases):
            if session is None:
                session = session_of(number)
            try:
                found = run_case(session, scratch, case)
            except TimeoutError as error:
                found = f"{case.name}: hangs: {error}"
            problems += [found] if found else []
            if case.ends_shell or found:
                session.close()
                session = None
    finally:
        if session is not None:
            session.close()
    return "\n".join(problems)


@pytest.fixture
def scratch(home: Path) -> Path:
    path = home / "scratch"
    path.mkdir()
    shell_cases.prepare(path)
    # Where it is missing, fish reads all manual pages of the system first.
    (home / ".local/share/fish/generated_completions").mkdir(parents=True)
    return path


def starter(plugin: str, wanted: str, home: Path) -> Callable[[int], RawSession]:
    """Starts sessions of one shell, each in a directory of its own."""

    def start(number: int) -> RawSession:
        (home / f"s{number}").mkdir(mode=0o700)
        return RawSession(plugins.load("ai_session.shells", plugin), home / f"s{number}", os.environ, wanted=wanted)

    return start


def test_every_plugin_is_here() -> None:
    assert set(PLUGINS.values()) == set(plugins.names("ai_session.shells"))


@pytest.mark.torture  # test_semantics.py plays the same cases in sessions
@pytest.mark.parametrize("shell", PLUGINS)
def test_semantics(shell: str, home: Path, scratch: Path) -> None:
    assert run_all(starter(PLUGINS[shell], shell, home), scratch, cases_of(shell)) == ""


@pytest.mark.torture  # as dash, whose script it has, plays them
def test_semantics_of_bash_as_sh(home: Path, scratch: Path) -> None:
    (home / "sh").symlink_to(shutil.which("bash") or "")
    assert run_all(starter("posix", str(home / "sh"), home), scratch, shell_cases.POSIX) == ""
