"""How a server at a URL is reached: certificates, and the secrets in its settings, which are removed from texts."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path
from string import Template
from typing import Any, cast

import httpx2

from ccswarm.config import config
from ccswarm.config.masks import MIN_SECRET_CHARS
from ccswarm.config.settings import SECRET_HEADER, ServerSettings, in_clear
from ccswarm.errors import ServerUnavailable


class SecretScrubber:
    """The secrets sent to a server, to be removed from what it sends back to agents, models and journals."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}

    def add(self, name: str, secret: str | None) -> None:
        """Replace ``secret`` by ``[REDACTED:name]`` from now on."""
        if secret and len(secret) >= MIN_SECRET_CHARS:
            self._names[secret] = name

    def text(self, text: str) -> str:
        """Return the text without the secrets."""
        for secret, name in self._names.items():
            if secret in text:
                text = text.replace(secret, f"[REDACTED:{name}]")
        return text

    def value(self, value: Any) -> Any:
        """Return a JSON value without the secrets in its texts. Without secrets it is the same object."""
        return self._scrub(value) if self._names else value

    def _scrub(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.text(key): self._scrub(one) for key, one in cast("dict[str, Any]", value).items()}
        if isinstance(value, list):
            return [self._scrub(one) for one in cast("list[Any]", value)]
        return value


def resolve_reference(reference: str, env: Mapping[str, str]) -> str:
    """Return the value of ``env:NAME`` (a variable in ``env``, else from the system's keyring) or ``file:PATH``. Raises
    KeyError with what is missing."""
    kind, _, name = reference.partition(":")
    if kind == "file":
        try:
            return Path(name).expanduser().read_text().strip()
        except (OSError, UnicodeDecodeError):
            raise KeyError(name) from None
    value = config.secret(name, env)
    if not value:
        raise KeyError(name)
    return value


def read_secret(settings: ServerSettings, what: str, env: Mapping[str, str]) -> str:
    """Return ``client_secret`` or ``private_key``; ``""`` if it is not configured. Raises ServerUnavailable."""
    reference: str = getattr(settings.auth, what)
    try:
        return resolve_reference(reference, env) if reference else ""
    except KeyError:
        raise ServerUnavailable(
            f"server {settings.name} cannot be reached: its auth.{what} refers to something missing: {reference}",
            suggestion="set the variable, or store it in the keyring for the service ccswarm",
        ) from None


def make_headers(settings: ServerSettings, env: Mapping[str, str], scrubber: SecretScrubber) -> dict[str, str]:
    """Return the configured headers, and add their secrets to ``scrubber``. Raises ServerUnavailable."""
    headers: dict[str, str] = {}
    for name, value in settings.headers.items():
        try:
            if value.startswith(("env:", "file:")):
                headers[name] = resolve_reference(value, env)
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
                # The text after a scheme such as Bearer is a secret by itself.
                scrubber.add(name, part.partition(" ")[2])
    return headers


def client_options(settings: ServerSettings) -> dict[str, Any]:
    """Return the options of an HTTP client. Local traffic bypasses proxies. Raises ServerUnavailable."""
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
