"""The token of this user's listeners: what everybody shows whose program is not known to be this user's."""

from __future__ import annotations

import hmac
import os
import secrets
import shlex
import stat
from collections.abc import Iterable
from pathlib import Path

from agentwire.errors import OperatorError
from agentwire.system import whole_files

FILE = "access-token"
MOST_BYTES = 200


class AccessToken:
    """Lies in ``directory``, which is private; mode 0600. It is read again each time, so one that is renewed holds at
    once, also for servers that run. It begins with ``prefix``. ``is_new``: it was made by this object."""

    def __init__(self, directory: Path, prefix: str) -> None:
        self.file = directory / FILE
        self._prefix = prefix
        self.is_new = False

    def make(self) -> None:
        """Afterwards there is one. Raises OperatorError."""
        try:
            whole_files.create(self.file, self._another())
        except FileExistsError:
            self.read()
        except OSError as error:
            raise self._unusable(error.strerror or str(error)) from None
        else:
            self.is_new = True

    def renew(self) -> str:
        """Another one; the one before opens nothing any more. Raises OperatorError."""
        try:
            whole_files.replace(self.file, self._another())
        except OSError as error:
            raise self._unusable(error.strerror or str(error)) from None
        return self.read()

    def read(self) -> str:
        """The token. Raises OperatorError where there is none, or others could have written or read it."""
        try:
            file = os.open(self.file, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
            try:
                facts, token = os.fstat(file), os.read(file, MOST_BYTES).decode("ascii").strip()
            finally:
                os.close(file)
        except (OSError, ValueError) as error:
            raise self._unusable(getattr(error, "strerror", None) or "it holds no token") from None
        if not stat.S_ISREG(facts.st_mode) or facts.st_uid != os.getuid() or facts.st_mode & 0o077:
            raise self._unusable("it is open to others")
        if not token.startswith(self._prefix):
            raise self._unusable("it holds no token")
        return token

    def fits(self, shown: Iterable[str]) -> bool:
        """Whether one of these is it; takes the same time wherever they differ."""
        given = [one.encode("utf-8", "surrogatepass") for one in shown]
        if not given:
            return False
        try:
            token = self.read().encode()
        except OperatorError:
            return False
        return any(hmac.compare_digest(one, token) for one in given)

    def _another(self) -> bytes:
        return f"{self._prefix}{secrets.token_urlsafe(32)}\n".encode()

    def _unusable(self, why: str) -> OperatorError:
        return OperatorError(
            f"the access token in {self.file} cannot be used: {why}", suggestion=f"rm -f {shlex.quote(str(self.file))}"
        )
