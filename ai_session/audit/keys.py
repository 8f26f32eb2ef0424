"""The key that signs the audit log: 32 random bytes in a file of mode 0600, Ed25519."""

from __future__ import annotations

import os
from functools import cached_property
from pathlib import Path
from typing import Any

KEY_BYTES = 32


class Signer:
    """Signs with the key at ``path``, which is created if necessary. The library is loaded on first use."""

    def __init__(self, path: Path) -> None:
        self._seed = _read_or_create(path)

    @cached_property
    def _key(self) -> Any:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        return Ed25519PrivateKey.from_private_bytes(self._seed)

    @cached_property
    def public(self) -> str:
        """The public key, hex."""
        return self._key.public_key().public_bytes_raw().hex()

    def sign(self, message: bytes) -> str:
        """Return the signature, hex."""
        return self._key.sign(message).hex()


def public_key(path: Path) -> str:
    """Return the public key (hex) for the key file, or ``""`` if that cannot be read."""
    try:
        seed = path.read_bytes()
    except OSError:
        return ""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return Ed25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw().hex() if _is_key(seed) else ""


def check(key: str, message: bytes, signature: str) -> bool:
    """Report whether ``signature`` over ``message`` is by ``key``; both should be hex, and any text is accepted."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(key)).verify(bytes.fromhex(signature), message)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _is_key(seed: bytes) -> bool:
    return len(seed) == KEY_BYTES


def _read_or_create(path: Path) -> bytes:
    try:
        if _is_key(seed := path.read_bytes()):
            return seed
    except FileNotFoundError:
        pass
    seed = os.urandom(KEY_BYTES)
    new = path.with_name(path.name + ".new")
    fd = os.open(new, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        os.write(fd, seed)
        os.fsync(fd)
    finally:
        os.close(fd)
    new.replace(path)
    return seed
