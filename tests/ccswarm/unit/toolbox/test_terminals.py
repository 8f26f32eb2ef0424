"""Which sessions are ended before an agent's work is taken over."""

from __future__ import annotations

from typing import Any

import pytest

from ccswarm.models import CallOutcome, CallRequest, CallStatus
from ccswarm.toolbox.terminals import Terminals

pytestmark = pytest.mark.anyio

AGENT = {"owner": "run:r/agent:ada"}


class Server:
    """Knows sessions, and closes those it is asked to, but for ``stuck`` ones."""

    def __init__(self, *sessions: dict[str, Any], stuck: str = "", failing: str = "") -> None:
        self.sessions = {session["session_id"]: {"name": "n", **session} for session in sessions}
        self.stuck = stuck
        self.failing = failing

    async def send(self, request: CallRequest) -> CallOutcome:
        assert request.for_user, "the agents themselves need not be granted it"
        if self.failing:
            return CallOutcome(CallStatus.UNAVAILABLE, code=self.failing, message="no such thing")
        if request.tool == "shell.list_sessions":
            return CallOutcome(CallStatus.OK, structured={"sessions": list(self.sessions.values())})
        assert request.tool == "shell.close_session"
        wanted = request.arguments["session_id"]
        if wanted == self.stuck:
            return CallOutcome(CallStatus.DENIED, code="denied", message="not now")
        if wanted not in self.sessions or wanted.startswith("gone"):
            return CallOutcome(CallStatus.TOOL_ERROR, code="session_not_found", message="gone")
        del self.sessions[wanted]
        return CallOutcome(CallStatus.OK, structured={})


def session(name: str, workspace: str, cwd: str = "/tmp", **more: Any) -> dict[str, Any]:
    return {"session_id": name, "working_directory": cwd, **({"workspace": workspace} if workspace else {}), **more}


async def test_whoever_may_write_there_is_ended_wherever_its_shell_has_gone() -> None:
    there = Server(
        session("in", "/c/ada", **AGENT),
        session("below", "/c/ada/sub", **AGENT),
        session("above", "/c", **AGENT),
        session("unboxed", "", "/c/ada/x", **AGENT),
        session("elsewhere", "/c/bob", "/c/ada", **AGENT),
        session("alike", "/c/ada2", **AGENT),
        session("persons", "/c/ada", "/c/ada"),
    )
    assert await Terminals(there.send, "shell", directory="/c/ada").end() == ""
    assert set(there.sessions) == {"elsewhere", "alike", "persons"}
    assert await Terminals(there.send, "shell", directory="/c/ada", any_owner=True).end() == ""
    assert there.sessions == {}


async def test_one_that_cannot_be_ended_is_told_and_one_that_ended_by_itself_is_not() -> None:
    there = Server(session("gone", "/c", **AGENT), session("s", "/c", **AGENT), stuck="s")
    assert await Terminals(there.send, "shell", directory="/c").end() == "its terminal n cannot be ended: not now"


async def test_a_server_without_sessions_has_none_one_that_does_not_answer_may_have() -> None:
    assert await Terminals(Server(failing="unknown_tool").send, "shell", directory="/c").end() == ""
    assert (
        "cannot be listed: no such thing"
        in await Terminals(Server(failing="server_lost").send, "shell", directory="/c").end()
    )
