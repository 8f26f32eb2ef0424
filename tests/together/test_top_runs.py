"""Runs in the verb top: listed as they go, and the question that one asks answered by a key."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ai_session.support.mcp_client import living_in, stop_daemons
from tests.ai_session.support.top_screens import top
from tests.conftest import UNBOXED, client_environment, environment, new_home
from tests.support import forked
from tests.together.support.runs import Shop, work

WRITE = work("write", "ada", r"seq 100 >numbers.txt; printf '\33[2J'", 'text = "Write numbers"')


@pytest.fixture
def daemon_home(homes: Path) -> Iterator[Path]:
    home = new_home(homes, UNBOXED)
    with environment(client_environment(home)):
        forked.daemon(living_in(home))
        yield home
        stop_daemons(home)


@pytest.mark.torture  # test_top.py has questions answered by a key, test_console_runs_page.py a run
def test_a_run_is_watched_and_its_work_accepted(daemon_home: Path) -> None:
    shop = Shop(daemon_home, WRITE)
    with top(daemon_home) as shown, shop.running():
        shown.shows("release-24", "1 waiting for your answer", "is done")
        shown.person.send(b"\x1b[A" * 5)
        shown.shows("numbers.txt +100 -0", "y accept")
        shown.person.send(b"y")
        shown.shows("read it to the end")
        for _ in range(10):
            shown.person.send(b"\x1b[6~")
        shown.shows("+100")
        shown.shows("y accept")
        shown.person.send(b"y")
        shown.shows("nothing waits", "succeeded")
        code, out, _ = forked.run("ai_session", ["top"], cwd=daemon_home, env=living_in(daemon_home))
        assert (code, out.decode().split("\t")[:2]) == (0, ["release-24", "succeeded"])
        assert (shop.project / "numbers.txt").read_text().splitlines()[-1] == "100"


def test_ccswarm_opens_it_too(daemon_home: Path) -> None:
    with top(daemon_home, package="ccswarm") as shown:
        shown.shows("No sessions. Open one: ai-session new", "nothing waits")
        shown.person.send(b"q")
        assert shown.person.wait() == 0
