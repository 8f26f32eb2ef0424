"""The access token of this user's listeners, required of programs that are not known to be this user's."""

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
    """The token file in ``directory``, which is private; its mode is 0600. Each check reads the file, so that a renewed
    token is valid at once, also for running servers. Tokens begin with ``prefix``. ``is_new``: this object created
    it."""

    def __init__(self, directory: Path, prefix: str) -> None:
        self.file = directory / FILE
        self._prefix = prefix
        self.is_new = False

    def make(self) -> None:
        """Create the file unless it exists. Raises OperatorError if the token cannot be used."""
        try:
            whole_files.create(self.file, self._new_token())
        except FileExistsError:
            self.read()
        except OSError as error:
            raise self._unusable(error.strerror or str(error)) from None
        else:
            self.is_new = True

    def renew(self) -> str:
        """Replace the token, which invalidates the previous one, and return the new one. Raises OperatorError."""
        try:
            whole_files.replace(self.file, self._new_token())
        except OSError as error:
            raise self._unusable(error.strerror or str(error)) from None
        return self.read()

    def read(self) -> str:
        """Return the token. Raises OperatorError if there is none, or if other users could have read or written it."""
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
        """Report whether one of ``shown`` is the token, in constant time. False if the token cannot be used."""
        given = [one.encode("utf-8", "surrogatepass") for one in shown]
        if not given:
            return False
        try:
            token = self.read().encode()
        except OperatorError:
            return False
        return any(hmac.compare_digest(one, token) for one in given)

    def _new_token(self) -> bytes:
        return f"{self._prefix}{secrets.token_urlsafe(32)}\n".encode()

    def _unusable(self, why: str) -> OperatorError:
        return OperatorError(
            f"the access token in {self.file} cannot be used: {why}", suggestion=f"rm -f {shlex.quote(str(self.file))}"
        )
