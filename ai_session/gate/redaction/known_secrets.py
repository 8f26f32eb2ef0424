"""What is masked now: the redactor in force, which learns the secrets of each client's environment."""

from __future__ import annotations

import logging
import os
import re
import secrets
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ai_session.errors import LimitReached
from ai_session.gate.redaction.patterns import BY_CONTEXT, plausible
from ai_session.gate.redaction.redactor import MIN_KNOWN_CHARS, Redactor, unquoted
from ai_session.system.shares import share
from ai_session.system.turns import Steps, finished
from ai_session.system.variable_names import like

KEY_BYTES = 32
MAX_SEEN = 64
MAX_KNOWN = 512
"""Values known at once. A new redactor takes 50 ms with so many; its speed hardly depends on their number."""

LEAST_DISTINCT = 3
"""Values of fewer characters are placeholders (``xxxxxxxx``), or lines."""

PIECE_CHARS = 4096
"""Longer values are known in pieces of this size, so that the context that a page needs stays small."""

MOST_GIVEN = 64
"""Values from calls that are known of one user; older ones are forgotten."""

GIVEN_CHARS = 1 << 18
"""How much of each text of a call is searched for values."""

LABELS = 200
"""Labels made, or short texts searched, in one step."""

_KEY_LINE = re.compile(r"[A-Za-z0-9+/=_-]{32,}\Z")

Needed = Callable[[], bool]
"""Reports whether the owner of these values still exists."""

