"""The one door: every call of every way in passes ``Gate.call`` exactly once.

The order is fixed: audit opens, the tool is looked up, arguments are validated, policy decides, the call runs once
per key,
audit closes whatever happened.
"""

from __future__ import annotations

import difflib
import errno
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic import ValidationError

from ai_session.approvals import Grant
from ai_session.audit import AuditLog
from ai_session.call_keys import CallKeys
from ai_session.consent import Asker, Consent, Watch
from ai_session.errors import AiSessionError, InvalidArguments, StorageFull, TerminalsExhausted, UnknownTool
from ai_session.models import Answer, Effect, Principal, Question, ToolCall, ToolResult
from ai_session.policy import Policy
from ai_session.session_manager import SessionManager
from ai_session.tools.base import Arguments, Context, Limits, Tool
from ai_session.viewer import Viewer
from ai_session.workspace import Workspaces

REFUSED = ("system_error", "run: ai-session doctor")
OUT_OF = (TerminalsExhausted.code, "close sessions, or raise the limits: ulimit -n (files), ulimit -u (processes)")
FULL = (StorageFull.code, "free space on the disk that holds the runtime directory")
REFUSALS = dict.fromkeys((errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM), OUT_OF) | dict.fromkeys(
    (errno.ENOSPC, errno.EDQUOT, errno.EFBIG), FULL
)
"""What an error of the system is to a caller, by its number: code and suggestion."""


class Gate:
    """Judges and runs calls. Made once per daemon."""

    def __init__(
        self,
        tools: Sequence[Tool],
        sessions: SessionManager,
        workspaces: Workspaces,
        policy: Policy,
        audit: AuditLog,
        call_keys: CallKeys,
        limits: Limits,
        consent: Consent | None = None,
    ) -> None:
        self._tools = {tool.name: tool for tool in sorted(tools, key=lambda t: t.name)}
        self._sessions = sessions
        self._workspaces = workspaces
        self._policy = policy
        self._audit = audit
        self._call_keys = call_keys
        self._limits = limits
        self._consent = consent

    def list_tools(self, principal: Principal) -> Sequence[Tool]:
        """The tools this principal may ever use, sorted by name."""
        return [t for t in self._tools.values() if self._policy.decide(principal, t.name, t.effect).verdict != "deny"]

    async def call(self, call: ToolCall, asker: Asker | None = None) -> ToolResult:
        """Run one call. Raises UnknownTool only; every other failure is a result with ``is_error``.

        ``asker`` is the client's own way to a person. Cancelling the wait never ends a command.
        """
        record = await self._audit.begin(call.call_id, call.principal, call.name, call.arguments)
        outcome, rule, code = "crash", "", ""
        try:
            tool = self._tools.get(call.name)
            if tool is None:
                outcome, code = "invalid", UnknownTool.code
                raise self._unknown(call.name)
            self._audit.require_room(tool.effect)
            decision = self._policy.decide(call.principal, tool.name, tool.effect)
            rule = decision.rule
            if decision.verdict != "allow":
                outcome = "denied"
                return _failure(
                    "denied", f"{tool.name} is not allowed here (rule {rule})", "ask the person to allow it"
                )
            arguments, ignored = validate(tool, call.arguments)
            context = Context(call.principal, self._sessions, self._workspaces, self._limits, call.profile)
            context = replace(context, subject=tool.subject(context, arguments))
            result = await self._run(tool, arguments, context)
            outcome = "ok"
            return _with_note(result, ignored, call.call_id)
        except UnknownTool:
            raise
        except AiSessionError as error:
            outcome, code = ("invalid" if isinstance(error, InvalidArguments) else "tool_error"), error.code
            return _failure(error.code, error.message, error.suggestion, call.call_id)
        except OSError as error:
            outcome, (code, suggestion) = "tool_error", REFUSALS.get(error.errno or 0, REFUSED)
            return _failure(code, f"the system refused: {error.strerror or error}", suggestion, call.call_id)
        except BaseException as error:
            outcome = "crash" if isinstance(error, Exception) else "cancelled"
            raise
        finally:
            self._audit.end(record, outcome, rule=rule, code=code)

    async def _run(self, tool: Tool, arguments: Arguments, context: Context) -> ToolResult:
        key: str = getattr(arguments, "call_key", "")

        async def run(repeated: bool) -> ToolResult:
            return await tool.run(replace(context, repeated=repeated), arguments)

        if not key:
            return await run(False)
        plain = arguments.model_dump(exclude={"call_key"})
        return await self._call_keys.once(tool.name, key, plain, run, resumable=tool.resumable)

    def _unknown(self, name: str) -> UnknownTool:
        near = difflib.get_close_matches(name, self._tools, n=1)
        return UnknownTool(
            f"unknown tool {name[:60]!r}",
            suggestion=f"did you mean {near[0]!r}?" if near else f"tools: {', '.join(self._tools)}",
        )

    async def attach(self, principal: Principal, reference: str, *, rows: int, cols: int, read_only: bool) -> Viewer:
        """A person's live view of a session; judged and recorded like a call. Raises SessionNotFound, SessionExited."""
        effect = Effect.READ if read_only else Effect.EXECUTE
        record = await self._audit.begin("", principal, "attach", {"session_id": reference, "read_only": read_only})
        outcome, rule = "denied", ""
        try:
            self._audit.require_room(effect)
            decision = self._policy.decide(principal, "attach", effect)
            rule = decision.rule
            if decision.verdict != "allow" or principal.kind != "person":
                raise InvalidArguments("attach is for a person's terminal", suggestion="use read_screen and send_input")
            outcome = "tool_error"
            viewer = Viewer(self._sessions.get(reference), read_only=read_only)
            await viewer.resize(rows, cols)
            outcome = "ok"
            return viewer
        finally:
            self._audit.end(record, outcome, rule=rule)

    async def rename(self, principal: Principal, reference: str, name: str) -> None:
        """Give a session another name, for a person. Raises SessionNotFound, SessionExists."""
        record = await self._audit.begin("", principal, "rename", {"session_id": reference, "name": name})
        outcome = "tool_error"
        try:
            self._audit.require_room(Effect.WRITE)
            await self._sessions.rename(reference, name)
            outcome = "ok"
        finally:
            self._audit.end(record, outcome)

    async def approvals(self, principal: Principal) -> tuple[list[Question], list[Grant]]:
        """The questions that wait for a person, and what was allowed for longer than one call."""
        return (self._asking.pending(), self._asking.grants()) if principal.kind == "person" else ([], [])

    async def answer(self, principal: Principal, question_id: str, answer: Answer) -> str:
        """A person's word on a question, or a denial that ends a grant; returns what it was about.

        Raises InvalidArguments for an unknown id, Denied when the one who answers may be the one who asks.
        """
        if question_id.startswith("gr_") and not answer.allowed:
            return self._asking.revoke(question_id, principal).what
        return self._asking.answer(question_id, answer, principal).message

    async def watch(self, principal: Principal) -> Watch:
        """The questions this person may answer, as they come and go."""
        return self._asking.watch(principal)

    @property
    def _asking(self) -> Consent:
        if self._consent is None:
            raise InvalidArguments("nothing is ever asked here", suggestion="the policy allows or denies")
        return self._consent


