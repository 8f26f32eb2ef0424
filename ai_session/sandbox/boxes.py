"""The boxes of sessions: which one a new shell gets, and what goes with it in the daemon: proxy, watches."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ai_session.errors import AiSessionError, InvalidArguments, SandboxUnavailable
from ai_session.models import PROFILES, TRUSTED, SandboxLevel, SandboxProfile, SessionSpec

if TYPE_CHECKING:
    from ai_session.sandbox.limits.watch import ResourceWatch
    from ai_session.sandbox.network.proxy import SessionProxy
    from ai_session.sandbox.sandbox import PreparedSandbox, Sandbox
    from ai_session.sandbox.workspace.notices import Found, Notice
    from ai_session.sandbox.workspace.watch import WorkspaceWatch
    from ai_session.sandbox.workspace.workspace import Workspace

log = logging.getLogger(__name__)

ENTRY_SECONDS = 20.0
"""A box that does not stand by then never will."""
SETTLE_SECONDS = 0.9
"""A call waits so long for what happened in its workspace to be looked at; without news it takes microseconds."""

STRENGTH = tuple(SandboxLevel)
"""Levels, strongest first."""

Event = Callable[..., None]
AskDomain = Callable[[SessionSpec, str], Awaitable[bool]]


@dataclass(frozen=True, slots=True)
class BoxSettings:
    """What boxes are made of. ``template`` has every limit and list, but no workspace and no home yet."""

    template: SandboxProfile = TRUSTED
    minimum_level: SandboxLevel = SandboxLevel.LANDLOCK
    env_allow: tuple[str, ...] = ("*",)
    ask_domains: bool = False
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    """Variables that are set in each."""


def hides(profile: SandboxProfile, program: str) -> str:
    """The directory of a program that such a box hides with the home; empty where it can be run."""
    home = os.path.realpath(profile.home) if profile.home else "/"
    if profile.name == "trusted" or home == "/":
        return ""
    directories = dict.fromkeys((os.path.dirname(program), os.path.dirname(os.path.realpath(program))))
    inside = [path for path in map(os.path.realpath, directories) if _within(path, home)]
    if not inside:
        return ""
    parts = [os.path.join(home, name) for name in profile.home_readable]
    shown = [os.path.realpath(one) for one in (*parts, *profile.readable, *profile.writable, profile.workspace) if one]
    return next((top for top in inside if not any(_within(top, one) for one in shown)), "")


def _within(path: str, root: str) -> bool:
    return path == root or path.startswith(f"{root.rstrip('/')}/")


class Boxes:
    """Makes, keeps and takes down the boxes of one daemon's sessions. Without a sandbox every session is unboxed."""

    def __init__(
        self,
        settings: BoxSettings = BoxSettings(),
        sandbox: Sandbox | None = None,
        watch: ResourceWatch | None = None,
        event: Event = lambda *_, **__: None,
        ask_domain: AskDomain | None = None,
    ) -> None:
        """``ask_domain`` asks a person about a domain that is not allowed."""
        self.minimum_level = settings.minimum_level
        self.env_allow = settings.env_allow
        self._settings = settings
        self._sandbox = sandbox
        self._watch = watch
        self._event = event
        self._ask_domain = ask_domain
        self._boxed: dict[str, PreparedSandbox] = {}
        self._directories: dict[str, Path] = {}
        self._proxies: dict[str, SessionProxy] = {}
        self._watches: dict[str, WorkspaceWatch] = {}
        self._pids: dict[str, int] = {}
        self._introductions: dict[str, str] = {}
        self.command_of: Callable[[str], str] = lambda _: ""
        """Which command a session runs, or has just run; set by who knows."""

    def profile(self, name: str) -> SandboxProfile:
        """The profile of that name, or with an empty name the configured one; without a workspace yet.

        Raises InvalidArguments.
        """
        template = self._settings.template
        wanted = name or template.name
        if wanted not in PROFILES:
            raise InvalidArguments(f"no profile {wanted[:40]!r}", suggestion=f"profiles: {', '.join(PROFILES)}")
        return replace(template, name=wanted) if wanted != "trusted" else TRUSTED

    @property
    def template(self) -> SandboxProfile:
        """The configured box, whichever kind it is, without a workspace yet."""
        return self._settings.template

    async def facts(self) -> dict[str, Any]:
        """As JSON has it, what another process of this user's needs to make a box as this one would."""
        own = self._settings
        return {
            "template": asdict(own.template),
            "minimum_level": str(own.minimum_level),
            "env_allow": list(own.env_allow),
            "env": dict(own.env),
            "machine": await self._sandbox.facts() if self._sandbox is not None else None,
        }

    async def make_ready(self) -> None:
        """Does ahead of the first box what is done once."""
        if self._sandbox is not None and self._settings.template.name != "trusted":
            await asyncio.gather(self._sandbox.make_ready(), asyncio.to_thread(_load, self._settings.template))

    async def prepare(self, spec: SessionSpec, directory: Path, env: Mapping[str, str]) -> PreparedSandbox:
        """The box of a shell that is about to start with ``env``; an earlier one of the session is taken down.

        Raises SandboxUnavailable, also where the machine's level became weaker than the session had; SandboxRefused.
        """
        if self._sandbox is None:
            raise SandboxUnavailable("this process cannot make boxes", suggestion="use profile trusted")
        await self.leave(spec.session_id)
        box = directory / "box"
        box.mkdir(mode=0o700, exist_ok=True)
        files = directory / "shell"
        boxed = await self._sandbox.prepare(
            spec.profile, box, readable=(str(files),), writable=(str(files / "out"),), env=env, watched=True
        )
        if spec.level is not SandboxLevel.NONE and STRENGTH.index(boxed.level) > STRENGTH.index(spec.level):
            boxed.release()
            if boxed.workspace is not None:
                await asyncio.to_thread(boxed.workspace.release)
            raise SandboxUnavailable(
                f"this session began in a {spec.level} box, and only {boxed.level} is available now",
                suggestion="run: ai-session doctor; or close the session and create another",
            )
        self._boxed[spec.session_id] = boxed
        self._directories[spec.session_id] = box
        self._introductions[spec.session_id] = boxed.introduction
        if boxed.workspace is not None:
            self._watch_workspace(spec.session_id, boxed.workspace, boxed.known, directory, restore=False)
            await asyncio.to_thread(boxed.workspace.release)
        return boxed

    async def enter(self, spec: SessionSpec, pid: int) -> None:
        """The terminal's process has started: let it continue once all is protected and its proxy listens, and watch
        what it takes. Raises SandboxUnavailable."""
        boxed = self._boxed.get(spec.session_id)
        if boxed is None or boxed.level is SandboxLevel.NONE:
            return
        facts = {"unprotected": list(boxed.unprotected)} if boxed.unprotected else {}
        self._event(
            "sandbox.start", session=spec.session_id, profile=spec.profile.name, level=str(boxed.level), **facts
        )
        self._limit(spec, pid)
        self._pids[spec.session_id] = pid
        if boxed.info_path:
            from ai_session.sandbox.network.entry import Box, guard_inside, open_gate

            async def start(box: Box) -> None:
                await guard_inside(box.pid, boxed.later)
                if spec.profile.network == "proxy":
                    await self._proxy(spec).start(box)

            async with asyncio.timeout(ENTRY_SECONDS):
                await open_gate(boxed.info_path, boxed.block_path, start)

    async def adopt(self, spec: SessionSpec, pid: int, directory: Path) -> None:
        """An earlier daemon's box continues: its proxy listens again, its resources are watched again.

        With ``pid`` 0 its shell has ended meanwhile, and nothing of it stays.
        """
        if spec.level is SandboxLevel.NONE:
            return
        self._directories[spec.session_id] = directory / "box"
        if not pid:
            await self.leave(spec.session_id)
            return
        self._limit(spec, pid)
        self._pids[spec.session_id] = pid
        await self._watch_again(spec, directory)
        if spec.profile.network == "proxy":
            from ai_session.sandbox.network.entry import read_box

            box = read_box(directory / "box" / "info")
            try:
                if box is not None:
                    await self._proxy(spec).start(box)
            except (AiSessionError, OSError) as problem:
                log.warning("session %s has lost its network: %s", spec.name, problem)

    def _proxy(self, spec: SessionSpec) -> SessionProxy:
        from ai_session.sandbox.network.proxy import SessionProxy
        from ai_session.sandbox.network.rules import NetworkRules

        def event(name: str, **facts: Any) -> None:
            self._event(name, session=spec.session_id, **facts)

        async def ask(domain: str) -> bool:
            return self._ask_domain is not None and await self._ask_domain(spec, domain)

        rules = NetworkRules(spec.profile.domains, spec.profile.ports)
        proxy = SessionProxy(rules, ask=ask if self._settings.ask_domains else None, event=event)
        self._proxies[spec.session_id] = proxy
        return proxy

    def forget_answers(self) -> None:
        """Names are asked about again, because what was allowed or how much may be has changed."""
        for proxy in self._proxies.values():
            proxy.forget_answers()

    def _limit(self, spec: SessionSpec, pid: int) -> None:
        def on_limit(what: str) -> None:
            self._event("sandbox.limit", session=spec.session_id, what=what)

        if self._watch:
            self._watch.add(spec.session_id, pid, spec.profile, on_limit)

    def introduction(self, session_id: str) -> str:
        """What is to be said once of that session's box, and was not said before; empty for nothing."""
        return self._introductions.pop(session_id, "")

    def notices(self, session_id: str) -> list[Notice]:
        """What appeared in the session's workspace since its box began, and is still there."""
        watch = self._watches.get(session_id)
        return watch.notices(session_id) if watch else []

    async def news(self, session_id: str, command_id: str = "") -> list[Notice]:
        """Those of them that were not returned before. ``command_id`` is of a command that has just ended."""
        watch = self._watches.get(session_id)
        if watch is None:
            return []
        await watch.settle(SETTLE_SECONDS, session_id, command_id)
        return watch.news(session_id)

    async def look(self) -> None:
        """Take in what has happened in all workspaces until now."""
        watches = {id(watch): watch for watch in self._watches.values()}
        await asyncio.gather(*(watch.settle(SETTLE_SECONDS) for watch in watches.values()))

    async def sweep(self) -> None:
        """Take away what boxes whose processes were killed left in workspaces."""
        if self._sandbox is not None:
            await asyncio.to_thread(self._sandbox.sweep)

    def _watch_workspace(
        self, session_id: str, workspace: Workspace, known: Found, directory: Path, *, restore: bool
    ) -> None:
        from ai_session.sandbox.workspace.watch import WorkspaceWatch, kept_in

        same = (watch for watch in self._watches.values() if watch.workspace is workspace)
        watch = next(same, None) or WorkspaceWatch(
            workspace,
            known,
            kept_in(directory.parent.parent, workspace.root),
            self.command_of,
            lambda: self._protect_again(workspace),
            self._event,
            restore=restore,
        )
        self._watches[session_id] = watch
        watch.add(session_id)

    async def _watch_again(self, spec: SessionSpec, directory: Path) -> None:
        """Of a session that an earlier daemon began."""
        from ai_session.sandbox.workspace.notices import found_in

        if self._sandbox is None:
            return
        try:
            workspace = await asyncio.to_thread(self._sandbox.observed, spec.profile, spec.level)
        except OSError as problem:
            log.warning("the workspace of session %s is not watched: %s", spec.name, problem)
            return
        if workspace is not None:
            known = await asyncio.to_thread(found_in, workspace)
            self._watch_workspace(spec.session_id, workspace, known, directory, restore=True)
            await asyncio.to_thread(workspace.release)

    async def _protect_again(self, workspace: Workspace) -> list[str]:
        """In every box that can write to it what lost its protection, as a file does that is replaced from outside;
        the paths of that, relative to the workspace."""
        from ai_session.sandbox.network.entry import renew

        found: dict[str, None] = {}
        for session_id, watch in list(self._watches.items()):
            if watch.workspace is workspace and (outer := self._pids.get(session_id)):
                found |= dict.fromkeys(await renew(outer, self._guards(session_id)))
        return [os.path.relpath(path, workspace.root) for path in found]

    def _guards(self, session_id: str) -> list[tuple[str, str]]:
        if boxed := self._boxed.get(session_id):
            return list(boxed.guarded)
        try:
            rows: list[tuple[str, str]] = json.loads((self._directories[session_id] / "guarded.json").read_bytes())
            return [(path, kind) for path, kind in rows]
        except (OSError, ValueError, KeyError, TypeError):
            return []

    async def leave(self, session_id: str) -> None:
        """The session's shell is gone: nothing of its box stays."""
        self._pids.pop(session_id, None)
        self._introductions.pop(session_id, None)
        if watch := self._watches.get(session_id):
            # What its last command left is to be in the record as well.
            await watch.settle(SETTLE_SECONDS, session_id)
            self._watches.pop(session_id, None)
            watch.remove(session_id)
            if not len(watch):
                await watch.aclose()
        if self._watch:
            self._watch.remove(session_id)
        if proxy := self._proxies.pop(session_id, None):
            await proxy.aclose()
        directory = self._directories.pop(session_id, None)
        if boxed := self._boxed.pop(session_id, None):
            boxed.release()
        elif directory and self._sandbox:
            self._sandbox.release(directory)

    async def aclose(self) -> None:
        """Let go of what lives in this process; boxes stay for the next daemon."""
        for watch in {id(watch): watch for watch in self._watches.values()}.values():
            await watch.aclose(keep=True)
        self._watches.clear()
        for session_id in list(self._proxies):
            await self._proxies.pop(session_id).aclose()
        if self._sandbox:
            await asyncio.to_thread(self._sandbox.close)
        if self._watch:
            self._watch.close()


def _load(template: SandboxProfile) -> None:
    """What such a box will need. Takes 10 ms for each."""
    from ai_session.sandbox.workspace import watch

    del watch
    if template.network == "proxy":
        from ai_session.sandbox.network import proxy

        del proxy
