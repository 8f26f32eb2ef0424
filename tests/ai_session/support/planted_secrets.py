"""Secrets of many kinds, made at run time because scanners would find them here, and a search for leaked parts."""

from __future__ import annotations

import base64
import json
import random
import string
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any, cast

import re2  # pyright: ignore[reportMissingTypeStubs]

from tests.ai_session.support.example_secrets import SECRETS

LEAST, STEP = 10, 4
"""So many consecutive characters of a secret count as leaked, searched for at each step; the common prefix of a kind of
secrets does not count."""

WORD = string.ascii_letters + string.digits
_chance = random.Random(77)


def drawn(count: int, letters: str = WORD) -> str:
    return "".join(_chance.choices(letters, k=count))


SHAPED = {
    **{kind.replace(" ", "-"): secret for kind, secret in SECRETS.items()},
    "openai-project": "sk-" + "proj-" + drawn(60),
    "gitlab-runner": "glrt" + "-" + drawn(24),
    "jwt-long": "eyJ" + drawn(40) + ".eyJ" + drawn(300) + "." + drawn(86),
}
"""Secrets that are recognised by their form."""

PLACED = {
    "bearer": ("Authorization: Bearer {}", drawn(40)),
    "basic-url": ("https://deploy:{}@git.example.com/x.git", drawn(20)),
    "database-url": ("postgres://app:{}@db.example.com:5432/app", drawn(22)),
    "redis-url": ("redis://:{}@cache.example.com:6379/0", drawn(22)),
    "azure-storage": ("DefaultEndpointsProtocol=https;AccountName=x;AccountKey={}==", drawn(86)),
    "dotenv-password": ("DJANGO_SECRET_KEY='{}'", drawn(50)),
    "dotenv-token": ("SENTRY_AUTH_TOKEN={}", drawn(44)),
    "yaml-key": ("  api_key: {}", drawn(32)),
    "json-secret": ('{{"client_secret": "{}"}}', drawn(36)),
}
"""Secrets that are recognised by the words around them."""

VARIABLES = {
    "AWS_ACCESS_KEY_ID": SECRETS["aws id"],
    "AWS_SECRET_ACCESS_KEY": drawn(40, WORD + "+/"),
    "AZURE_CLIENT_SECRET": drawn(3) + "8Q~" + drawn(34),
    "TWILIO_AUTH_TOKEN": drawn(32, "0123456789abcdef"),
    "COMPANY_TOKEN": drawn(33),
    "DB_PASSWORD": "correct Horse\\battery'st\"aple " + drawn(12),
    "PGPASSWORD": "dreizehn-" + drawn(14),
    "SESSION_SECRET": "ключ-" + drawn(20),
    "DEPLOY_KEY": SECRETS["openssh"],
    "DATABASE_URL": "mysql://root:" + drawn(21) + "@db.example.com/x",
    "GITHUB_TOKEN": SECRETS["github"],
    "lower_case_token": drawn(29),
}
"""A client's environment with values of any form, which are recognised wherever they occur."""

GIVEN = {"SESSION_PASSWORD": "given-" + drawn(24)}
"""A variable of a single session."""

PLAIN = {
    **{name: value for name, value in VARIABLES.items() if name not in ("DEPLOY_KEY", "DATABASE_URL")},
    "DATABASE_URL": VARIABLES["DATABASE_URL"].split(":")[2].split("@")[0],
    **GIVEN,
}


def lines() -> list[str]:
    """Return all secrets, as they appear in files and programs."""
    return [*SHAPED.values(), *(text.format(secret) for text, secret in PLACED.values()), *PLAIN.values()]


def one_line() -> list[str]:
    """Return the secrets without line breaks."""
    return [line for line in lines() if "\n" not in line]


def _bodies() -> Iterator[tuple[str, str]]:
    for kind, secret in SHAPED.items():
        if "\n" in secret:
            yield from ((kind, line) for line in secret.split("\n")[2:-1] if len(line) > 40)
        else:
            yield kind, secret[12:] if len(secret) > 30 else secret[6:]
    for kind, (_, secret) in PLACED.items():
        yield kind, secret
    for kind, secret in PLAIN.items():
        yield kind, secret[8:] if len(secret) > 30 else secret
        yield f"{kind} in base64", base64.b64encode(secret.encode()).decode()[:-4]
        yield f"{kind} in JSON", json.dumps(secret)[1:-1]


PIECES = {
    body[at : at + LEAST].encode(): kind
    for kind, body in _bodies()
    for at in range(0, max(1, len(body) - LEAST + 1), STEP)
}


@dataclass
class SeenOutput:
    """All output that was seen, by the place where it was seen."""

    seen: dict[str, bytes] = field(default_factory=dict[str, bytes])

    def add(self, where: str, data: bytes | str) -> None:
        """Add output seen at ``where``."""
        raw = data.encode(errors="surrogateescape") if isinstance(data, str) else data
        self.seen[where] = self.seen.get(where, b"") + raw + b"\n"

    def revealed(self) -> list[str]:
        """Return where parts of which secrets appear."""
        return sorted(
            {
                f"{where}: {kind}: …{data[max(0, data.index(piece) - 60) : data.index(piece) + 40]!r}"
                for where, data in self.seen.items()
                for kind, piece in _first_pieces(data).items()
            }
        )


def _first_pieces(data: bytes) -> dict[str, bytes]:
    """Return the first piece of each kind of secret in ``data``."""
    found: dict[str, bytes] = {}
    for match in _any_piece().finditer(data):
        found.setdefault(PIECES[match.group()], match.group())
    return found


@cache
def _any_piece() -> Any:
    """Return a pattern of all pieces, which is a hundred times as fast as one search for each."""
    library = cast("Any", re2)
    options = library.Options()
    options.encoding = library.Options.Encoding.LATIN1
    options.max_mem = 64 << 20
    return library.compile(b"|".join(library.escape(piece) for piece in PIECES), options)
