"""The reference pages of both configuration files: each setting with type, default and meaning, from the models."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from types import NoneType, UnionType
from typing import Any, Literal, Union, cast, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

import ai_session.config.settings
import ccswarm.config.settings

BOUNDS = {"ge": "≥ {}", "gt": "> {}", "le": "≤ {}", "lt": "< {}"}
KINDS = {str: "text", int: "whole number", float: "number", bool: "true or false", dict: "table", Any: "any"}


def settings() -> dict[str, str]:
    """Return one page for each program."""
    return {
        "settings.md": _page(
            "Settings of ai-session",
            "Stored in `~/.config/ai-session/config.toml`, or in the file that `AI_SESSION_CONFIG` names. The variable "
            "`AI_SESSION_<SECTION>_<NAME>` overrides the file: `AI_SESSION_SESSION_ROWS=60`. "
            "`ai-session config show` lists the values in force and their origin.",
            ai_session.config.settings.Settings,
        ),
        "swarm-settings.md": _page(
            "Settings and plans of ccswarm",
            "`ccswarm.toml`, `config/ccswarm.toml` or `$XDG_CONFIG_HOME/ccswarm/config.toml`, the first that exists. "
            "A plan has the same shape. `ccswarm config reference` prints this as a file to fill in, "
            "[plans](plans.md) and [playbooks](playbooks.md) explain how a plan works.",
            ccswarm.config.settings.Settings,
        ),
    }


def _page(title: str, text: str, model: type[BaseModel]) -> str:
    lines = [f"# {title}", "", text, ""]
    plain = {name: info for name, info in model.model_fields.items() if not _models(info.annotation)}
    if plain:
        lines += ["## At the top", "", *_table(plain), ""]
    for path, section, many in _sections(model, ""):
        about = " ".join((section.__doc__ or "").split()).replace("``", "`")
        lines += [f"## `{'[[' if many else '['}{path}{']]' if many else ']'}`", "", about, ""]
        lines += [*_table(section.model_fields), ""]
    return "\n".join(lines)


def _sections(model: type[BaseModel], table: str) -> Iterator[tuple[str, type[BaseModel], bool]]:
    """Yield each table of the file below ``table``, and whether it is an array of tables."""
    for name, info in model.model_fields.items():
        for inner in _models(info.annotation):
            path = f"{table}.{name}" if table else name
            yield path, inner, get_origin(info.annotation) is tuple
            yield from _sections(inner, path)


def _models(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in get_args(annotation) for model in _models(part)]


def _table(fields: Mapping[str, FieldInfo]) -> Iterator[str]:
    yield "| Setting | Type | Default | |"
    yield "|---|---|---|---|"
    for name, info in fields.items():
        if not (inner := _models(info.annotation)) or info.description:
            description = (info.description or " ".join((inner[0].__doc__ or "").split())).replace("|", "\\|")
            yield f"| `{name}` | {_kind(info)} | {_default(info)} | {_plain(description)} |"


def _kind(info: FieldInfo) -> str:
    bounds = [
        words.format(f"{getattr(rule, sign):,}")
        for rule in info.metadata
        for sign, words in BOUNDS.items()
        if getattr(rule, sign, None) is not None
    ]
    return ", ".join([_name(info.annotation), *bounds])


def _name(annotation: Any) -> str:
    if annotation in KINDS:
        return KINDS[annotation]
    parts: list[Any] = [part for part in get_args(annotation) if part is not Ellipsis]
    origin = get_origin(annotation)
    if origin is Literal:
        return " · ".join(f"`{part}`" for part in parts)
    if origin in (Union, UnionType):
        return " or ".join(_name(part) for part in parts if part is not NoneType)
    if origin is tuple:
        return f"list of {_name(parts[0])}"
    if origin is dict:
        return "table"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "table"
    return _name(parts[0]) if parts else getattr(cast(object, annotation), "__name__", str(cast(object, annotation)))


def _default(info: FieldInfo) -> str:
    if info.is_required():
        return "required"
    value = info.get_default(call_default_factory=True)
    if value in (None, PydanticUndefined) or isinstance(value, BaseModel):
        return ""
    plain = json.dumps(value, ensure_ascii=False, default=str)
    return "`" + (plain if len(plain) <= 60 else plain[:57] + "…").replace("|", "\\|") + "`"


def _plain(text: str) -> str:
    """Escape Markdown outside of backticks."""
    parts = text.split("``") if "``" in text else [text]
    outside = [part.replace("<", "\\<").replace("*", "\\*").replace("_", "\\_") for part in parts[::2]]
    inside = [f"`{part}`" for part in parts[1::2]]
    return "".join(word for pair in zip(outside, [*inside, ""], strict=False) for word in pair)
