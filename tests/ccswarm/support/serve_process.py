"""``ccswarm serve`` in a process of its own, and what clients of all dialects have in common."""

from __future__ import annotations

import re
import signal
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, ClassVar, Self

from tests.ccswarm.support.runs import RunVerbs
from tests.ccswarm.support.verbs import FIRST_USE, ROOT
from tests.conftest import client_environment
from tests.support import forked
from tests.support.bounds import BOUND_SECONDS


class Asking(ABC):
    """A client of JSON-RPC, which is closed at the end of its ``with`` block."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None: ...

    @abstractmethod
    def whole(self, method: str, /, **params: Any) -> Any:
        """Send a request and return the whole response."""

    def ask(self, method: str, /, **params: Any) -> Any:
        """Send a request and return its result."""
        answer = self.whole(method, **params)
        assert set(answer) == {"jsonrpc", "id", "result"}, answer
        return answer["result"]

    def fault(self, method: str, /, **params: Any) -> Any:
        """Send a request that must fail and return its error."""
        answer = self.whole(method, **params)
        assert set(answer) == {"jsonrpc", "id", "error"}, answer
        return answer["error"]


class Serving:
    """A server process. ``said`` are its messages, without the one on the first use of its configuration. A subclass
    sets the ``flag`` or name after ``ccswarm serve``, and as ``dialect`` the first word of the message with the
    address, ``NAME is served at HOST port PORT``."""

    flag: ClassVar[str]
    dialect: ClassVar[str]

    def __init__(self, verbs: RunVerbs, *words: str, **variables: str) -> None:
        line = ["serve", self.flag, "--port", "0", "--requests", "0", "--workspace", str(verbs.home), *words]
        environment = {**client_environment(verbs.home), "PYTHONPATH": str(ROOT), **variables}
        self.process = forked.piped("ccswarm", line, cwd=verbs.home, env=environment)
        self.said: list[str] = []
        self._ports: dict[str, int] = {}
        self._over = False
        self._heard = threading.Condition()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr
        for line in self.process.stderr:
            if FIRST_USE.encode() in line:
                continue
            with self._heard:
                self.said.append(line.decode().rstrip())
                if found := re.match(r"(\w+) is served at \S+ port (\d+)", self.said[-1]):
                    self._ports[found[1]] = int(found[2])
                self._heard.notify_all()
        with self._heard:
            self._over = True
            self._heard.notify_all()

    @property
    def port(self) -> int:
        return self._ports.get(self.dialect, 0)

    def until_ready(self, *more: str) -> None:
        """Wait until it serves its dialect and the dialects ``more``."""
        wanted = {self.dialect, *more}
        with self._heard:
            assert self._heard.wait_for(lambda: self._over or wanted <= self._ports.keys(), BOUND_SECONDS), (
                f"{wanted} not served: {self.said}"
            )
        assert wanted <= self._ports.keys(), self.said

    def end(self, number: int = signal.SIGTERM) -> int:
        """Send a signal and return the exit code."""
        self.process.send_signal(number)
        code = self.process.wait(BOUND_SECONDS)
        self._reader.join()
        return code

    def close(self) -> None:
        with suppress(ProcessLookupError):
            self.process.kill()
        self.process.wait(BOUND_SECONDS)
        self._reader.join()
        self.process.close()

    @classmethod
    @contextmanager
    def meanwhile(cls, verbs: RunVerbs, *words: str, **variables: str) -> Iterator[Self]:
        """Yield a ready server, which must end with exit code 0 afterwards."""
        server = cls(verbs, *words, **variables)
        try:
            server.until_ready()
            yield server
            if server.process.returncode is None:
                assert server.end() == 0, server.said
        finally:
            server.close()
