"""Notices by a real program and to a real server: what they say, what keeps them from anybody, and what ends them."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import select
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from agentwire.notices.notifier import Notice, Notifier
from agentwire.notices.settings import address_problem, command_problem
from tests.support.bounds import BOUND_SECONDS

pytestmark = pytest.mark.anyio

NOTICE = Notice("question", "it asks", "pass s3cret on?", {"session": "s3cret"})


@dataclass
class Ways:
    command: tuple[str, ...] = ()
    ntfy: str = ""
    webhook: str = ""
    token_file: str = ""
    desktop: bool = False
    per_minute: int = 100
    seconds: float = BOUND_SECONDS


@dataclass
class Server:
    url: str
    asked: list[tuple[str, dict[str, str], str]] = field(default_factory=list[tuple[str, dict[str, str], str]])


@pytest.fixture
def server() -> Iterator[Server]:
    """``/moved`` leads elsewhere, ``/no`` refuses, ``/odd`` speaks no HTTP; all else is taken."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            found.asked.append((self.path, dict(self.headers.items()), body))
            if self.path == "/odd":
                self.wfile.write(b"\x1b[2J what is HTTP?\r\n\r\n")
                return
            self.send_response({"/moved": 307, "/no": 403}.get(self.path, 200))
            self.send_header("Location", "/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            """Says nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        found = Server(f"http://127.0.0.1:{http.server_port}")
        thread = Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield found
        http.shutdown()
        thread.join()


def notifier(ways: Ways, **environ: str) -> Notifier:
    return Notifier("ai-session", ways, {**os.environ, **environ}, lambda text: text.replace("s3cret", "[REDACTED]"))


def program(folder: Path, text: str, name: str = "tell") -> str:
    file = folder / name
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)
    return str(file)


async def test_each_way_is_told_and_no_secret_in_it(server: Server, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("t0ken\n")
    program(tmp_path, f'printf "%s\\n" "$@" > {tmp_path}/shown', "notify-send")
    ways = Ways(
        command=(program(tmp_path, f"cat > {tmp_path}/said"), "x"),
        ntfy=f"{server.url}/topic",
        webhook=f"{server.url}/hook",
        token_file=str(tmp_path / "token"),
        desktop=True,
    )
    notice = Notice("question", "it\nasks", "pass s3cret <on>?", {"session": "s3cret"})
    sent = await notifier(ways, PATH=f"{tmp_path}:{os.environ['PATH']}").send(notice)
    assert {one.way: one.problem for one in sent} == dict.fromkeys(("command", "desktop", "ntfy", "webhook"), "")
    clean = {
        "event": "question",
        "title": "it asks",
        "text": "pass [REDACTED] <on>?",
        "facts": {"session": "[REDACTED]"},
    }
    assert json.loads((tmp_path / "said").read_text()) == clean
    shown = ["--app-name=ai-session", "--", "it asks", "pass [REDACTED] &lt;on&gt;?"]
    assert (tmp_path / "shown").read_text().splitlines() == shown
    (ntfy,) = (one for one in server.asked if one[0] == "/topic")
    assert (ntfy[1]["Title"], ntfy[1]["Authorization"], ntfy[2]) == ("it asks", "Bearer t0ken", clean["text"])
    (hook,) = (one for one in server.asked if one[0] == "/hook")
    assert json.loads(hook[2]) == clean


async def test_what_goes_wrong_is_said_and_nothing_goes_elsewhere(server: Server, tmp_path: Path) -> None:
    async def problem(**ways: Any) -> str:
        (sent,) = await notifier(Ways(**ways)).send(NOTICE)
        return sent.problem

    assert await problem(webhook=f"{server.url}/moved") == "it answered 307 Temporary Redirect"
    assert await problem(ntfy=f"{server.url}/no") == "it answered 403 Forbidden"
    assert [path for path, _, _ in server.asked] == ["/moved", "/no"]
    assert "cannot be reached" in await problem(webhook="http://127.0.0.1:1/")
    assert "could not be sent: \\x1b[2J what is HTTP?" in await problem(webhook=server.url + "/odd")
    assert "could not be sent" in await problem(ntfy=server.url, token_file=str(tmp_path / "none"))
    assert "is not a program that can be run" in await problem(command=(str(tmp_path / "none"),))
    assert await problem(command=(program(tmp_path, "echo s3cret went wrong >&2; exit 3"),)) == "[REDACTED] went wrong"
    assert await problem(command=(program(tmp_path, "exit 4"),)) == "it ended with status 4"
    kept = Notifier("x", Ways(command=(sys.executable,)), {}, str, lambda argv: "a box may write it")
    assert [one.problem for one in await kept.send(NOTICE)] == ["a box may write it"]


async def test_a_program_that_hangs_is_ended_with_what_it_started(tmp_path: Path) -> None:
    fifo = tmp_path / "open"
    os.mkfifo(fifo)
    held = os.open(fifo, os.O_RDWR | os.O_NONBLOCK)
    hangs = program(tmp_path, f"sleep 1000 > {fifo} & sleep 1000")
    try:
        (sent,) = await notifier(Ways(command=(hangs,), seconds=0.3)).send(NOTICE)
        assert sent.problem == "it did not end within 0.3 s (notify.seconds)"
        reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    finally:
        os.close(held)
    while select.select([reader], [], [], BOUND_SECONDS)[0] and os.read(reader, 100):
        pass  # to the end, which comes when nobody has it open any more
    os.close(reader)


async def test_it_is_told_at_once_and_not_too_often_and_a_failure_once(
    server: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    telling = notifier(Ways(webhook=f"{server.url}/no", per_minute=2))
    with caplog.at_level(logging.WARNING):
        for _ in range(5):
            telling.tell(NOTICE)
        assert not server.asked
        await settled(telling)
    assert len(server.asked) == 2
    assert [record.getMessage() for record in caplog.records] == [
        "nobody was notified by webhook: it answered 403 Forbidden"
    ]
    none = notifier(Ways())
    none.tell(NOTICE)
    assert not none
    hanging = notifier(Ways(command=(program(tmp_path, "sleep 1000"),)))
    hanging.tell(NOTICE)
    async with asyncio.timeout(BOUND_SECONDS):
        await hanging.close()


async def settled(telling: Notifier) -> None:
    async with asyncio.timeout(BOUND_SECONDS):
        await asyncio.gather(*telling._sending)  # pyright: ignore[reportPrivateUsage]


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("https://ntfy.sh/mine", ""),
        ("http://127.0.0.1:8080/hook", ""),
        ("file:///etc/passwd", "should begin with"),
        ("gopher://host/", "should begin with"),
        ("https:///no-host", "should begin with"),
        ("https://me:word@host/", "token_file"),
        ("https://host:port/", "Port could not be cast"),
        ("http://[::1", "Invalid IPv6"),
        ("http://127.0.0.1/\r\nX-Other: header", "blanks or control characters"),
    ],
)
async def test_addresses_are_those_of_the_web(url: str, problem: str) -> None:
    found = address_problem(url)
    assert bool(found) == bool(problem)
    assert problem in found


async def test_programs_are_named_by_their_path() -> None:
    assert (command_problem(()), command_problem(("/bin/true", "x"))) == ("", "")
    assert "absolute" in command_problem(("tell",))
