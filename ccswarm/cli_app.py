"""What verbs have in common: where the configuration is read, the store opened, a person named."""

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

if TYPE_CHECKING:
    from ccswarm.app import App
    from ccswarm.config import Loaded

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


def person() -> str:
    """Who sits here, for what a person decides."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"uid {os.getuid()}"
