"""What a person is asked: complete, printable, and bound to exactly one call."""

from __future__ import annotations

import hashlib
import json
import secrets
import time
from collections.abc import Mapping
from typing import Any

from ai_session.models import Principal, Question

SHOWN_CHARS = 65_536
OPEN_SECONDS = 3600.0


def ask_about(
    principal: Principal,
    tool: str,
    arguments: Mapping[str, Any],
    *,
    session: str,
    about: str,
    where: str,
    detail: str,
    rule: str,
    reason: str,
    policy: str,
) -> Question:
    """The question whether ``tool`` may go on. ``about`` is the command, input, directory or domain; ``detail`` what an
    answer for good is narrowed to."""
    now = time.time()
    who = printable(principal.client or principal.kind)
    lines = [
        f"{who} wants {tool}{f' in session {printable(session)}' if session else ''}{f' ({where})' if where else ''}:"
    ]
    lines += [f"    {line}" for line in printable(about, lines=True).split("\n")] if about else []
    lines.append(reason)
    return Question(
        question_id="ap_" + secrets.token_urlsafe(16),
        principal=principal,
        tool=tool,
        session=session,
        message="\n".join(lines),
        rule=rule,
        detail=detail,
        arguments_sha256=digest(arguments),
        policy_sha256=policy,
        asked_at=now,
        expires_at=now + OPEN_SECONDS,
    )


def digest(arguments: Mapping[str, Any]) -> str:
    """SHA-256 of the arguments as canonical JSON; an idempotency key does not make it another call."""
    plain = {name: value for name, value in arguments.items() if name != "call_key"}
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def printable(text: str, *, lines: bool = False) -> str:
    """``text`` with every character that could deceive a terminal or a reader written as an escape, and bounded."""
    cut = text[:SHOWN_CHARS]
    shown = "".join(c if c.isprintable() or (lines and c == "\n") else _escaped(c) for c in cut)
    return shown + (f"… ({len(text) - SHOWN_CHARS} more characters)" if len(text) > SHOWN_CHARS else "")


def _escaped(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode("ascii", "replace")
