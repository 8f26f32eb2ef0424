"""Whether an act is a person's own: signed by a key that agents do not have, or from a terminal that no agent owns."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ai_session.errors import ConfigInvalid, InvalidArguments, SignatureNeeded, SignatureRefused
from ai_session.gate import state_files
from ai_session.gate.consent.person_signature import PublicKey, is_signed, public_key, statement
from ai_session.gate.consent.terminal_origin import Finding, Origin, Terminals
from ai_session.models import Principal

NONCE_SECONDS = 600.0
MAX_NONCES = 1000
SESSION_VARIABLE = "AI_SESSION_ID"
FROM_SSH = ("SSH_CONNECTION", "SSH_CLIENT", "SSH_TTY")
TERMINALS = "consent.terminals"
ENROL = "ai-session person enrol"

Way = Literal["unsigned", "signed", "no"]
"""How a yes would be accepted."""


@dataclass(frozen=True, slots=True)
class Signature:
    """A signature of one act: base64, over the statement with that nonce."""

    nonce: str
    value: str


@dataclass(frozen=True, slots=True)
class Standing:
    """How far the answers of one process count. ``unsigned`` means that they are accepted as a person's."""

    finding: Finding
    unsigned: bool

    @property
    def denies(self) -> bool:
        """Whether it may deny without a signature; a denial lets nothing happen."""
        return self.finding.origin is not Origin.AGENT


@dataclass(frozen=True, slots=True)
class Enrolled:
    """The enrolled key, since when (seconds since 1970), and who enrolled it."""

    key: PublicKey
    at: float
    by: str


