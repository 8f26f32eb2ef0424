"""The verb notify test: whether each configured way of notification reaches the person."""

from __future__ import annotations

from agentwire.cli.options import Group
from ccswarm.cli.output import Json

app = Group("Notify you, outside this terminal, that a run is over or waits for you.")


@app.command("test")
def try_ways(as_json: Json = False) -> None:
    """Send a notice by every configured way, and report the result of each.

    Exit codes: 0 all of them work, 1 one does not, 2 none is configured.
    """
    from agentwire.cli.notices import try_ways as send_trial
    from ccswarm.config import config
    from ccswarm.config.masks import Masks
    from ccswarm.runs.notices import PROGRAM, make_notifier

    environ = config.server_environment()
    notifier = make_notifier(config.notify_settings(environ), environ, Masks(environ))
    send_trial(notifier, PROGRAM, as_json=as_json)
