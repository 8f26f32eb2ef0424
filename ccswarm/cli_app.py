"""What verbs have in common: where the configuration is read, the store opened, a run found, a person named."""

from __future__ import annotations

import asyncio
import os
import pwd
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ccswarm.errors import RunNotFound

if TYPE_CHECKING:
    from ccswarm.app import App
    from ccswarm.config import Loaded
    from ccswarm.engines.base import Engine

RUN = "run"
"""The kind of execution that a run is."""

LAST = "last"
MOST_RUNS = 10_000

Config = Annotated[
    Path | None,
    typer.Option("--config", "-c", help="Configuration; else $CCSWARM_CONFIG, ./ccswarm.toml, config/ccswarm.toml…"),
]
RunName = Annotated[str, typer.Argument(metavar="RUN", help="Id of a run, the beginning of one, or: last.")]


def load(config: Path | None) -> Loaded:
    """The configuration a verb works with."""
    from ccswarm import config as files

    return files.load(config)


@asynccontextmanager
async def looking(config: Path | None) -> AsyncGenerator[App]:
    """The store, to look at runs and to start, stop and answer them. Raises ConfigInvalid, EngineUnavailable."""
    await asyncio.to_thread(import_module, "ccswarm.app")  # a fifth of a second
    from ccswarm import app
    from ccswarm import config as files

    async with app.submitting(files.load(config).settings, files.state_directory()) as opened:
        yield opened


async def run_id_of(engine: Engine, text: str) -> str:
    """The whole id of the run that ``text`` names: its id, an unambiguous beginning of it, or ``last``. Raises
    RunNotFound."""
    prefix = text if text.startswith("run_") else f"run_{text}"
    last = text == LAST
    found = await engine.list(kind=RUN, prefix="" if last else prefix, limit=1 if last else 10)
    exact = [one.id for one in found if one.id == prefix]
    if len(found) > 1 and not exact:
        names = ", ".join(one.id for one in found[:3])
        raise RunNotFound(f"{text!r} is the beginning of more than one run: {names}…", suggestion="give more of it")
    if not found:
        what = "there are no runs" if last else f"no run is called {text!r}"
        raise RunNotFound(what, suggestion="ccswarm runs list shows them")
    return exact[0] if exact else found[0].id


def short(run_id: str) -> str:
    """The beginning of an id, which is enough to name the run."""
    return run_id[:12]


def person() -> str:
    """Who sits here, for what a person decides."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"uid {os.getuid()}"
