"""A person's signature at the command line: asked for on the terminal, and only where the daemon wants one."""

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
    """What is signed, and what the person is shown before."""

    do: str
    about: Mapping[str, Any]
    shown: str


def request(client: ControlClient, method: str, act: Callable[[], Act], **params: Any) -> Any:
    """One request of a person; where the daemon wants a signature, it is asked for here and the request made again.

    Raises what the daemon says where no key is enrolled or nobody could be asked.
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
    with terminal(refused) as asked:
        signed = act()
        asked.show(f"{signed.shown}\n\nThis needs your signature: {facts['why']}.\n")
        key = _opened(asked, facts["key"]["line"])
    facts = client.request("person")  # the person may have taken long, and a nonce ages
    return client.request(method, **params, signature=_sign(key, signed, facts))


@contextmanager
def terminal(refused: AiSessionError | None = None) -> Generator[Terminal]:
    """This process's terminal; what is piped in or stands in the environment is nobody's word. Meanwhile other
    processes of this user may not look into this one's memory, where the system knows how.

    Raises ``refused``, else InvalidArguments, where there is none.
    """
    try:
        fd = os.open(TERMINAL, os.O_RDWR | os.O_CLOEXEC | os.O_NOCTTY)
    except OSError:
        raise refused or InvalidArguments(
            "a passphrase must be typed in a terminal, and there is none", suggestion="with ssh, use: ssh -t"
        ) from None
    try:
        _dumpable(False)
        yield Terminal(fd)
    finally:
        _dumpable(True)  # the daemon looks at what is not hidden
        os.close(fd)


class Terminal:
    """What a person sees and types, whatever standard input and output are."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def show(self, text: str) -> None:
        """``text`` and a new line, without what could steer a terminal."""
        self._write("".join(char if char.isprintable() or char == "\n" else "?" for char in text) + "\n")

    def passphrase(self, prompt: str) -> str:
        """What is typed at ``prompt`` and seen by nobody. Keys typed before do not count."""
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
            raise KeyboardInterrupt  # ^D, or the terminal has gone
        return line.rstrip(b"\r\n").decode("utf-8", "surrogateescape")

    def new_passphrase(self) -> str:
        """One that is typed twice alike. Raises InvalidArguments."""
        from ai_session.gate.consent.person_signature import MIN_PASSPHRASE_CHARS

        for _ in range(TRIES):
            chosen = self.passphrase(f"New passphrase, {MIN_PASSPHRASE_CHARS} characters or more: ")
            if len(chosen) < MIN_PASSPHRASE_CHARS:
                self.show("That is too short.")
            elif self.passphrase("Repeat it: ") != chosen:
                self.show("The two differ.")
            else:
                return chosen
        raise InvalidArguments("no passphrase was set", suggestion="run it again")

    def _write(self, text: str) -> None:
        data = text.encode(errors="replace")
        while data:
            data = data[os.write(self._fd, data) :]


def _opened(asked: Terminal, line: str) -> PrivateKey:
    """The enrolled key, made of the passphrase that is typed."""
    from ai_session.gate.consent.person_signature import PrivateKey, public_key

    enrolled = public_key(line)
    for _ in range(TRIES):
        key = PrivateKey(asked.passphrase("Passphrase: "), enrolled.salt)
        if key.public == enrolled:
            return key
        asked.show("That is not the passphrase.")
    raise InvalidArguments("that was not the passphrase; nothing was signed", suggestion="run it again")


def _sign(key: PrivateKey, act: Act, facts: Mapping[str, Any]) -> dict[str, str]:
    """A signature as requests carry it. ``facts`` has the daemon's ``host`` and a ``nonce``."""
    from ai_session.gate.consent.person_signature import statement

    message = statement(act.do, act.about, host=facts["host"], nonce=facts["nonce"])
    return {"nonce": facts["nonce"], "value": key.sign(message)}


def _dumpable(value: bool) -> None:
    import ctypes

    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, int(value), 0, 0, 0)