def validate(tool: Tool, given: Mapping[str, Any]) -> tuple[Arguments, str]:
    """Checked arguments and a note on ignored ones; raises InvalidArguments naming every problem, never the values."""
    known = tool.arguments.model_fields
    ignored: list[str] = []
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(str(name), known, n=1)
            ignored.append(f"{str(name)[:40]!r}" + (f" (did you mean {near[0]!r}?)" if near else ""))
    note = "unknown arguments ignored: " + ", ".join(ignored[:8]) if ignored else ""
    try:
        return tool.arguments.model_validate({k: v for k, v in given.items() if v is not None}), note
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(str(p) for p in e['loc']) or 'arguments'}: {e['msg'].removeprefix('Value error, ')}"
            for e in error.errors(include_input=False, include_url=False)
        )
        wanted = ", ".join(n + ("" if f.is_required() else "?") for n, f in known.items())
        raise InvalidArguments(
            f"{tool.name}: {problems}" + (f"; {note}" if note else ""), suggestion=f"arguments: {wanted}"
        ) from None


def _failure(code: str, message: str, suggestion: str, call_id: str = "") -> ToolResult:
    error = {"code": code, "message": message, "suggestion": suggestion}
    text = f"error {code}: {message}" + (f"\nnext: {suggestion}" if suggestion else "")
    return ToolResult(text=text, structured={"error": error}, is_error=True, call_id=call_id)


def _with_note(result: ToolResult, note: str, call_id: str) -> ToolResult:
    if not note:
        return ToolResult(result.text, result.structured, result.is_error, call_id)
    structured = dict(result.structured)
    structured["note"] = f"{structured['note']}; {note}" if structured.get("note") else note
    return ToolResult(f"[{note}]\n{result.text}", structured, result.is_error, call_id)
