"""The failures of a model: which are retried, when, and the messages for people."""

from __future__ import annotations

import hashlib
from importlib.util import find_spec

from agentwire.extras import install
from ccswarm.brains.llm.settings import RECORDED, Model

ELSEWHERE = frozenset({"cannot_connect", "not_understood"})
"""Failures that may be temporary if the model has answered before, and otherwise mean that it is not there."""

TRANSIENT = frozenset({"rate_limited", "overloaded", "server_error", "timed_out", "cut", *ELSEWHERE})
"""Failures that may be temporary."""

LONGEST_BACKOFF_SECONDS = 120.0
LONGEST_PAUSE_SECONDS = 900.0
"""The longest pause, even if the server asks for more."""

EXPLAINED = {
    "no_key": (
        "has no key: {key} is neither set nor in the keyring",
        "export {key}=…" + (", or: keyring set ccswarm {key}" if find_spec("keyring") else ""),
    ),
    "key_refused": ("refused the key in {key}", "make sure that it is valid and may use this model"),
    "quota": ("has no credit left on the account", "add credit, raise the limit, or set another model in fallback"),
    "unknown_model": ("is not known at {address}", "correct model, or base_url"),
    "too_long": (
        "accepts less than the length of this conversation",
        "lower context_chars, or cut the task into smaller ones",
    ),
    "refused": ("refused to answer", "reword the task, or set another model in fallback"),
    "rejected": ("rejected the request", "see its message; another model may accept it: fallback"),
    "cannot_connect": ("cannot be reached at {address}", "check network and proxy, and that a server runs there"),
    "not_understood": (
        "does not answer at {address}: another service does",
        "make sure that base_url is the URL of such an API, including its version if it has one: https://host/v1",
    ),
    "rate_limited": ("received too many requests", "try later, let fewer agents work at once, or raise retries"),
    "overloaded": ("is overloaded", "try later, or set another model in fallback"),
    "server_error": ("has an internal error", "try later, or set another model in fallback"),
    "timed_out": ("does not answer in time", "raise request_timeout_seconds or idle_seconds, or use a faster model"),
    "cut": ("cuts off its answers", "try later; a server that never gives a finish reason cannot be used"),
    "not_installed": ("needs a package that is not installed", install("llm")),
    "not_recorded": ("has no such reply", "record one"),
    "internal": ("could not be called", "report this"),
}


def explain(kind: str, message: str, model: Model, tries: int = 0) -> str:
    """Return a message for people: the model, the failure, the server's message, and what to do."""
    what, advice = EXPLAINED.get(kind, EXPLAINED["internal"])
    recorded = model.kind == RECORDED
    known = {"key": "" if recorded else model.key_name or "settings.key", "address": "" if recorded else model.endpoint}
    again = f", tried {tries + 1} times" if tries else ""
    details = f" ({message})" if message else ""
    return f"{model.model or RECORDED} {what.format(**known)}{again}{details}; {advice.format(**known)}"


def pause(seed: str, tries: int, retry_after: float | None) -> float:
    """Return the seconds before another try: what the server asked for, or longer each time. Deterministic. They differ
    for each ``seed``, so that agents rejected together do not retry together."""
    spread = int.from_bytes(hashlib.sha256(f"{seed}/{tries}".encode()).digest()[:4]) / 2**32
    backoff = min(2.0**tries, LONGEST_BACKOFF_SECONDS) * (0.75 + spread / 2)
    requested = max(retry_after or 0.0, 0.0) * (1 + spread / 10)
    return round(min(max(backoff, requested) if not retry_after else requested, LONGEST_PAUSE_SECONDS), 3)
