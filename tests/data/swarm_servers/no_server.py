"""Programs that are no good servers. Argument: mute, stubborn, crash, chatty_crash, probe_dies, nonsense,
old_fashioned, full, late, late_both, late_last or banner."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from typing import Any

from wire import Refused, Server, text, tool


class Banner(Server):
    def list_tools(self, cursor: str | None) -> dict[str, Any]:
        return {"tools": [tool("hello")]}

    def call_tool(self, request_id: Any, params: dict[str, Any]) -> dict[str, Any]:
        return text("hello")


class ProbeDies(Banner):
    def dispatch(self, request_id: Any, method: str, params: dict[str, Any]) -> dict[str, Any] | None:
        if method == "server/discover":
            os._exit(1)
        return super().dispatch(request_id, method, params)


class Nonsense(Banner):
    def dispatch(self, request_id: Any, method: str, params: dict[str, Any]) -> dict[str, Any] | None:
        return {"hello": "world"}


class OldFashioned(Banner):
    def dispatch(self, request_id: Any, method: str, params: dict[str, Any]) -> dict[str, Any] | None:
        result = super().dispatch(request_id, method, params)
        return {**result, "protocolVersion": "1999-01-01"} if result and method == "initialize" else result


class Late(Banner):
    """Starts so slowly that it finds both questions when it begins to read, and is of the later era, or of both."""

    def run(self) -> None:
        questions = [json.loads(sys.stdin.buffer.readline()) for _ in range(2)]
        for question in self.in_turn(questions):
            self.cancels[question["id"]] = threading.Event()
            self._serve(question)
        super().run()

    def in_turn(self, questions: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return questions


class LateLast(Late):
    """Refuses the later question before it answers the earlier one."""

    def in_turn(self, questions: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return questions[::-1]

    def dispatch(self, request_id: Any, method: str, params: dict[str, Any]) -> dict[str, Any] | None:
        if method == "initialize":
            raise Refused(-32600, "no version is named")
        return super().dispatch(request_id, method, params)


class Full(Banner):
    """Reads no more after the first call."""

    def call_tool(self, request_id: Any, params: dict[str, Any]) -> dict[str, Any]:
        self.reading.clear()
        return text("full")


SERVERS = {"probe_dies": ProbeDies, "nonsense": Nonsense, "old_fashioned": OldFashioned, "full": Full, "late": Late}
SERVERS |= {"late_both": Late, "late_last": LateLast}
ERAS = {"late": "modern", "late_both": "both", "late_last": "modern"}


def main(kind: str, *words: str) -> None:
    if kind == "crash":
        os.write(2, b"x" * 10_000 + b"\nno licence found\n")
        sys.exit(3)
    if kind == "chatty_crash":
        os.write(1, b"Error: cannot find module 'left-pad'\n")
        sys.exit(1)
    if kind in ("banner", "half_banner"):
        os.write(1, b"Welcome!\r\n\r\nServer 1.0 (c) nobody\n")
        if kind == "half_banner":
            os.write(1, b'{"motd": 1}\n\x1b[1mLast login: {today}\x1b[0m ')
        Banner().run()
    elif kind in SERVERS:
        SERVERS[kind](ERAS.get(kind, "legacy")).run()
    else:
        os.write(2, b"thinking\n")
        if kind == "stubborn":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            child = subprocess.Popen(["sh", "-c", "trap '' TERM; while :; do sleep 1000; done"])
            os.write(2, f"child {child.pid}\n".encode())
        while True:
            signal.pause()


if __name__ == "__main__":
    main(*sys.argv[1:])
