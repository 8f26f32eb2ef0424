"""The plans that ccswarm ships and those of its guide are carried out in real terminals of ai-session, in boxes."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters

from ccswarm.brains.base import CallTool, Finish
from ccswarm.config import config, parsing, reference_text
from ccswarm.config.settings import Settings
from ccswarm.models import CallOutcome, CallStatus, ToolInfo
from ccswarm.plan import check
from tests.ccswarm.support.playbooks import Drive, drive
from tests.conftest import client_environment, end_leftovers, environment, new_home
from tests.support import forked
from tests.support.bounds import BOUND_SECONDS

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def daemon_home(homes: Path) -> Iterator[Path]:
    """A home with a daemon for the tests of this module, as it is where nothing was configured."""
    home = new_home(homes, "")
    with environment(client_environment(home) | {"PYTHONPATH": str(ROOT)}):
        forked.daemon(os.environ)
        yield home
        stopped = forked.run("ai_session", ["daemon", "stop", "--yes"], cwd=home, env=os.environ)
        assert stopped[0] == 0, stopped
    assert not end_leftovers(home)


@pytest.fixture
def project(daemon_home: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A git repository in that home."""
    folder = daemon_home / re.sub(r"\W+", "-", request.node.name)
    folder.mkdir()
    (folder / "one.py").write_text("x = 1  # TODO: more\ny = 2\n")
    (folder / "two words.py").write_text("z = 3\n")
    (folder / "run.sh").write_text("echo $((1 + 1))\n")
    (folder / "README").write_text("A project.\n")
    with environment(client_environment(daemon_home) | {"PYTHONPATH": str(ROOT)}):
        git = "git -c init.defaultBranch=main init -q; git add .; git -c user.name=A -c user.email=a@b commit -qm Begin"
        subprocess.run(git, shell=True, cwd=folder, check=True)
        yield folder


