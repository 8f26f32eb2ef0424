"""How a question reaches the person behind an MCP client, in both protocol eras, and how the answer is read.

In the handshake era the server asks (``elicitation/create``) while the call waits; since 2026-07-28 the call returns
with the question and is repeated with the answer. Only a client that declares that it shows forms is asked, and nothing
else is ever requested of any client.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError, NoBackChannelError
from mcp_types import (
    ClientCapabilities,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    ErrorData,
    InputRequiredResult,
    InputResponseRequestParams,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from agentwire.json_lines import Message
from ai_session.models import SCOPES, Answer, Question
from ai_session.servers.mcp.calls import FORM_VERSIONS, ReturnedForm

if TYPE_CHECKING:
    from ai_session.gate.api import Asker

METHOD = "elicitation/create"
DECISION = "decision"
MEANINGS = {
    "once": "this call only",
    "session": "the same in this session",
    "always": "the same from now on",
    "prefix": "from now on everything that begins like it, as shown above",
    "folder": "from now on in this folder and everything below it",
}


def form(question: Question) -> dict[str, Any]:
    """Return one plain enumeration, the only kind of choice that every protocol version with forms has."""
    choices = [*question.scopes, "deny"]
    meanings = "; ".join(f"{choice}: {MEANINGS.get(choice, 'no')}" for choice in choices)
    decision = {"type": "string", "title": "Decision", "description": meanings, "enum": choices}
    return {"type": "object", "properties": {DECISION: decision}, "required": [DECISION]}


class Questions:
    """The unanswered questions to one client."""

    def __init__(self, send: Callable[[Message], None]) -> None:
        self._send = send
        # A client may answer a question of an earlier daemon; no question of ours may have that number.
        self._ids = itertools.count(secrets.randbelow(1 << 48))
        self._waiting: dict[int, asyncio.Future[Message]] = {}

    def to(self, capabilities: ClientCapabilities | None) -> Questioning:
        """Return the questions that a client with those capabilities answers."""
        return Questioning(self, answerable(capabilities))

    async def ask(self, method: str, params: Mapping[str, Any] | None) -> Message:
        """Return the client's result. Raises MCPError for its error. If this is cancelled, the client is notified."""
        number = next(self._ids)
        waiting = self._waiting[number] = asyncio.get_running_loop().create_future()
        self._send({"jsonrpc": "2.0", "id": number, "method": method, "params": dict(params or {})})
        try:
            response = await waiting
        except asyncio.CancelledError:
            reason = {"requestId": number, "reason": "no longer asked"}
            self._send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": reason})
            raise
        finally:
            del self._waiting[number]
        result: Any = response.get("result")
        if not isinstance(result, dict):
            raise MCPError.from_error_data(_error(response.get("error")))
        return result  # pyright: ignore[reportUnknownVariableType]

    def receive_response(self, response: Message) -> None:
        """Process a response of the client; one without a question is ignored."""
        waiting = self._waiting.get(response["id"]) if type(response["id"]) is int else None
        if waiting and not waiting.done():
            waiting.set_result(response)


@dataclass(frozen=True, slots=True)
class Questioning:
    """One client's open questions, and the ``methods`` that may be used to ask it."""

    questions: Questions
    methods: frozenset[str]

    async def ask(self, method: str, params: Mapping[str, Any] | None) -> Message:
        """Return the client's result. Raises MCPError for its error, NoBackChannelError for a method that this client
        does not answer. If this is cancelled, the client is notified."""
        if method not in self.methods:
            raise NoBackChannelError(method)
        return await self.questions.ask(method, params)


class HandshakeForm:
    """Asks while the call waits."""

    deferred = False

    def __init__(self, ctx: ServerRequestContext[Any, Any], client: str) -> None:
        self._ctx = ctx
        self._client = client

    async def ask(self, question: Question) -> Answer | None:
        """Return the answer, or None if the client refuses to ask or its response is invalid."""
        try:
            result = await self._ctx.session.elicit_form(question.message, form(question), self._ctx.request_id)
        except (MCPError, ValueError):
            return None
        return read(result, self._client)


def asker_of(ctx: ServerRequestContext[Any, Any], client: str) -> Asker | None:
    """Return the way to ask this client's person; None if there is none."""
    if not shows_forms(ctx.session.client_capabilities):
        return None
    if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
        return ReturnedForm()
    known = ctx.protocol_version in FORM_VERSIONS and ctx.session.can_send_request
    return HandshakeForm(ctx, client) if known else None


def shows_forms(capabilities: ClientCapabilities | None) -> bool:
    """Report whether a client declared that; before there were URLs, an empty capability meant forms."""
    elicitation = capabilities.elicitation if capabilities else None
    return elicitation is not None and (elicitation.form is not None or elicitation.url is None)


def answerable(capabilities: ClientCapabilities | None) -> frozenset[str]:
    """Return the server's methods that a client declared it answers. We use only forms."""
    samples = capabilities is not None and capabilities.sampling is not None
    methods = {METHOD: shows_forms(capabilities), "sampling/createMessage": samples}
    return frozenset(method for method, known in methods.items() if known)


def returned(
    ctx: ServerRequestContext[Any, Any], params: InputResponseRequestParams, client: str
) -> tuple[str, dict[str, Answer]]:
    """Return state and answer that were sent with a call; nothing in the handshake era, which answers by response."""
    if ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS or params.request_state is None:
        return "", {}
    response = (params.input_responses or {}).get(DECISION)
    return params.request_state, {DECISION: read(response, client)} if isinstance(response, ElicitResult) else {}


def to_be_answered(question: Question, state: str, meta: dict[str, Any]) -> InputRequiredResult:
    """Return the result that makes a client ask and repeat the call."""
    return InputRequiredResult(input_requests={DECISION: request_of(question)}, request_state=state, _meta=dict(meta))


def request_of(question: Question) -> ElicitRequest:
    """Return the form that a client must show."""
    return ElicitRequest(params=ElicitRequestFormParams(message=question.message, requested_schema=form(question)))


def read(result: ElicitResult, client: str) -> Answer:
    """Return the answer in a filled-in form. Anything but one of the choices is a no, with the reason."""
    by = f"client {client}".rstrip()
    if result.action != "accept":
        return Answer(False, reason=f"the client's form was answered with {result.action}", by=by)
    decision = (result.content or {}).get(DECISION)
    if isinstance(decision, str) and decision in SCOPES:
        return Answer(True, scope=decision, by=by)
    return Answer(False, reason="" if decision == "deny" else "the client's form came back empty", by=by)


def _error(given: Any) -> ErrorData:
    try:
        return ErrorData.model_validate(given)
    except ValueError:
        return ErrorData(code=0, message="no error either")
