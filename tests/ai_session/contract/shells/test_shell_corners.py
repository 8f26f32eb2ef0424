"""Corners in which our own part of a shell must neither be seen nor do harm: exported variables, limits on files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.ai_session.support.shells import SH_LIKE, start

pytestmark = pytest.mark.corners


@pytest.mark.parametrize("shell", SH_LIKE)
@pytest.mark.parametrize("traced", [False, True])
def test_nothing_of_ours_is_exported_by_set_a(shell: str, traced: bool, home: Path) -> None:
    session = start(shell, home)
    try:
        assert session.run("set -a; mine=1").exit_code == 0
        for _ in range(2):
            if traced:
                session.run("set -x")
            outcome = session.run("env | grep -c '^__ais' ; env | grep '^mine='")
            assert re.search(rb"(?<!\d)0\n", outcome.output), outcome.output
            assert b"mine=1\n" in outcome.output
            assert session.nonce.encode() not in session.run("env").output
            session.run("set +x; (exit 3)")
        assert session.run("other=2; env | grep '^other='").output == b"other=2\n"
        session.run("set +a")
        assert session.run("third=3; env | grep -c '^third='").output == b"0\n"
    finally:
        session.close()


@pytest.mark.either("shell")
@pytest.mark.parametrize("shell", SH_LIKE)
def test_a_shell_that_may_write_no_file_lives_on(shell: str, home: Path) -> None:
    session = start(shell, home)
    try:
        assert session.run("ulimit -S -f 0; trap 'echo bye' USR1; echo a").output == b"a\n"
        for text in ("echo trap", "trap 'echo bye' EXIT; echo b", ". /dev/null; echo source"):
            outcome = session.run(text)
            assert (outcome.ended, outcome.exit_code) == (False, 0), (text, outcome)
        session.run("ulimit -S -f unlimited; trap 'echo bye' EXIT")
        assert session.run("exit 4").output.endswith(b"bye\n")
    finally:
        session.close()


def test_zsh_goes_on_in_whatever_it_emulates(home: Path) -> None:
    session = start("zsh", home)
    try:
        for kind in ("csh", "ksh", "sh", "zsh"):
            assert session.run(f"emulate {kind}").exit_code == 0
            outcome = session.run("echo 'a'\n\n(exit 7)")
            assert (outcome.output, outcome.exit_code) == (b"a\n", 7), kind
        session.run("setopt rc_quotes")
        assert session.run("echo 'it''s\nso'").output == b"it's\nso\n"
    finally:
        session.close()
