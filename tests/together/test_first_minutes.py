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
from tests.ccswarm.support.visionflow_server import connected, served
from tests.conftest import UNBOXED
from tests.support import forked
from tests.support.bounds import BOUND_SECONDS
from tests.together.support.swarms import DATA, ROOT, SwarmHome, git, open_swarm_home

DOCUMENT = '[mcp]\nservers = [\n  { name = "ai-session", command = "ai-session mcp-server --stdio" }\n]\n'
KEYS = ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "CODEX_API_KEY", "GEMINI_API_KEY")


@pytest.fixture
def house(world: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SwarmHome]:
    """A git repository with a test, ai-session on PATH, and no other configuration than the document's."""
    for name in KEYS:
        monkeypatch.delenv(name, raising=False)
    with open_swarm_home(world, DOCUMENT, UNBOXED) as house:
        monkeypatch.setenv("PATH", f"{sys.prefix}/bin:/usr/bin:/bin")
        for name in ("GIT_AUTHOR", "GIT_COMMITTER"):
            monkeypatch.setenv(f"{name}_NAME", "Ann")
            monkeypatch.setenv(f"{name}_EMAIL", "ann@example.org")
        (house.project / "ccswarm.toml").write_text(DOCUMENT)
        (house.project / "shop.py").write_text('print("hello")\n')
        (house.project / "Makefile").write_text("test:\n\tpython3 shop.py | grep -q hello\n")
        git(house.project, "init", "-q", "-b", "main")
        git(house.project, "add", "-A")
        git(house.project, "commit", "-qm", "Begin")
        yield house


def ccswarm(house: SwarmHome, *words: str) -> str:
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    code, out, err = forked.run("ccswarm", words, cwd=house.project, env=env)
    said = (out + err).decode()
    assert code == 0, said
    return said


def test_the_documents_configuration_does_something_true(house: SwarmHome) -> None:
    said = ccswarm(house, "run", "list the files", "--config", "ccswarm.toml")
    assert "no agent is configured (there is no key, and neither claude nor codex is installed)" in said
    assert "succeeded: playbook files, chosen by: list, files; exit code 0" in said
    told: dict[str, Any] = json.loads(ccswarm(house, "runs", "show", "last", "--json"))
    output = told["tasks"]["main"]["result"]["steps"]["run"]["output"]
    assert output.splitlines() == ["Makefile", "ccswarm.toml", "shop.py", "3 files"]


@pytest.mark.torture
def test_every_type_of_the_document_joins_and_does_the_task(house: SwarmHome) -> None:
    words = ("--config", str(house.project / "ccswarm.toml"), "--workspace", str(house.project))
    with served(RunVerbs(house.home), *words) as server, connected(server.port) as wire:
        swarm = wire.ask("swarm_init", topology="hierarchical", maxAgents=10, strategy="adaptive")["swarmId"]
        for kind in ("researcher", "coder", "analyst", "optimizer", "coordinator"):
            joined = wire.ask("agent_spawn", swarmId=swarm, type=kind, capabilities=["analysis", "synthesis"])
            assert (joined["type"], joined["status"]) == (kind, "active")
        task = wire.ask("task_orchestrate", swarmId=swarm, task="Analyze hello for communities", strategy="parallel")
        assert wire.over(task["taskId"])["status"] == "completed"
        assert wire.ask("swarm_status", swarmId=swarm)["completedTasks"] == 1


@pytest.mark.torture
def test_one_line_from_nothing_to_a_coder_and_its_work_is_merged(
    house: SwarmHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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
    (house.project / "ccswarm.toml").unlink()
    git(house.project, "commit", "-qam", "none yet")
    try:
        said = ccswarm(house, "init", "--with", "claude")
        assert "missing" not in said
        assert "claude itself runs with your login and outside of any sandbox" in said
        person: pexpect.spawn[str] = pexpect.spawn(
            sys.executable,
            ["-m", "ccswarm", "run", "make the tests pass"],
            cwd=str(house.project),
            encoding="utf-8",
            env={**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm"},
            dimensions=(40, 150),
            timeout=BOUND_SECONDS,
        )  # pyright: ignore[reportArgumentType]
        person.expect_exact("+checked")
        person.expect_exact("merge 1 file, +1 −0")
        assert not (house.project / "checked.txt").exists()
        person.send("y")
        person.expect_exact("the tests pass")
        person.expect(pexpect.EOF)
        person.wait()
        assert person.exitstatus == 0
        assert house.lines("checked.txt") == ["checked"]
    finally:
        home = house.state / "programs"
        stop = [sys.executable, "-m", "ai_session", "daemon", "stop", "--yes"]
        subprocess.run(stop, env={**os.environ, "HOME": str(home)}, check=True, timeout=BOUND_SECONDS)
