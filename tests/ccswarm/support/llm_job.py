"""A job of many commands, done by a model at a server, with the tokens of each request and how many are new."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ccswarm.brains.llm.prompts import SUM_UP
from tests.ccswarm.support.llm_agents import finish, llm_worker, plan, served
from tests.ccswarm.support.model_servers import Asked, Call, ModelServer, Reply, answers

CHARS_OF_A_TOKEN = 4
OUTPUT = ("a line of what a command printed\n" * 60)[:1900]


@dataclass(frozen=True)
class Job:
    """A finished job. ``asked`` are the requests to the model, in order."""

    asked: Sequence[Asked]

    @property
    def sent(self) -> list[int]:
        """The approximate number of tokens of each request."""
        return [sum(map(len, parts(one))) // CHARS_OF_A_TOKEN for one in self.asked]

    @property
    def new(self) -> list[int]:
        """The tokens of each request after the prefix it shares with the one before, which a provider may cache."""
        found, before = list[int](), list[str]()
        for one in self.asked:
            now = parts(one)
            same = next((at for at, (old, new) in enumerate(zip(before, now, strict=False)) if old != new), len(before))
            found.append(sum(map(len, now[same:])) // CHARS_OF_A_TOKEN)
            before = now
        return found


def parts(asked: Asked) -> list[str]:
    """Return the parts of a request in the order in which a provider reads them."""
    body = asked.body
    return [json.dumps(one, ensure_ascii=False) for one in (body["tools"], body.get("system"), *body["messages"])]


async def job(commands: int = 29, each: int = 1, kind: str = "openai", **settings: Any) -> Job:
    """Do a job with a request for each ``each`` commands, whose outputs have 1.9 kB, and one for the end."""
    made, ran = llm_worker(), 0

    async def execute(_: Any) -> Mapping[str, Any]:
        nonlocal ran
        ran += 1
        return {"status": "finished", "exit_code": 0, "output": f"output {ran}\n{OUTPUT}", "session_id": "s"}

    made.tool("ai-session.create_session", session_id="s", working_directory="/project")
    made.tool("ai-session.list_sessions", sessions=[])
    made.tool("ai-session.execute_command", execute)
    line = "sed -n {0},{1}p some/file{0}.py && python3 -m pytest -q tests/test_{0}.py"
    calls = [Call("bash", {"command": line.format(number, number + 60)}) for number in range(commands)]
    turns = [Reply(f"I look at file {at} next.", calls=calls[at : at + each]) for at in range(0, commands, each)]
    script = answers([*turns, Reply("Done.", calls=[finish()])])
    async with ModelServer(lambda one: Reply("Notes.") if SUM_UP in one.prompt else script(one)) as model:
        done = await made.run(plan(served(model, kind, **settings)))
    assert done.result["status"] == "succeeded", done.result
    assert model.refused == []
    return Job(model.asked)
