"""Runs in the verb top: listed as they go, and the question that one asks answered by a key."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import forked
from tests.ai_session.contract.top_world import top
from tests.ai_session.contract.wire import living_in, stop_daemons
from tests.together.runs_world import Shop, work


@pytest.mark.parametrize("package", ["ai_session", "ccswarm"])
def test_a_run_is_watched_and_its_work_accepted(home: Path, package: str) -> None:
    forked.daemon(living_in(home))
    shop = Shop(home, work("write", "ada", "seq 100 >numbers.txt; printf '\\33[2J'", 'text = "Write numbers"'))
    with top(home, package=package) as shown, shop.running() as run:
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
        assert run.wait() == 0
        assert (shop.project / "numbers.txt").read_text().splitlines()[-1] == "100"
    stop_daemons(home)
