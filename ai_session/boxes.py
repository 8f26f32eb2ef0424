"""The boxes of sessions: which one a new shell gets, and what lives beside it in the daemon (proxy, resource watch)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ai_session.errors import AiSessionError, InvalidArguments, SandboxUnavailable
from ai_session.models import PROFILES, TRUSTED, SandboxLevel, SandboxProfile, SessionSpec

if TYPE_CHECKING:
    from ai_session.network_proxy import SessionProxy
    from ai_session.resource_watch import ResourceWatch
    from ai_session.sandbox import Boxed, Sandbox

log = logging.getLogger(__name__)

ENTRY_SECONDS = 20.0
"""A box that does not stand by then never will."""

STRENGTH = tuple(SandboxLevel)
"""Levels, strongest first."""

Event = Callable[..., None]


@dataclass(frozen=True, slots=True)
class BoxSettings:
    """What boxes are made of. ``template`` has every limit and list, but no workspace and no home yet."""

    template: SandboxProfile = TRUSTED
    minimum_level: SandboxLevel = SandboxLevel.LANDLOCK
    env_allow: tuple[str, ...] = ("*",)
    ask_domains: bool = False


class Boxes:
    """Makes, keeps and takes down the boxes of one daemon's sessions. Without a sandbox every session is unboxed."""

    def __init__(
        self,
        settings: BoxSettings = BoxSettings(),
        sandbox: Sandbox | None = None,
        watch: ResourceWatch | None = None,
        event: Event = lambda *_, **__: None,
    ) -> None:
        self.minimum_level = settings.minimum_level
        self.env_allow = settings.env_allow
        self._settings = settings
        self._sandbox = sandbox
        self._watch = watch
        self._event = event
        self._boxed: dict[str, Boxed] = {}
        self._directories: dict[str, Path] = {}
        self._proxies: dict[str, SessionProxy] = {}
        self.ask_domain: Callable[[SessionSpec, str], Awaitable[bool]] | None = None
        """Asks a person about a domain that is not allowed; set by who can."""

    def profile(self, name: str) -> SandboxProfile:
        """The profile of that name, or with an empty name the configured one; without a workspace yet.

        Raises InvalidArguments.
        """
        template = self._settings.template
        wanted = name or template.name
        if wanted not in PROFILES:
            raise InvalidArguments(f"no profile {wanted[:40]!r}", suggestion=f"profiles: {', '.join(PROFILES)}")
        return replace(template, name=wanted) if wanted != "trusted" else TRUSTED

    async def prepare(self, spec: SessionSpec, directory: Path, env: Mapping[str, str]) -> Boxed:
        """The box of a shell that is about to start with ``env``; an earlier one of the session is taken down.

        Raises SandboxUnavailable, also where the machine's level became weaker than the session had; SandboxRefused.
        """
        if self._sandbox is None:
            raise SandboxUnavailable("this process makes no boxes", suggestion="use profile trusted")
        await self.leave(spec.session_id)
        box = directory / "box"
        box.mkdir(mode=0o700, exist_ok=True)
        files = directory / "shell"
        boxed = await self._sandbox.prepare(
            spec.profile, box, readable=(str(files),), writable=(str(files / "out"),), env=env
        )
        if spec.level is not SandboxLevel.NONE and STRENGTH.index(boxed.level) > STRENGTH.index(spec.level):
            boxed.release()
            raise SandboxUnavailable(
                f"this session began in a {spec.level} box, and only {boxed.level} can be had now",
                suggestion="run: ai-session doctor; or close the session and create another",
            )
        self._boxed[spec.session_id] = boxed
        return boxed

    async def enter(self, spec: SessionSpec, pid: int) -> None:
        """The terminal's process has started: let it go on once its proxy listens, and watch what it takes."""
        boxed = self._boxed.get(spec.session_id)
        if boxed is None or boxed.level is SandboxLevel.NONE:
            return
        self._event("sandbox.start", session=spec.session_id, profile=spec.profile.name, level=str(boxed.level))
        self._limit(spec, pid)
        if boxed.info_path:
            from ai_session.box_entry import open_gate

            async with asyncio.timeout(ENTRY_SECONDS):
                await open_gate(boxed.info_path, boxed.block_path, self._proxy(spec).start)

    async def adopt(self, spec: SessionSpec, pid: int, directory: Path) -> None:
        """An earlier daemon's box goes on: its proxy listens again, its resources are watched again.

        With ``pid`` 0 its shell has ended meanwhile, and nothing of it stays.
        """
        if spec.level is SandboxLevel.NONE:
            return
        self._directories[spec.session_id] = directory / "box"
        if not pid:
            await self.leave(spec.session_id)
            return
        self._limit(spec, pid)
        if spec.profile.network == "proxy":
            from ai_session.box_entry import read_box

            box = read_box(directory / "box" / "info")
            try:
                if box is not None:
                    await self._proxy(spec).start(box)
            except (AiSessionError, OSError) as problem:
                log.warning("session %s has no network any more: %s", spec.name, problem)

    def _proxy(self, spec: SessionSpec) -> SessionProxy:
        from ai_session.network_proxy import SessionProxy
        from ai_session.network_rules import NetworkRules

        def event(name: str, **facts: Any) -> None:
            self._event(name, session=spec.session_id, **facts)

        async def ask(domain: str) -> bool:
            return self.ask_domain is not None and await self.ask_domain(spec, domain)

        rules = NetworkRules(spec.profile.domains, spec.profile.ports)
        proxy = SessionProxy(rules, ask=ask if self._settings.ask_domains else None, event=event)
        self._proxies[spec.session_id] = proxy
        return proxy

    def forget_answers(self) -> None:
        """Names are asked about anew, because what was allowed or how much may be has changed."""
        for proxy in self._proxies.values():
            proxy.forget_answers()

    def _limit(self, spec: SessionSpec, pid: int) -> None:
        def on_limit(what: str) -> None:
            self._event("sandbox.limit", session=spec.session_id, what=what)

        if self._watch:
            self._watch.add(spec.session_id, pid, spec.profile, on_limit)

    async def leave(self, session_id: str) -> None:
        """The session's shell is gone: nothing of its box stays."""
        if self._watch:
            self._watch.remove(session_id)
        if proxy := self._proxies.pop(session_id, None):
            await proxy.aclose()
        if boxed := self._boxed.pop(session_id, None):
            boxed.release()
        elif (directory := self._directories.pop(session_id, None)) and self._sandbox:
            self._sandbox.release(directory)

    async def aclose(self) -> None:
        """Let go of what lives in this process; boxes stay for the next daemon."""
        for session_id in list(self._proxies):
            await self._proxies.pop(session_id).aclose()
        if self._watch:
            self._watch.close()
