"""Real agents have the swarm work through ``ccswarm mcp-server``; their model is in memory, and follows a script."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from tests.ccswarm.support.model_servers import Asked, Behaviour, Call, ModelServer, Reply, asides, follow
from tests.clients.agents import Agent, ClaudeCode, Codex, GeminiCli
from tests.clients.node import Person, program
from tests.clients.test_agents import RUN_SECONDS, SEARCH, prompt, results, turns
from tests.clients.test_inspector_swarm import CONFIG

pytestmark = [pytest.mark.clients, pytest.mark.timeout(2 * RUN_SECONDS + 20)]

AGENTS: list[Agent] = [ClaudeCode(), Codex(), GeminiCli()]
FLAGS = {"claude-code": ["--allowedTools", "mcp__ccswarm"]}
MOST_CALLS = 20


@pytest.fixture(params=AGENTS, ids=lambda agent: agent.name)
def agent(request: pytest.FixtureRequest) -> Agent:
    return request.param


def working() -> ModelServer:
    """A model that starts a run, follows it to its end, and reads what came of it."""

    def decide(asked: Asked) -> Behaviour:
        seen = results(asked)
        if SEARCH in asked.tools and not any(name.endswith("start_run") for name in asked.tools):
            return Reply(
                calls=[
                    (
                        SEARCH,
                        {
                            "query": "select:mcp__ccswarm__start_run,mcp__ccswarm__run_events,"
                            "mcp__ccswarm__read_result",
                            "max_results": 5,
                        },
                    )
                ]
            )
        if not seen:
            return Reply(calls=[Call("start_run", {"name": "asked-for"})])
        if len(seen) == MOST_CALLS or "characters 0 to" in seen[-1] or '"total_chars"' in seen[-1]:
            return Reply("It is done.")
        if "read_result" in seen[-1]:
            return Reply(calls=[Call("read_result", {"run": "last"})])
        cursor = re.search(r'cursor"?:? "?([\w;:.~-]+)"?', seen[-1]) if len(seen) > 1 else None
        wait = {"run": "last", "wait_seconds": 20} | ({"cursor": cursor[1]} if cursor else {})
        return Reply(calls=[Call("run_events", wait)])

    return ModelServer(asides(follow(decide)))


def set_up(agent: Agent, home: Path, models: ModelServer) -> Person:
    """A person with that agent, who has added the server as the docs say."""
    (home / "ccswarm.toml").write_text(CONFIG)
    loopback = {"HTTP_PROXY": models.url, "HTTPS_PROXY": models.url, "NO_PROXY": "127.0.0.1"}
    loopback |= {name.lower(): value for name, value in loopback.items()}
    person = Person([], {**os.environ, **loopback, **agent.prepare(home, models.url)})
    server = [str(Path(sys.executable).with_name("ccswarm")), "mcp-server", "--stdio"]
    server += ["--config", str(home / "ccswarm.toml"), "--workspace", str(home)]
    added = {
        "claude-code": ["mcp", "add", "--scope", "user", "ccswarm", "--", *server],
        "codex": ["mcp", "add", "ccswarm", "--", *server],
        "gemini-cli": ["mcp", "add", "-s", "user", "--trust", "ccswarm", *server],
    }
    words = next(words for name, words in added.items() if name.startswith(agent.executable))
    done = person.run(*program(agent.executable), *words)
    assert done.returncode == 0, done.stderr
    return person


def test_the_agent_has_a_run_done_and_reads_its_result(agent: Agent, home: Path) -> None:
    with working() as models:
        person = set_up(agent, home, models)
        ran = prompt(agent, person, *FLAGS.get(agent.name, []))
    first, *_, last = results(turns(models)[-1])
    assert "run_" in first
    assert "succeeded" in last
    assert "hello" in last
    assert "It is done." in ran.stdout
