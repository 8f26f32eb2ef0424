"""What a login at a server gave, kept for all processes of this user: one of them at a time renews it."""

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
"""A token is renewed so long before its end."""

SERVICE = "ccswarm"


class Login(BaseModel):
    """Tokens, and all that is needed to renew them. ``expires_at`` is a Unix time."""

    tokens: OAuthToken
    expires_at: float | None = None
    client: OAuthClientInformationFull | None = None
    metadata: OAuthMetadata | None = None
    resource: ProtectedResourceMetadata | None = None

    @property
    def token(self) -> str:
        """What a request carries."""
        return self.tokens.access_token

    @property
    def ends_soon(self) -> bool:
        """Whether it should be renewed before it is used."""
        return self.expires_at is not None and time.time() > self.expires_at - SOON_SECONDS


class Logins:
    """The login at one server: of this name, at this address."""

    def __init__(self, settings: ServerSettings, state_directory: Path) -> None:
        self._name = settings.name
        self._key = f"{settings.name}-{hashlib.sha256(settings.url.encode()).hexdigest()[:16]}"
        self._folder = state_directory / "logins"
        self._in_keyring = settings.auth.keep == "keyring"

    async def read(self) -> Login | None:
        """None where there is none, or what is there cannot be read."""
        text = await asyncio.to_thread(self._from_keyring) if self._in_keyring else self._from_file()
        try:
            return Login.model_validate_json(text) if text else None
        except ValidationError:
            return None

    async def write(self, login: Login) -> None:
        """Keeps it. Raises ServerUnavailable where that is not possible."""
        text = login.model_dump_json(exclude_none=True)
        if self._in_keyring:
            await asyncio.to_thread(self._to_keyring, text)
            return
        try:
            self._to_file(text)
        except OSError as error:
            raise self._unkept(error) from error

    async def forget(self) -> None:
        """Nothing of it is kept any more."""
        self._path.unlink(missing_ok=True)
        if self._in_keyring:
            await asyncio.to_thread(self._to_keyring, "")

    @asynccontextmanager
    async def held(self) -> AsyncGenerator[None]:
        """While nobody else on this machine is in such a block for this server."""
        taking = asyncio.get_running_loop().run_in_executor(None, self._take)
        try:
            fd = await asyncio.shield(taking)
        except asyncio.CancelledError:
            taking.add_done_callback(_let_go)
            raise
        except OSError as error:
            raise self._unkept(error) from error
        try:
            yield
        finally:
            os.close(fd)

    def _take(self) -> int:
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
        except Exception as error:  # each keyring has errors of its own
            raise self._closed(error) from error

    def _to_keyring(self, text: str) -> None:
        keyring = self._keyring()
        try:
            if text:
                keyring.set_password(SERVICE, self._key, text)
            elif keyring.get_password(SERVICE, self._key):
                keyring.delete_password(SERVICE, self._key)
        except Exception as error:  # each keyring has errors of its own
            raise self._closed(error) from error

    def _unkept(self, error: OSError) -> ServerUnavailable:
        return ServerUnavailable(
            f"the login to {self._name} cannot be stored: {error}", suggestion="fix the state directory"
        )

    def _closed(self, error: Exception) -> ServerUnavailable:
        return ServerUnavailable(
            f"the keyring with the login to {self._name} cannot be used: {error}",
            suggestion='unlock it, or set auth.keep = "file"',
        )


def _let_go(taken: asyncio.Future[int]) -> None:
    if not taken.cancelled() and not taken.exception():
        os.close(taken.result())
