"""Tool calls as clients write them and results as clients read them, without the SDK."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agentwire.json_lines import Message, scrub
from agentwire.mcp.first_answers import ENVELOPE_CAPABILITIES, ENVELOPE_CLIENT, ENVELOPE_VERSION, MODERN_VERSION
from ai_session import __version__
from ai_session.errors import UnknownTool
from ai_session.models import Answer, Question, ToolCall, ToolResult
from ai_session.servers.mcp import apps
from ai_session.servers.mcp.caller import Caller, call_of

if TYPE_CHECKING:
    from ai_session.gate.api import Asker

CALL = "tools/call"
TASKS = "io.modelcontextprotocol/tasks"
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603

HANDSHAKE_VERSION = "2025-11-25"
"""The version assumed for a client that makes calls before any handshake."""

FORM_VERSIONS = frozenset({"2025-06-18", HANDSHAKE_VERSION})
"""Handshakes with forms. goose, which uses 2025-03-26, declares that it shows forms but exits when asked."""

WHOLE_RESULTS = frozenset((*FORM_VERSIONS, MODERN_VERSION))
"""Versions in which the result of a call is sent unchanged."""

ENVELOPE = (ENVELOPE_VERSION, ENVELOPE_CAPABILITIES, ENVELOPE_CLIENT)
RESERVED = "io.modelcontextprotocol/"
CAPABILITIES = {"elicitation": {"form", "url"}, "sampling": {"context", "tools"}}
"""Parts of a client's capabilities, all without members."""

NAME, TITLE = "ai-session", "AI Session"
STAMP: Message = {"io.modelcontextprotocol/serverInfo": {"name": NAME, "title": TITLE, "version": __version__}}
"""What the SDK adds to a result since 2026-07-28."""

CALL_ID = "ai-session/call_id"
ERROR = "ai-session/error"


class Unanswerable(Exception):
    """A request whose answer is an error of the protocol."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class Who:
    """The caller of a call, according to a handshake or the call's envelope."""

    version: str
    capabilities: Mapping[str, Any]
    caller: Caller

    @classmethod
    def in_envelope(cls, meta: Message, caller: Caller) -> Who:
        """Return the caller in a request since 2026-07-28, which must have been found valid."""
        return cls(
            meta[ENVELOPE_VERSION], meta[ENVELOPE_CAPABILITIES], caller.named(name_in(meta.get(ENVELOPE_CLIENT)))
        )

    @property
    def modern(self) -> bool:
        """Whether each of its requests identifies its client, and questions are answered by repeating the call."""
        return self.version == MODERN_VERSION

    @property
    def shows_forms(self) -> bool:
        """Whether it declared that; before there were URLs, an empty capability meant forms."""
        elicitation: Any = self.capabilities.get("elicitation")
        return isinstance(elicitation, dict) and (elicitation.get("url") is None or elicitation.get("form") is not None)  # pyright: ignore[reportUnknownMemberType]

    @property
    def shows_views(self) -> bool:
        """Whether it shows views of calls."""
        return apps.shows_views(self.capabilities.get("extensions"))

    @property
    def knows_tasks(self) -> bool:
        """Whether it may get a task instead of a result."""
        return TASKS in (self.capabilities.get("extensions") or ())


def meta_in(params: Message | None) -> Message:
    """Return the ``_meta`` of a request."""
    return object_in((params or {}).get("_meta")) or {}


