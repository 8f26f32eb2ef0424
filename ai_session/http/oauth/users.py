"""Who may sign in: people with passwords, or without any, a person who can read the front's terminal."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from sqlite3 import Connection
from typing import Any

from ai_session.errors import InvalidArguments
from ai_session.http.oauth.grants import end_grants
from ai_session.http.oauth.store import writing

NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}\Z")
PASSWORD_CHARS = range(12, 1025)
STRENGTH = (15, 8, 3)
"""log2(N), r and p of scrypt: 32 MiB and about 0.2 s a try, as OWASP recommends."""

CODE_SECONDS = 600
CODE_ALPHABET = "ABCDEFGHJKMNPQRSTVWXYZ23456789"
CODE_LETTERS = 10


@dataclass(frozen=True, slots=True)
class Person:
    """A signed-in person, and the scopes they can grant."""

    name: str
    scopes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Credentials:
    """A person as stored."""

    person: Person
    password: str


def add(db: Connection, now: float, name: str, password: str, scopes: tuple[str, ...]) -> None:
    """Add a person; ``password`` is from ``hashed``. Raises InvalidArguments if the name exists."""
    writing(db)
    if db.execute("SELECT 1 FROM people WHERE name = ?", (name,)).fetchone():
        raise InvalidArguments(f"user {name} exists already", suggestion=f"ai-session http users revoke {name} first")
    db.execute("INSERT INTO people VALUES (?, ?, ?, ?)", (name, password, " ".join(scopes), now))


def find(db: Connection, name: str) -> Credentials | None:
    """Return the person with that name, or None."""
    row = db.execute("SELECT * FROM people WHERE name = ?", (name,)).fetchone()
    return Credentials(Person(row["name"], tuple(row["scopes"].split())), row["password"]) if row else None


def anybody(db: Connection) -> bool:
    """Report whether any person has a password."""
    return db.execute("SELECT 1 FROM people").fetchone() is not None


def remove(db: Connection, now: float, name: str) -> bool:
    """Remove a person and end everything they granted. Returns False if there was neither."""
    writing(db)
    ended = end_grants(db, now, "subject", name, "the user was removed")
    return db.execute("DELETE FROM people WHERE name = ?", (name,)).rowcount > 0 or ended > 0


def listed(db: Connection) -> list[dict[str, Any]]:
    """List everybody, without the password hashes."""
    rows = db.execute("SELECT * FROM people ORDER BY name")
    return [{"name": row["name"], "scopes": row["scopes"].split(), "created_at": row["created_at"]} for row in rows]


def checked_name(name: str) -> str:
    """Return a name that tokens may contain. Raises InvalidArguments."""
    if not NAME.match(name):
        raise InvalidArguments(
            f"{name[:80]!r} cannot be a user's name", suggestion="use a-z, 0-9, dot, dash and underscore, at most 64"
        )
    return name


def hashed(password: str, strength: tuple[int, int, int] = STRENGTH) -> str:
    """Return what a password is verified with: strength, salt and its scrypt hash. Raises InvalidArguments."""
    if len(password) not in PASSWORD_CHARS:
        raise InvalidArguments(
            f"a password has {PASSWORD_CHARS[0]} to {PASSWORD_CHARS[-1]} characters", suggestion="use a longer one"
        )
    salt = secrets.token_bytes(16)
    return _written(strength, salt, _scrypt(password, salt, *strength))


def _written(strength: tuple[int, int, int], *parts: bytes) -> str:
    return "$".join(["scrypt", ",".join(map(str, strength)), *(base64.b64encode(part).decode() for part in parts)])


NOBODY = _written(STRENGTH, bytes(16), b"")
"""The hash to verify with if the person does not exist: it takes as long and never matches."""


def matches(password: str, stored: str) -> bool:
    """Report whether the password is right. Takes 0.2 s of one core, so call it in a thread."""
    _, parameters, salt, expected = stored.split("$")
    log_n, r, p = map(int, parameters.split(","))
    found = _scrypt(password[: PASSWORD_CHARS[-1] + 1], base64.b64decode(salt), log_n, r, p)
    return hmac.compare_digest(found, base64.b64decode(expected))


def _scrypt(password: str, salt: bytes, log_n: int, r: int, p: int) -> bytes:
    memory = 128 * r * (2**log_n + p + 2) + (1 << 20)
    return hashlib.scrypt(
        password.encode("utf-8", "surrogatepass"), salt=salt, n=2**log_n, r=r, p=p, maxmem=memory, dklen=32
    )


class TerminalCode:
    """A code for a person who can read the front's terminal: shown when needed, valid for one sign-in.

    Wrong codes do not invalidate it, or anybody could: it has 49 bits, and the caller limits tries.
    """

    def __init__(self, announce: Callable[[str], None], clock: Callable[[], float]) -> None:
        self._announce = announce
        self._clock = clock
        self._code = ""
        self._good_until = 0.0

    def show(self) -> None:
        """Show a code on the terminal, unless the one shown before is still valid."""
        if self._code and self._clock() < self._good_until:
            return
        self._code = "".join(secrets.choice(CODE_ALPHABET) for _ in range(CODE_LETTERS))
        self._good_until = self._clock() + CODE_SECONDS
        half = CODE_LETTERS // 2
        self._announce(f"sign-in code: {self._code[:half]}-{self._code[half:]} (for one sign-in, 10 minutes)")

    def accepts(self, text: str) -> bool:
        """Report whether ``text`` is the code, which is then invalid."""
        typed = "".join(char for char in text.upper() if char.isalnum()).encode()
        if not self._code or self._clock() >= self._good_until:
            return False
        right = hmac.compare_digest(typed, self._code.encode())
        if right:
            self._code = ""
        return right
