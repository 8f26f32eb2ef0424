"""A person's signature: an Ed25519 key derived from their passphrase, and what it signs.

No file contains the key. A signature covers exactly one act: what is done and to what, on which host, with a nonce of
that host's daemon. ``cryptography`` is imported to sign and verify, not by this module.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ai_session.errors import InvalidArguments

KIND = "scrypt-ed25519"
VERSION = 1
PUBLIC_BYTES, SALT_BYTES = 32, 16
MIN_PASSPHRASE_CHARS = 10
COST, BLOCK, LANES = 1 << 17, 8, 1
"""The parameters of scrypt: 128 MB and a third of a second for each guess."""


@dataclass(frozen=True, slots=True)
class PublicKey:
    """What a daemon must know of a person's key. ``salt`` makes one passphrase two keys on two machines."""

    salt: bytes
    public: bytes

    @property
    def key_id(self) -> str:
        """A fingerprint, 16 hexadecimal digits."""
        return hashlib.sha256(self.public).hexdigest()[:16]

    @property
    def line(self) -> str:
        """Kind, salt and key in one line, the form that is sent and stored."""
        return f"{KIND} {self.salt.hex()} {self.public.hex()}"


def public_key(line: str) -> PublicKey:
    """Parse such a line. Raises InvalidArguments."""
    try:
        kind, salt, public = line.split(" ")
        key = PublicKey(bytes.fromhex(salt), bytes.fromhex(public))
        if (kind, len(key.salt), len(key.public)) == (KIND, SALT_BYTES, PUBLIC_BYTES):
            return key
    except ValueError:
        pass
    raise InvalidArguments(f"not a public key: {line[:80]!r}", suggestion="ai-session person enrol makes one")


class PrivateKey:
    """The key derived from a passphrase. It is never stored."""

    def __init__(self, passphrase: str, salt: bytes | None = None, *, cost: int = COST) -> None:
        """Derive the key, a new one without ``salt``. Takes 128 MB and a third of a second."""
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

        salt = salt or secrets.token_bytes(SALT_BYTES)
        memory = 128 * cost * BLOCK + (1 << 20)
        typed = passphrase.encode("utf-8", "surrogateescape")
        seed = hashlib.scrypt(typed, salt=salt, n=cost, r=BLOCK, p=LANES, maxmem=memory, dklen=32)
        self._key = Ed25519PrivateKey.from_private_bytes(seed)
        self.public = PublicKey(salt, self._key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw))

    def sign(self, message: bytes) -> str:
        """Return the signature of a message, in base64."""
        return base64.b64encode(self._key.sign(message)).decode()


def is_signed(key: PublicKey, message: bytes, signature: str) -> bool:
    """Report whether ``signature`` (base64) is that of ``key`` over ``message``."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(key.public).verify(base64.b64decode(signature, validate=True), message)
    except (InvalidSignature, ValueError):
        return False
    return True


def statement(do: str, about: Mapping[str, Any], *, host: str, nonce: str) -> bytes:
    """Return what is signed: the same bytes for the same act, and different ones for any other."""
    facts = {"ai-session": "person", "version": VERSION, "do": do, "about": about, "host": host, "nonce": nonce}
    return json.dumps(facts, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()


def about_answer(
    question_id: str, binding: str, message: str, *, allowed: bool, scope: str, reason: str
) -> dict[str, Any]:
    """Return the facts that a signature under an answer covers: this question as it was shown, for this one call."""
    return {
        "question_id": question_id,
        "binding": binding,
        "message_sha256": hashlib.sha256(message.encode("utf-8", "surrogatepass")).hexdigest(),
        "allowed": allowed,
        "scope": scope,
        "reason": reason,
    }
