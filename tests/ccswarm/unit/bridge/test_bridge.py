"""What a connected program can do: exactly what its agent may, each call a step of the run."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ccswarm.brains.base import WorkerContext
from ccswarm.bridge.bridge import ToolBridge, bridge_directory, shown_names
from ccswarm.models import CallOutcome, CallRequest, CallStatus, Execution, RunStatus, ToolInfo
from tests.ccswarm.support.guest_client import ENVELOPE, GuestClient, guest, words
from tests.ccswarm.support.swarms import Hanging, MemoryWorker, settings
from tests.support.bounds import BOUND_SECONDS
from tests.support.strangers import IS_ROOT, USERS, as_user

pytestmark = pytest.mark.anyio

PLAN = {"agents": [{"name": "ada", "grants": ["*"], "brain": "guest"}], "tasks": [{"id": "main"}]}
TASK = "run_1.main"


def new_world(home: Path, worker: MemoryWorker | None = None) -> MemoryWorker:
    worker = worker or MemoryWorker()
    worker.task_worker.worker_context = WorkerContext(lambda _: "", {}, home)
    return worker


async def opened(worker: MemoryWorker) -> str:
    """What CCSWARM_GUEST is, once the bridge is open."""
    async with asyncio.timeout(BOUND_SECONDS):
        async for event in worker.engine.events("run_1"):
            if event["event"] == "task.started":
                break
        async for event in worker.engine.events(TASK):
            if event["event"] == "tools.opened":
                return bridge_directory(worker.task_worker.worker_context.state_directory, TASK).guest("")
    raise AssertionError("the task ended without a bridge")


@asynccontextmanager
async def at_the_desk(worker: MemoryWorker, plan: Mapping[str, Any] = PLAN) -> AsyncGenerator[GuestClient]:
    async with worker.working():
        await worker.swarm.submit(settings(plan), "run_1", "/project")
        async with guest(await opened(worker)) as client:
            yield client


async def over(worker: MemoryWorker) -> Execution:
    async with asyncio.timeout(BOUND_SECONDS):
        return await worker.engine.wait("run_1")


async def test_lists_what_is_granted_and_calls_it(home: Path) -> None:
    worker = new_world(home)
    worker.tool("srv.do", found=42)
    worker.tool("srv.other", found=1)
    async with at_the_desk(worker) as client:
        hello = await client.shake_hands()
        assert "finish" in hello["instructions"]
        tools = (await client.request("tools/list"))["tools"]
        assert [tool["name"] for tool in tools] == ["srv__do", "srv__other", "finish", "await_call"]
        answer = await client.call("srv__do", a=1)
        assert answer["structuredContent"] == {"found": 42}
        assert answer["isError"] is False
        said = await client.call("finish", status="succeeded", summary="all done", result={"n": 1})
        assert "finished" in words(said)
        run = await over(worker)
    assert run.result["status"] == RunStatus.SUCCEEDED
    task = run.result["tasks"]["main"]
    assert (task["summary"], task["result"], task["usage"]["calls"]) == ("all done", {"n": 1}, 1)
    assert [(call.step_id, call.tool, call.arguments) for call in worker.task_worker.calls] == [
        ("call 1", "srv.do", {"a": 1})
    ]
    assert not list((home / "guests").iterdir()), "the socket has gone"


if IS_ROOT:  # nobody else can be somebody else

    @pytest.mark.parametrize("user", USERS)
    async def test_another_user_is_hung_up_on_even_with_the_token(home: Path, user: int) -> None:
        """Should the directories ever be open, it is not enough to know the token."""
        worker = new_world(home)
        worker.tool("srv.do", found=42)
        async with worker.working():
            await worker.swarm.submit(settings(PLAN), "run_1", "/project")
            token, _, address = (await opened(worker)).partition("@")
            hello = json.dumps({"role": "tools", "token": token, "name": "x"}).encode() + b"\n"

            def said(path: str) -> bytes:
                with socket.socket(socket.AF_UNIX) as there:
                    there.connect(path)
                    there.sendall(hello)
                    return b"said: " + there.recv(1 << 12)

            assert (
                await asyncio.to_thread(as_user, user, partial(said, address))
                == b"PermissionError: [Errno 13] Permission denied"
            )
            folders = [Path(address), *Path(address).parents][:-2]
            modes = [folder.stat().st_mode for folder in folders]
            for folder in folders:
                folder.chmod(0o777)
            try:
                assert b'"ccswarm"' in await asyncio.to_thread(said, address)
                assert b'"ccswarm"' not in await asyncio.to_thread(as_user, user, partial(said, address))
            finally:
                for folder, mode in zip(folders, modes, strict=True):
                    folder.chmod(mode & 0o7777)


async def test_a_client_of_the_newer_protocol_needs_no_handshake(home: Path) -> None:
    worker = new_world(home)
    worker.tool("srv.do", found=42)
    async with at_the_desk(worker) as client:
        tools = (await client.request("tools/list", _meta=ENVELOPE))["tools"]
        assert tools[0]["name"] == "srv__do"
        answer = await client.request("tools/call", name="srv__do", arguments={}, _meta=ENVELOPE)
        assert answer["structuredContent"] == {"found": 42}
        assert await client.leave() == 0
        assert (await over(worker)).result["tasks"]["main"]["summary"] == "the client has disconnected"


async def test_what_is_not_granted_is_sent_on_to_be_denied(home: Path) -> None:
    worker = new_world(home)
    worker.tool("srv.do", found=42)
    async with at_the_desk(worker) as client:
        await client.shake_hands()
        answer = await client.call("srv__secret")
        assert answer["isError"] is True
        assert "not_granted: srv.secret is not granted" in words(answer)
        assert "structuredContent" not in answer
        wrong = await client.call("finish", status="perfect")
        assert wrong["isError"] is True


async def test_calls_go_on_side_by_side(home: Path) -> None:
    worker, both = new_world(home), asyncio.Barrier(2)

    async def meet(request: CallRequest) -> Mapping[str, Any]:
        async with asyncio.timeout(BOUND_SECONDS):
            await both.wait()
        return {"step": request.step_id}

    worker.tool("srv.meet", meet)
    async with at_the_desk(worker) as client:
        await client.shake_hands()
        asked = [client.begin_call("srv__meet"), client.begin_call("srv__meet")]
        found = [(await asyncio.wait_for(one, BOUND_SECONDS))["result"]["structuredContent"]["step"] for one in asked]
        assert found == ["call 1", "call 2"]


async def test_a_person_is_asked_and_the_call_waits(home: Path) -> None:
    worker = new_world(home)
    worker.tool("srv.do", found=42)
    worker.task_worker.asks.add("srv.do")
    async with at_the_desk(worker) as client:
        await client.shake_hands()
        call = client.begin_call("srv__do")
        async with asyncio.timeout(BOUND_SECONDS):
            async for event in worker.engine.events(TASK):
                if event["event"] == "approval.asked":
                    await worker.swarm.answer(str(event["id"]), approved=True, by="grace")
                    break
            assert (await call)["result"]["structuredContent"] == {"found": 42}
        call = client.begin_call("srv__do")
        asked = 0
        async with asyncio.timeout(BOUND_SECONDS):
            async for event in worker.engine.events(TASK):
                asked += event["event"] == "approval.asked"
                if asked == 2:
                    await worker.swarm.answer(str(event["id"]), approved=False, by="grace", reason="too late")
                    break
            assert "rejected: a person rejected srv.do: too late" in words((await call)["result"])


async def test_a_worker_is_killed_and_the_program_goes_on(home: Path) -> None:
    """Its server connects again; the call that nobody knows the end of is told by the next worker, nothing twice."""
    first = new_world(home)
    hang = Hanging()
    first.tool("srv.do", found=1)
    first.tool("srv.hang", hang)
    second = new_world(home, MemoryWorker(first.engine.store, "two"))
    second.tool("srv.do", found=2)

    async def known(request: CallRequest) -> Mapping[str, Any]:
        return {"claimed_by": request.claim}

    second.tool("srv.hang", known)
    async with first.working("one"):
        await first.swarm.submit(settings(PLAN), "run_1", "/project")
        variable = await opened(first)
        async with guest(variable) as client:
            await client.shake_hands()
            assert (await client.call("srv__do"))["structuredContent"] == {"found": 1}
            hanging = client.begin_call("srv__hang")
            await asyncio.wait_for(hang.called.wait(), BOUND_SECONDS)
            first.engine.kill()
            async with second.working("two"):
                async with asyncio.timeout(BOUND_SECONDS):
                    answer = (await hanging)["result"]
                    assert answer["structuredContent"] == {"claimed_by": "one"}
                    assert (await client.call("srv__do"))["structuredContent"] == {"found": 2}
                await client.call("finish", status="succeeded", summary="after all")
                run = await over(second)
    assert run.result["tasks"]["main"]["summary"] == "after all"
    assert [call.step_id for call in second.task_worker.calls] == ["call 2", "call 3"]


async def test_a_token_is_of_one_task(home: Path) -> None:
    worker = new_world(home)
    worker.tool("srv.do", found=42)
    async with at_the_desk(worker) as client:
        await client.shake_hands()
        mine, yours = bridge_directory(home, TASK), bridge_directory(home, "run_2.main")
        for token in (yours.token(""), mine.token("2") + "0", yours.token("2"), ""):
            async with guest(f"{token}@{mine.socket}") as stranger:
                assert await stranger.leave() == 1
                assert stranger.process.stderr
                assert b"does not belong to a task in progress" in await stranger.process.stderr.read()
        assert mine.socket.stat().st_mode & 0o777 == 0o600
        assert mine.directory.stat().st_mode & 0o777 == 0o700
    assert not worker.task_worker.calls


async def test_a_budget_ends_the_task_and_tells_the_program(home: Path) -> None:
    worker = new_world(home)
    worker.tool("srv.do", found=42)
    plan = {**PLAN, "tasks": [{"id": "main", "budget": {"calls": 1}}]}
    async with at_the_desk(worker, plan) as client:
        await client.shake_hands()
        await client.call("srv__do")
        call = client.begin_call("srv__do")
        run = await over(worker)
        assert run.result["status"] == RunStatus.EXHAUSTED
        assert (await asyncio.wait_for(call, BOUND_SECONDS))["error"]["message"] == "the task is over"


def new_bridge(home: Path, answer_seconds: float) -> ToolBridge:
    return ToolBridge(bridge_directory(home, "e"), "ada", [ToolInfo("srv", "do")], answer_seconds=answer_seconds)


async def test_a_long_call_is_pending_and_waited_for(home: Path) -> None:
    reception = new_bridge(home, 0.3)
    await reception.open()
    async with guest(bridge_directory(home, "e").guest("")) as client:
        await client.shake_hands()
        call = client.begin_call("srv__do")
        request = await asyncio.wait_for(reception.next(), BOUND_SECONDS)
        reception.mark_taken(request)
        pending = words((await asyncio.wait_for(call, BOUND_SECONDS))["result"])
        assert pending.startswith(f"pending, call id {request['id']}: ")
        again = words(await client.call("await_call", call_id=request["id"]))
        assert again == pending
        waiting = client.begin_call("await_call", call_id=request["id"])
        reception.answer(request["id"], CallOutcome(CallStatus.OK, "at last", {"n": 1}))
        assert words((await asyncio.wait_for(waiting, BOUND_SECONDS))["result"]) == "at last"
        late = await client.call("await_call", call_id=request["id"])
        assert late["isError"] is True
        await reception.close(over=True)


async def test_who_wants_to_know_hears_that_a_call_goes_on(home: Path) -> None:
    reception = ToolBridge(bridge_directory(home, "e"), "ada", [ToolInfo("srv", "do")], beat_seconds=0.05)
    await reception.open()
    async with guest(bridge_directory(home, "e").guest("")) as client:
        await client.shake_hands()
        call = client.begin("tools/call", name="srv__do", arguments={}, _meta={"progressToken": "mine"})
        request = await asyncio.wait_for(reception.next(), BOUND_SECONDS)
        await asyncio.wait_for(client.heard.wait(), BOUND_SECONDS)
        assert client.received[0]["method"] == "notifications/progress"
        assert client.received[0]["params"]["progressToken"] == "mine"
        reception.answer(request["id"], CallOutcome(CallStatus.OK, "done"))
        assert words((await asyncio.wait_for(call, BOUND_SECONDS))["result"]) == "done"
        await reception.close(over=True)


def test_names_are_such_as_programs_allow() -> None:
    tools = [ToolInfo("a", "x.y"), ToolInfo("a", "x y"), ToolInfo("b", "n" * 80), ToolInfo("ai-session", "go")]
    names = shown_names(tools)
    assert list(names.values()) == ["a.x.y", "a.x y", "b." + "n" * 80, "ai-session.go"]
    assert [name for name in names if len(name) > 48 or not name.replace("-", "").replace("_", "").isalnum()] == []
    assert next(iter(names)) == "a__x_y"
    assert list(names)[3] == "ai-session__go"


def test_a_socket_has_a_short_path_however_deep_the_state_lies(home: Path) -> None:
    deep = home / ("d" * 100)
    found = bridge_directory(deep, "e")
    assert len(str(found.socket)) < 100
    assert found.socket.parent.stat().st_mode & 0o777 == 0o700
    found.socket.parent.rmdir()
