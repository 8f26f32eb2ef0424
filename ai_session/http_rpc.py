"""What `ai-session serve --rpc` answers where: tools as methods of JSON-RPC at /rpc, behind the checks of the front."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.routing import Route

from ai_session import plugins
from ai_session.http_app import Application, framed, protection

if TYPE_CHECKING:
    from ai_session.settings import HttpSettings

RPC_PATH = "/rpc"


def application(settings: HttpSettings, host: str, base_url: str, gate: Any, access: Any | None) -> Application:
    """As http_app.application, for /rpc."""
    rpc = plugins.load("servers", "rpc_http")
    endpoint = rpc.endpoint(gate, max_body_bytes=settings.max_body_bytes)
    answered = protection(settings, base_url, access, rpc.exchange)(endpoint.answer)
    routes = [Route(RPC_PATH, answered, methods=["POST"])]
    return Application(framed(settings, host, base_url, gate, access, routes), (answered.leave,))
