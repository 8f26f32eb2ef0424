"""The settings of notices and their validation."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from urllib.parse import urlsplit

from pydantic import BaseModel, Field, field_validator


def address_problem(url: str) -> str:
    """Return why notices cannot be sent to ``url``; empty if it is valid."""
    try:
        parts = urlsplit(url)
        host = parts.hostname
        _ = parts.port
    except ValueError as error:
        return str(error)
    if parts.scheme not in ("http", "https") or not host:
        return "should begin with https:// (or http://) and a host"
    if not url.isprintable() or " " in url:
        return "should not contain blanks or control characters"
    return "should not contain a user name or password: use token_file" if parts.username or parts.password else ""


def command_problem(words: Sequence[str]) -> str:
    """Return why the command would not be run; empty if it is valid."""
    return "should begin with the absolute path of a program" if words and not words[0].startswith("/") else ""


class NotifySettings(BaseModel):
    """How notices are sent, and how often."""

    command: tuple[str, ...] = Field(
        default=(),
        description="Absolute path and arguments of a program that gets each notice as JSON on standard input.",
    )
    desktop: bool = Field(default=False, description="Show notices on the desktop with notify-send.")
    ntfy: str = Field(default="", description="URL of an ntfy topic: https://ntfy.sh/TOPIC.")
    webhook: str = Field(default="", description="URL to which each notice is posted as JSON.")
    token_file: str = Field(default="", description="File with the bearer token for ntfy and webhook.")
    per_minute: int = Field(
        default=6, ge=1, le=600, description="Maximum number of notices per minute; those beyond it are only counted."
    )
    seconds: float = Field(default=10.0, gt=0, le=60, description="Time limit for sending a notice.")

    @field_validator("ntfy", "webhook")
    @classmethod
    def _is_an_address(cls, url: str) -> str:
        if url and (problem := address_problem(url)):
            raise ValueError(problem)
        return url

    @field_validator("command")
    @classmethod
    def _is_a_program(cls, words: tuple[str, ...]) -> tuple[str, ...]:
        if problem := command_problem(words):
            raise ValueError(problem)
        return words


def ways(settings: NotifySettings) -> list[str]:
    """Return the configured ways of sending notices, by the names of their settings."""
    return [way for way in ("command", "desktop", "ntfy", "webhook") if getattr(settings, way)]


def missing_programs(settings: NotifySettings, path: str) -> list[str]:
    """Return the programs that notices need and that cannot be run; ``path`` is a value of PATH."""
    needed = [*settings.command[:1], *(["notify-send"] if settings.desktop else [])]
    return [program for program in needed if not shutil.which(program, path=path)]
