"""Workers tell the person of runs: by the person's own configuration, whatever a project's says."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from ccswarm.cli import doctor
from ccswarm.config import config
from ccswarm.runs.notices import make_notifier, with_notices
from ccswarm.toolbox.telemetry.base import KnownExecution, Telemetry
from tests.ccswarm.contract.cli.test_cli_approvals import QUICK, STEPS, over, submitted
from tests.ccswarm.support.verbs import Verbs, agent, agreed, server
from tests.support.notices import NoticeReader, reading_notices


@pytest.fixture
def notices(home: Path) -> Iterator[NoticeReader]:
    own = home / ".config/ccswarm"
    own.mkdir(parents=True)
    with reading_notices(own) as notices:
        (own / "config.toml").write_text(f'[notify]\nseconds = 60\ncommand = ["{notices.program}"]\n')
        yield notices


@pytest.mark.anyio
async def test_the_end_of_a_run_is_told_and_no_question_that_is_answered_at_once(notices: NoticeReader) -> None:
    async def work(status: str) -> dict[str, str]:
        return {"status": status}

    async def fails(error: BaseException) -> None:
        raise error

    async def known(number: str) -> KnownExecution:
        raise AssertionError(number)

    telemetry = with_notices(Telemetry(), make_notifier(config.notify_settings(), config.server_environment(), str))
    assert await telemetry.await_answer("ap_1", work("yes")) == {"status": "yes"}
    await telemetry.execution("run_1.main", "run_1", work("succeeded"), known)
    await telemetry.execution("run_1", "run_1", work("budget_exhausted"), known)
    ended = await asyncio.to_thread(notices.next)
    with pytest.raises(asyncio.CancelledError):
        await telemetry.execution("run_2", "run_2", fails(asyncio.CancelledError()), known)
    with pytest.raises(RuntimeError):
        await telemetry.execution("run_3", "run_3", fails(RuntimeError()), known)
    failed = await asyncio.to_thread(notices.next)
    assert failed["facts"] == {"run": "run_3", "status": "failed"}
    await telemetry.close()
    assert ended["text"] == "run_1 budget exhausted: ccswarm result run_1"
    assert (ended["event"], ended["facts"]) == ("run", {"run": "run_1", "status": "budget_exhausted"})


@pytest.mark.torture  # a worker starts
def test_a_waiting_run_and_its_end_are_announced(home: Path, notices: NoticeReader) -> None:
    verbs = Verbs(home)
    verbs.rewrite(QUICK + server("small", "plain") + agent("ada", "small.echo", more='approval = "all"') + STEPS)
    sent = verbs.json("notify", "test")
    assert (sent, notices.next()["event"]) == ({"sent": [{"way": "command", "problem": ""}]}, "test")
    with verbs.worker("--id", "one") as worker:
        worker.until("carries out queued runs")
        (run,) = submitted(verbs)
        asked = notices.next()
        (question,) = verbs.json("approvals")["approvals"]
        assert (asked["event"], asked["facts"]) == ("question", {"question": question["id"]})
        assert "rm -rf" not in json.dumps(asked)
        verbs.run("approve", question["id"])
        assert over(verbs, run).result["status"] == "succeeded"
        ended = notices.next()
    assert (ended["event"], ended["facts"]) == ("run", {"run": run, "status": "succeeded"})


def test_no_project_and_no_plan_says_where_a_person_is_told(home: Path) -> None:
    notify = '[notify]\nwebhook = "http://127.0.0.1:1/"\n'
    verbs = Verbs(home, QUICK + notify + agent("ada") + STEPS)
    assert (
        "[notify] is allowed in your own configuration only, not in a project's file"
        in verbs.run("config", "check", code=2).err
    )
    assert "not in a project's file" in verbs.run("worker", code=2).err
    verbs.rewrite(QUICK + agent("ada"))
    (home / "plan.toml").write_text(notify + STEPS)
    assert "not in a plan" in verbs.run("run", "plan.toml", code=2).err
    said = verbs.run("notify", "test", code=2)
    assert "no way to notify you is configured" in said.err


def test_a_way_that_changed_since_it_was_used_is_not_taken(home: Path, notices: NoticeReader) -> None:
    verbs, own = Verbs(home), home / ".config/ccswarm/config.toml"
    (finding,) = doctor.notices(None)
    assert (finding.state, finding.detail) == ("ok", "command; ccswarm notify test tries them")
    agreed(own, verbs.state)
    own.write_text(own.read_text() + 'ntfy = "http://127.0.0.1:1/"\n')
    assert "no way to notify you" in verbs.run("notify", "test", code=2).err
    verbs.run("trust", "--yes", str(own))
    ways = {one["way"]: one["problem"] for one in verbs.json("notify", "test", code=1)["sent"]}
    assert (ways["command"], "cannot be reached" in ways["ntfy"], notices.next()["event"]) == ("", True, "test")


def test_no_program_of_an_agents_is_run(home: Path) -> None:
    own, project = home / ".config/ccswarm", home / "project"
    own.mkdir(parents=True)
    project.mkdir()
    with reading_notices(project) as notices:
        (own / "config.toml").write_text(f'[notify]\ncommand = ["{notices.program}"]\n')
        (sent,) = Verbs(project).json("notify", "test", code=1)["sent"]
        assert sent["problem"].endswith("is where agents may write: put it next to your configuration")
