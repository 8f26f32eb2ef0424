"""The codes of JSON-RPC errors that this client makes for failed HTTP requests."""

from __future__ import annotations

import secrets
from typing import Any, cast

NOT_SENT = 61001
"""The request had no effect. The code is outside of the range reserved by the protocol."""

NO_ANSWER = 61002
"""It is unknown whether the request had an effect."""

TOO_LARGE = 61003
"""The answer was larger than accepted."""

SESSION_GONE = 61004
"""The server does not know the session, and did nothing."""

LOGIN_NEEDED = 61005
"""The server requires a login, or another one, and did nothing."""

OWN = secrets.token_hex(8)
"""The key in an error's data that marks it as made here, with our advice as its value."""


def advice(data: Any) -> str:
    """Return what to do about an error that was made here; ``""`` for a server's error."""
    return str(cast("dict[str, Any]", data).get(OWN, "")) if isinstance(data, dict) else ""
