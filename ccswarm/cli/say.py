"""The verb say: a person sends a message to an agent while it works."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from agentwire.cli.options import Argument
from agentwire.cli.output import remark, show_json
from agentwire.system.user import user_name
from agentwire.visible import visible
from ccswarm.cli.output import Json
from ccswarm.cli.parameters import Config, check_person, open_app
from ccswarm.errors import UsageInvalid
from ccswarm.runs.events import task_of
from ccswarm.runs.status import MOST_TASKS, RUN, run_id_of, short

if TYPE_CHECKING:
    from ccswarm.models import Execution
    from ccswarm.runs.app import App

MOST_CHARS = 8000


def say(
    whom: Annotated[
        str,
        Argument(metavar="RUN[.TASK]", help="A running task, such as last.fix; may be omitted if there is only one."),
    ],
    text: Annotated[str, Argument(metavar="TEXT", help="Text for its agent.")],
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Send a message to an agent with a model or a program, while it works: a model reads it with its next question, a
    program such as claude with the answer to its next call, and neither can end the task before that. It is recorded in
    the journal, and kept until a worker carries out the run.

    Exit codes: 0 said, 2 there is no such run, no such task is running, or its agent cannot receive messages.
    """
    import asyncio

    if not text.strip() or len(text) > MOST_CHARS:
        raise UsageInvalid(
            f"give from 1 to {MOST_CHARS} characters", suggestion='ccswarm say last.fix "Leave the tests."'
        )
    check_person()
    sent = asyncio.run(_send(whom, text, config))
    if as_json:
        show_json(sent)
    else:
        remark(visible(f"Said to {sent['agent']} in {sent['task']}, to be received with its next step"))


async def _send(whom: str, text: str, config: Path | None) -> dict[str, Any]:
    run, _, path = whom.partition(".")
    async with open_app(config) as opened:
        from ccswarm.journal.files import directory_of
        from ccswarm.journal.writer import persons_journal

        run_id = await run_id_of(opened.engine, run, opened.project)
        task = await _task(opened, run_id, path)
        key, by = f"say_{secrets.token_hex(6)}", user_name()
        journal = persons_journal(directory_of(opened.state_directory))
        try:
            journal.append("person.said", id=key, run=run_id, task=task.id, by=by, text=text)
        finally:
            journal.close()
        await opened.swarm.say(task.id, text, by=by, key=key)
        payload: dict[str, Any] = task.payload or {}
        recipient = {"run": run_id, "task": task_of(run_id, task.id), "agent": str(payload.get("agent", ""))}
        return {"id": key, **recipient, "by": by, "text": text}


async def _task(opened: App, run_id: str, path: str) -> Execution:
    """Return the running task that can receive messages. Raises UsageInvalid."""
    run = await opened.engine.status(run_id)
    going = await opened.engine.list(prefix=f"{run_id}.", unfinished=True, limit=MOST_TASKS)
    named = {task_of(run_id, one.id): one for one in going if one.kind != RUN}
    receivers: dict[str, Execution] = {}
    for name, one in named.items():
        if path in ("", name) and _can_receive(found := await opened.engine.status(one.id), run):
            receivers[name] = found
    if len(receivers) == 1:
        return next(iter(receivers.values()))
    if path in named:
        raise UsageInvalid(
            f"the agent of {path} receives nothing while it works: it has no model or program",
            suggestion=f"stop it (ccswarm cancel {short(run_id)}), change the task, and run it again",
        )
    hint = f"running: {', '.join(receivers or named)}" if named else "no task of the run is running"
    what = (
        f"no task {path!r} is running"
        if path
        else "more than one task is running"
        if receivers
        else "no task can receive it"
    )
    raise UsageInvalid(what, suggestion=hint)


def _can_receive(task: Execution, run: Execution) -> bool:
    from ccswarm.config import starters
    from ccswarm.config.settings import AgentSettings

    planned: dict[str, Any] = run.payload or {}
    given: dict[str, Any] = task.payload or {}
    agents: list[dict[str, Any]] = planned.get("plan", {}).get("agents", [])
    doing = [AgentSettings.model_validate(one) for one in agents if one.get("name") == given.get("agent")]
    return any(getattr(starters.load_brain(one.brain), "hears", False) for one in doing)
