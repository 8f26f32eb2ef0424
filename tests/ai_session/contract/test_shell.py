"""Every shell plug-in does what a session needs, with real shells on a real pseudo-terminal."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ai_session import plugins
from tests.ai_session.contract import shell_cases
from tests.ai_session.contract.shell_cases import Case
from tests.ai_session.contract.shell_harness import Outcome, RawSession

SHELLS = (
    ("bash", "bash", shell_cases.BASH),
    ("zsh", "zsh", shell_cases.POSIX),
    ("fish", "fish", shell_cases.FISH),
    ("posix", "dash", shell_cases.POSIX),
    ("posix", "busybox", shell_cases.POSIX),
    ("posix", "mksh", shell_cases.MKSH),
)


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


@pytest.mark.parametrize(("name", "wanted", "cases"), SHELLS, ids=[shell[1] for shell in SHELLS])
def test_semantics(name: str, wanted: str, cases: tuple[Case, ...], home: Path) -> None:
    scratch = home / "scratch"
    scratch.mkdir()
    shell_cases.prepare(scratch)
    # Where it is missing, fish reads all manual pages of the system first.
    (home / ".local/share/fish/generated_completions").mkdir(parents=True)
    problems: list[str] = []
    session: RawSession | None = None
    try:
        for number, case in enumerate(cases):
            if session is None:
                (home / f"s{number}").mkdir(mode=0o700)
                session = RawSession(plugins.load("shells", name), home / f"s{number}", os.environ, wanted=wanted)
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
    assert not problems, "\n".join(problems)
