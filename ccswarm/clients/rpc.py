"""The client of AgentVault's tool servers: JSON-RPC over HTTP, where each tool is a method with its arguments as
params.

Such a server need not list its tools: if it does not know ``tools/list``, they are called by name. Its results are kept
unchanged, including integers and the order of keys.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Mapping, Sequence
from math import isinf
from pathlib import Path
from typing import Any, NoReturn, cast

import httpx2

from ccswarm.clients._address import SecretScrubber, client_options, make_headers
from ccswarm.clients.base import UNKNOWN_EFFECT, OnProgress, ToolClient
from ccswarm.config.settings import ServerSettings
from ccswarm.errors import CallTimedOut, InvalidArguments, ServerLost, ServerUnavailable, UnknownTool
from ccswarm.models import ServerAnswer, ToolInfo

MOST_BYTES = 8 << 20
"""The largest answer."""

METHOD_NOT_FOUND, INVALID_PARAMS = -32601, -32602
ERROR = "ai-session/error"
"""The key in ``meta`` for the kind of an error; its ``code`` becomes that of the outcome."""

INVALID_RESPONSE, INVALID_RESULT, UNKNOWN_ERROR = "invalid_response", "invalid_result", "unknown_error"
"""The codes for a response that is not JSON-RPC, a result that is not a tool's, and an error without a number."""

PLAIN = frozenset("*?[")


