"""Tasks of A2A clients: kept, found again, forgotten in time, followed by those who want to hear of them."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from ccswarm.errors import BudgetExhausted, OperatorError
from ccswarm.servers.a2a.task_store import State, Tasks
from tests.support.bounds import BOUND_SECONDS

LARGE = 9007199254740993


def opened(directory: Path, days: float = 7, most: int = 2000, most_chars: int = 1 << 20) -> Tasks:
    tasks = Tasks(directory, days, most, most_chars)
    tasks.open()
    return tasks


def test_what_is_kept_is_there_again(tmp_path: Path) -> None:
    tasks = opened(tmp_path)
    message = {"z": LARGE, "a": "ü\ud800", "m": [None, 1.5]}
    task = tasks.begin("vault", "one", context="c", messages=[message], metadata={"k": 1})
    tasks.add_artifact(task, {"id": "a"})
    tasks.add_artifact(task, {"id": "b"})
    task.runs = ["run_1"]
    assert tasks.set_state(task, State.WORKING, "why")
    tasks.close()
    again = opened(tmp_path)
    found = again.find("vault", "one")
    assert found == task
    assert found is not None
    assert list(found.messages[0]) == ["z", "a", "m"]
    assert (again.find("standard", "one"), again.find("vault", "two")) == (None, None)
    assert [one.id for one in again.select("vault")] == ["one"]
    assert again.select("standard") == []
    again.close()


def test_what_is_over_stays_as_it_is(tmp_path: Path) -> None:
    tasks = opened(tmp_path)
    task = tasks.begin("vault", "one")
    assert tasks.set_state(task, State.CANCELED)
    assert not tasks.set_state(task, State.COMPLETED, "too late")
    assert (task.state, task.said) == (State.CANCELED, None)
    tasks.close()


def test_one_process_has_them(tmp_path: Path) -> None:
    tasks = opened(tmp_path)
    with pytest.raises(OperatorError, match="another process"):
        opened(tmp_path)
    tasks.close()
    opened(tmp_path).close()
    (tmp_path / "file").write_text("")
    with pytest.raises(OperatorError, match="cannot be used"):
        opened(tmp_path / "file")


def test_what_is_no_task_is_left_alone(tmp_path: Path) -> None:
    for name, text in (("a", "{"), ("b", "[]"), ("c", '{"state":"nowhere"}'), ("d", '{"id":"d","state":"working"}')):
        (tmp_path / f"{name}.json").write_text(text)
    (tmp_path / "e.new").write_text('{"id":')  # its writer was killed
    tasks = opened(tmp_path)
    assert tasks.select("vault") == []
    assert len(list(tmp_path.glob("*.json"))) == 4
    assert not (tmp_path / "e.new").exists()
    tasks.close()


def test_only_so_many_are_kept_and_those_that_are_over_go_first(tmp_path: Path) -> None:
    tasks = opened(tmp_path, most=3)
    for name in ("a", "b", "c"):
        tasks.begin("vault", name)
    with pytest.raises(BudgetExhausted, match="3 tasks are still in progress"):
        tasks.begin("vault", "d")
    gone = tasks.find("vault", "b")
    assert gone
    tasks.set_state(gone, State.COMPLETED)
    tasks.begin("standard", "d")
    assert sorted(file.stem for file in tmp_path.glob("*.json")) == ["a", "c", "d"]
    tasks.add_message(gone, "nobody hears of it any more")
    assert not (tmp_path / "b.json").exists()
    tasks.close()


def test_only_so_much_is_kept_and_for_so_long(tmp_path: Path) -> None:
    tasks = opened(tmp_path, most_chars=3000)
    for name in ("a", "b", "c"):
        tasks.set_state(tasks.begin("vault", name, messages=["x" * 1200]), State.COMPLETED)
    tasks.begin("vault", "d")
    assert [one.id for one in tasks.select("vault")] == ["d", "c", "b"]
    tasks.close()
    old = tmp_path / "b.json"
    old.write_text(json.dumps({**json.loads(old.read_text()), "updated": 1.0}))
    again = opened(tmp_path)
    assert [one.id for one in again.select("vault")] == ["d", "c"]
    assert not old.exists()
    again.close()


@pytest.mark.anyio
async def test_followers_hear_all_of_it_in_order_until_it_is_over(tmp_path: Path) -> None:
    tasks = opened(tmp_path)
    task = tasks.begin("vault", "one")
    with tasks.follow(task) as first, tasks.follow(task) as second:
        tasks.set_state(task, State.WORKING, "why")
        tasks.add_message(task, "hello")
        tasks.add_artifact(task, {"id": "a"})
        tasks.set_state(task, State.COMPLETED)
        heard = [one async for one in first]
        assert [(one.kind, one.content, one.state) for one in heard] == [
            ("status", "why", State.WORKING),
            ("message", "hello", State.WORKING),
            ("artifact", {"id": "a"}, State.WORKING),
            ("status", None, State.COMPLETED),
        ]
        assert [one async for one in second] == heard
    with tasks.follow(task) as late:
        assert [one async for one in late] == []
    tasks.close()


@pytest.mark.anyio
async def test_who_does_not_listen_is_let_go_and_so_is_everybody_in_the_end(tmp_path: Path) -> None:
    tasks = Tasks(tmp_path, 7, most_unheard=5)
    tasks.open()
    task = tasks.begin("vault", "one")
    with tasks.follow(task) as slow, tasks.follow(task) as other:
        for number in range(10):
            tasks.add_message(task, number)
        assert len([one async for one in slow]) == 5
        async with asyncio.timeout(BOUND_SECONDS):
            heard = [one async for one in other]
    assert len(heard) == 5
    with tasks.follow(task) as left:
        waiting = asyncio.create_task(anext(left, None))
        await asyncio.sleep(0)
        tasks.close()
        assert await waiting is None


def test_a_full_disk_refuses_new_tasks_and_ends_old_ones(tmp_path: Path) -> None:
    tasks = opened(tmp_path)
    task = tasks.begin("vault", "one")
    (tmp_path / "one.new").mkdir()  # as good as no room: nothing can be written there
    (tmp_path / "two.new").mkdir()
    assert tasks.set_state(task, State.FAILED, "why")
    with pytest.raises(OperatorError, match="cannot be stored"):
        tasks.begin("vault", "two")
    assert tasks.find("vault", "two") is None
    tasks.close()
