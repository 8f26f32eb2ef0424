"""What is configured of notices, and what is wrong of it."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from urllib.parse import urlsplit

from pydantic import BaseModel, Field, field_validator


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
    if not url.isprintable() or " " in url:
        return "should have neither blanks nor control characters in it"
    return "should have no name or password in it: use token_file" if parts.username or parts.password else ""


def command_problem(words: Sequence[str]) -> str:
    """Why that is not run; empty where it may be."""
    return "should begin with the absolute path of a program" if words and not words[0].startswith("/") else ""


class NotifySettings(BaseModel):
    """Which ways there are, and how often they may be used."""

    command: tuple[str, ...] = Field(
        default=(),
        description="A program, by its absolute path, and its arguments: each notice is JSON on its standard input.",
    )
    desktop: bool = Field(default=False, description="Show notices on the desktop, by notify-send.")
    ntfy: str = Field(default="", description="Address of an ntfy topic: https://ntfy.sh/TOPIC.")
    webhook: str = Field(default="", description="Address that each notice is posted to, as JSON.")
    token_file: str = Field(default="", description="File with the bearer token that the two addresses are sent.")
    per_minute: int = Field(default=6, ge=1, le=600, description="Most notices in a minute; further ones are counted.")
    seconds: float = Field(default=10.0, gt=0, le=60, description="Time limit for sending one.")

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
    """Those that are configured."""
    return [way for way in ("command", "desktop", "ntfy", "webhook") if getattr(settings, way)]


def missing_programs(settings: NotifySettings, path: str) -> list[str]:
    """What they need and what cannot be run; ``path`` is a value of PATH."""
    needed = [*settings.command[:1], *(["notify-send"] if settings.desktop else [])]
    return [program for program in needed if not shutil.which(program, path=path)]
