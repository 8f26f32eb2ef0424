"""What a way in must do, and what it is given: the words of ``ccswarm mcp-server``.

A server only translates: bytes of one client into what is asked of runs, or of an agent's tools, and answers back.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Entrance:
    """What the program was started with. ``config`` and ``workspace`` are as they were given, None where they were
    not; ``agent`` is empty where nobody's tools are meant, but the swarm itself."""

    config: Path | None = None
    workspace: Path | None = None
    agent: str = ""


class Server(Protocol):
    """A way in, found by name: ``ccswarm/servers/<name>.py`` exports it as ``PLUGIN``."""

    name: str

    def main(self, entrance: Entrance) -> int:
        """Serves on standard input and output until the client is gone; the exit code. Raises SwarmError where it
        cannot begin."""
        ...
