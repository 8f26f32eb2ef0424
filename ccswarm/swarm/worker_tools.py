"""What a worker process provides for the work."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ccswarm.brains.base import WorkerContext
from ccswarm.clones.clones import Workspaces
from ccswarm.config.files import clones_directory
from ccswarm.config.settings import ServerSettings
from ccswarm.toolbox.mail import MessageStore
from ccswarm.toolbox.telemetry.base import Telemetry
from ccswarm.toolbox.toolboxes import Toolboxes


class AgentTools(Toolboxes):
    """The ``TaskWorker`` of a swarm, with real servers. ``environ`` is also the environment of git."""

    def __init__(
        self,
        servers: Sequence[ServerSettings],
        state_directory: Path,
        environ: Mapping[str, str],
        worker_id: str,
        servers_of: Callable[[tuple[str, ...]], Sequence[ServerSettings]],
        telemetry: Telemetry,
        secret: Callable[[str], str],
        messages: MessageStore,
    ) -> None:
        super().__init__(servers, state_directory, environ, worker_id, servers_of, telemetry, messages)
        self.worker_context = WorkerContext(secret, environ, state_directory)
        self._workspaces: dict[str, Workspaces] = {}

    def workspaces(self, repository: str) -> Workspaces:
        if repository not in self._workspaces:
            self._workspaces[repository] = Workspaces(Path(repository), clones_directory(self._state), self._environ)
        return self._workspaces[repository]
