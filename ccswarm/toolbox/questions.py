"""Questions to people that wait, and what was answered."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, get_args

if TYPE_CHECKING:
    from ccswarm.engines.base import Store
    from ccswarm.models import CallRequest

MOST_TASKS = 10_000

Scope = Literal["command", "tool", "run"]
"""For what else of the agent's in the same run a yes counts: the same call, all calls of the tool, all calls."""

MERGE = "swarm.merge"
"""What is asked for where a person is asked whether work is merged; no agent can call it."""

REMEMBERED = "remembered"
"""The topic on which a run receives approvals for more than one call; the key says for which."""


def topic(number: str) -> str:
    """On which the answer to a question is sent."""
    return f"approval:{number}"


def covering(scope: Scope, agent: str, tool: str, digest: str) -> str:
    """The key of a yes that counts for a call of ``agent``, ``digest`` being that of the call."""
    about = {"command": digest, "tool": tool, "run": ""}[scope]
    return hashlib.sha256(f"{scope}\0{agent}\0{about}".encode(errors="surrogatepass")).hexdigest()[:16]


async def remembered(store: Store, request: CallRequest) -> str:
    """The id of the question that was answered with a yes for this call, too; empty where none was."""
    for scope in get_args(Scope):
        key = covering(scope, request.agent, request.tool, request.digest)
        if said := await store.sent(request.run_id, REMEMBERED, key):
            return str(said)
    return ""


def command_for(question: Mapping[str, Any]) -> str:
    """The command with which a person approves; if the server asks, the server's own command."""
    return str(question.get("answer_with") or f"ccswarm approve {question['id']}")


def heard_by(question: Mapping[str, Any]) -> str:
    """What a person answered that nobody carries out yet, and what does; empty where nobody has answered."""
    if not (answer := question.get("answer")):
        return ""
    word = "agreed" if answer["approved"] else "returned it" if answer.get("again") else "refused"
    run = str(question["task_id"]).partition(".")[0]
    return f"answered: {answer['by']} {word}; it waits for a worker: ccswarm resume {run}"


async def answer_to(store: Store, number: str, task_id: str) -> dict[str, Any] | None:
    """What a person answered to a task's question, heard or not: approved, by, reason."""
    return await store.sent(task_id, topic(number), number)


async def waiting(store: Store) -> list[dict[str, Any]]:
    """What waits for a person: id, task_id, agent, tool, arguments; and the answer where nobody carries the task out,
    so that it was not heard yet."""
    found: list[dict[str, Any]] = []
    for task in await store.list(unfinished=True, limit=MOST_TASKS):
        for one in (task.shown or {}).get("approvals", ()):
            answer = await answer_to(store, str(one["id"]), task.id)
            found.append({**one, "task_id": task.id} | ({"answer": answer} if answer else {}))
    return found
