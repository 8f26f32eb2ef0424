"""HTTP connections that are read strictly and know the user at the other end."""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from agentwire.http.wire import StrictConnection, is_passed_on
from agentwire.system.peers import user_of

MAX_HEAD_BYTES = 64 << 10
PEER = "peer_user"


class StrictProtocol(H11Protocol):
    """uvicorn's protocol, which adds the peer's user id to the state of each request's scope, for ``peer_of``."""

    peer: int | None = None

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.conn = StrictConnection(MAX_HEAD_BYTES)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.peer = user_of(transport.get_extra_info("socket"))
        self.app_state = {**self.app_state, PEER: self.peer}

    def send_400_response(self, msg: str) -> None:
        """Send the response as uvicorn does; if a response has begun already, close the connection instead."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:
            self.transport.close()


def peer_of(scope: Any) -> int | None:
    """Return the user id of the program that sent a request; None if it is unknown, or a proxy forwarded it."""
    return None if is_passed_on(scope["headers"]) else scope.get("state", {}).get(PEER)
