"""How a server at an address is reached: its certificates, the secrets its settings name, what is said without them."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from string import Template
from typing import Any, cast

import httpx2

from ccswarm.config.settings import SECRET_HEADER, ServerSettings, in_clear
from ccswarm.errors import ServerUnavailable

MIN_SECRET_CHARS = 6
"""Shorter ones are words that stand anywhere."""


class SecretScrubber:
    """Knows what was sent to a server in confidence. What it sends back is for agents, models and journals."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}

    def add(self, name: str, secret: str | None) -> None:
        """From now on ``secret`` reads ``[REDACTED:name]``."""
        if secret and len(secret) >= MIN_SECRET_CHARS:
            self._names[secret] = name

    def text(self, text: str) -> str:
        """Without any of them."""
        for secret, name in self._names.items():
            if secret in text:
                text = text.replace(secret, f"[REDACTED:{name}]")
        return text

    def value(self, value: Any) -> Any:
        """The same in every text of a JSON value, which stays as it is where there is nothing to hide."""
        return self._of(value) if self._names else value

    def _of(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.text(key): self._of(one) for key, one in cast("dict[str, Any]", value).items()}
        if isinstance(value, list):
            return [self._of(one) for one in cast("list[Any]", value)]
        return value


def named(reference: str, env: Mapping[str, str]) -> str:
    """What ``env:NAME`` (a variable of ``env``, else of the system's keyring) or ``file:PATH`` stands for. Raises
    KeyError with what there is not."""
    kind, _, name = reference.partition(":")
    if kind == "file":
        try:
            return Path(name).expanduser().read_text().strip()
        except (OSError, UnicodeDecodeError):
            raise KeyError(name) from None
    value = env.get(name, "") or _in_keyring(name)
    if not value:
        raise KeyError(name)
    return value


def _in_keyring(name: str) -> str:
    try:
        keyring = import_module("keyring")
        return keyring.get_password("ccswarm", name) or ""
    except Exception:  # whatever keeps a keyring from opening: there is no secret then
        return ""


def secret_of(settings: ServerSettings, what: str, env: Mapping[str, str]) -> str:
    """``client_secret`` or ``private_key``; ``""`` where none is configured. Raises ServerUnavailable."""
    reference: str = getattr(settings.auth, what)
    try:
        return named(reference, env) if reference else ""
    except KeyError:
        raise ServerUnavailable(
            f"server {settings.name} cannot be reached: its auth.{what} refers to something missing: {reference}",
            suggestion="set the variable, or store it in the keyring for the service ccswarm",
        ) from None


def headers_of(settings: ServerSettings, env: Mapping[str, str], scrubber: SecretScrubber) -> dict[str, str]:
    """The headers that are configured, with what they name; ``scrubber`` learns what is secret in them.

    Raises ServerUnavailable."""
    headers: dict[str, str] = {}
    for name, value in settings.headers.items():
        try:
            if value.startswith(("env:", "file:")):
                headers[name] = named(value, env)
                parts = [headers[name]]
            else:
                template = Template(value)
                headers[name] = template.substitute(env)
                parts = [env[variable] for variable in template.get_identifiers()]
        except (KeyError, ValueError) as error:
            raise ServerUnavailable(
                f"server {settings.name} cannot be reached: its headers refer to a variable that is not set: {error}",
                suggestion="set it, or write $$ for a dollar sign",
            ) from error
        if SECRET_HEADER.search(name):
            for part in parts:
                scrubber.add(name, part)
                # What a scheme stands before is a secret by itself.
                scrubber.add(name, part.partition(" ")[2])
    return headers


def client_options(settings: ServerSettings) -> dict[str, Any]:
    """Of an HTTP client. What does not leave the machine goes through no proxy, which would read it."""
    local = settings.url.startswith("http://") and not in_clear(settings.url)
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if local else httpx2.create_ssl_context()
        if settings.ca_file:
            context.load_verify_locations(Path(settings.ca_file).expanduser())
    except OSError as error:
        raise ServerUnavailable(
            f"server {settings.name} cannot be reached: its ca_file cannot be used: {error}",
            suggestion="set it to a file with certificates in PEM",
        ) from error
    return {
        "timeout": httpx2.Timeout(settings.connect_seconds, read=None),
        "limits": httpx2.Limits(max_connections=None, max_keepalive_connections=max(20, settings.at_once)),
        "verify": context,
        "trust_env": not local,
    }
