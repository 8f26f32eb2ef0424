"""A session of a real daemon to type into, through an MCP client of the target's user."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any, Self

from tests.ai_session.escape.target import BOUND_SECONDS, Target
from tests.ai_session.support import unprivileged
from tests.ai_session.support.mcp_client import SERVER, Client

SEQUENCES = re.compile(r"\x1b\[[0-9;?<>=]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(\x07|\x1b\\)|\x1b[ -/]*[0-~]|[\x0e\x0f\r]")
PROMPT = "ready> "
SET_USER = 'exec setpriv --reuid "$1" --regid "$1" --clear-groups -- "${@:2}"'
NUMBERS = count(1)


class Refused(Exception):
    """No session was made; the text is the error's."""


class Ended(Exception):
    """The client is no more."""


class Session:
    """What it prints is read from its log, where nothing is masked. Without ``typing`` it is for ``run`` alone."""

    def __init__(
        self, target: Target, project: Path, backend: str, wrapper: Sequence[str] = (), *, typing: bool = True
    ) -> None:
        options: dict[str, Any] = {} if wrapper == WITH_MASKED_PROC else target.identity
        words = [*map(target.fill, wrapper), unprivileged.interpreter(), *SERVER[1:]]
        if not wrapper and backend == "pty":  # others execute an interpreter, which must be one that this user may run
            words, options = SERVER, {"user": options.get("user")}
        self._world = target
        self._seen = 0
        self._client = Client(words, cwd=project, env=target.env, **options)
        try:
            self._client.initialize()
            name = f"{target.values['session']}-{next(NUMBERS)}"
            facts = self._call("create_session", name=name, backend=backend, shell="/bin/bash", rows=50, cols=200)
            if "error" in facts:
                raise Refused(facts["error"])
        except BaseException:
            self._client.__exit__()
            raise
        self._id = facts["session_id"]
        self.level = facts["sandbox"]
        self._log = Path(target.values["state_directory"]) / f"sessions/{self._id}/log"
        if typing:
            self.type("PS1='rea''dy> '")
            assert self.see(PROMPT), self.text

    def _call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        try:
            answer = self._client.call(tool, **arguments)
        except (AssertionError, OSError) as problem:
            raise Ended from problem
        facts: dict[str, Any] = answer.get("structuredContent", {})
        return facts | ({"error": answer["content"][0]["text"]} if answer["isError"] else {})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """The session is closed, unless the attack ended its client, too."""
        try:
            with suppress(Ended):
                self._call("close_session", session_id=self._id)
        finally:
            self._client.__exit__()

    @property
    def text(self) -> str:
        """All that was printed, without escape sequences."""
        return SEQUENCES.sub("", self._read().decode(errors="replace"))

    def _read(self) -> bytes:
        with suppress(FileNotFoundError):
            return self._log.read_bytes().rstrip(b"\0")
        return b""

    def run(self, command: str) -> dict[str, Any]:
        """A command of a client's, and what came of it."""
        return self._call("execute_command", session_id=self._id, command=command)

    def notices(self) -> list[set[tuple[str, str]]]:
        """Kind and path of what is said of its workspace: where one session is asked for, and where all are."""
        alone = self._call("get_session_info", session_id=self._id)
        rows = self._call("list_sessions")["sessions"]
        among = next(row for row in rows if row["session_id"] == self._id)
        return [{(one["kind"], one["path"]) for one in facts.get("notices", [])} for facts in (alone, among)]

    def type(self, line: str) -> None:
        """A line and Enter."""
        self._call("send_input", session_id=self._id, text=line, keys=["Enter"])

    def press(self, key: str) -> None:
        self._call("send_input", session_id=self._id, keys=[key])

    def resize(self, rows: int, cols: int) -> None:
        self._call("resize_session", session_id=self._id, rows=rows, cols=cols)

    def see(self, pattern: str, seconds: float = BOUND_SECONDS) -> str:
        """What in the output since the last sight fits, once it does; "" when it does not, or the shell has ended.

        Raises Ended, as all that is done to a session."""
        deadline = time.monotonic() + seconds
        wanted = re.compile(pattern)
        ended = False
        while True:
            printed = self._read()
            if found := wanted.search(SEQUENCES.sub("", printed.decode(errors="replace")), self._seen):
                self._seen = found.end()
                return found[0]
            left = deadline - time.monotonic()
            if left <= 0 or ended:
                return ""
            facts = self._call(
                "read_output",
                session_id=self._id,
                command_id="all",
                offset=len(printed),
                wait_for="output",
                timeout_seconds=min(left, 10.0),
            )
            ended = "error" in facts or facts.get("waited") == "finished"


STOP = r"""
import socket, sys
link = socket.socket(socket.AF_UNIX)
link.connect(sys.argv[1])
link.sendall(b'{"ai_session":1,"role":"control"}\n{"id":1,"method":"stop","params":{"sessions":true}}\n')
said = b"".join(iter(lambda: link.recv(65536), b""))
sys.exit(b'"error"' in said)
"""


def stop_daemon(target: Target) -> None:
    """Ends the daemon and every session of this target; attacks may have ended the daemon."""
    done = target.run("/usr/bin/python3", "-I", "-S", "-c", STOP, f"{target.values['state_directory']}/sock")
    if done.returncode != 0:
        done = target.run(unprivileged.interpreter(), "-m", "ai_session", "daemon", "stop")
    assert done.returncode == 0, done.stdout + done.stderr


def without_namespaces(*, landlock: bool) -> tuple[str, ...]:
    """Words that take user namespaces, and Landlock unless kept, from what follows them, as containers do."""
    program = Path(__file__).parent / "without_namespaces.py"
    return ("/usr/bin/python3", "-I", "-S", str(program), "keep-landlock" if landlock else "no-landlock", "--")


WITH_MASKED_PROC = ("unshare", "--mount", "bash", "-c", f"mount -t tmpfs none /proc/fs && {SET_USER}", "bash", "@user@")
"""Words that cover a part of /proc, as containers do, so that no other /proc can be mounted. For root, who then becomes
the target's user."""
