"""Managers that put every session into a box of one level, even if the machine can make a stronger one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from ai_session.models import SandboxLevel, SandboxProfile
from ai_session.sandbox.boxes import Boxes, BoxSettings
from ai_session.sandbox.bwrap import Bubblewrap
from ai_session.sandbox.probe import SandboxStatus
from ai_session.sandbox.sandbox import Sandbox
from ai_session.sessions.manager import SessionManager
from ai_session.sessions.session import Session
from ai_session.sessions.spec import NewSession, SessionDefaults


class Known(Sandbox):
    """A sandbox that probes the machine only once in this process."""

    found: ClassVar[list[tuple[SandboxStatus, Bubblewrap | None]]] = []

    async def probe(self) -> SandboxStatus:
        if not self.found:
            self.found.append((await super().probe(), self._bubblewrap))
        self._status, self._bubblewrap = self.found[0]
        return self._status


class BoxedManager(SessionManager):
    """A manager of sessions in the strongest boxes. The workspace is ``ws``, next to the runtime directory."""

    level = SandboxLevel.BWRAP

    def __init__(self, runtime_directory: Path, defaults: SessionDefaults) -> None:
        boxes = Boxes(BoxSettings(SandboxProfile("workspace")), self.sandbox(runtime_directory))
        super().__init__(runtime_directory, defaults, boxes)

    def sandbox(self, runtime_directory: Path) -> Sandbox:
        """Return the sandbox that makes the boxes."""
        return Known(runtime_directory=runtime_directory)

    async def create(self, request: NewSession) -> Session:
        home = self.runtime_directory.parent
        profile = replace(self.boxes.profile("workspace"), workspace=str(home / "ws"), home=str(home))
        # Users do not have the tests' own interpreter.
        env = {**request.client_env, "PATH": "/usr/local/bin:/usr/bin:/bin"}
        session = await super().create(replace(request, client_env=env, profile=profile))
        assert session.spec.level is self.level, session.spec.level
        return session


class LandlockOnly(Sandbox):
    """The sandbox of a machine without user namespaces."""

    async def probe(self) -> SandboxStatus:
        return SandboxStatus(SandboxLevel.LANDLOCK)


class LandlockManager(BoxedManager):
    """A manager as on a machine on which bubblewrap does not work."""

    level = SandboxLevel.LANDLOCK

    def sandbox(self, runtime_directory: Path) -> Sandbox:
        return LandlockOnly(runtime_directory=runtime_directory)


class OldProc(Known):
    """The sandbox of a container that masks /proc."""

    async def probe(self) -> SandboxStatus:
        status = await super().probe()
        assert self._bubblewrap is not None
        self._bubblewrap = replace(self._bubblewrap, fresh_proc=False, disable_userns=False)
        return replace(status, level=SandboxLevel.BWRAP_NOPROC)


class OldProcManager(BoxedManager):
    """A manager as on a machine on which no fresh /proc can be mounted."""

    level = SandboxLevel.BWRAP_NOPROC

    def sandbox(self, runtime_directory: Path) -> Sandbox:
        return OldProc(runtime_directory=runtime_directory)


MANAGERS = {manager.level: manager for manager in (BoxedManager, LandlockManager, OldProcManager)}
