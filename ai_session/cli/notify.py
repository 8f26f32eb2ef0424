"""The verb notify test: whether notices reach the person, by each way that is configured."""

from __future__ import annotations

import os
from dataclasses import asdict

from agentwire.cli.options import Group, Json
from agentwire.cli.output import leave, show_json, show_rows
from ai_session.cli.output import EXIT_ERROR
from ai_session.errors import ConfigInvalid

app = Group("Tell you, elsewhere, that something waits for you.")


@app.command("test")
def try_ways(as_json: Json = False) -> None:
    """Send a notice by every way that is configured, and say how each went.

    Exit codes: 0 all of them work, 1 one does not, 2 none is configured.
    """
    import asyncio

    from agentwire.notices.notifier import trial
    from ai_session.config import config
    from ai_session.daemon.app import make_masking
    from ai_session.daemon.notices import PROGRAM, make_notifier
    from ai_session.gate.written import FILE, WrittenDirectories

    settings = config.load()
    place = config.runtime_directory(config.home_directory(), os.getuid())
    written = WrittenDirectories(place / FILE, settings.sandbox.workspaces)
    notifier = make_notifier(settings.notify, written, make_masking(settings, place).masked)
    if not notifier:
        raise ConfigInvalid(
            "no way to notify you is configured",
            suggestion="set command, desktop, ntfy or webhook in [notify] of ~/.config/ai-session/config.toml",
        )
    sent = asyncio.run(notifier.send(trial(PROGRAM)))
    if as_json:
        show_json({"sent": [asdict(one) for one in sent]})
    else:
        show_rows([{"way": one.way, "result": one.problem or "sent"} for one in sent], ("way", "result"))
    leave(EXIT_ERROR if any(one.problem for one in sent) else 0)
