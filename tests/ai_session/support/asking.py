"""A daemon that asks about each call; clients that are the test or other processes; and a person in a window."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from tests.ai_session.support import control_request
from tests.ai_session.support.command_line import ROOT
from tests.ai_session.support.mcp_client import (
    BOUND_SECONDS,
    DATA,
    ENVELOPE,
    FAR,
    Client,
    Message,
    living_in,
    runtime,
)
from tests.support import forked
from tests.support.forked import Forked

VERBS = ["env", f"PYTHONPATH={ROOT}", sys.executable, "-m", "ai_session"]
"""The command line from inside a session."""

FORMS: Message = {"elicitation": {}}

ABOUT_DEPLOYS = """
[[policy.rules]]
id = "deploys"
decision = "ask"
commands = ["deploy *"]
[[policy.rules]]
id = "others"
decision = "allow"
tools = ["*"]
"""
"""Rules of which only one asks."""


@contextmanager
def asking(home: Path, *flags: str) -> Iterator[Forked]:
    """Yield a listening daemon that asks, which ends afterwards with its sessions."""
    env, script = {**living_in(home), "PYTHONPATH": str(ROOT)}, str(DATA / "asking_daemon.py")
    process = forked.piped("ai_session", flags, cwd=home, env=env, errors=home / "asking.log", script=script)
    try:
        assert process.stdout
        assert process.stdout.readline() == b"ready\n", (home / "asking.log").read_text()
        yield process
        assert not (home / "asking.log").read_text(), (home / "asking.log").read_text()
    finally:
        if process.poll() is None and "--sessions" in flags:
            control(home, "stop", sessions=True)
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.wait()
        process.close()


def killed(process: Forked) -> None:
    """Kill a daemon, which gets no chance to save anything."""
    process.kill()
    process.wait(BOUND_SECONDS)


def anew(home: Path, ask_seconds: float = 20.0) -> None:
    """Make an asking daemon forget all questions, answers and events."""
    for file in ("clock", "events"):
        (home / file).unlink(missing_ok=True)
    assert control(home, "rename", session=str(ask_seconds), name=uuid4().hex) == {}


def as_before(home: Path) -> None:
    """Remove all questions, grants and sessions of a daemon."""
    left = approvals(home)
    for row in (*left["questions"], *left["grants"]):
        assert "code" not in typed(home, "reject", question_id=row.get("question_id") or row["grant_id"])
    for row in control(home, "call", name="list_sessions", arguments={})["structured"]["sessions"]:
        assert not control(home, "call", name="close_session", arguments={"session_id": row["session_id"]})["is_error"]


def person(home: Path, *words: str, code: int | None = 0, descends: bool = False) -> str:
    """Run a verb in a window and return all it prints; its exit code must be ``code``.

    ``descends``: this process is its ancestor, so the verb is the asking client's if the test is that client.
    """
    env = {**living_in(home), "PYTHONPATH": str(ROOT)}
    found, out, err = forked.run("ai_session", words, cwd=home, env=env, typed=True, descends=descends)
    assert code is None or found == code, (words, found, out, err)
    return (out + err).decode()


def insider(home: Path, *words: str, code: int) -> str:
    """Run a verb in a process with the mark of a session and return all it prints."""
    env = {**living_in(home), "PYTHONPATH": str(ROOT), "AI_SESSION_ID": "x"}
    found, out, err = forked.run("ai_session", words, cwd=home, env=env)
    assert found == code, (words, found, out, err)
    return (out + err).decode()


def control(home: Path, method: str, **params: Any) -> Message:
    """Send a request to the daemon from this process and return its result or error."""
    return control_request.control(str(runtime(home) / "sock"), method, params)


def typed(home: Path, method: str, **params: Any) -> Message:
    """Send a request from a process in a person's window and return its result or error."""
    words = [str(runtime(home) / "sock"), method, json.dumps(params)]
    env = {**living_in(home), "PYTHONPATH": str(ROOT)}
    code, out, err = forked.run("ai_session", words, cwd=home, env=env, typed=True, script=control_request.__file__)
    assert code == 0, err
    return json.loads(out)


def opened(home: Path, backend: str) -> None:
    """Open a session named main as a person, with a prompt that can be waited for."""
    for tool, arguments in (
        ("create_session", {"name": "main", "backend": backend, "working_directory": str(home)}),
        ("execute_command", {"session_id": "main", "command": "PS1='ready> '"}),
    ):
        assert not control(home, "call", name=tool, arguments=arguments)["is_error"]


def approvals(home: Path) -> Message:
    """Return the open questions and the grants."""
    return control(home, "approvals")


def approve(home: Path, question: Message, **params: Any) -> None:
    """Approve a question as a person."""
    answer = typed(home, "approve", question_id=question["question_id"], **params)
    assert answer.get("about") == question["message"], answer


def events(home: Path) -> list[dict[str, Any]]:
    """Return the events that consent has reported to the audit log."""
    return [json.loads(line) for line in (home / "events").read_text().splitlines()]


@contextmanager
def client(home: Path, *, far: bool = True) -> Iterator[Client]:
    """Yield a client of that daemon: another process if ``far``, else the test itself."""
    env = {**living_in(home), "PYTHONPATH": str(ROOT)}
    with Client(FAR, env=env, cwd=home) if far else Client(anew=True, env=env, cwd=home) as found:
        yield found


def greet(found: Client, capabilities: Message, version: str = "2025-11-25", name: str = "wire") -> None:
    """Do the handshake."""
    info = {"name": name, "version": "1"}
    found.result("initialize", {"protocolVersion": version, "capabilities": capabilities, "clientInfo": info})
    found.write({"jsonrpc": "2.0", "method": "notifications/initialized"})


def form(found: Client) -> Message:
    """Return the form that the client must show, which must be the next message."""
    message = found.read()
    assert message["method"] == "elicitation/create", message
    return message


def fill(found: Client, asked: Message, result: Message) -> None:
    """Answer a form."""
    found.write({"jsonrpc": "2.0", "id": asked["id"], "result": result})


def decide(decision: str) -> Message:
    """Return the answer of a form with a decision."""
    return {"action": "accept", "content": {"decision": decision}}


def modern(arguments: Message, *, name: str = "wire", forms: bool = True, **params: Any) -> Message:
    """Return the parameters of a call of the echo tool in protocol version 2026-07-28."""
    meta = {
        **ENVELOPE,
        "io.modelcontextprotocol/clientInfo": {"name": name, "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}} if forms else {},
    }
    return {"name": "echo", "arguments": arguments, "_meta": meta, **params}


def error_of(result: Message) -> dict[str, str]:
    """Return the error of a failed call."""
    assert result.get("isError"), result
    return result["_meta"]["ai-session/error"]
