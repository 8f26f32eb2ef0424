"""Fields of a client's message, each checked for its type. Every function raises InvalidArguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from ai_session.errors import InvalidArguments

MOST_ROWS = 10_000


def text(params: Mapping[str, Any], name: str) -> str:
    """Return a text that is not empty."""
    value = params.get(name)
    if not isinstance(value, str) or not value:
        fields = {name: "is empty" if value == "" else "must be a string"}
        raise InvalidArguments(f"{name} must be a string", fields=fields)
    return value


def texts(params: Mapping[str, Any], name: str) -> list[str] | None:
    """Return a list of texts, None if it is missing."""
    value: Any = params.get(name)
    if value is None or (isinstance(value, list) and all(isinstance(item, str) for item in cast("list[Any]", value))):
        return cast("list[str] | None", value)
    raise InvalidArguments(f"{name} must be a list of strings", fields={name: "must be a list of strings"})


def extent(params: Mapping[str, Any], name: str) -> int:
    """Return a number of rows or columns; 0 keeps the session's size."""
    value = params.get(name)
    return value if isinstance(value, int) and 0 < value <= MOST_ROWS else 0


def number(params: Mapping[str, Any], name: str, least: int, most: int, default: int | None = None) -> int:
    """Return a whole number within limits, or ``default`` if it is missing."""
    value = params.get(name, default)
    if type(value) is not int or not least <= value <= most:
        wanted = f"must be a whole number from {least} to {most}"
        raise InvalidArguments(f"{name} {wanted}", fields={name: wanted})
    return value


def flag(params: Mapping[str, Any], name: str) -> bool:
    """Return a boolean, False if it is missing."""
    value = params.get(name, False)
    if not isinstance(value, bool):
        raise InvalidArguments(f"{name} must be true or false", fields={name: "must be true or false"})
    return value


def table(value: Any) -> dict[str, Any]:
    """Return ``value`` as an object, None as an empty one."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise InvalidArguments("requests, params and arguments are JSON objects")
    return value  # pyright: ignore[reportUnknownVariableType]
