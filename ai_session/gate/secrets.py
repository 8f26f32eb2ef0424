"""Learns the secrets of a call before any of it is stored or sent, and reports errors without them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from ai_session.errors import LimitReached
from ai_session.gate.redaction.known_secrets import Masking
from ai_session.gate.results import masked
from ai_session.models import Principal, ToolResult
from ai_session.sessions.manager import SessionManager
from ai_session.sessions.ownership import visibility_of, widening
from ai_session.system.turns import Steps
from ai_session.tools.base import Subject


def learn(
    masking: Masking, principal: Principal, arguments: Mapping[str, Any]
) -> tuple[Mapping[str, Any], LimitReached | None]:
    """Learn the secrets in the client's environment and in the variables it would give a session. Returns what may be
    recorded of the arguments, and if its secrets cannot be masked, why the call must be refused."""
    needed = partial(_process_exists, principal.pid)
    user = widening(visibility_of(principal).owner)[-1]
    try:
        masking.learn(principal.env, needed, user)
        if isinstance(variables := arguments.get("env"), dict):
            masking.learn(variables, needed, user, from_call=True)  # pyright: ignore[reportUnknownArgumentType]
    except LimitReached as error:
        return {}, error
    return arguments, None


def learn_given(masking: Masking, principal: Principal, texts: Sequence[str]) -> Steps[None]:
    """Learn what is a secret in the texts of a call only by its context, and would be shown where it stands alone."""
    return masking.learn_given(texts, widening(visibility_of(principal).owner)[-1])


def learn_session(masking: Masking, sessions: SessionManager, subject: Subject) -> None:
    """Learn what a session was given, perhaps by a client that has ended. Raises LimitReached."""
    if session := subject.session:
        session_id, user = session.spec.session_id, widening(session.spec.owner)[-1]
        masking.learn(session.spec.env, lambda: sessions.find(session_id) is not None, user, from_call=True)


def failed(
    masking: Masking, given: Mapping[str, Any], code: str, message: str, suggestion: str, **more: Any
) -> Steps[ToolResult]:
    """Return an error result without the secrets of what was given."""

    def echo(text: str) -> Steps[tuple[str, int]]:
        return (yield from masking.echo(text, given)), 0

    result, _ = yield from masked(ToolResult.failure(code, message, suggestion, **more), echo)
    return result


def _process_exists(pid: int | None) -> bool:
    try:
        os.kill(pid or os.getpid(), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
