"""MCP over stdio by hand, standard library only: what the small servers beside this file share."""

from __future__ import annotations

import json
import sys
import threading
from abc import ABC, abstractmethod

TYPE_CHECKING = False  # which is all that typing would be loaded for
if TYPE_CHECKING:
    from typing import Any

MODERN = "2026-07-28"
INFO = {"name": "small", "version": "1"}


class Refused(Exception):
    """An error of the protocol."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Server(ABC):
    """Answers each request in a thread of its own. ``eras``: legacy, modern, both or deaf, which is legacy and leaves
    unanswered what it does not know."""

    def __init__(self, eras: str = "both") -> None:
        self.eras = eras
        self.client: dict[str, Any] = {}
        self.requests: list[str] = []
        self.cancels: dict[Any, threading.Event] = {}
        self.listeners: list[Any] = []
        self.modern = False
        self.reading = threading.Event()
        self.reading.set()
        self._lock = threading.Lock()

    def write(self, message: Any) -> None:
        self.write_raw(json.dumps(message).encode() + b"\n")

    def write_raw(self, data: bytes) -> None:
        with self._lock:
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()

    def notify(self, method: str, **params: Any) -> None:
        self.write({"jsonrpc": "2.0", "method": method, "params": params})

    def answer(self, request_id: Any, result: dict[str, Any]) -> None:
        if self.modern:
            result = {"resultType": "complete", **result}
        self.write({"jsonrpc": "2.0", "id": request_id, "result": result})

    def run(self) -> None:
        for line in sys.stdin.buffer:
            self.take(line)

    def take(self, line: bytes) -> None:
        message = json.loads(line)
        if "method" not in message:
            self.got_response(message)
        elif "id" not in message:
            self.got_notification(message["method"], message.get("params") or {})
        else:
            self.reading.wait()
            self.cancels[message["id"]] = threading.Event()
            threading.Thread(target=self._serve, args=(message,), daemon=True).start()

    def got_notification(self, method: str, params: dict[str, Any]) -> None:
        if method == "notifications/cancelled" and params["requestId"] in self.cancels:
            self.cancels[params["requestId"]].set()

    def got_response(self, message: dict[str, Any]) -> None:  # noqa: B027  # most servers ask nothing
        """An answer to what this server asked."""

    def _serve(self, message: dict[str, Any]) -> None:
        try:
            result = self.dispatch(message["id"], message["method"], message.get("params") or {})
        except Refused as error:
            self.write({"jsonrpc": "2.0", "id": message["id"], "error": {"code": error.code, "message": str(error)}})
        else:
            if result is not None:
                self.answer(message["id"], result)

    def dispatch(self, request_id: Any, method: str, params: dict[str, Any]) -> dict[str, Any] | None:
        self.requests.append(method)
        capabilities = {"tools": {"listChanged": True}}
        if method == "initialize" and self.eras != "modern":
            self.client = params
            return {"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": INFO}
        if method == "server/discover" and self.eras in ("modern", "both"):
            self.modern = True
            self.client = params["_meta"]
            return {
                "supportedVersions": [MODERN],
                "capabilities": capabilities,
                "ttlMs": 0,
                "cacheScope": "private",
            }
        if method == "initialize":
            raise Refused(-32022, "only later revisions")
        if method == "subscriptions/listen" and self.modern:
            self.listeners.append(request_id)
            self.notify(
                "notifications/subscriptions/acknowledged",
                notifications=params["notifications"],
                _meta={"io.modelcontextprotocol/subscriptionId": request_id},
            )
            return None
        if method == "tools/list":
            page = self.list_tools(params.get("cursor"))
            return {**page, "ttlMs": 0, "cacheScope": "private"} if self.modern else page
        if method == "tools/call":
            return self.call_tool(request_id, params)
        if self.eras == "deaf":
            return None
        raise Refused(-32601, "Method not found")

    def changed(self) -> None:
        """Tells that the tools are others."""
        if not self.modern:
            self.notify("notifications/tools/list_changed")
        for request_id in self.listeners:
            self.notify(
                "notifications/tools/list_changed",
                _meta={"io.modelcontextprotocol/subscriptionId": request_id},
            )

    @abstractmethod
    def list_tools(self, cursor: str | None) -> dict[str, Any]: ...

    @abstractmethod
    def call_tool(self, request_id: Any, params: dict[str, Any]) -> dict[str, Any] | None: ...


def text(value: str, **more: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": value}], **more}


def tool(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "description": f"Does {name}.", "inputSchema": {"type": "object"}, **more}