class PersonCheck:
    """Verifies that an answer is a person's. One per daemon; ``directory`` is its own, mode 0700. At most one key is
    enrolled.

    ``event(name, **facts)`` is called when a key is enrolled ("person.enrol") or removed ("person.remove") and when a
    signature is refused ("person.refused").
    """

    def __init__(
        self,
        directory: Path,
        *,
        event: Callable[..., None],
        terminals: Terminals,
        from_remote: Literal["signed", "terminal"] = "signed",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._path = directory / "key.json"
        self._event = event
        self._terminals = terminals
        self._from_remote = from_remote
        self._clock = clock
        self._nonces: dict[str, float] = {}
        self._host, self.enrolled = _read(self._path)

    async def standing(self, principal: Principal) -> Standing:
        """Return what is known about the caller."""
        found = await asyncio.to_thread(self._find, principal)
        remote = found.origin is Origin.REMOTE and self._from_remote == "terminal"
        return Standing(found, remote or found.origin is Origin.LOCAL)

    async def facts(self, principal: Principal) -> dict[str, Any]:
        """Return JSON values: where the caller's terminal comes from and whether its answers count unsigned; the
        enrolled key; ``host`` and ``nonce`` for the next signature."""
        standing, key = await self.standing(principal), self.enrolled
        return {
            "origin": str(standing.finding.origin),
            "why": standing.finding.why,
            "unsigned": standing.unsigned,
            "key": {"key_id": key.key.key_id, "line": key.key.line, "at": key.at, "by": key.by} if key else None,
            "host": self._host,
            "nonce": self._new_nonce(),
        }

    async def require(
        self,
        principal: Principal,
        do: str,
        about: Mapping[str, Any],
        signature: Signature | None,
        *,
        refused: str,
        again: str,
        standing: Standing | None = None,
    ) -> str:
        """Return who acted, for the record. ``refused`` says what does not happen; ``again`` is the verb to repeat.

        Raises SignatureNeeded without evidence of a person, and SignatureRefused for a signature that does not count.
        """
        if signature is not None:
            return f"{who(principal)} with key {await self._verify(principal, do, about, signature)}"
        standing = standing or await self.standing(principal)
        if standing.unsigned:
            return f"{who(principal)}, {standing.finding.why}"
        raise SignatureNeeded(f"{refused}: {standing.finding.why}", suggestion=self.advice(standing, again))

    def advice(self, standing: Standing, again: str) -> str:
        """Return what a person can do whose unsigned answer does not count."""
        if self.enrolled:
            return f"in a terminal, where your passphrase is asked for: {again}"
        if standing.finding.origin is Origin.REMOTE:
            return f"choose a passphrase, once, with: {ENROL}; then: {again}"
        if standing.finding.origin is Origin.DETACHED:
            return f"in a terminal of your own: {again}; add an unknown terminal program to {TERMINALS}"
        return f"in a terminal of your own, which no agent started: {again}"

    def way(self, standing: Standing, *, asks_itself: bool) -> Way:
        """Return how a yes would be accepted; ``asks_itself`` says that the caller belongs to the client that asks."""
        if standing.unsigned and not asks_itself:
            return "unsigned"
        return "signed" if self.enrolled or standing.finding.origin is Origin.REMOTE else "no"

    async def enrol(self, principal: Principal, line: str, signature: Signature | None) -> PublicKey:
        """Enrol this key in place of any other.

        A first key is accepted from any terminal that no agent owns, from a remote one only while no client runs;
        another one from a local terminal, or with the signature of the key before. Raises InvalidArguments,
        SignatureNeeded, SignatureRefused.
        """
        key = public_key(line)
        by = await self._may_change(principal, "enrol", {"key": key.line}, signature)
        self._store(Enrolled(key, time.time(), by))
        self._event("person.enrol", key_id=key.key_id, by=by)
        return key

    async def remove(self, principal: Principal, signature: Signature | None) -> PublicKey:
        """Remove the enrolled key. Raises as ``enrol``."""
        if self.enrolled is None:
            raise InvalidArguments("no key is enrolled", suggestion=ENROL)
        key = self.enrolled.key
        by = await self._may_change(principal, "unenrol", {"key": key.line}, signature)
        self._store(None)
        self._event("person.remove", key_id=key.key_id, by=by)
        return key

    def _find(self, principal: Principal) -> Finding:
        if principal.kind != "person":
            return Finding(Origin.AGENT, "a client cannot answer for its person")
        if SESSION_VARIABLE in principal.env:
            return Finding(Origin.AGENT, "what runs inside a session cannot answer for the person")
        if self._terminals.known:
            return self._terminals.find(principal.pid, principal.process)
        if any(name in principal.env for name in FROM_SSH):
            return Finding(Origin.REMOTE, "it came in over SSH, which agents can use as well")
        return Finding(Origin.LOCAL, "this system does not report its owner")

    async def _may_change(
        self, principal: Principal, do: str, about: Mapping[str, Any], signature: Signature | None
    ) -> str:
        """Return who changes the enrolled key, for the record. Raises SignatureNeeded, SignatureRefused."""
        if signature is not None and self.enrolled:
            return f"{who(principal)} with key {await self._verify(principal, do, about, signature)}"
        finding = (await self.standing(principal)).finding
        why = finding.why
        suggestion = "in a terminal of your own, which no agent started: " + ENROL
        first = finding.origin is Origin.REMOTE and not self.enrolled
        if finding.origin is Origin.LOCAL or (first and not await asyncio.to_thread(self._terminals.has_clients)):
            return f"{who(principal)}, {why}"
        if first:
            why += "; from there a first key is accepted only while no client of ai-session runs"
            suggestion = f"end the agents that use ai-session here, then run: {ENROL}"
        elif self.enrolled:
            suggestion = "in a terminal, with your old passphrase; without it, only at this machine itself"
        raise SignatureNeeded(f"the key was not changed: {why}", suggestion=suggestion)

    async def _verify(self, principal: Principal, do: str, about: Mapping[str, Any], signature: Signature) -> str:
        """Verify a signature and return the key's id. Each nonce counts once, also for a signature that is refused."""
        key = self.enrolled.key if self.enrolled else None
        expires_at = self._nonces.pop(signature.nonce, None)
        message = statement(do, about, host=self._host, nonce=signature.nonce)
        if key is None:
            why = "no key is enrolled"
        elif expires_at is None:
            why = "it was used before, or made for another daemon"
        elif self._clock() >= expires_at:
            why = "it is too old"
        elif not await asyncio.to_thread(is_signed, key, message, signature.value):
            why = "it was not made by the enrolled key for this action"
        elif self.enrolled is None or self.enrolled.key != key:
            why = "another key has been enrolled in the meantime"
        else:
            return key.key_id
        self._event("person.refused", what=do, why=why, by=who(principal))
        raise SignatureRefused(f"the signature does not count: {why}", suggestion="run the verb and sign again")

    def _new_nonce(self) -> str:
        now = self._clock()
        self._nonces = {nonce: at for nonce, at in self._nonces.items() if now < at}
        while len(self._nonces) >= MAX_NONCES:
            del self._nonces[next(iter(self._nonces))]
        nonce = secrets.token_hex(16)
        self._nonces[nonce] = now + NONCE_SECONDS
        return nonce

    def _store(self, enrolled: Enrolled | None) -> None:
        key = {"line": enrolled.key.line, "at": enrolled.at, "by": enrolled.by} if enrolled else None
        state_files.write(self._path, {"host": self._host, "key": key}, durable=True)
        self.enrolled = enrolled


def parse_signature(value: object) -> Signature | None:
    """Parse a signature in a request; None if there is none. Raises InvalidArguments."""
    if value is None:
        return None
    if isinstance(value, Mapping):
        nonce: object = value.get("nonce")  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
        text: object = value.get("value")  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
        if isinstance(nonce, str) and isinstance(text, str) and len(nonce) + len(text) <= 512:
            return Signature(nonce, text)
    raise InvalidArguments("a signature has a nonce and a value")


def who(principal: Principal) -> str:
    """Return the name of a caller in records: ``person uid UID pid PID``, without the pid if it is unknown."""
    return f"person uid {principal.uid}" + (f" pid {principal.pid}" if principal.pid else "")


def _read(path: Path) -> tuple[str, Enrolled | None]:
    """Return the installation's name in signatures, created if there is none, and the key.

    Raises ConfigInvalid for an unreadable file: if the key were forgotten, anyone's could become the first.
    """
    if not path.exists():
        state_files.write(path, {"host": secrets.token_hex(16), "key": None}, durable=True)
    try:
        stored: dict[str, Any] = json.loads(path.read_bytes())
        key = stored["key"]
        found = Enrolled(public_key(key["line"]), float(key["at"]), str(key["by"])) if key else None
        return str(stored["host"]), found
    except (OSError, ValueError, TypeError, KeyError):
        raise ConfigInvalid(
            f"{path}, which holds the key of the person's signatures, cannot be read",
            suggestion=f"remove it, then run: {ENROL}",
        ) from None
