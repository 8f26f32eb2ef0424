"""The verbs pause and cancel: a run that goes on somewhere is stopped."""

from __future__ import annotations

import asyncio
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from agentwire.cli.output import remark, say, show_json
from ccswarm.cli.output import Json, printable
from ccswarm.cli.parameters import Config, RunName, looking
from ccswarm.runs.status import short

if TYPE_CHECKING:
    from ccswarm.runs.service import Stopped


def pause(run: RunName, config: Config = None, as_json: Json = False) -> None:
    """Stop a run for now, wherever it is carried out: what runs is cancelled, and ccswarm resume continues with it.

    Exit codes: 0 it is paused, 2 there is no such run, or it is over.
    """
    stopped = asyncio.run(stop(run, config, "pause"))
    _tell(stopped.run.id, "paused", as_json)


def cancel(run: RunName, config: Config = None, as_json: Json = False) -> None:
    """End a run and all its tasks, wherever they are carried out, and their terminals. What was done stays, and
    ccswarm resume can still go on with it.

    Exit codes: 0 it is cancelled, 2 there is no such run, or it is over.
    """
    stopped = asyncio.run(stop(run, config, "cancel"))
    left, run_id = stopped.terminals, stopped.run.id
    _tell(run_id, "cancelled", as_json, **({"terminals": left} if left else {}))
    if as_json:
        return
    if left:
        remark(f"No worker was executing it any more: {left} of its terminals {'is' if left == 1 else 'are'} closed.")
    for problem in stopped.problems:
        remark(printable(f"Its terminals may still be open, {problem}: ai-session kill --run {run_id}"))
    if stopped.attended:
        remark(f"Its worker ends its terminals. Where that is gone: ai-session kill --run {run_id}")


async def stop(text: str, config: Path | None, how: str) -> Stopped:
    """The run that was paused or cancelled. Raises RunNotFound, UsageInvalid where it is over."""
    await asyncio.to_thread(import_module, "ccswarm.runs.service")
    from ccswarm.runs import service

    async with looking(config) as opened:
        return await service.stop(opened, text, how)


def _tell(run_id: str, status: str, as_json: bool, **more: int) -> None:
    if as_json:
        show_json({"run": run_id, "status": status, **more})
    else:
        say(f"{run_id} is {status}; ccswarm resume {short(run_id)} continues with it.")
