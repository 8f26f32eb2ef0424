"""What a way in must do, and what it is given: the words of ``ccswarm mcp-server`` and ``ccswarm serve``.

A server only translates: bytes of clients into what is asked of runs, or of an agent's tools, and answers back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from ccswarm.errors import UsageInvalid

if TYPE_CHECKING:
    from ccswarm.app import App
    from ccswarm.config import Loaded
    from ccswarm.settings import Settings


@dataclass(frozen=True, slots=True)
class Entrance:
    """What the program was started with. ``config`` and ``workspace`` are as they were given, None where they were
    not; ``agent`` is empty where nobody's tools are meant, but the swarm itself. ``trace``: messages are told on
    standard error."""

    config: Path | None = None
    workspace: Path | None = None
    agent: str = ""
    trace: bool = False

    def root(self, loaded: Loaded) -> Path:
        """The directory that no client leaves. Raises UsageInvalid where that would be everything."""
        if self.workspace:
            return self.workspace
        if named := loaded.settings.swarm.workspace:
            return (loaded.directory / Path(named).expanduser()).resolve()
        here = Path.cwd()
        if Path.home().resolve().is_relative_to(here):
            raise UsageInvalid(
                f"the server was started in {here}, which is no place to work in",
                suggestion="start it with --workspace DIR, or set swarm.workspace",
            )
        return here


class Server(Protocol):
    """A way in, found by name: ``ccswarm/servers/<name>.py`` exports it as ``PLUGIN``."""

    name: str

    def main(self, entrance: Entrance) -> int:
        """Serves on standard input and output until the client is gone; the exit code. Raises SwarmError where it
        cannot begin."""
        ...


@dataclass(frozen=True, slots=True)
class Listening:
    """Where a dialect listens and what it bears. ``host`` is empty and ``port`` None where its own are meant;
    ``requests`` are those of one address in a second, 0: as many as come."""

    host: str = ""
    port: int | None = None
    connections: int = 50
    requests: float = 100.0


@dataclass(frozen=True, slots=True)
class Grounds:
    """What all dialects of one process share: ``app`` executes runs as long as they serve. ``variables`` have their
    secrets; ``tell`` says something to the person who started them."""

    entrance: Entrance
    app: App
    variables: Mapping[str, str]
    tell: Callable[[str], None]

    def port(self, listening: Listening, variable: str, own: int) -> int:
        """Which one is meant: as it was given, as the variable says, or the dialect's own. Raises UsageInvalid."""
        if listening.port is not None:
            return listening.port
        named = self.variables.get(variable, "")
        if named and not (named.isascii() and named.isdecimal() and int(named) < 1 << 16):
            raise UsageInvalid(f"{variable} is {named[:20]!r}, which is no port", suggestion="set it to a number")
        return int(named or own)


def is_local(host: str) -> bool:
    """Whether only this machine reaches what listens there."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class Dialect(Protocol):
    """A way in at an address, of which ``ccswarm serve`` opens several side by side; found as a Server is."""

    name: str

    def settings(self, settings: Settings, variables: Mapping[str, str]) -> Settings:
        """What the process works with: the configuration, and what the dialect's own variables name. Raises
        SwarmError."""
        ...

    async def serve(self, grounds: Grounds, listening: Listening, stop: asyncio.Event) -> None:
        """Serves until ``stop`` is set, then answers what it was asked and lets its clients go. Tells where it listens
        once it does. Raises SwarmError where it cannot begin."""
        ...
