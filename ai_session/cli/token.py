"""The verb token: what programs show to ``ai-session serve`` that are not known to be this user's."""

from __future__ import annotations

import os
from typing import Annotated

from agentwire.cli.options import Json, Option
from agentwire.cli.output import show_facts, show_json


def token(
    renew: Annotated[bool, Option("--renew", help="Make a new token; the old one stops working.")] = False,
    as_json: Json = False,
) -> None:
    """Show the token for ai-session serve.

    With the line that shows it. It is made where there is none. Programs of yours on this machine need none.

    Exit codes: 0 shown, 1 the file it is kept in cannot be used.
    """
    from agentwire.http.access_token import AccessToken
    from ai_session.config import config

    kept = AccessToken(config.runtime_directory(config.home_directory(), os.getuid()), "ai_session_")
    if renew:
        kept.renew()
    kept.make()
    found = kept.read()
    facts = {"token": found, "rpc": f"Authorization: Bearer {found}", "agentvault": f"X-Api-Key: {found}"}
    if as_json:
        show_json(facts)
    else:
        show_facts(facts)
