"""Sign-in to the console: a code opens one tab once, which then has a token."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from agentwire.visible import visible

MOST_CODES, MOST_TABS = 16, 64
"""The oldest is removed for the newest."""

BROWSERS = (("Edge", "Edg/"), ("Opera", "OPR/"), ("Firefox", "Firefox/"), ("Chrome", "Chrome/"), ("Safari", "Safari/"))
SYSTEMS = re.compile(r"Android|iPhone|iPad|Windows|Macintosh|Linux|CrOS")
AGENT_CHARS = 400


@dataclass(eq=False, slots=True)
class Tab:
    """A signed-in tab. ``ends`` are called once, when it is signed out."""

    number: int
    browser: str
    since: float
    """Seconds since 1970."""
    ends: set[Callable[[], None]] = field(default_factory=set[Callable[[], None]])


class Logins:
    """The codes, valid for ``code_seconds``, and tokens; both are stored as digests, so that memory reveals none."""

    def __init__(self, code_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.key = secrets.token_urlsafe(32)
        """The key by which a tab recognizes this process: see ``proof``."""
        self._code_seconds = code_seconds
        self._clock = clock
        self._codes: dict[bytes, float] = {}
        self._tabs: dict[bytes, Tab] = {}
        self._number = 0

    def code(self) -> str:
        """Return a new code, which signs one tab in."""
        code = secrets.token_urlsafe(32)
        while len(self._codes) >= MOST_CODES:
            del self._codes[next(iter(self._codes))]
        self._codes[_digest(code)] = self._clock() + self._code_seconds
        return code

    def sign_in(self, code: str, agent: str) -> str:
        """Return the token for a new tab of the User-Agent ``agent``; empty if the code is unknown, used or expired."""
        expires_at = self._codes.pop(_digest(code), None)
        if expires_at is None or self._clock() >= expires_at:
            return ""
        while len(self._tabs) >= MOST_TABS:
            self.sign_out(next(iter(self._tabs.values())).number)
        token = secrets.token_urlsafe(32)
        self._number += 1
        self._tabs[_digest(token)] = Tab(self._number, browser_of(agent), time.time())
        return token

    def tab(self, token: str) -> Tab | None:
        """Return the tab with this token, None if there is none."""
        return self._tabs.get(_digest(token))

    def proof(self, nonce: str) -> str:
        """Return the response to ``nonce`` that only this process can make: another one may get the port later."""
        return hmac.new(self.key.encode(), nonce.encode(errors="replace"), hashlib.sha256).hexdigest()

    def tabs(self) -> list[Tab]:
        """Return all signed-in tabs, the oldest first."""
        return list(self._tabs.values())

    def sign_out(self, number: int) -> bool:
        """End a tab; report whether there was one of that number."""
        for digest, tab in self._tabs.items():
            if tab.number == number:
                del self._tabs[digest]
                for end in [*tab.ends]:
                    end()
                return True
        return False


def browser_of(agent: str) -> str:
    """Return a readable name for a User-Agent."""
    agent = agent[:AGENT_CHARS]
    name = next((name for name, mark in BROWSERS if mark in agent), "")
    system = SYSTEMS.search(agent)
    renamed = {"Macintosh": "macOS", "CrOS": "ChromeOS"}
    parts = [name, renamed.get(system[0], system[0]) if system else ""]
    return " on ".join(part for part in parts if part) or visible(agent[:40]) or "a program"


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode(errors="replace")).digest()
