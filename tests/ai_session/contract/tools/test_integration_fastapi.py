"""A FastAPI app with the terminal that a plan gave it: really served, its commands really run."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest

from tests.ai_session.support.integration_planning import planned
from tests.ai_session.support.integration_projects import FASTAPI_FACTORY, FASTAPI_MODULE, Project, apply_plan
from tests.ai_session.support.mcp_client import BOUND_SECONDS, living_in, stop_daemons

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TOKEN = "correct-horse-battery-staple"
pytestmark = pytest.mark.torture


class Served:
    """The app behind uvicorn, on a port of its own choice."""

    def __init__(self, root: Path, *words: str, token: str = TOKEN) -> None:
        command = [sys.executable, "-m", "uvicorn", "--port", "0", "--app-dir", str(root), *words]
        env = living_in(root.parent) | {"AI_SESSION_TERMINAL_TOKEN": token}
        self.process = subprocess.Popen(command, cwd=root, env=env, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr
        self.log: list[str] = []
        for line in self.process.stderr:
            self.log.append(line)
            if found := re.search(r"running on (http://\S+)", line):
                self.url = found[1]
                return
        raise AssertionError("".join(self.log))

    def post(self, body: Any, token: str = TOKEN) -> tuple[int, Any]:
        """Status and answer of a command."""
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        request = urllib.request.Request(self.url + "/terminal", json.dumps(body).encode(), headers)
        try:
            with urllib.request.urlopen(request, timeout=BOUND_SECONDS) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)

    def end(self) -> str:
        """Ends it, and returns what it said."""
        self.process.terminate()
        _, rest = self.process.communicate(timeout=BOUND_SECONDS)
        return "".join(self.log) + rest


@pytest.fixture
def root(home: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    project: Project = request.param
    root = project.write(home / "shop")
    plan = planned(root, "fastapi")
    apply_plan(root, plan)
    yield root
    stop_daemons(home)


@pytest.mark.parametrize(
    ("root", "words"),
    [(FASTAPI_MODULE, ["app.main:app"]), (FASTAPI_FACTORY, ["server:create_app", "--factory"])],
    indirect=["root"],
)
def test_the_terminal_runs_commands_for_those_who_have_the_token(root: Path, words: list[str]) -> None:
    served = Served(root, *words)
    status, facts = served.post({"command": "cd /; kept=secret; echo $((6*7)); (exit 3)"})
    assert (status, facts["output"], facts["exit_code"], facts["status"]) == (200, "42\n", 3, "finished")
    assert served.post({"command": "pwd; echo $kept"})[1]["output"] == "/\nsecret\n"
    assert served.post({"command": "id"}, "wrong")[0] == served.post({"command": "id"}, "")[0] == 401
    assert served.post({"command": ""})[0] == 422
    waiting = served.post({"command": "read -r line; echo got", "timeout_seconds": 0})
    assert waiting[1]["status"] == "running"
    refused, answer = served.post({"command": "id"})
    assert (refused, answer["detail"].startswith("error session_busy")) == (409, True)
    assert "Traceback" not in served.end()
    again = Served(root, *words)
    assert again.post({"command": "id"})[0] == 409
    assert "Traceback" not in again.end()


@pytest.mark.parametrize("root", [FASTAPI_MODULE], indirect=True)
@pytest.mark.parametrize("token", ["", "short"])
def test_the_terminal_is_closed_until_there_is_a_token(root: Path, token: str) -> None:
    served = Served(root, "app.main:app", token=token)
    status, answer = served.post({"command": "id"}, token)
    assert (status, "AI_SESSION_TERMINAL_TOKEN" in answer["detail"]) == (503, True)
    with urllib.request.urlopen(served.url + "/") as own:
        assert json.load(own) == {"says": "hello"}
    assert "Traceback" not in served.end()
