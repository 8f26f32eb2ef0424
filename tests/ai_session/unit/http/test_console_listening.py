"""Ports that several servers want at the same moment."""

from __future__ import annotations

import errno

import pytest

from agentwire.http.listening import open_listener
from ai_session.errors import ConfigInvalid
from ai_session.http.console import server


def test_who_has_a_port_has_it_before_it_serves() -> None:
    with open_listener("127.0.0.1", 0) as first:
        port: int = first.getsockname()[1]
        with pytest.raises(OSError, match="in use") as refused:
            open_listener("127.0.0.1", port)
        assert refused.value.errno == errno.EADDRINUSE


def test_two_consoles_that_begin_at_once_get_a_port_each() -> None:
    with server.listen(None) as first, server.listen(None) as second:
        ports = [listener.getsockname()[1] for listener in (first, second)]
        assert ports[0] != ports[1]
        with pytest.raises(ConfigInvalid, match=f"port {ports[1]}"):
            server.listen(ports[1])
