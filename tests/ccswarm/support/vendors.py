"""The vendors' libraries, imported when a test first uses one, because that takes two seconds."""

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
