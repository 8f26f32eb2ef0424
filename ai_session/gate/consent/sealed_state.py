"""The state that a client sends back with a person's answer: sealed, bound to one call, short-lived.

A client may show, store and send it anywhere, but cannot create or change one or use it for another call. The issuer
ensures that it is used once: only the newest nonce of an open question is accepted.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import secrets
import struct
from dataclasses import dataclass
from pathlib import Path

from ai_session.errors import InvalidArguments

KEY_BYTES = 32
NONCE_BYTES = 16
MAX_SECONDS = 300.0
MAX_CHARS = 1024
PREFIX = "s1"
HEAD = struct.Struct(f">d{NONCE_BYTES}s32s")


@dataclass(frozen=True, slots=True)
class Sealed:
    """The content of a state. ``binding`` is the digest of the call it was created for."""

    question_id: str
    nonce: str
    binding: str
    expires_at: float


class Seal:
    """One key for each installation, in a file of mode 0600 created at first use."""

    def __init__(self, path: Path) -> None:
        self._key = _read_key(path) or _make_key(path)

    def close(self, sealed: Sealed) -> str:
        """Return the text that ``open`` accepts."""
        head = HEAD.pack(sealed.expires_at, bytes.fromhex(sealed.nonce), bytes.fromhex(sealed.binding))
        payload = head + sealed.question_id.encode()
        return f"{PREFIX}.{_text(payload)}.{_text(self._tag(payload))}"

    def open(self, state: str, now: float) -> Sealed:
        """Return what was sealed. Raises InvalidArguments for a state that is not ours, was changed, or is too old."""
        prefix, _, rest = state[: MAX_CHARS + 1].partition(".")
        body, _, tag = rest.partition(".")
        payload, given = _bytes(body), _bytes(tag)
        if prefix != PREFIX or len(state) > MAX_CHARS or not hmac.compare_digest(given, self._tag(payload)):
            raise _refused("it was not issued here, or was changed")
        expires_at, nonce, binding = HEAD.unpack_from(payload)
        if now >= expires_at:
            raise _refused("it is too old")
        return Sealed(payload[HEAD.size :].decode(), nonce.hex(), binding.hex(), expires_at)

    def _tag(self, payload: bytes) -> bytes:
        return hmac.digest(self._key, b"ai-session consent " + PREFIX.encode() + b"\0" + payload, hashlib.sha256)


def new_nonce() -> str:
    """Return a nonce for one state."""
    return secrets.token_hex(NONCE_BYTES)


def already_used() -> InvalidArguments:
    """Return the error for a state whose question was answered or which a newer one replaced."""
    return _refused("it was used before, or the question no longer waits")


def _refused(why: str) -> InvalidArguments:
    return InvalidArguments(
        f"requestState is refused: {why}; nothing was run", suggestion="make the call again without requestState"
    )


def _read_key(path: Path) -> bytes:
    """Read the key; empty if there is none, or if another user could have read or written it."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return b""
    with open(fd, "rb") as file:
        info = os.fstat(fd)
        key = file.read(KEY_BYTES + 1)
    private = info.st_uid == os.getuid() and not info.st_mode & 0o077
    return key if private and len(key) == KEY_BYTES else b""


def _make_key(path: Path) -> bytes:
    key = secrets.token_bytes(KEY_BYTES)
    path.unlink(missing_ok=True)
    with open(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600), "wb") as file:
        file.write(key)
    return key


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _bytes(text: str) -> bytes:
    """Decode only what ``_text`` writes; anything else gives nothing."""
    try:
        data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except ValueError:
        return b""
    return data if _text(data) == text else b""
