"""Questions that wait for a person, and their answers."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, get_args

if TYPE_CHECKING:
    from ccswarm.engines.base import Store
    from ccswarm.models import CallRequest

MOST_TASKS = 10_000

Scope = Literal["command", "tool", "run"]
"""The further calls of the same agent and run that an approval covers: the same call, those of the tool, or all."""

MERGE = "swarm.merge"
"""The name that stands for a tool in the question whether to merge an agent's work; no agent can call it."""

REMEMBERED = "remembered"
"""The topic on which a run receives approvals of more than one call; a message's key says which calls it covers."""


def topic(number: str) -> str:
    """Return the topic on which the answer to a question is sent."""
    return f"approval:{number}"


def question_id(*about: str) -> str:
    """Return the id of a question. It is long because an agent could find two calls, or commits, with a short one."""
    return "ap_" + hashlib.sha256("\0".join(about).encode()).hexdigest()[:32]


def approval_key(scope: Scope, agent: str, tool: str, digest: str) -> str:
    """Return the key of an approval of ``agent``'s calls of ``tool``, or of the call with that ``digest``."""
    about = {"command": digest, "tool": tool, "run": ""}[scope]
    return hashlib.sha256(f"{scope}\0{agent}\0{about}".encode(errors="surrogatepass")).hexdigest()[:32]


async def remembered_approval(store: Store, request: CallRequest) -> str:
    """Return the id of the earlier question whose approval covers this call; ``""`` if there is none."""
    for scope in get_args(Scope):
        key = approval_key(scope, request.agent, request.tool, request.digest)
        if number := await store.sent(request.run_id, REMEMBERED, key):
            return str(number)
    return ""


def command_for(question: Mapping[str, Any]) -> str:
    """Return the command that approves the call; if the server asks, this is the server's own command."""
    return str(question.get("answer_with") or f"ccswarm approve {question['id']}")


def unheard_answer(question: Mapping[str, Any]) -> str:
    """Return a note that a person's answer has not been received by a worker; ``""`` if there is none."""
    if not (answer := question.get("answer")):
        return ""
    verdict = "agreed" if answer["approved"] else "returned it" if answer.get("again") else "refused"
    run = str(question["task_id"]).partition(".")[0]
    return f"answered: {answer['by']} {verdict}; it waits for a worker: ccswarm resume {run}"


async def answer_to(store: Store, number: str, task_id: str) -> dict[str, Any] | None:
    """Return a person's answer (``approved``, ``by``, ``reason``) to a task's question, or None. A worker may not have
    received it yet."""
    return await store.sent(task_id, topic(number), number)


async def open_questions(store: Store) -> list[dict[str, Any]]:
    """Return the questions that are open: ``id``, ``task_id``, ``agent``, ``tool`` and ``arguments``; also ``answer``
    if a person has answered, but no worker has received it."""
    found: list[dict[str, Any]] = []
    for task in await store.list(unfinished=True, limit=MOST_TASKS):
        for one in (task.shown or {}).get("approvals", ()):
            answer = await answer_to(store, str(one["id"]), task.id)
            found.append({**one, "task_id": task.id} | ({"answer": answer} if answer else {}))
    return found