def name_in(info: Any) -> str:
    """Return the name in a client's ``clientInfo``."""
    name: Any = info.get("name") if isinstance(info, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return name if isinstance(name, str) else ""


@dataclass(frozen=True, slots=True)
class PipeRequest:
    """A request on a pipe, as a ``trace.RequestContext``."""

    protocol_version: str
    request_id: int | str | None
    params: Message
    method: str = CALL
    request: None = None


class ReturnedForm:
    """Asks by returning the question in the result, since 2026-07-28."""

    deferred = True

    async def ask(self, question: Question) -> Answer | None:
        """Never called."""
        return None


def needs_no_model(version: str, params: Message | None) -> bool:
    """Report whether the SDK's models of a call would only copy its parameters and its result."""
    if version not in WHOLE_RESULTS or params is None or not params.keys() <= {"name", "arguments", "_meta"}:
        return False
    name, arguments = params.get("name"), object_in(params.get("arguments", {}))
    if arguments is None or not (isinstance(name, str) and name.isascii() and all(map(str.isascii, arguments))):
        return False
    return is_plain_meta(params.get("_meta", {}))


def is_plain_meta(value: Any) -> bool:
    """Report whether the SDK's models would only copy a request's ``_meta``."""
    meta = object_in(value)
    if meta is None or type(meta.get("progressToken", 0)) not in (str, int) or not all(map(str.isascii, meta)):
        return False
    return not any(name.startswith(RESERVED) and name not in ENVELOPE for name in meta)


def is_plain_envelope(meta: Message) -> bool:
    """Report whether a request since 2026-07-28 identifies its client in a form that the SDK certainly accepts."""
    client = object_in(meta.get(ENVELOPE_CLIENT, {"name": "", "version": ""}))
    if meta[ENVELOPE_VERSION] != MODERN_VERSION or client is None:
        return False
    if not {"name", "version"} <= client.keys() <= {"name", "version", "title", "description", "websiteUrl"}:
        return False
    capabilities = object_in(meta.get(ENVELOPE_CAPABILITIES))
    if capabilities is None or not all(type(value) is str and value.isascii() for value in client.values()):
        return False
    return all(_is_plain_capability(name, object_in(given)) for name, given in capabilities.items())


def _is_plain_capability(name: str, given: Message | None) -> bool:
    if given is None or not all(map(str.isascii, given)):
        return False
    if name in CAPABILITIES:
        return given.keys() <= CAPABILITIES[name] and all(part == {} for part in given.values())
    if name == "roots":
        return given.keys() <= {"listChanged"} and type(given.get("listChanged", False)) is bool
    # Each of these is an object with arbitrary members.
    return name in ("experimental", "extensions") and all(type(part) is dict for part in given.values())


def object_in(value: Any) -> Message | None:
    """Return the value if it is a JSON object, or None."""
    return value if isinstance(value, dict) else None  # pyright: ignore[reportUnknownVariableType]


def envelope_of(meta: Message) -> str:
    """Return the client's information in a request for comparison, as text because ``true`` equals 1 in Python."""
    return repr([(name, meta[name]) for name in ENVELOPE if name in meta])


async def call_with(
    who: Who, request_id: int | str | None, params: Message, asker: Asker | None
) -> tuple[ToolCall, ToolResult]:
    """Make a call for which ``needs_no_model``. Raises Unanswerable for an unknown tool."""
    request = PipeRequest(who.version, request_id, params)
    call = call_of(request, who.caller.principal, params["name"], params.get("arguments", {}))
    try:
        return call, await who.caller.call(call, asker)
    except UnknownTool as problem:
        raise Unanswerable(INVALID_PARAMS, f"{problem.message}; {problem.suggestion}") from None


def meta_of(call: ToolCall, result: ToolResult) -> dict[str, Any]:
    """Return the ``_meta`` of a result: the positions of its audit records, and its id there."""
    return {**scrub(dict(result.meta)), CALL_ID: call.call_id}


def result_message(call: ToolCall, result: ToolResult) -> Message:
    """Return a result as clients see it. Clients check structured content against the schema, so errors have none."""
    structured, meta = scrub(dict(result.structured)), meta_of(call, result)
    if result.is_error:
        meta[ERROR] = structured.get("error", structured)
    content = [{"text": scrub(result.text), "type": "text"}]
    given = {"_meta": meta, "content": content, "isError": result.is_error, "resultType": "complete"}
    if not result.is_error:
        given["structuredContent"] = structured
    return given
