"""Three homes stand for three machines that share a PostgreSQL and a directory: one asks, two carry out."""

from __future__ import annotations

import os
import signal
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from tests.ccswarm.support.runs import AGENTS, SERVERS, RunVerbs, step, task
from tests.ccswarm.torture.engine_postgres import database, server
from tests.conftest import client_environment, environment, new_home
from tests.support.bounds import BOUND_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.torture
ENGINE = "[engine]\npoll_seconds = 0.05\nheartbeat_seconds = 0.3\nlost_after_seconds = 2.0\n"


@pytest.fixture
def postgres() -> Iterator[str]:
    with server() as address:
        yield database(address, "machines")


def test_another_machine_takes_over_and_a_third_one_sees_it(homes: Path, home: Path, postgres: str) -> None:
    shared = home / "shared"
    shared.mkdir()
    pipe = shared / "pipe"
    os.mkfifo(pipe)
    plan = task("hold", step("before"), step("wait", "pipe.read", path="${workspace}/pipe"), step("after"))
    text = f'{ENGINE}database_url = "{postgres}"\n{SERVERS}{AGENTS}'
    a, b, c = (RunVerbs(new_home(homes, ""), text) for _ in range(3))
    with ExitStack() as stack:

        def at(verbs: RunVerbs) -> None:
            stack.enter_context(environment(client_environment(verbs.home)))

        at(c)
        (c.home / "plan.toml").write_text(plan)
        run = c.run("run", "plan.toml", "--workspace", str(shared), "--detach").out.strip()
        at(a)
        with a.worker("--id", "a") as first:
            writer = pipe.open("w")  # returns when the call goes on
            at(c)
            assert [row[3] for row in c.run("ps").rows[:2]] == ["a", "a"]
            first.process.send_signal(signal.SIGKILL)
            first.process.wait(BOUND_SECONDS)
        at(b)
        with b.worker("--id", "b") as second:
            assert "worker a is lost; 2 executions are queued again" in second.until("is lost")
            writer.close()
            second.until(f"{run}.hold: running")
            with pipe.open("w") as again:
                again.write("x")
            second.until(f"{run}: succeeded")
            at(c)
            facts = c.json("runs", "show", run)
            assert (facts["status"], facts["worker"]) == ("succeeded", "b")
            assert facts["tasks"]["hold"]["result"]["steps"]["wait"]["text"] == "x"
            assert facts["journal"]["calls"] == 0, "the journal is on the machines that made the calls"
            at(b)
            assert second.end(signal.SIGTERM)[0] == 0
        for verbs, steps in ((a, ["before", "wait"]), (b, ["wait", "after"])):
            at(verbs)
            calls = [one["facts"]["step"] for one in verbs.json("journal", "show", run) if one["event"] == "call.begin"]
            assert calls == steps
            assert verbs.json("journal", "verify")["sound"] is True
