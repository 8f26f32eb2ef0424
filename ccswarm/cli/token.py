"""The verb token: the token that programs of other users send to ``ccswarm serve``."""

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

    Each protocol's way to send it is shown too. The token is created if there is none. Your own programs on this
    machine need none.

    Exit codes: 0 shown, 1 the token's file cannot be used.
    """
    from agentwire.http.access_token import AccessToken
    from ccswarm.config import config
    from ccswarm.servers.base import ways_to_show

    token_file = AccessToken(config.state_directory(), "ccswarm_")
    if renew:
        token_file.renew()
    token_file.make()
    found = token_file.read()
    facts = {"token": found, **ways_to_show(found)}
    if as_json:
        show_json(facts)
    else:
        show_facts(facts)
