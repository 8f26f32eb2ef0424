"""What is configured of notices, and what is wrong of it."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from typing import Protocol
from urllib.parse import urlsplit


class NotifySettings(Protocol):
    """Which ways there are, and how often they may be used."""

    @property
    def command(self) -> Sequence[str]: ...
    @property
    def ntfy(self) -> str: ...
    @property
    def webhook(self) -> str: ...
    @property
    def token_file(self) -> str: ...
    @property
    def desktop(self) -> bool: ...
    @property
    def per_minute(self) -> int: ...
    @property
    def seconds(self) -> float: ...


def ways(settings: NotifySettings) -> list[str]:
    """Those that are configured."""
    return [way for way in ("command", "desktop", "ntfy", "webhook") if getattr(settings, way)]


def missing_programs(settings: NotifySettings, path: str) -> list[str]:
    """What they need and what cannot be run; ``path`` is a value of PATH."""
    needed = [*settings.command[:1], *(["notify-send"] if settings.desktop else [])]
    return [program for program in needed if not shutil.which(program, path=path)]


def address_problem(url: str) -> str:
    """Why nothing is sent there; empty where it may be."""
    try:
        parts = urlsplit(url)
        host = parts.hostname
        _ = parts.port
    except ValueError as error:
        return str(error)
    if parts.scheme not in ("http", "https") or not host:
        return "should begin with https:// (or http://) and a host"
    return "should have no name or password in it: use token_file" if parts.username or parts.password else ""


def command_problem(words: Sequence[str]) -> str:
    """Why that is not run; empty where it may be."""
    return "should begin with the absolute path of a program" if words and not words[0].startswith("/") else ""
