"""Agents of ccswarm use servers that others wrote, from npm and PyPI, beside ai-session."""

from __future__ import annotations

import os
import pwd
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from ccswarm.models import Execution
from tests.clients.node import program
from tests.together.support.swarms import AI_SESSION, QUICK, ROOT, git, open_swarm_home, over, submit

pytestmark = pytest.mark.anyio

CREW = """
[[agents]]
name = "editor"
grants = ["files.*", "ai-session.*"]

[[agents]]
name = "reader"
grants = ["files.read_*", "every.*", "git.*", "time.*"]
approval = "destructive"
"""
FILES = """
[[tasks]]
id = "write"
agent = "editor"
steps = [
    { id = "write", tool = "files.write_file", args = { path = "${workspace}/note.txt", content = "forty\\n" } },
    { id = "edit", tool = "files.edit_file", args = { path = "${workspace}/note.txt", edits = [
        { oldText = "forty", newText = "forty two" },
    ] } },
    { id = "open", tool = "ai-session.create_session", args = { name = "note", working_directory = "${workspace}" } },
    { id = "see", tool = "ai-session.execute_command", args = { session_id = "note", command = "cat note.txt" } },
    { id = "close", tool = "ai-session.close_session", args = { session_id = "note" } },
]

[[tasks]]
id = "read"
agent = "reader"
needs = ["write"]
steps = [
    { id = "read", tool = "files.read_text_file", args = { path = "${workspace}/note.txt" } },
    { id = "sum", tool = "every.get-sum", args = { a = 2, b = 40 }, expect = { contains = "42" } },
    { id = "long", tool = "every.trigger-long-running-operation", args = { duration = 0.2, steps = 2 } },
    { id = "facts", tool = "every.get-structured-content", args = { location = "Chicago" } },
    { id = "same", tool = "every.echo", args = { message = "${steps.facts.temperature} ${steps.read.content}" } },
]

[[tasks]]
id = "outside"
agent = "editor"
steps = [{ id = "write", tool = "files.write_file", args = { path = "/etc/ccswarm", content = "" } }]

[[tasks]]
id = "unfit"
agent = "reader"
steps = [{ id = "sum", tool = "every.get-sum", args = { a = "two", b = 40 } }]
"""
REPOSITORY = """
[[tasks]]
id = "look"
agent = "reader"
steps = [
    { id = "log", tool = "git.git_log", args = { repo_path = "${workspace}" }, expect = { contains = "Begin" } },
    { id = "new", tool = "git.git_status", args = { repo_path = "${workspace}" }, expect = { contains = "new.txt" } },
]

[[tasks]]
id = "time"
agent = "reader"

[[tasks.steps]]
id = "time"
tool = "time.convert_time"
args = { source_timezone = "UTC", time = "12:00", target_timezone = "Asia/Tokyo" }
expect = { contains = "T21:00:00+09:00" }
"""


def server(name: str, *words: str) -> str:
    return f"[[mcp.servers]]\nname = '{name}'\ncommand = '''{shlex.join(words)}'''\ntrusted = true\n"


def statuses(run: Execution) -> dict[str, str]:
    return {name: task["status"] for name, task in run.result["tasks"].items()}


@pytest.mark.clients
async def test_servers_from_npm(homes: Path) -> None:
    every = server("every", *program("mcp-server-everything"))
    with open_swarm_home(homes, AI_SESSION + QUICK + CREW + every, "") as swarm_home:
        swarm_home.add(server("files", *program("mcp-server-filesystem"), str(swarm_home.project)))
        async with swarm_home.client() as app, swarm_home.worker():
            run = await over(app, await submit(app, swarm_home.plan(FILES), swarm_home))
        said = {name: task["summary"] for name, task in run.result["tasks"].items()}
        assert statuses(run) == {"write": "succeeded", "read": "succeeded", "outside": "failed", "unfit": "failed"}, (
            said
        )
        steps = run.result["tasks"]["read"]["result"]["steps"]
        assert steps["same"]["text"] == f"Echo: {steps['facts']['temperature']} forty two\n"
        assert "Access denied" in said["outside"]
        assert "a: must be number" in said["unfit"]
        report = swarm_home.joined()
        assert (report.problems, report.calls, report.joined) == ([], 11, 3)


def installed() -> Path:
    """Where the programs of servers.txt are, installed where they are not."""
    wanted, folder = Path(__file__).with_name("servers.txt"), ROOT / ".venv/servers"
    stamp = folder / "servers.txt"
    if not stamp.exists() or stamp.read_bytes() != wanted.read_bytes():
        env = {**os.environ, "HOME": pwd.getpwuid(os.getuid()).pw_dir}
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], env=env, check=True)
        pip = [folder / "bin/pip", "install", "-q", "--disable-pip-version-check", "-r", wanted]
        subprocess.run(pip, env=env, check=True)
        stamp.write_bytes(wanted.read_bytes())
    return folder / "bin"


@pytest.mark.clients
async def test_servers_from_pypi(homes: Path) -> None:
    programs = installed()
    there = "".join(server(name, str(programs / f"mcp-server-{name}")) for name in ("git", "time"))
    with open_swarm_home(homes, AI_SESSION + QUICK + CREW + there, "") as swarm_home:
        git(swarm_home.project, "init", "-q", "-b", "main")
        git(swarm_home.project, "commit", "-q", "--allow-empty", "-m", "Begin")
        (swarm_home.project / "new.txt").write_text("new\n")
        async with swarm_home.client() as app, swarm_home.worker():
            run = await over(app, await submit(app, swarm_home.plan(REPOSITORY), swarm_home))
        assert statuses(run) == {"look": "succeeded", "time": "succeeded"}, run.result["tasks"]
        assert [record.facts["status"] for record in swarm_home.records() if record.event == "call.end"] == ["ok"] * 3