Secrets = frozenset[tuple[str, str]]
"""Names and values."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Holder:
    """Who has some secrets; ``from_call``: the caller chose them."""

    needed: Needed
    owner: str | None
    from_call: bool


class Masking:
    """Masks secrets, one per daemon. ``names`` are patterns of variables whose values are secret; ``key_path`` holds
    the key of the masks, created if missing. Unless ``enabled``, nothing is masked. Raises ConfigInvalid, OSError."""

    def __init__(self, key_path: Path, names: Sequence[str], patterns: Sequence[str], *, enabled: bool = True) -> None:
        self._names = tuple(names)
        self._patterns = tuple(patterns)
        self._enabled = enabled
        self._holders: dict[Secrets, list[Holder]] = {}
        self._given: dict[str | None, dict[str, str]] = {}
        self._seen: dict[int, Mapping[str, Any]] = {}
        self._key = _key(key_path)
        self._shapes = self._redactor = self._of_clients = Redactor((), self._patterns, self._key)
        self._clients_values: dict[str, str] = {}

    def learn(
        self,
        environment: Mapping[str, Any],
        needed: Needed = lambda: True,
        owner: str | None = None,
        *,
        from_call: bool = False,
    ) -> None:
        """Mask the secrets in these variables from now on, at least while they are ``needed``: the values of the
        configured names, and what looks like a secret in others. One ``owner`` can never use up all values that may be
        known.

        Raises LimitReached if there would be more than can be masked, in all or for one owner; then nothing of their
        holder may be shown or stored.
        """
        if not self._enabled or id(environment) in self._seen:
            return
        self._admit(frozenset(self._secrets(environment)), Holder(needed, owner, from_call))
        if len(self._seen) >= MAX_SEEN:
            self._seen.clear()
        self._seen[id(environment)] = environment  # referenced, so that its id is not reused

    def _admit(self, found: Secrets, holder: Holder) -> None:
        if not found:
            return
        holders = self._holders.get(found, [])
        if len(holders) >= MAX_SEEN:
            holders = [other for other in holders if other.needed()]
        others = {group: who for group, who in self._holders.items() if group != found}
        while (excess := _excess(others, found, holder.owner)) is not None:
            unneeded = next((group for group, who in others.items() if not any(other.needed() for other in who)), None)
            if unneeded is None:
                count, most = excess
                log.warning("%d secret values of clients exceed the maximum that can be masked", count)
                raise LimitReached(
                    f"at least {count} secret values of clients' environments exceed the maximum of {most}",
                    suggestion="start the client with fewer such variables, or close other clients and sessions; the"
                    " names that count as secret are redaction.environment in the configuration",
                )
            del others[unneeded]
        known = found in self._holders
        self._holders = {**others, found: [*holders, holder]}
        if not known:
            self._renew()

    def _renew(self) -> None:
        values = {value: kind for given in self._given.values() for value, kind in given.items()}
        values |= {value: name for group in self._holders for name, value in group}
        self._redactor = Redactor([(name, value) for value, name in values.items()], self._patterns, self._key)

    def unsure(self, given: Any) -> list[str]:
        """Return the texts in the arguments of a call that are not yet known to have no secret."""
        texts = _strings(given) if self._enabled else ()
        return [text for text in texts if len(text) >= MIN_KNOWN_CHARS and not self._redactor.is_clean(text)]

    def learn_given(self, texts: Sequence[str], owner: str | None) -> Steps[None]:
        """Mask wherever it appears from now on what is a secret in ``texts`` only by its context, such as a password in
        a URL. The latest values of each ``owner`` are known; words, names of code and paths never are."""
        found = dict[str, str]()
        for text in texts:
            text = text[:GIVEN_CHARS]
            if (yield from self._redactor.redacting(text))[1] == 0:
                continue  # which is remembered
            data = text.encode(errors="surrogatepass")
            for span in (yield from self._shapes.finding(data)):
                if span.kind in BY_CONTEXT:
                    found |= dict.fromkeys(_given_values(data[span.start : span.end]), span.kind)
        known = self._given.get(owner, {})
        if found:
            latest = [*{name: kind for name, kind in known.items() if name not in found}.items(), *found.items()]
            self._given[owner] = dict(latest[-MOST_GIVEN:])
        if not found.keys() <= known.keys():
            self._renew()

    def _secrets(self, environment: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """Yield names and values, and no more once they are too many to be known."""
        values = set[str]()
        for name, value in self._all_secrets(environment):
            yield name, value
            values.add(value)
            if len(values) > MAX_KNOWN:
                return

    def _all_secrets(self, environment: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        named = like(self._names)
        for name, value in environment.items():
            if not isinstance(value, str) or len(value) < MIN_KNOWN_CHARS or len(set(value)) < LEAST_DISTINCT:
                continue
            if named(name) or named(name.upper()):
                yield from ((name, part) for part in _parts(value))
            line = f"{name}={value}\n".encode(errors="surrogatepass")
            for span in self._shapes.spans(line):
                secret = line[span.start : span.end].decode(errors="surrogatepass")
                yield from ((name, part) for part in _parts(secret))

    def mask(self, text: str) -> Steps[tuple[str, int]]:
        """Return ``text`` without secrets, and how many were masked."""
        return self._redactor.redacting(text) if self._enabled else _unchanged(text)

    def mask_for_judge(self, text: str) -> Steps[tuple[str, int]]:
        """Do the same for a program that judges a call, but for what only calls have made a secret: nobody may hide a
        command from it."""
        if not self._enabled:
            return _unchanged(text)
        groups = (group for group, who in self._holders.items() if not all(holder.from_call for holder in who))
        if (values := {value: name for group in groups for name, value in group}) != self._clients_values:
            named = [(name, value) for value, name in values.items()]
            self._of_clients, self._clients_values = Redactor(named, self._patterns, self._key), values
        return self._of_clients.redacting(text)

    def is_clean(self, text: str) -> bool:
        """Report whether the text is already known to have no secret."""
        return self._redactor.is_clean(text)

    def masked(self, text: str) -> str:
        """Return a short ``text`` without secrets."""
        if self._redactor.is_clean(text):
            return text
        return finished(self.mask(text))[0]

    def echo(self, text: str, given: Any) -> Steps[str]:
        """Return ``text``, which may repeat parts of ``given``, without the secrets of either, even if truncated."""
        text, _ = yield from self.mask(text)
        for count, value in enumerate(_strings(given) if self._enabled else (), 1):
            if count % LABELS == 0:
                yield
            data = value.encode(errors="surrogatepass")
            for start, end, label in (yield from self.spans(data)):
                secret = data[start:end].decode(errors="surrogatepass")
                text = _without_beginnings(text, secret, label.decode(errors="replace"))
                yield
        return text

    def spans(
        self, data: bytes, growing: bool = False, before: int = sys.maxsize, /
    ) -> Steps[list[tuple[int, int, bytes]]]:
        """Return the secrets in ``data`` that begin ``before``, in order and not overlapping, with their replacements.
        In ``growing`` data that includes the end, if it may become one."""
        if not self._enabled:
            return []
        redactor = self._redactor
        found = yield from redactor.finding(data, 0, before)
        if growing and (unfinished := redactor.beginning(data)):
            start = min([unfinished.start, *(span.start for span in found if span.end > unfinished.start)])
            found = [*(span for span in found if span.end <= start), unfinished._replace(start=start)]
        labelled: list[tuple[int, int, bytes]] = []
        for span in found:
            labelled.append((span.start, span.end, redactor.label(data, span)))
            if len(labelled) % LABELS == 0:
                yield
        return labelled


def _unchanged(text: str) -> Steps[tuple[str, int]]:
    yield from ()
    return text, 0


def _key(path: Path) -> bytes:
    try:
        key = path.read_bytes()
        if len(key) == KEY_BYTES:
            return key
    except FileNotFoundError:
        pass
    key = secrets.token_bytes(KEY_BYTES)
    fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(fd, "wb") as file:
        file.write(key)
    return key


def _excess(groups: Mapping[Secrets, Sequence[Holder]], found: Secrets, owner: str | None) -> tuple[int, int] | None:
    """Return how many values would be known and how many may be, if the former exceeds the latter."""
    own = [group for group, who in groups.items() if owner in {other.owner for other in who}]
    most_of_one = share(MAX_KNOWN, MAX_KNOWN) if owner is not None else MAX_KNOWN
    for among, most in ((groups, MAX_KNOWN), (own, most_of_one)):
        if (count := len({value for group in (*among, found) for _, value in group})) > most:
            return count, most
    return None


def _parts(value: str) -> Iterator[str]:
    """Yield how a value is searched for: as a whole or in pieces, and a key's lines also one by one."""
    if len(value) > PIECE_CHARS:
        yield from (value[at : at + PIECE_CHARS] for at in range(0, len(value), PIECE_CHARS))
    else:
        yield value
    if "\n" in value:
        yield from (line for line in value.split("\n") if _KEY_LINE.match(line))


