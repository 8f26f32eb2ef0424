"""The vendors' own libraries, loaded when a test first uses one: two seconds that others need not wait."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import anthropic as anthropic
    import openai as openai


def __getattr__(name: str) -> Any:
    if name not in ("anthropic", "openai"):
        raise AttributeError(name)
    return import_module(name)
