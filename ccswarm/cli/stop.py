"""The verbs pause and cancel: a run that goes on somewhere is stopped."""

from __future__ import annotations

import asyncio
from importlib import import_module
from pathlib import Path

from agentwire.cli.output import remark, say, show_json
from ccswarm.cli.output import Json
from ccswarm.cli.parameters import Config, RunName, looking
from ccswarm.runs.status import short


def pause(run: RunName, config: Config = None, as_json: Json = False) -> None:
    """Stop a run for now, wherever it is carried out: what runs is cancelled, and ccswarm resume continues with it.

    Exit codes: 0 it is paused, 2 there is no such run, or it is over.
    """
    _tell(asyncio.run(stop(run, config, "pause")), "paused", as_json)


def cancel(run: RunName, config: Config = None, as_json: Json = False) -> None:
    """End a run and all its tasks, wherever they are carried out. What was done stays, and ccswarm resume can still go
    on with it.

    Exit codes: 0 it is cancelled, 2 there is no such run, or it is over.
    """
    found = asyncio.run(stop(run, config, "cancel"))
    _tell(found, "cancelled", as_json)
    if not as_json:
        remark(f"Its worker ends its terminals. Where that is gone: ai-session kill --run {found}")


async def stop(text: str, config: Path | None, how: str) -> str:
    """The id of the run that was paused or cancelled. Raises RunNotFound, UsageInvalid where it is over."""
    await asyncio.to_thread(import_module, "ccswarm.runs.service")
    from ccswarm.runs import service

    async with looking(config) as opened:
        return (await service.stop(opened, text, how)).id


def _tell(run_id: str, status: str, as_json: bool) -> None:
    if as_json:
        show_json({"run": run_id, "status": status})
    else:
        say(f"{run_id} is {status}; ccswarm resume {short(run_id)} continues with it.")
