"""Runs in the console, as a program of the settings tells them: asked, passed on, and gone."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from ai_session.http.console.bridge import MOST_REQUEST_BYTES, MOST_REQUESTS
from tests.ai_session.support.consoles import Console, Tab, console
from tests.ai_session.support.mcp_client import running_daemon
from tests.conftest import UNBOXED

PROVIDER = """
import json, sys
print(json.dumps({"runs": VERSION, "program": "told"}), flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    method, params = asked["method"], asked["params"]
    if method == "diff":
        sys.exit("no more \\x1b[2Jtoday")
    if method == "list":
        answer = {"result": {"runs": [{"run": "run_1", "name": "\\u202eeman", "given": params}]}}
    else:
        answer = {"error": {"code": "no", "message": method + "\\x1b[2J", "suggestion": ""}}
    print(json.dumps({"event": "changed"}), flush=True)
    print(json.dumps({"id": asked["id"], **answer}), flush=True)
"""


@pytest.fixture(scope="module")
def daemon_home(homes: Path) -> Iterator[Path]:
    with running_daemon(homes) as home:
        yield home


def told_by(daemon_home: Path, words: Sequence[str]) -> None:
    """The settings name this program."""
    given = f"{UNBOXED}\n[console]\nruns = {json.dumps(words)}\n"
    (daemon_home / ".config/ai-session/config.toml").write_text(given)


def provider(daemon_home: Path, version: int = 1) -> list[str]:
    file = daemon_home / f"provider{version}.py"
    file.write_text(PROVIDER.replace("VERSION", str(version)))
    return [sys.executable, str(file)]


def tab(here: Console) -> Tab:
    opened = Tab(here)
    opened.say(here.token())
    greeting = opened.hear()
    assert greeting
    assert "ai_session" in greeting
    return opened


def test_runs_are_asked_of_the_program_and_shown_with_nothing_hidden(daemon_home: Path) -> None:
    told_by(daemon_home, provider(daemon_home))
    with console(daemon_home) as here, tab(here) as one, tab(here) as other:
        listed = one.ask("runs.list", limit=3)
        assert listed["result"]["runs"] == [{"run": "run_1", "name": "\\u202eeman", "given": {"limit": 3}}]
        assert other.hear() == {"event": "runs", "what": "changed"}, "all tabs hear of it"
        assert one.ask("runs.accept", run="run_1", task="t")["error"]["message"] == r"accept\x1b[2J"
        gone = one.ask("runs.diff", run="run_1", task="")["error"]
        assert gone["code"] == "runs_unavailable"
        assert gone["message"].endswith(r"has ended: no more \x1b[2Jtoday")
        assert one.ask("runs.list")["result"], "the next request starts it again"
        for method in ("runs.nothing", "runs.", "runs"):
            with tab(here) as curious:
                curious.say(json.dumps({"id": 1, "method": method}))
                while curious.hear():
                    pass
                assert curious.closed == 1008, method


SILENT = """
import json, sys
print(json.dumps({"runs": 1, "program": "silent"}), flush=True)
held = []
for line in sys.stdin:
    asked = json.loads(line)
    if asked["method"] != "list":
        held.append(asked["id"])
        continue
    for number in [*held, asked["id"]]:
        print(json.dumps({"event": "changed"}), flush=True)
        print(json.dumps({"id": number, "result": {}}), flush=True)
    held = []
"""


def test_what_a_tab_asks_of_the_console_at_once_is_bounded(daemon_home: Path) -> None:
    """Another tab is answered all the same, and so is the same one once it has waited."""
    file = daemon_home / "silent.py"
    file.write_text(SILENT)
    told_by(daemon_home, [sys.executable, str(file)])
    with console(daemon_home) as here, tab(here) as greedy, tab(here) as other:
        for number in range(1000, 1000 + MOST_REQUESTS):
            greedy.say(json.dumps({"id": number, "method": "runs.run", "params": {"run": "run_1"}}))
        for method in ("runs.run", "replay.screen", "audit.verify"):
            refused = greedy.ask(method)["error"]
            assert refused["code"] == "limit_reached", method
            assert "wait" in refused["suggestion"]
        assert "result" in greedy.ask("call", name="list_sessions", arguments={}), "the daemon bounds what it is asked"
        assert other.ask("runs.list", words="x" * MOST_REQUEST_BYTES)["error"]["code"] == "invalid_arguments"
        answered: set[int] = set()
        assert other.ask("runs.list")["result"] == {}
        while len(answered) < MOST_REQUESTS:
            heard = greedy.hear()
            assert heard
            answered |= {heard["id"]} if "id" in heard else set()
        assert answered == set(range(1000, 1000 + MOST_REQUESTS))
        assert greedy.ask("runs.list")["result"] == {}


def test_a_console_that_only_looks_decides_nothing(daemon_home: Path) -> None:
    told_by(daemon_home, provider(daemon_home))
    with console(daemon_home, "--read-only") as here, tab(here) as one:
        for method in ("answer", "accept", "return", "pause", "cancel", "start", "resume"):
            assert one.ask(f"runs.{method}", run="run_1")["error"]["code"] == "not_granted"
        assert "result" in one.ask("runs.list")


def test_without_a_program_that_speaks_this_protocol_the_console_says_so(daemon_home: Path) -> None:
    wrong = {
        "speaks version 7 of the protocol, not 1": provider(daemon_home, 7),
        "no program that reports runs is configured": [],
        "no-such-program is not installed here": ["no-such-program"],
        "/no/such cannot be started": ["/no/such"],
        "that reports runs ended": ["true"],
    }
    for words, program in wrong.items():
        told_by(daemon_home, program)
        with console(daemon_home) as here, tab(here) as one:
            error = one.ask("runs.list")["error"]
            assert (error["code"], words in error["message"]) == ("runs_unavailable", True), error
            assert one.ask("call", name="list_sessions", arguments={})["result"], "the rest works"