class Server:
    """The server, reached as plans reach it."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def tools(self) -> Mapping[str, ToolInfo]:
        listed = (await self.client.list_tools()).tools
        tools = [ToolInfo("ai-session", tool.name, input_schema=tool.input_schema) for tool in listed]
        return {tool.full_name: tool for tool in tools}

    async def call(self, step: CallTool) -> CallOutcome:
        result = await self.client.call_tool(step.tool.removeprefix("ai-session."), dict(step.arguments))
        text = "\n".join(getattr(block, "text", "") for block in result.content)
        status = CallStatus.TOOL_ERROR if result.is_error else CallStatus.OK
        return CallOutcome(status, text, result.structured_content)


@asynccontextmanager
async def served(folder: Path) -> AsyncGenerator[Server]:
    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "ai_session", "mcp-server", "--stdio"],
        env=config.server_environment(),
        cwd=str(folder),
    )
    async with asyncio.timeout(BOUND_SECONDS), Client(server) as client:
        yield Server(client)


async def carry_out(settings: Settings, folder: Path) -> Mapping[str, Drive]:
    """Every task in the order of the plan, which must be right for the tools there are, until one fails. Those that
    succeed have closed their sessions."""
    run_id = f"run_{folder.name}"
    results: dict[str, Any] = {}
    ends: dict[str, Drive] = {}
    async with served(folder) as server:
        assert check.plan_problems(settings, await server.tools()) == []
        for facts in check.describe(settings)["tasks"]:
            task = next(task for task in settings.tasks if task.id == facts["id"])
            reported = {
                "inputs": {need: results[need] for need in task.needs},
                "run_id": run_id,
                "workspace": str(folder),
            }
            end = await drive(task.model_dump(mode="json"), server.call, **reported)
            ends[task.id] = end
            results[task.id] = end.finish.result
            if end.finish.status != "succeeded":
                return ends
        listed = await server.call(CallTool("left", "ai-session.list_sessions", {}))
        assert run_id not in str(listed.structured)
    return ends


def last(ends: Mapping[str, Drive]) -> Finish:
    return list(ends.values())[-1].finish


def test_the_shipped_configuration_surveys_a_repository(project: Path) -> None:
    settings = config.load(ROOT / "config/ccswarm.toml").settings
    ends = asyncio.run(carry_out(settings, project))
    assert (list(ends)[-1], last(ends).status) == ("report", "succeeded"), last(ends).summary
    lines = [line.strip() for line in (project / "ccswarm-report.md").read_text().splitlines()]
    assert {"Files: 4", "3 lines in    2 files: py"} <= set(lines)
    assert {"2 Python files parse", "1 shell scripts parse", "git: every object is there"} <= set(lines)
    assert "TODO 1" in lines
    assert ends["notes"].steps["where"]["output"].startswith("one.py:1:x = 1  # TODO")


def test_it_says_what_is_not_in_order(project: Path) -> None:
    (project / "one.py").write_text("x = (\n")
    ends = asyncio.run(carry_out(config.load(ROOT / "config/ccswarm.toml").settings, project))
    assert (list(ends), last(ends).status) == (["health"], "failed")
    assert last(ends).summary.startswith("python: expected exit code 0, got 1; its answer: ")
    assert "'(' was never closed" in last(ends).summary


@pytest.mark.parametrize("repository", [True, False])
@pytest.mark.either("repository")
def test_the_starter_runs_as_it_is(project: Path, repository: bool) -> None:
    if not repository:
        shutil.rmtree(project / ".git")
    ends = asyncio.run(carry_out(parsing.parse(reference_text.starter()), project))
    assert last(ends).status == "succeeded", last(ends).summary
    reported = [line.split() for line in ends["tell"].steps["tell"]["output"].splitlines()]
    assert reported[:2] == [["files:", "4"], ["directories:", "0"]]
    assert {"README", "words.py"} <= {line[-1] for line in reported[3:]}
    commits = ends["look"].steps["commits"]
    assert commits["output"].endswith("Begin\n") if repository else commits["status"] == "skipped"


GUIDE = "\n".join((ROOT / f"docs/reference/{name}.md").read_text() for name in ("playbooks", "command-data", "plans"))
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)
BASE = BLOCKS[0][1]
EXAMPLES = [(text, *after) for (kind, text), after in pairwise(BLOCKS[1:]) if kind == "toml"]


def test_every_block_of_the_guide_is_an_example_or_what_comes_of_it() -> None:
    assert len(EXAMPLES) == (len(BLOCKS) - 1) / 2 >= 6
    assert {kind for _, kind, _ in EXAMPLES} == {"json", "text"}


FIRST = {kind: text for text, kind, _ in reversed(EXAMPLES)}.values()
"""One that succeeds and one that fails."""


@pytest.mark.parametrize(
    ("text", "kind", "after"),
    [pytest.param(*one, marks=() if one[0] in FIRST else pytest.mark.torture) for one in EXAMPLES],
    ids=range(len(EXAMPLES)),
)
def test_examples_do_what_the_guide_says(project: Path, text: str, kind: str, after: str) -> None:
    (project / "plan.toml").write_text(text)
    settings = config.peek_plan(project / "plan.toml", parsing.parse(BASE))
    ends = asyncio.run(carry_out(settings, project))
    finish = last(ends)
    assert finish.status == ("succeeded" if kind == "json" else "failed"), finish.summary
    if kind == "text":
        pattern = ".*".join(map(re.escape, after.strip().split("…")))
        assert re.fullmatch(pattern, finish.summary, re.DOTALL), finish.summary
    else:
        differences = list(missing(json.loads(after), list(ends.values())[-1].steps))
        assert differences == []


def missing(wanted: Any, there: Any, location: str = "") -> Iterator[str]:
    """What a result lacks of an excerpt from it."""
    if isinstance(wanted, dict):
        for key, value in wanted.items():
            yield from missing(value, there.get(key, "nothing"), f"{location}.{key}")
    elif isinstance(wanted, list):
        assert len(wanted) == len(there), location
        for at, (value, item) in enumerate(zip(wanted, there, strict=True)):
            yield from missing(value, item, f"{location}[{at}]")
    elif wanted != there:
        yield f"{location}: {there!r}, not {wanted!r}"
