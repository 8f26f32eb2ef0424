"""A test of the configured ways of sending notices."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import TYPE_CHECKING, NoReturn

from agentwire.cli.output import leave, show_json, show_rows
from agentwire.errors import ConfigInvalid

if TYPE_CHECKING:
    from agentwire.notices.notifier import Notifier


def try_ways(notifier: Notifier, program: str, *, as_json: bool) -> NoReturn:
    """Send a notice by each way, print the results, and end the verb: with 0 if all of them work, else 1.

    Raises ConfigInvalid if no way is configured.
    """
    from agentwire.notices.notifier import trial

    if not notifier:
        raise ConfigInvalid(
            "no way to notify you is configured",
            suggestion=f"set command, desktop, ntfy or webhook in [notify] of ~/.config/{program}/config.toml",
        )
    sent = asyncio.run(notifier.send(trial(program)))
    if as_json:
        show_json({"sent": [asdict(one) for one in sent]})
    else:
        show_rows([{"way": one.way, "result": one.problem or "sent"} for one in sent], ("way", "result"))
    leave(1 if any(one.problem for one in sent) else 0)
