"""Who may sign in: people with passwords, or whoever can read this terminal while there are none."""

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
"""log2(N), r and p of scrypt: 32 MiB and about 0.2 s a try, as OWASP asks for."""

CODE_SECONDS = 600
CODE_ALPHABET = "ABCDEFGHJKMNPQRSTVWXYZ23456789"
CODE_LETTERS = 10


@dataclass(frozen=True, slots=True)
class Person:
    """Who signed in, and what of it can be granted."""

    name: str
    scopes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Credentials:
    """A person as stored."""

    person: Person
    password: str


def add(db: Connection, now: float, name: str, password: str, scopes: tuple[str, ...]) -> None:
    """A new person. ``password`` is what ``hashed`` gave. Raises InvalidArguments for a name that is taken."""
    writing(db)
    if db.execute("SELECT 1 FROM people WHERE name = ?", (name,)).fetchone():
        raise InvalidArguments(f"user {name} exists already", suggestion=f"ai-session http users revoke {name} first")
    db.execute("INSERT INTO people VALUES (?, ?, ?, ?)", (name, password, " ".join(scopes), now))


def find(db: Connection, name: str) -> Credentials | None:
    """Who has that name."""
    row = db.execute("SELECT * FROM people WHERE name = ?", (name,)).fetchone()
    return Credentials(Person(row["name"], tuple(row["scopes"].split())), row["password"]) if row else None


def anybody(db: Connection) -> bool:
    """Whether there is somebody with a password."""
    return db.execute("SELECT 1 FROM people").fetchone() is not None


def remove(db: Connection, now: float, name: str) -> bool:
    """Removes somebody, and ends all they granted. False where there was nothing of either."""
    writing(db)
    ended = end_grants(db, now, "subject", name, "the user was removed")
    return db.execute("DELETE FROM people WHERE name = ?", (name,)).rowcount > 0 or ended > 0


def listed(db: Connection) -> list[dict[str, Any]]:
    """Everybody, without what their password is checked against."""
    rows = db.execute("SELECT * FROM people ORDER BY name")
    return [{"name": row["name"], "scopes": row["scopes"].split(), "created_at": row["created_at"]} for row in rows]


def checked_name(name: str) -> str:
    """A name as tokens may carry it. Raises InvalidArguments."""
    if not NAME.match(name):
        raise InvalidArguments(
            f"{name[:80]!r} cannot be a user's name", suggestion="use a-z, 0-9, dot, dash and underscore, at most 64"
        )
    return name


def hashed(password: str, strength: tuple[int, int, int] = STRENGTH) -> str:
    """What a password is checked against: strength, salt and scrypt of it. Raises InvalidArguments."""
    if len(password) not in PASSWORD_CHARS:
        raise InvalidArguments(
            f"a password has {PASSWORD_CHARS[0]} to {PASSWORD_CHARS[-1]} characters", suggestion="use a longer one"
        )
    salt = secrets.token_bytes(16)
    return _written(strength, salt, _scrypt(password, salt, *strength))


def _written(strength: tuple[int, int, int], *parts: bytes) -> str:
    return "$".join(["scrypt", ",".join(map(str, strength)), *(base64.b64encode(part).decode() for part in parts)])


NOBODY = _written(STRENGTH, bytes(16), b"")
"""What a password is checked against where no such person is: it takes as long, and never fits."""


def fits(password: str, stored: str) -> bool:
    """Whether it is the password; takes 0.2 s of one core, so it belongs into a thread."""
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
    """A code for whoever can read the front's terminal: shown when it is needed, good for one sign-in.

    Wrong ones do not make it void, or anybody could: it has 49 bits, and tries are counted where they are made.
    """

    def __init__(self, announce: Callable[[str], None], clock: Callable[[], float]) -> None:
        self._announce = announce
        self._clock = clock
        self._code = ""
        self._good_until = 0.0

    def show(self) -> None:
        """Puts a code on the terminal, unless the one that stands there is still good."""
        if self._code and self._clock() < self._good_until:
            return
        self._code = "".join(secrets.choice(CODE_ALPHABET) for _ in range(CODE_LETTERS))
        self._good_until = self._clock() + CODE_SECONDS
        half = CODE_LETTERS // 2
        self._announce(f"sign-in code: {self._code[:half]}-{self._code[half:]} (for one sign-in, 10 minutes)")

    def takes(self, text: str) -> bool:
        """Whether ``text`` is the code, which is void after that."""
        said = "".join(char for char in text.upper() if char.isalnum()).encode()
        if not self._code or self._clock() >= self._good_until:
            return False
        right = hmac.compare_digest(said, self._code.encode())
        if right:
            self._code = ""
        return right
