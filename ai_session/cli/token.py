"""The verb token: the token that ``ai-session serve`` requires of programs not known to be this user's."""

from __future__ import annotations

import os
from typing import Annotated

from agentwire.cli.options import Json, Option
from agentwire.cli.output import show_facts, show_json


def token(
    renew: Annotated[bool, Option("--renew", help="Make a new token; the old one stops working.")] = False,
    as_json: Json = False,
) -> None:
    """Show the token for ai-session serve, and the header that sends it.

    The token is created if there is none. Your own programs on this machine need none.

    Exit codes: 0 shown, 1 its file cannot be used.
    """
    from agentwire.http.access_token import AccessToken
    from ai_session.config import config

    stored = AccessToken(config.runtime_directory(config.home_directory(), os.getuid()), "ai_session_")
    if renew:
        stored.renew()
    stored.make()
    found = stored.read()
    facts = {"token": found, "rpc": f"Authorization: Bearer {found}", "agentvault": f"X-Api-Key: {found}"}
    if as_json:
        show_json(facts)
    else:
        show_facts(facts)
