"""A person's signature on the command line: requested on the terminal, and only if the daemon requires one."""

from __future__ import annotations

import contextlib
import os
import termios
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agentwire.system import typed_ahead
from ai_session.errors import AiSessionError, InvalidArguments, SignatureNeeded

if TYPE_CHECKING:
    from ai_session.client.connection import ControlClient
    from ai_session.gate.consent.person_signature import PrivateKey

TERMINAL = "/dev/tty"
TRIES = 3
MAX_PASSPHRASE_BYTES = 1024
PR_SET_DUMPABLE = 4


@dataclass(frozen=True, slots=True)
class Act:
    """An action to sign; ``shown`` is shown to the person beforehand."""

    do: str
    about: Mapping[str, Any]
    shown: str


def request(client: ControlClient, method: str, act: Callable[[], Act], **params: Any) -> Any:
    """Make a person's request; if the daemon requires a signature, ask for it here and repeat the request.

    Raises the daemon's error if no key is enrolled or there is no terminal.
    """
    try:
        return client.request(method, **params)
    except AiSessionError as error:
        if error.code != SignatureNeeded.code:
            raise
        refused = error
    facts = client.request("person")
    if facts["key"] is None:
        raise refused
    with terminal(refused) as tty:
        signed = act()
        tty.show(f"{signed.shown}\n\nThis needs your signature: {facts['why']}.\n")
        key = _unlock(tty, facts["key"]["line"])
    facts = client.request("person")  # the person may have taken long, and a nonce ages
    return client.request(method, **params, signature=_sign(key, signed, facts))


@contextmanager
def terminal(refused: AiSessionError | None = None) -> Generator[Terminal]:
    """Yield this process's terminal; piped input and the environment prove nothing. Meanwhile other processes of this
    user cannot read this one's memory, if the system supports that.

    Raises ``refused``, or InvalidArguments, if there is no terminal.
    """
    try:
        fd = os.open(TERMINAL, os.O_RDWR | os.O_CLOEXEC | os.O_NOCTTY)
    except OSError:
        raise refused or InvalidArguments(
            "a passphrase must be typed in a terminal, and there is none", suggestion="with ssh, use: ssh -t"
        ) from None
    try:
        _set_dumpable(False)
        yield Terminal(fd)
    finally:
        _set_dumpable(True)  # the daemon inspects this process
        os.close(fd)


class Terminal:
    """The person's terminal, whatever standard input and output are."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def show(self, text: str) -> None:
        """Print ``text`` and a newline, without characters that could control a terminal."""
        self._write("".join(char if char.isprintable() or char == "\n" else "?" for char in text) + "\n")

    def passphrase(self, prompt: str) -> str:
        """Return what is typed at ``prompt``, without echo. Keys typed before are discarded."""
        before = termios.tcgetattr(self._fd)
        silent = list(before)
        silent[3] = (silent[3] & ~(termios.ECHO | termios.ECHONL)) | termios.ICANON | termios.ISIG
        try:
            termios.tcsetattr(self._fd, termios.TCSADRAIN, silent)
            typed_ahead.discard(self._fd)
            self._write(prompt)
            line = os.read(self._fd, MAX_PASSPHRASE_BYTES)
        finally:
            termios.tcsetattr(self._fd, termios.TCSAFLUSH, before)
            self._write("\n")
        if not line.endswith(b"\n"):
            raise KeyboardInterrupt  # ^D, or the terminal is closed
        return line.rstrip(b"\r\n").decode("utf-8", "surrogateescape")

    def new_passphrase(self) -> str:
        """Return a passphrase that is typed twice. Raises InvalidArguments."""
        from ai_session.gate.consent.person_signature import MIN_PASSPHRASE_CHARS

        for _ in range(TRIES):
            chosen = self.passphrase(f"New passphrase, {MIN_PASSPHRASE_CHARS} characters or more: ")
            if len(chosen) < MIN_PASSPHRASE_CHARS:
                self.show("That is too short.")
            elif self.passphrase("Repeat it: ") != chosen:
                self.show("The two differ.")
            else:
                return chosen
        raise InvalidArguments("no passphrase was set", suggestion="run the command again")

    def _write(self, text: str) -> None:
        data = text.encode(errors="replace")
        while data:
            data = data[os.write(self._fd, data) :]


def _unlock(tty: Terminal, line: str) -> PrivateKey:
    """Return the enrolled key, derived from the passphrase that is typed."""
    from ai_session.gate.consent.person_signature import PrivateKey, public_key

    enrolled = public_key(line)
    for _ in range(TRIES):
        key = PrivateKey(tty.passphrase("Passphrase: "), enrolled.salt)
        if key.public == enrolled:
            return key
        tty.show("That is not the passphrase.")
    raise InvalidArguments("that was not the passphrase; nothing was signed", suggestion="run the command again")


def _sign(key: PrivateKey, act: Act, facts: Mapping[str, Any]) -> dict[str, str]:
    """Return a signature for a request. ``facts`` has the daemon's ``host`` and a ``nonce``."""
    from ai_session.gate.consent.person_signature import statement

    message = statement(act.do, act.about, host=facts["host"], nonce=facts["nonce"])
    return {"nonce": facts["nonce"], "value": key.sign(message)}


def _set_dumpable(value: bool) -> None:
    import ctypes

    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, int(value), 0, 0, 0)
