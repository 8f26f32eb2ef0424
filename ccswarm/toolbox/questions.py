"""Questions to people that wait, and what was answered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ccswarm.engines.base import Store

MOST_TASKS = 10_000


def topic(number: str) -> str:
    """On which the answer to a question is sent."""
    return f"approval:{number}"


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
