"""The shipped coordinator, with the real ai-session and git: a task in words is handed on in pieces with gates, done in
clones, merged, and finished by who handed it on. Its models are a server of the test."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from ccswarm.config import config
from ccswarm.config.settings import TaskSettings
from tests.ccswarm.support.llm_agents import KEY, SECRET, finish
from tests.ccswarm.support.model_servers import Asked, Behaviour, ModelServer, Reply, each, plays
from tests.conftest import environment
from tests.together.support.swarms import AI_SESSION, QUICK, ROOT, git, open_swarm_home, over, submit

pytestmark = pytest.mark.anyio


def coordinator(server: ModelServer) -> str:
    """The shipped file, with the models of the test and without its line about servers."""
    text = (ROOT / "config/coordinator.toml").read_text()
    text = re.sub(r"(?m)^\[mcp\]\nservers = .*\n", "", text)
    return re.sub(r'(model = "[^"]+")', rf'\1, base_url = "{server.url}", key = "{KEY}"', text)


def writes(name: str, text: str) -> list[Reply]:
    """A coder's turns: what it does first does not pass its gate, and it is told so."""
    wrong, right = (Reply(calls=[("bash", {"command": line})]) for line in (f"touch {name}", f"echo {text} > {name}"))
    return [wrong, Reply(calls=[finish()]), right, Reply(calls=[finish(summary=f"{name} says {text}")])]


def ends(asked: Asked) -> Behaviour:
    """What came back of the delegated work is all it knows."""
    back = asked.results[-1].text
    good = '"status": "succeeded"' in back and "one.txt says 1" in back and "two.txt says 2" in back
    return Reply(calls=[finish("succeeded" if good else "failed", "Both are there." if good else back[:500])])


def piece(name: str, agent: str, gate: str) -> dict[str, object]:
    return {"id": name, "agent": agent, "text": f"Write {name}.txt.", "gates": [{"command": gate}], "rounds": 3}


@pytest.mark.torture
async def test_a_task_in_words_becomes_work_of_others(homes: Path) -> None:
    tasks = [piece("one", "ada", "grep -qx 1 one.txt"), piece("two", "bob", "grep -qx 2 two.txt")]
    handed_on = Reply("I hand it on.", [("swarm.delegate", {"tasks": tasks})])
    scripts = {
        "You are cleo, a coordinator": plays([handed_on, ends]),
        "You are ada, a coder": plays(writes("one.txt", "1")),
        "You are bob, a coder": plays(writes("two.txt", "2")),
    }
    with open_swarm_home(homes, AI_SESSION + QUICK, "") as swarm_home, environment({**os.environ, KEY: SECRET}):
        git(swarm_home.project, "init", "-q", "-b", "main")
        git(swarm_home.project, "config", "user.name", "Host")
        git(swarm_home.project, "config", "user.email", "h@h")
        git(swarm_home.project, "commit", "-q", "--allow-empty", "-m", "Begin")
        async with ModelServer(each(scripts), key=SECRET) as server:
            swarm_home.rewrite(AI_SESSION + QUICK + coordinator(server))
            swarm_home.settings = config.peek(swarm_home.file).settings
            async with swarm_home.client() as app, swarm_home.worker():
                main = TaskSettings(id="main", text="Have one.txt and two.txt written.", agent="cleo")
                run = await over(
                    app, await submit(app, swarm_home.settings.model_copy(update={"tasks": (main,)}), swarm_home)
                )
        task = run.result["tasks"]["main"]
        assert (task["status"], task["summary"]) == ("succeeded", "Both are there.")
        assert [git(swarm_home.project, "show", f"HEAD:{name}") for name in ("one.txt", "two.txt")] == ["1", "2"]
        assert run.result["usage"]["tokens"] == 110 * len(server.asked) == 110 * 10
        assert swarm_home.joined().problems == []
