"""The verbs pause and cancel: stop a run, wherever it is carried out."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from agentwire.cli.output import remark, say, show_json, to_person
from agentwire.visible import visible
from ccswarm.cli.output import Json
from ccswarm.cli.parameters import Config, RunName, open_app
from ccswarm.runs.status import short

if TYPE_CHECKING:
    from ccswarm.runs.service import Stopped


def pause(run: RunName, config: Config = None, as_json: Json = False) -> None:
    """Stop a run for now, wherever it is carried out: what is running is cancelled, in its terminals too, which stay
    open, and ccswarm resume continues it.

    Exit codes: 0 it is paused, 2 there is no such run, or it is over.
    """
    stopped = asyncio.run(stop(run, config, "pause"))
    _report(stopped, "paused", "interrupted", as_json)


def cancel(run: RunName, config: Config = None, as_json: Json = False) -> None:
    """End a run and all its tasks, wherever they are carried out, and their terminals. Completed work stays, and
    ccswarm resume can still continue it.

    Exit codes: 0 it is cancelled, 2 there is no such run, or it is over.
    """
    stopped = asyncio.run(stop(run, config, "cancel"))
    _report(stopped, "cancelled", "closed", as_json)
    if stopped.attended and not as_json:
        remark(f"Its worker ends its terminals. If the worker is gone: ai-session kill --run {stopped.run.id}")


async def stop(text: str, config: Path | None, how: str) -> Stopped:
    """Pause or cancel a run, and return it. Raises RunNotFound, and UsageInvalid if the run is over."""
    await asyncio.to_thread(import_module, "ccswarm.runs.service")
    from ccswarm.runs import service

    async with open_app(config) as opened:
        return await service.stop(opened, text, how)


def pause_afterwards(run_id: str, config: Path | None) -> None:
    """Start a process that pauses the run once this process has ended, and that outlives the terminal."""
    argv = [sys.executable, "-P", "-m", "ccswarm", "pause", run_id, *(("-c", str(config)) if config else ())]
    pipe_end, _ = os.pipe()  # the other end closes with this process
    subprocess.Popen(
        ["/bin/sh", "-c", 'read -r _; exec "$@" </dev/null', "sh", *argv],
        stdin=pipe_end,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    if to_person():  # a pipe that is not read would block a user in a hurry
        remark(f"ended; {short(run_id)} is paused in the background, and ccswarm resume {short(run_id)} continues")


def _report(stopped: Stopped, status: str, done: str, as_json: bool) -> None:
    run_id, left = stopped.run.id, stopped.terminals
    if as_json:
        show_json({"run": run_id, "status": status, **({"terminals": left} if left else {})})
        return
    say(f"{run_id} is {status}; ccswarm resume {short(run_id)} continues it.")
    if left:
        remark(
            f"No worker was carrying it out any more: {left} of its terminals {'is' if left == 1 else 'are'} {done}."
        )
    for problem in stopped.problems:
        remark(visible(f"Its terminals may not all be {done}, {problem}: ai-session kill --run {run_id}"))
