"""How a question reaches the person behind an MCP client, in both protocol eras, and how the answer is read.

In the handshake era the server asks (``elicitation/create``) while the call waits; since 2026-07-28 the call returns
with the question and is made again with the answer. Only a client that said it shows forms is asked, and nothing else
is ever asked of any client.
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
    """One plain enumeration: the one kind of choice that every protocol version with forms has."""
    choices = [*question.scopes, "deny"]
    meanings = "; ".join(f"{choice}: {MEANINGS.get(choice, 'no')}" for choice in choices)
    decision = {"type": "string", "title": "Decision", "description": meanings, "enum": choices}
    return {"type": "object", "properties": {DECISION: decision}, "required": [DECISION]}


class Questions:
    """What one client was asked and has not answered yet."""

    def __init__(self, send: Callable[[Message], None]) -> None:
        self._send = send
        # A client may answer what an earlier daemon asked; no question of ours may have that number.
        self._ids = itertools.count(secrets.randbelow(1 << 48))
        self._waiting: dict[int, asyncio.Future[Message]] = {}

    def to(self, capabilities: ClientCapabilities | None) -> Questioning:
        """The questions that a client of those capabilities answers."""
        return Questioning(self, answerable(capabilities))

    async def ask(self, method: str, params: Mapping[str, Any] | None) -> Message:
        """The client's result; raises MCPError for its error. If the wait is given up, the client is notified."""
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

    def answered(self, response: Message) -> None:
        """A response of the client; one to nothing that was asked says nothing."""
        waiting = self._waiting.get(response["id"]) if type(response["id"]) is int else None
        if waiting and not waiting.done():
            waiting.set_result(response)


@dataclass(frozen=True, slots=True)
class Questioning:
    """One client's open questions, and the ``methods`` it may be asked by."""

    questions: Questions
    methods: frozenset[str]

    async def ask(self, method: str, params: Mapping[str, Any] | None) -> Message:
        """As ``Questions.ask``; raises NoBackChannelError for what this client does not answer."""
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
        """None when the client refuses to ask, or answers what is no answer."""
        try:
            result = await self._ctx.session.elicit_form(question.message, form(question), self._ctx.request_id)
        except (MCPError, ValueError):
            return None
        return read(result, self._client)


def asker_of(ctx: ServerRequestContext[Any, Any], client: str) -> Asker | None:
    """The way to this client's person; None when it has none."""
    if not shows_forms(ctx.session.client_capabilities):
        return None
    if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
        return ReturnedForm()
    known = ctx.protocol_version in FORM_VERSIONS and ctx.session.can_send_request
    return HandshakeForm(ctx, client) if known else None


def shows_forms(capabilities: ClientCapabilities | None) -> bool:
    """Whether a client said so; before URLs came, an empty capability meant forms."""
    elicitation = capabilities.elicitation if capabilities else None
    return elicitation is not None and (elicitation.form is not None or elicitation.url is None)


def answerable(capabilities: ClientCapabilities | None) -> frozenset[str]:
    """The methods of a server's questions that a client said it answers. We ask with forms only."""
    samples = capabilities is not None and capabilities.sampling is not None
    methods = {METHOD: shows_forms(capabilities), "sampling/createMessage": samples}
    return frozenset(method for method, known in methods.items() if known)


def returned(
    ctx: ServerRequestContext[Any, Any], params: InputResponseRequestParams, client: str
) -> tuple[str, dict[str, Answer]]:
    """State and answer that came back with a call; nothing in the handshake era, which answers by response."""
    if ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS or params.request_state is None:
        return "", {}
    response = (params.input_responses or {}).get(DECISION)
    return params.request_state, {DECISION: read(response, client)} if isinstance(response, ElicitResult) else {}


def to_be_answered(question: Question, state: str, meta: dict[str, Any]) -> InputRequiredResult:
    """The result that makes a client ask and call again."""
    return InputRequiredResult(input_requests={DECISION: request_of(question)}, request_state=state, _meta=dict(meta))


def request_of(question: Question) -> ElicitRequest:
    """The form a client shall show."""
    return ElicitRequest(params=ElicitRequestFormParams(message=question.message, requested_schema=form(question)))


def read(result: ElicitResult, client: str) -> Answer:
    """What a filled-in form says. Everything that is no choice is no, with the reason."""
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
