"""What can go wrong with one request over HTTP, in the words of the protocol: codes of errors that are made here."""

from __future__ import annotations

import secrets
from typing import Any, cast

NOT_SENT = 61001
"""JSON-RPC error code, outside the range the protocol keeps for itself: the request had no effect."""

NO_ANSWER = 61002
"""The same: whether it had one is not known."""

TOO_LARGE = 61003
"""The same: it was answered, with more than is taken."""

SESSION_GONE = 61004
"""The same: the server knows nothing of this session (any more), and did nothing."""

LOGIN_NEEDED = 61005
"""The same: it wants a login, or another one, and did nothing."""

OWN = secrets.token_hex(8)
"""In the data of an error: that it was made here, and its advice is ours."""


def advice(data: Any) -> str:
    """What to do about an error that was made here; of one a server made ``""``."""
    return str(cast("dict[str, Any]", data).get(OWN, "")) if isinstance(data, dict) else ""
