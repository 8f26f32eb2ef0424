"""Settings as text for people: a starter configuration, and all settings with their defaults as comments."""

from __future__ import annotations

import inspect
import json
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_origin

from pydantic.fields import FieldInfo

from ccswarm.config.settings import (
    Section,
    Settings,
    section_of,
)

EXAMPLES: dict[object, object] = {str: "NAME", int: 0, float: 1.0}


def starter() -> str:
    """Return a working configuration for ``ccswarm init``."""
    return (Path(__file__).parent / "starter.toml").read_text()


def reference() -> str:
    """Return every setting with its default and description, as TOML of comments only. ``# `` begins a description,
    ``#`` alone a line that takes effect when uncommented."""
    return "\n".join(["# Every setting of ccswarm. A plan has the same shape.", *_section(Settings, "", {}), ""])


def _section(model: type[Section], table: str, shown: dict[type[Section], str]) -> Iterator[str]:
    """Yield the lines of one table and its subtables. A section in ``shown`` is only referred to."""
    below: list[tuple[str, FieldInfo, type[Section]]] = []
    for key, field in model.model_fields.items():
        if inner := section_of(field.annotation):
            below.append((key, field, inner))
            continue
        state = " (required)" if field.is_required() else " (not set by default)" if field.default is None else ""
        yield f"# {field.description}{state}"
        unset = field.is_required() or field.default is None
        yield f"#{key} = {_toml(_example(field.annotation) if unset else field.default)}"
    for key, field, inner in below:
        name = f"{table}.{key}" if table else key
        yield ""
        yield from _commented(field.description or inspect.cleandoc(inner.__doc__ or ""))
        many = type(field.default) is tuple
        heading = f"[[{name}]]" if many else f"[{name}]"
        if inner in shown:
            # An empty item of a list would be invalid.
            yield f"{'# ' if many and table else '#'}{heading}"
            yield f"# The same settings as in [{shown[inner]}]."
        else:
            yield f"#{heading}"
            shown[inner] = name
            yield from _section(inner, name, shown)


def _commented(text: str) -> Iterator[str]:
    return (f"# {line}" for line in textwrap.wrap(" ".join(text.split()), 116))


def _example(annotation: Any) -> object:
    if annotation in EXAMPLES:
        return EXAMPLES[annotation]
    inner = _example(get_args(annotation)[0])
    return [inner] if get_origin(annotation) is tuple else inner


def _toml(value: object) -> str:
    return "{}" if isinstance(value, dict) else json.dumps(value, ensure_ascii=False)
