"""Explains why a program did not do its work, and what to do about it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from ccswarm.brains.cli.programs import INSTALL, KNOWN, LOGIN
from ccswarm.models import CallOutcome

SHOWN_CHARS = 600
BOX = (
    "its terminal is in a box of ai-session: let it out (network.allow_domains, sandbox.home_readable, "
    "sandbox.readable), or give settings.shell a server whose terminals are trusted: ai-session docs brains-cli"
)


FORGOTTEN = "does not know the session it was to resume"


class _Sign(NamedTuple):
    pattern: re.Pattern[str]
    what: str
    todo: str


def _sign(words: str, what: str, todo: str) -> _Sign:
    return _Sign(re.compile(words, re.IGNORECASE), what, todo)


SIGNS = (  # in this order: messages about a quota also suggest another login
    _sign(
        r"quota|usage limit|rate.?limit|\b429\b|resource.?exhausted|credit balance|billing|overloaded"
        r"|out of credits|limit reached|high demand",
        "has used up its quota or is rate-limited",
        "wait, or use another key or model; retry in the task tries again later",
    ),
    _sign(
        r"not logged in|/login|no auth|set an auth method|auth method|please (log|sign) in|codex login|login required"
        r"|refresh token|credentials? (are |is )?(missing|not found)|no api key|api key (is )?(missing|not set)"
        r"|missing (bearer|api key)|environment variable[^\n]*(missing|not set)|missing environment variable"
        r"|must specify the \w+ environment variable",
        "is not logged in",
        "{login}",
    ),
    _sign(
        r"invalid[^\n]{0,20}api[ _-]?key|api[ _-]?key[^\n]{0,20}(invalid|not valid|incorrect)|incorrect api key|\b401\b"
        r"|unauthorized|authentication_error|unauthenticated|\b403\b[^\n]*(permission|forbidden)|permission_denied",
        "has a key that was rejected",
        "make sure that settings.environment gives it a valid key",
    ),
    _sign(
        r"enotfound|eai_again|econnrefused|enetunreach|ehostunreach|etimedout|could not resolve|name resolution"
        r"|network is unreachable|fetch failed|connection (error|refused)|error sending request|unable to connect"
        r"|stream disconnected|x-proxy-error|not on this session's list",
        "cannot reach its API from its terminal",
        BOX,
    ),
    _sign(
        r"no conversation found|session[^\n]{0,40}not found|no rollout found|no previous sessions",
        FORGOTTEN,
        "try the task again: it starts from the beginning",
    ),
    _sign(
        r"started without its tools|mcp[^\n]{0,80}(fail|error|closed|timed? ?out)", "could not use its MCP server", BOX
    ),
)


def explain_end(program: str, facts: Mapping[str, Any]) -> str:
    """Explain such an end in one line, with what to do; ``""`` if nothing is wrong."""
    if facts.get("failed"):
        if facts["failed"] == "FileNotFoundError":
            todo = INSTALL.get(program, "install it")
            return f"{program} is not installed where its terminal runs; {todo}, or {BOX}"
        return f"{program} cannot be started: {facts.get('message')}"
    code, error = facts.get("exit"), str(facts.get("error") or "")
    if code == 0 and not error and (facts.get("result") is not None or program not in KNOWN):
        return ""
    stray = "" if error else str(facts.get("stray") or "").strip()
    words = "\n".join(filter(None, [error, str(facts.get("errors") or "").strip(), stray]))
    ended = f"{program} was ended by signal {-code}" if code and code < 0 else f"{program} exited {code}"
    ended += "" if code or error else " without a result"
    found = next((sign for sign in SIGNS if sign.pattern.search(words)), None)
    shown = f": {error[:SHOWN_CHARS] or words[-SHOWN_CHARS:]}" if words else ""
    if found is None:
        return f"{ended}{shown}" if words else f"{ended} and printed nothing"
    todo = found.todo.format(login=LOGIN.get(program, "log in where its terminal runs"))
    return f"{program} {found.what} ({ended}{shown}); {todo}"


def explain_terminal(program: str, outcome: CallOutcome) -> str:
    """Explain why the program gets no terminal."""
    message = f"no terminal for {program}: {outcome.code or outcome.status}: {outcome.message or outcome.text}"
    if outcome.code == "consent_needed":
        todo = 'allow directories of the programs: sandbox.workspaces = ["~/.local/state/ccswarm/guests"]'
        return f"{message}; {todo} in the configuration of ai-session"
    return f"{message}; {outcome.suggestion}" if outcome.suggestion else message


def explain_missing(program: str, run: Mapping[str, Any]) -> str:
    """Explain why the program never connected. ``run`` is the result of the terminal's command, if known."""
    code, text = run.get("exit_code"), str(run.get("text") or "").strip()[-SHOWN_CHARS:]
    if code is None:
        return f"{program} did not connect to its tools{f': {text}' if text else ''}"
    if code == 74:
        return f"{program} cannot connect to its tools from its terminal: {text}; {BOX}"
    return f"{program} cannot be started in its terminal (exit code {code}): {text}; {BOX}"
