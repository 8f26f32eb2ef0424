"""The MCP Inspector's web page in a real browser: over a pipe, and over HTTP with signing in and consent."""

from __future__ import annotations

import os
import re
import select
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import pytest

from tests.ai_session.support.mcp_client import Client
from tests.clients.node import BOUND_SECONDS, FOLDERS, HERE, SERVER, Person, node, program

pytestmark = pytest.mark.clients
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+\?MCP_INSPECTOR_API_TOKEN=\w+")
PLACE = re.compile(r"Serving MCP at (\S+)")
CODE = re.compile(r"sign-in code: ([A-Z0-9-]+)")
SWITCH = "input[role=switch]"


class Started:
    """A program in a group of its own, and all that it said so far on both its outputs."""

    def __init__(self, command: list[str], env: dict[str, str], cwd: Path) -> None:
        both = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "stdin": subprocess.DEVNULL}
        self.process = subprocess.Popen(command, env=env, cwd=cwd, bufsize=0, process_group=0, **both)  # type: ignore[call-overload]
        self.said = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.killpg(self.process.pid, signal.SIGTERM)
        try:
            self.process.wait(BOUND_SECONDS)
        finally:
            self.process.stdout.close()

    def until(self, pattern: re.Pattern[str]) -> re.Match[str]:
        """The first match of what it says."""
        while not (match := pattern.search(self.said)):
            assert select.select([self.process.stdout], [], [], BOUND_SECONDS)[0], self.said
            piece = os.read(self.process.stdout.fileno(), 65536)
            assert piece, f"it ended: {self.said}"
            self.said += piece.decode()
        return match


class Page:
    """A browser that shows one page."""

    def __init__(self, url: str, env: dict[str, str]) -> None:
        folder = next((folder for folder in FOLDERS if (folder / "node_modules/puppeteer-core").exists()), None)
        browser = next(filter(None, map(shutil.which, BROWSERS)), None)
        assert folder, "puppeteer-core is not installed, run first: make clients"
        assert browser, "no browser is installed, run first: make clients"
        self._lines = Client([node(), str(HERE / "browse.cjs"), str(folder), browser, url], env=env)
        self._lines.read(BOUND_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._lines:
            self._lines.end()

    def do(self, what: str, **how: Any) -> str:
        """The text of the page afterwards."""
        self._lines.write({"do": what, **how})
        answer = self._lines.read(BOUND_SECONDS)
        assert "failed" not in answer, f"{what} {how}: {answer['failed']}\n{answer['url']}\n{answer['text'][:3000]}"
        return answer["text"]

    def press(self, words: str) -> None:
        self.do("press", words=words)

    def fill(self, words: str, value: str) -> None:
        self.do("fill", words=words, value=value)

    def see(self, *words: str) -> str:
        return self.do("see", words=words)


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@contextmanager
def inspector(home: Path, *target: str) -> Iterator[Page]:
    """Its page, with the one server on it that is named."""
    env = {**Person().environment, "MCP_AUTO_OPEN_ENABLED": "false", "CLIENT_PORT": str(free_port())}
    env |= {"MCP_SANDBOX_PORT": str(free_port()), "MCP_INSPECTOR_SECRET_STORE": "memory"}
    command = [*program("mcp-inspector"), "--web", *target]
    with Started(command, env, home) as server, Page(server.until(ADDRESS)[0], env) as page:
        yield page


def work_through(page: Page) -> None:
    """From a connection on: a session, a command, its output as a resource, the screen by its template."""
    page.do("open", words="Tools", shown=["Tools (10)"])
    page.press("create_session")
    page.fill("name", "web")
    page.press("Execute Tool")
    page.see("Structured Output")
    page.press("execute_command")
    page.fill("session_id", "web")
    page.fill("command", "echo $((6 * 7)) cups; (exit 3)")
    page.press("Execute Tool")
    done = page.see("42 cups", '"exit_code": 3', '"status": "finished"')
    assert "[exit code 3, finished" in done
    page.do("open", words="Resources", shown=["Templates (4)"])
    page.press("Refresh")
    page.press("Output of web: echo $((6 * 7)) cups; (exit 3)")
    page.see("42 cups")
    page.press("Screen")
    page.fill("id", "web")
    page.press("Read Resource")
    page.see("42 cups", "session://web/screen")


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_over_a_pipe(home: Path, era: str) -> None:
    with inspector(home, "--protocol-era", era, *SERVER) as page:
        page.do("pick", selector=SWITCH)
        work_through(page)


def test_over_http_with_a_person_who_signs_in_and_consents(home: Path) -> None:
    command = [SERVER[0], "mcp-server", "--http", "--port", "0"]
    with Started(command, Person().environment, home) as front:
        url = front.until(PLACE)[1]
        with inspector(home, "--transport", "http", "--server-url", url) as page:
            page.do("pick", selector=SWITCH)
            asked = page.see("Sign in to ai-session")
            assert "MCP Inspector wants to use terminals on this server." in asked
            page.fill("Code", "WRONG-CODE1")
            page.press("Sign in")
            page.see("Sign in to ai-session", "That was not right.")
            page.fill("Code", front.until(CODE)[1])
            page.press("Sign in")
            wanted = page.see("Allow access to your terminals?")
            assert "sessions:execute" in wanted
            page.press("Allow")
            work_through(page)


def test_what_was_not_allowed_cannot_be_done(home: Path) -> None:
    """The person takes the right to run commands away on the page."""
    command = [SERVER[0], "mcp-server", "--http", "--port", "0"]
    with Started(command, Person().environment, home) as front:
        url = front.until(PLACE)[1]
        with inspector(home, "--transport", "http", "--server-url", url) as page:
            page.do("pick", selector=SWITCH)
            page.see("Sign in to ai-session")
            page.fill("Code", front.until(CODE)[1])
            page.press("Sign in")
            page.see("Allow access to your terminals?")
            page.do("pick", selector="input[value='sessions:execute']")
            page.press("Allow")
            page.do("open", words="Tools", shown=["Tools (10)"])
            page.press("list_sessions")
            page.press("Execute Tool")
            page.see("Structured Output")
            page.press("create_session")
            page.fill("name", "web")
            page.press("Execute Tool")
            page.see("sessions:execute")