def _given_values(secret: bytes) -> Iterator[str]:
    """Yield what of a value in its context is worth knowing."""
    for value in (secret, unquoted(secret)):
        fits = MIN_KNOWN_CHARS <= len(value) <= PIECE_CHARS and value[:1] not in (b"/", b"~", b".")
        if fits and plausible("named", value):
            yield value.decode(errors="surrogatepass")


def _strings(given: Any) -> Iterator[str]:
    if isinstance(given, str):
        yield given
    elif isinstance(given, Mapping):
        for name, value in given.items():  # pyright: ignore[reportUnknownVariableType]
            yield from (*_strings(name), *_strings(value))
    elif isinstance(given, list | tuple):
        for value in given:  # pyright: ignore[reportUnknownVariableType]
            yield from _strings(value)


def _without_beginnings(text: str, secret: str, mask: str) -> str:
    """Replace with ``mask`` each part of ``text`` with which the secret begins, in any of Python's spellings."""
    ends: dict[int, int] = {}
    for spelt in (secret, repr(secret)[1:-1], ascii(secret)[1:-1]):
        at = text.find(spelt[:MIN_KNOWN_CHARS])
        while at >= 0:
            differs = (n for n, (a, b) in enumerate(zip(spelt, text[at:], strict=False)) if a != b)
            ends[at] = max(ends.get(at, 0), at + next(differs, min(len(spelt), len(text) - at)))
            at = text.find(spelt[:MIN_KNOWN_CHARS], at + 1)
    for at in sorted(ends, reverse=True):
        text = text[:at] + mask + text[ends[at] :]
    return text
