"""The verb notify test: checks whether notices reach the person by each configured way."""

from __future__ import annotations

import os

from agentwire.cli.options import Group, Json

app = Group("Notify you, outside of this terminal, that something waits for you.")


@app.command("test")
def try_ways(as_json: Json = False) -> None:
    """Send a notice by every configured way, and show the result of each.

    Exit codes: 0 all of them work, 1 one does not, 2 none is configured.
    """
    from agentwire.cli.notices import try_ways as send_trial
    from ai_session.config import config
    from ai_session.daemon.app import make_masking
    from ai_session.daemon.notices import PROGRAM, make_notifier
    from ai_session.gate.written import FILE, WrittenDirectories

    settings = config.load()
    directory = config.runtime_directory(config.home_directory(), os.getuid())
    written = WrittenDirectories(directory / FILE, settings.sandbox.workspaces)
    notifier = make_notifier(settings.notify, written, make_masking(settings, directory).masked)
    send_trial(notifier, PROGRAM, as_json=as_json)
