"""The verb token: what programs show to ``ccswarm serve`` that are not known to be this user's."""

from __future__ import annotations

from typing import Annotated

import typer

from agentwire.cli.output import show_facts, show_json
from ccswarm.cli.output import Json


def token(
    renew: Annotated[bool, typer.Option("--renew", help="Make a new token; the old one stops working.")] = False,
    as_json: Json = False,
) -> None:
    """Show the token for ccswarm serve.

    With the line that shows it in each protocol. It is made where there is none. Programs of yours on this machine need
    none.

    Exit codes: 0 shown, 1 the file it is kept in cannot be used.
    """
    from agentwire.http.access_token import AccessToken
    from ccswarm.config import config
    from ccswarm.servers.base import ways_to_show

    kept = AccessToken(config.state_directory(), "ccswarm_")
    if renew:
        kept.renew()
    kept.make()
    found = kept.read()
    facts = {"token": found, **ways_to_show(found)}
    if as_json:
        show_json(facts)
    else:
        show_facts(facts)
