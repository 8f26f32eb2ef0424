"""What a person is asked: complete, printable, and bound to exactly one call."""

from __future__ import annotations

import hashlib
import json
import secrets
import time
from collections.abc import Mapping
from typing import Any

from agentwire.visible import visible
from ai_session.models import Principal, Question

SHOWN_CHARS = 65_536
IN_FIRST_LINE = ("session_id", "command", "text", "keys", "name", "working_directory")
HARMLESS = ("backend", "rows", "cols", "separate_stderr", "timeout_seconds", "max_output_chars", "command_id", "offset")
READING = ("tail_lines", "pattern", "wait_for")
NOT_SHOWN = frozenset((*IN_FIRST_LINE, *HARMLESS, *READING))
"""Arguments that do not affect a person's decision, or that the first line shows anyway."""

KEPT_CHARS = 2000
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
    name: str = "",
    prefix: str = "",
    folder: str = "",
) -> Question:
    """Return the question whether ``tool`` may run in the ``session`` with that ``name``, about the command, input,
    directory or domain ``about``. A lasting answer covers ``detail``, or if it is widened ``prefix`` or ``folder``."""
    now = time.time()
    who = printable(principal.client or principal.kind)
    if principal.subject:
        who = f"{printable(principal.subject)} by {who}"
    shown_session = printable(name or session)
    at = f" ({printable(where)})" if where else ""
    lines = [f"{who} wants {tool}{f' in session {shown_session}' if shown_session else ''}{at}:"]
    lines += [f"    {line}" for line in printable(about, lines=True).split("\n")] if about else []
    lines += [printable(reason), f'"The same" means {_same(tool, rule, detail, folder)}.']
    if prefix:
        lines += [f'"Begins like it" means {prefix} …, in plain words that only look below the directory.']
    if folder:
        below = f"every {tool} in {printable(folder)} or in any directory below it"
        lines += [f'"This folder and all below" means {below}. For all clients: [sandbox] workspaces.']
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
        prefix=prefix,
        folder=folder,
    )


def _same(tool: str, rule: str, detail: str, folder: str) -> str:
    if folder:
        return f"{tool} with exactly this, whatever the session is called"
    return "exactly this, to the letter" if detail else f"every {tool} that {rule} asks about"


def describe_call(arguments: Mapping[str, Any], first: str) -> str:
    """Return what a call is about: ``first``, its command, input or directory, and its other arguments."""
    rest = {name: value for name, value in arguments.items() if value and name not in NOT_SHOWN}
    return "\n".join(filter(None, (first, *(f"{name}: {_plain(value)}" for name, value in sorted(rest.items())))))


def narrowed(about: str, masked: str) -> str:
    """Return what a lasting answer covers: exactly ``about``, stored without secrets; empty for an empty ``about``."""
    return f"{masked[:KEPT_CHARS]} #{digest({'about': about})}" if about else ""


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, ensure_ascii=False)


def digest(arguments: Mapping[str, Any]) -> str:
    """Return the SHA-256 of the arguments as canonical JSON, without the idempotency key."""
    plain = {name: value for name, value in arguments.items() if name != "call_key"}
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def printable(text: str, *, lines: bool = False) -> str:
    """Return ``text``, limited, with every character escaped that could deceive a terminal or a reader."""
    shown = visible(text[:SHOWN_CHARS], lines=lines)
    return shown + (f"… ({len(text) - SHOWN_CHARS} more characters)" if len(text) > SHOWN_CHARS else "")
