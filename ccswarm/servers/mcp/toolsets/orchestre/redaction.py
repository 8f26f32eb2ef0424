"""The replacement of keys and passwords in all results by ``[REDACTED]``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast

from ccswarm.config.masks import Masks

REDACTED = "[REDACTED]"

NAMED = re.compile(
    r"(?:.*[_-])?(?:api[_-]?keys?|access[_-]?key(?:[_-]?id)?|secret[_-]?key|private[_-]?key|signing[_-]?key|secret"
    r"|client[_-]?secret|password|passwd|passphrase|credentials?|authorization|cookie"
    r"|(?:access|refresh|auth|bearer|session|id|api)?[_-]?token)",
    re.IGNORECASE,
)
"""Names of properties whose text is always a secret."""

SHAPES = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"
    r"|\bsk-[A-Za-z0-9_-]{16,}"
    r"|\b[rs]k_(?:live|test)_[A-Za-z0-9]{16,}"
    r"|\bgh[opsur]_[A-Za-z0-9]{30,}|\bgithub_pat_[A-Za-z0-9_]{30,}|\bglpat-[A-Za-z0-9_-]{16,}"
    r"|\bAKIA[0-9A-Z]{16}\b|\bAIza[A-Za-z0-9_-]{35}|\bxox[abeoprs]-[A-Za-z0-9-]{10,}|\bnpm_[A-Za-z0-9]{36}"
    r"|\beyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}",
    re.DOTALL,
)
"""Texts that are keys of well-known services."""

MASKED = re.compile(r"\[REDACTED:[^\]]*\]")


class Redaction:
    """A function from a JSON value to the same value without secrets: those of ``variables``, texts under the name of a
    secret, and texts that look like one."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._masks = Masks(variables)

    def __call__(self, value: Any) -> Any:
        if isinstance(value, str):
            return SHAPES.sub(REDACTED, MASKED.sub(REDACTED, self._masks(value)))
        if isinstance(value, dict):
            items = cast("dict[str, Any]", value).items()
            hidden = {name for name, item in items if isinstance(item, str) and item and NAMED.fullmatch(name)}
            return {self(name): REDACTED if name in hidden else self(item) for name, item in items}
        if isinstance(value, (list, tuple)):
            return [self(item) for item in value]  # pyright: ignore[reportUnknownVariableType]
        return value