class _Fault(Exception):
    """The server's error, or a response that is not an answer. ``code`` is JSON-RPC's, or one of the above."""

    def __init__(self, code: int | str, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


class RpcToolClient:
    """The client of one server. Implements ``ToolClient`` and ``Unlisted``. ``meta`` of a call is not sent."""

    def __init__(self, settings: ServerSettings, *, env: Mapping[str, str]) -> None:
        self.name = settings.name
        self.problem = ""
        self.about = ""
        self._settings = settings
        self._env = env
        self._scrubber = SecretScrubber()
        self._slots = asyncio.Semaphore(settings.at_once)
        self._http: httpx2.AsyncClient | None = None
        self._tools: tuple[ToolInfo, ...] | None = None
        self._lists = False
        self._closed = False

    @property
    def notes(self) -> Sequence[str]:
        if self._tools is None or self._lists:
            return ()
        return ("it does not list its tools; they can be called by name",)

    async def list_tools(self, *, fresh: bool = False) -> Sequence[ToolInfo]:
        if self._tools is None or (fresh and self._lists):
            try:
                async with asyncio.timeout(self._settings.timeout_seconds):
                    result = await self._request("tools/list", {})
            except TimeoutError:
                raise self._unavailable(f"did not answer within {self._settings.timeout_seconds:g} s") from None
            except _Fault:
                result = None
            except ServerLost as error:
                raise self._unavailable(error.message) from None
            listed: Any = cast("Mapping[str, Any]", result).get("tools") if isinstance(result, Mapping) else None
            self._lists = isinstance(listed, list)
            self._tools = tuple(self._parse_tools(listed) if self._lists else self._configured_tools())
        return self._tools

    def unlisted(self, name: str) -> ToolInfo | None:
        return None if self._lists or not name or not self._settings.tools.sees(name) else ToolInfo(self.name, name)

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any],
        *,
        meta: Mapping[str, Any],
        timeout_seconds: float | None = None,
        on_progress: OnProgress | None = None,
    ) -> ServerAnswer:
        if not self._settings.tools.sees(name):
            raise UnknownTool(f"server {self.name} has no tool {name}")
        seconds = self._settings.timeout_seconds if timeout_seconds is None else timeout_seconds
        async with self._slots:
            clock = asyncio.timeout(seconds)
            try:
                async with clock:
                    result = await self._request(name, arguments)
            except TimeoutError:
                raise CallTimedOut(
                    f"server {self.name} did not answer {name} within {seconds:g} s", suggestion=UNKNOWN_EFFECT
                ) from None
            except _Fault as fault:
                return self._handle_fault(name, fault)
        return self._answer(result)

    async def close(self) -> None:
        self._closed = True
        if self._http:
            await self._http.aclose()

    async def _request(self, method: str, params: Mapping[str, Any]) -> Any:
        """Send a request and return the result. Raises _Fault, ServerLost, and ServerUnavailable if not sent."""
        request = {"jsonrpc": "2.0", "id": f"mcp-req-{secrets.token_hex(4)}", "method": method, "params": params}
        try:
            body = json.dumps(request, ensure_ascii=False, allow_nan=False).encode()
        except (ValueError, TypeError) as error:
            raise InvalidArguments(f"the arguments of {method} are not JSON: {error}") from error
        try:
            async with self._client().stream("POST", self._settings.url, content=body) as response:
                answer = await self._read(response)
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.UnsupportedProtocol, httpx2.InvalidURL) as error:
            raise self._unavailable(f"cannot be reached: {_error_message(error)}") from None
        except httpx2.TransportError as error:
            self.problem = f"server {self.name} did not answer: {_error_message(error)}"
            raise ServerLost(f"while {method} was called, {self.problem}", suggestion=UNKNOWN_EFFECT) from None
        self.problem = ""
        return self._result(method, response.status_code, answer)

    async def _read(self, response: httpx2.Response) -> bytes:
        body = bytearray()
        async for chunk in response.aiter_bytes():
            body += chunk
            if len(body) > MOST_BYTES:
                raise _Fault(INVALID_RESPONSE, f"the answer exceeds the limit of {MOST_BYTES} bytes")
        return bytes(body)

    def _result(self, method: str, status: int, body: bytes) -> Any:
        details = {"http_status": status, "response_body": self._scrubber.text(body[:500].decode(errors="replace"))}
        try:
            answer: Any = self._scrubber.value(json.loads(body, parse_constant=_refuse, parse_float=_finite))
        except (ValueError, RecursionError):
            answer = None
        facts = cast("Mapping[str, Any]", answer if isinstance(answer, Mapping) else {})
        if "result" in facts and "error" not in facts:
            return facts["result"]
        if isinstance(error := facts.get("error"), Mapping):
            error = cast("Mapping[str, Any]", error)
            code = error.get("code")
            number = code if isinstance(code, int) and not isinstance(code, bool) else UNKNOWN_ERROR
            raise _Fault(number, str(error.get("message") or "no details from the server"), error.get("data"))
        if status == 404:
            raise _Fault(METHOD_NOT_FOUND, f"there is no method {method} (HTTP 404)", details)
        raise _Fault(INVALID_RESPONSE, f"HTTP {status} without a JSON-RPC answer", details)

    def _answer(self, result: Any) -> ServerAnswer:
        if not isinstance(result, Mapping):
            kind = type(result).__name__
            meta = {ERROR: {"code": INVALID_RESULT, "message": f"the result is not an object but a {kind}"}}
            return ServerAnswer("", {"result": result}, is_error=True, meta=meta)
        facts = cast("Mapping[str, Any]", result)
        meta: Any = facts.get("_meta")
        details = cast("Mapping[str, Any]", meta if isinstance(meta, Mapping) else {})
        return ServerAnswer(_text(facts.get("content")), facts, is_error=facts.get("isError") is True, meta=details)

    def _handle_fault(self, name: str, fault: _Fault) -> ServerAnswer:
        if fault.code == METHOD_NOT_FOUND:
            raise UnknownTool(f"server {self.name} has no tool {name}: {fault.message}")
        if fault.code == INVALID_PARAMS:
            raise InvalidArguments(f"server {self.name} refuses the arguments of {name}: {fault.message}")
        meta = {ERROR: {"code": str(fault.code), "message": fault.message}}
        return ServerAnswer(fault.message, {"data": fault.data}, is_error=True, meta=meta)

    def _client(self) -> httpx2.AsyncClient:
        if self._closed:
            raise ServerUnavailable(f"server {self.name} was closed")
        if self._http is None:
            headers = make_headers(self._settings, self._env, self._scrubber)
            headers.setdefault("Accept-Encoding", "identity")  # decompressed data would have no limit
            headers |= {"Content-Type": "application/json", "Accept": "application/json"}
            self._http = httpx2.AsyncClient(headers=headers, **client_options(self._settings))
        return self._http

    def _parse_tools(self, listed: list[Any]) -> list[ToolInfo]:
        found: dict[str, ToolInfo] = {}
        for one in listed:
            facts = cast("Mapping[str, Any]", one if isinstance(one, Mapping) else {})
            name, schema = facts.get("name"), facts.get("inputSchema")
            if isinstance(name, str) and name and self._settings.tools.sees(name):
                schema = cast("Mapping[str, Any]", schema if isinstance(schema, Mapping) else {})
                found.setdefault(name, ToolInfo(self.name, name, str(facts.get("description") or ""), schema))
        return list(found.values())

    def _configured_tools(self) -> list[ToolInfo]:
        """Return the tools of a server without a list: those whose whole names the configuration allows."""
        names = [name for name in self._settings.tools.allow if not PLAIN & set(name)]
        return [ToolInfo(self.name, name) for name in names if self._settings.tools.sees(name)]

    def _unavailable(self, what: str) -> ServerUnavailable:
        self.problem = f"server {self.name} {what}"
        return ServerUnavailable(self.problem, suggestion=f"check that {self._settings.url} is up")


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if isinf(number):
        raise ValueError(f"{text[:20]} is too large")
    return number


def _error_message(error: Exception) -> str:
    return str(error) or type(error).__name__


def _text(content: Any) -> str:
    """Return the text of the content: texts, and output of code."""
    found: list[str] = []
    for block in cast("list[Any]", content) if isinstance(content, list) else []:
        facts = cast("Mapping[str, Any]", block if isinstance(block, Mapping) else {})
        names = ("stdout", "stderr") if facts.get("type") == "code_output" else ("text",)
        found += [text for name in names if isinstance(text := facts.get(name), str) and text]
    return "\n".join(found)


class RpcClients:
    """The maker of RPC clients. The server is contacted on first use."""

    def open(self, settings: ServerSettings, *, env: Mapping[str, str], state_directory: Path) -> ToolClient:
        """Return a client of one server."""
        return RpcToolClient(settings, env=env)


PLUGIN = RpcClients()
