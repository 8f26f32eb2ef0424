"""The stored login at a server, shared by all processes of this user: one of them at a time renews it."""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import os
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from mcp.shared.auth import OAuthClientInformationFull, OAuthMetadata, OAuthToken, ProtectedResourceMetadata
from pydantic import BaseModel, ValidationError

from agentwire.system import whole_files
from ccswarm.config.settings import ServerSettings
from ccswarm.errors import ServerUnavailable

SOON_SECONDS = 30.0
"""How long before its end a token is renewed."""

SERVICE = "ccswarm"


class Login(BaseModel):
    """The tokens and everything needed to renew them. ``expires_at`` is a Unix time."""

    tokens: OAuthToken
    expires_at: float | None = None
    client: OAuthClientInformationFull | None = None
    metadata: OAuthMetadata | None = None
    resource: ProtectedResourceMetadata | None = None

    @property
    def token(self) -> str:
        """The access token of requests."""
        return self.tokens.access_token

    @property
    def ends_soon(self) -> bool:
        """Whether it should be renewed before use."""
        return self.expires_at is not None and time.time() > self.expires_at - SOON_SECONDS


class Logins:
    """The stored login at the server of this name and address."""

    def __init__(self, settings: ServerSettings, state_directory: Path) -> None:
        self._name = settings.name
        self._key = f"{settings.name}-{hashlib.sha256(settings.url.encode()).hexdigest()[:16]}"
        self._folder = state_directory / "logins"
        self._in_keyring = settings.auth.keep == "keyring"

    async def read(self) -> Login | None:
        """Return the login, or None if there is none or it cannot be read."""
        text = await asyncio.to_thread(self._from_keyring) if self._in_keyring else self._from_file()
        try:
            return Login.model_validate_json(text) if text else None
        except ValidationError:
            return None

    async def write(self, login: Login) -> None:
        """Store the login. Raises ServerUnavailable if that fails."""
        text = login.model_dump_json(exclude_none=True)
        if self._in_keyring:
            await asyncio.to_thread(self._to_keyring, text)
            return
        try:
            self._to_file(text)
        except OSError as error:
            raise self._not_stored(error) from error

    async def forget(self) -> None:
        """Remove the login."""
        self._path.unlink(missing_ok=True)
        if self._in_keyring:
            await asyncio.to_thread(self._to_keyring, "")

    @asynccontextmanager
    async def locked(self) -> AsyncGenerator[None]:
        """Lock the login against other processes of this machine."""
        taking = asyncio.get_running_loop().run_in_executor(None, self._lock)
        try:
            fd = await asyncio.shield(taking)
        except asyncio.CancelledError:
            taking.add_done_callback(_release)
            raise
        except OSError as error:
            raise self._not_stored(error) from error
        try:
            yield
        finally:
            os.close(fd)

    def _lock(self) -> int:
        self._make_folder()
        fd = os.open(self._folder / f".{self._key}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
        except OSError:
            os.close(fd)
            raise
        return fd

    @property
    def _path(self) -> Path:
        return self._folder / f"{self._key}.json"

    def _make_folder(self) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def _from_file(self) -> str:
        try:
            return self._path.read_text()
        except (OSError, UnicodeDecodeError):
            return ""

    def _to_file(self, text: str) -> None:
        self._make_folder()
        whole_files.replace(self._path, text.encode())

    def _keyring(self) -> Any:
        try:
            return import_module("keyring")
        except ImportError:
            raise ServerUnavailable(
                f"the login to {self._name} is kept in the keyring, but the package keyring is not installed",
                suggestion='pip install keyring, or set auth.keep = "file"',
            ) from None

    def _from_keyring(self) -> str:
        keyring = self._keyring()
        try:
            return keyring.get_password(SERVICE, self._key) or ""
        except Exception as error:  # keyrings raise various errors
            raise self._keyring_failure(error) from error

    def _to_keyring(self, text: str) -> None:
        keyring = self._keyring()
        try:
            if text:
                keyring.set_password(SERVICE, self._key, text)
            elif keyring.get_password(SERVICE, self._key):
                keyring.delete_password(SERVICE, self._key)
        except Exception as error:  # keyrings raise various errors
            raise self._keyring_failure(error) from error

    def _not_stored(self, error: OSError) -> ServerUnavailable:
        return ServerUnavailable(
            f"the login to {self._name} cannot be stored: {error}", suggestion="fix the state directory"
        )

    def _keyring_failure(self, error: Exception) -> ServerUnavailable:
        return ServerUnavailable(
            f"the keyring with the login to {self._name} cannot be used: {error}",
            suggestion='unlock it, or set auth.keep = "file"',
        )


def _release(taken: asyncio.Future[int]) -> None:
    if not taken.cancelled() and not taken.exception():
        os.close(taken.result())
