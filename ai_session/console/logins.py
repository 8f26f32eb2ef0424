"""Who may use the console: a code opens one tab once, and what the tab shows from then on is a token of its own."""

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
"""The oldest goes for the newest."""

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
    """Codes and tokens are kept as digests: who reads this process's memory later finds none to use. A code may be used
    for ``code_seconds``."""

    def __init__(self, code_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.key = secrets.token_urlsafe(32)
        """By which a tab knows this process again: see ``proof``."""
        self._code_seconds = code_seconds
        self._clock = clock
        self._codes: dict[bytes, float] = {}
        self._tabs: dict[bytes, Tab] = {}
        self._number = 0

    def code(self) -> str:
        """A new one, which signs one tab in."""
        code = secrets.token_urlsafe(32)
        while len(self._codes) >= MOST_CODES:
            del self._codes[next(iter(self._codes))]
        self._codes[_digest(code)] = self._clock() + self._code_seconds
        return code

    def sign_in(self, code: str, agent: str) -> str:
        """The token for a new tab in the browser that calls itself ``agent``; empty where the code is unknown, was used
        or is too old."""
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
        """The tab that shows this token."""
        return self._tabs.get(_digest(token))

    def proof(self, nonce: str) -> str:
        """What only this process and its tabs can say to ``nonce``: another program may get hold of the port later."""
        return hmac.new(self.key.encode(), nonce.encode(errors="replace"), hashlib.sha256).hexdigest()

    def tabs(self) -> list[Tab]:
        """All that are signed in, in the order in which they came."""
        return list(self._tabs.values())

    def sign_out(self, number: int) -> bool:
        """End a tab; whether there was one of that number."""
        for digest, tab in self._tabs.items():
            if tab.number == number:
                del self._tabs[digest]
                for end in [*tab.ends]:
                    end()
                return True
        return False


def browser_of(agent: str) -> str:
    """A browser as a person calls it, by what it calls itself."""
    agent = agent[:AGENT_CHARS]
    name = next((name for name, mark in BROWSERS if mark in agent), "")
    system = SYSTEMS.search(agent)
    called = {"Macintosh": "macOS", "CrOS": "ChromeOS"}
    words = [name, called.get(system[0], system[0]) if system else ""]
    return " on ".join(word for word in words if word) or visible(agent[:40]) or "a program"


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode(errors="replace")).digest()
