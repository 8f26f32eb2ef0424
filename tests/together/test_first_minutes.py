"""The first minutes of a new user: real programs and terminals, a home with nothing in it, no key."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pexpect
import pytest

from tests.ccswarm.support.runs import RunVerbs
from tests.ccswarm.support.visionflow_server import Wire, served
from tests.conftest import UNBOXED
from tests.support import forked
from tests.support.bounds import BOUND_SECONDS
from tests.together.support.swarms import DATA, ROOT, SwarmHome, git, open_swarm_home

DOCUMENT = '[mcp]\nservers = [\n  { name = "ai-session", command = "ai-session mcp-server --stdio" }\n]\n'
KEYS = ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "CODEX_API_KEY", "GEMINI_API_KEY")


@pytest.fixture
def swarm_home(homes: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SwarmHome]:
    """A git repository with a test, ai-session on PATH, and no other configuration than the document's."""
    for name in KEYS:
        monkeypatch.delenv(name, raising=False)
    with open_swarm_home(homes, DOCUMENT, UNBOXED) as swarm_home:
        monkeypatch.setenv("PATH", f"{sys.prefix}/bin:/usr/bin:/bin")
        for name in ("GIT_AUTHOR", "GIT_COMMITTER"):
            monkeypatch.setenv(f"{name}_NAME", "Ann")
            monkeypatch.setenv(f"{name}_EMAIL", "ann@example.org")
        (swarm_home.project / "ccswarm.toml").write_text(DOCUMENT)
        (swarm_home.project / "shop.py").write_text('print("hello")\n')
        (swarm_home.project / "Makefile").write_text("test:\n\tpython3 shop.py | grep -q hello\n")
        git(swarm_home.project, "init", "-q", "-b", "main")
        git(swarm_home.project, "add", "-A")
        git(swarm_home.project, "commit", "-qm", "Begin")
        yield swarm_home


def ccswarm(swarm_home: SwarmHome, *words: str) -> str:
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    code, out, err = forked.run("ccswarm", words, cwd=swarm_home.project, env=env)
    said = (out + err).decode()
    assert code == 0, said
    return said


def test_the_documents_configuration_does_something_true(swarm_home: SwarmHome) -> None:
    said = ccswarm(swarm_home, "run", "list the files", "--config", "ccswarm.toml")
    assert "no agent is configured (there is no key, and neither claude nor codex is installed)" in said
    assert "succeeded: playbook files, chosen by: list, files; exit code 0" in said
    reported: dict[str, Any] = json.loads(ccswarm(swarm_home, "runs", "show", "last", "--json"))
    output = reported["tasks"]["main"]["result"]["steps"]["run"]["output"]
    assert output.splitlines() == ["Makefile", "ccswarm.toml", "shop.py", "3 files"]


@pytest.mark.torture
def test_every_type_of_the_document_joins_and_does_the_task(swarm_home: SwarmHome) -> None:
    words = ("--config", str(swarm_home.project / "ccswarm.toml"), "--workspace", str(swarm_home.project))
    with served(RunVerbs(swarm_home.home), *words) as server, Wire(server.port) as wire:
        swarm = wire.ask("swarm_init", topology="hierarchical", maxAgents=10, strategy="adaptive")["swarmId"]
        for kind in ("researcher", "coder", "analyst", "optimizer", "coordinator"):
            joined = wire.ask("agent_spawn", swarmId=swarm, type=kind, capabilities=["analysis", "synthesis"])
            assert (joined["type"], joined["status"]) == (kind, "active")
        task = wire.ask("task_orchestrate", swarmId=swarm, task="Analyze hello for communities", strategy="parallel")
        assert wire.over(task["taskId"])["status"] == "completed"
        assert wire.ask("swarm_status", swarmId=swarm)["completedTasks"] == 1


@pytest.mark.torture
def test_one_line_from_nothing_to_a_coder_and_its_work_is_merged(
    swarm_home: SwarmHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = json.dumps({"session_id": "w", "command": "make test && echo checked > checked.txt"})
    actions = ['call:ai-session__create_session:{"name":"w"}', f"call:ai-session__execute_command:{given}"]
    script = " ".join(f"'{one}'" for one in (*actions, "finish:succeeded:the tests pass"))
    find = 'while [ "$1" != --mcp-config ]; do shift; done'
    (tmp_path / "claude").write_text(
        f'#!/bin/sh\n{find}\nexec {sys.executable} {DATA / "scripted_agent.py"} "$2" {script}\n'
    )
    (tmp_path / "claude").chmod(0o755)
    monkeypatch.setenv("PATH", f"{os.environ['PATH']}:{tmp_path}")
    (swarm_home.project / "ccswarm.toml").unlink()
    git(swarm_home.project, "commit", "-qam", "none yet")
    try:
        said = ccswarm(swarm_home, "init", "--with", "claude")
        assert "missing" not in said
        assert "claude itself runs with your login and outside of any sandbox" in said
        person: pexpect.spawn[str] = pexpect.spawn(
            sys.executable,
            ["-m", "ccswarm", "run", "make the tests pass"],
            cwd=str(swarm_home.project),
            encoding="utf-8",
            env={**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm"},
            dimensions=(40, 150),
            timeout=BOUND_SECONDS,
        )  # pyright: ignore[reportArgumentType]
        person.expect_exact("+checked")
        person.expect_exact("merge 1 file, +1 −0")
        assert not (swarm_home.project / "checked.txt").exists()
        person.send("y")
        person.expect_exact("the tests pass")
        person.expect(pexpect.EOF)
        person.wait()
        assert person.exitstatus == 0
        assert swarm_home.lines("checked.txt") == ["checked"]
    finally:
        home = swarm_home.state / "programs"
        stop = [sys.executable, "-m", "ai_session", "daemon", "stop", "--yes"]
        subprocess.run(stop, env={**os.environ, "HOME": str(home)}, check=True, timeout=BOUND_SECONDS)
