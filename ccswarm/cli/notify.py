"""The verb notify test: whether notices reach the person, by each way that is configured."""

from __future__ import annotations

from dataclasses import asdict

from agentwire.cli.options import Group
from agentwire.cli.output import leave, show_json, show_rows
from ccswarm.cli.output import EXIT_ERROR, Json
from ccswarm.errors import ConfigInvalid

app = Group("Tell you, elsewhere, that a run is over or waits for you.")


@app.command("test")
def try_ways(as_json: Json = False) -> None:
    """Send a notice by every way that is configured, and say how each went.

    Exit codes: 0 all of them work, 1 one does not, 2 none is configured.
    """
    import asyncio

    from agentwire.notices.notifier import trial
    from ccswarm.config import config
    from ccswarm.journal.masks import Masks
    from ccswarm.telemetry.notices import PROGRAM, make_notifier

    environ = config.server_environment()
    notifier = make_notifier(environ, Masks(environ))
    if not notifier:
        raise ConfigInvalid(
            "no way to notify you is configured",
            suggestion="set command, desktop, ntfy or webhook in [notify] of ~/.config/ccswarm/config.toml",
        )
    sent = asyncio.run(notifier.send(trial(PROGRAM)))
    if as_json:
        show_json({"sent": [asdict(one) for one in sent]})
    else:
        show_rows([{"way": one.way, "result": one.problem or "sent"} for one in sent], ("way", "result"))
    leave(EXIT_ERROR if any(one.problem for one in sent) else 0)
