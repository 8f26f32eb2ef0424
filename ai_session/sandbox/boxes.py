"""The boxes of sessions: which one a new shell gets, and what the daemon runs for it: proxy, watches."""

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
"""A box that is not set up by then never will be."""
SETTLE_SECONDS = 0.9
"""How long a call waits until changes in its workspace have been inspected; without any it takes microseconds."""

STRENGTH = tuple(SandboxLevel)
"""Levels, strongest first."""

Event = Callable[..., None]
AskDomain = Callable[[SessionSpec, str], Awaitable[bool]]


@dataclass(frozen=True, slots=True)
class BoxSettings:
    """How boxes are made. ``template`` has every limit and list, but no workspace and no home."""

    template: SandboxProfile = TRUSTED
    minimum_level: SandboxLevel = SandboxLevel.LANDLOCK
    env_allow: tuple[str, ...] = ("*",)
    ask_domains: bool = False
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    """The variables set in each box."""


def hides(profile: SandboxProfile, program: str) -> str:
    """Return the directory of ``program`` if such a box hides it along with the home; empty if it can be run."""
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
    """Makes, stores and removes the boxes of one daemon's sessions. Without a sandbox it can make none."""

    def __init__(
        self,
        settings: BoxSettings = BoxSettings(),
        sandbox: Sandbox | None = None,
        watch: ResourceWatch | None = None,
        event: Event = lambda *_, **__: None,
        ask_domain: AskDomain | None = None,
    ) -> None:
        """Take settings and callbacks; ``ask_domain`` asks a person about a domain that is not allowed."""
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
        """Returns the command that a session runs or has just run; set when the daemon is wired."""

    def profile(self, name: str) -> SandboxProfile:
        """Return the named profile, or the configured one for an empty name, without a workspace.

        Raises InvalidArguments.
        """
        template = self._settings.template
        wanted = name or template.name
        if wanted not in PROFILES:
            raise InvalidArguments(f"no profile {wanted[:40]!r}", suggestion=f"profiles: {', '.join(PROFILES)}")
        return replace(template, name=wanted) if wanted != "trusted" else TRUSTED

    @property
    def template(self) -> SandboxProfile:
        """The configured profile, without a workspace."""
        return self._settings.template

    async def facts(self) -> dict[str, Any]:
        """Return, as JSON types, what another process of this user needs to make a box as this one would."""
        own = self._settings
        return {
            "template": asdict(own.template),
            "minimum_level": str(own.minimum_level),
            "env_allow": list(own.env_allow),
            "env": dict(own.env),
            "machine": await self._sandbox.facts() if self._sandbox is not None else None,
        }

    async def make_ready(self) -> None:
        """Do in advance what the first box would otherwise wait for."""
        if self._sandbox is not None and self._settings.template.name != "trusted":
            await asyncio.gather(self._sandbox.make_ready(), asyncio.to_thread(_load, self._settings.template))

    async def prepare(self, spec: SessionSpec, directory: Path, env: Mapping[str, str]) -> PreparedSandbox:
        """Make the box of a shell that is about to start with ``env``. An earlier box of the session is removed.

        Raises SandboxRefused, and SandboxUnavailable also if the machine's level is now weaker than the session's.
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
        """Let the terminal's new process continue once all paths are protected and the proxy listens, and limit its
        resources. Raises SandboxUnavailable."""
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
        """Take over the box of an earlier daemon: listen with its proxy and limit its resources again.

        ``pid`` 0 means that its shell has ended meanwhile; then the box is removed.
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
        """Have each proxy ask again about names, because the policy has changed."""
        for proxy in self._proxies.values():
            proxy.forget_answers()

    def _limit(self, spec: SessionSpec, pid: int) -> None:
        def on_limit(what: str) -> None:
            self._event("sandbox.limit", session=spec.session_id, what=what)

        if self._watch:
            self._watch.add(spec.session_id, pid, spec.profile, on_limit)

    def introduction(self, session_id: str) -> str:
        """Return what is to be reported once about the session's box; empty if nothing is or it was returned before."""
        return self._introductions.pop(session_id, "")

    def notices(self, session_id: str) -> list[Notice]:
        """Return what has appeared in the session's workspace since its box began and is still there."""
        watch = self._watches.get(session_id)
        return watch.notices(session_id) if watch else []

    async def news(self, session_id: str, command_id: str = "") -> list[Notice]:
        """Return the notices not returned before. ``command_id`` is the command that has just ended."""
        watch = self._watches.get(session_id)
        if watch is None:
            return []
        await watch.settle(SETTLE_SECONDS, session_id, command_id)
        return watch.news(session_id)

    async def catch_up(self) -> None:
        """Process what has happened in all workspaces until now."""
        watches = {id(watch): watch for watch in self._watches.values()}
        await asyncio.gather(*(watch.settle(SETTLE_SECONDS) for watch in watches.values()))

    async def sweep(self) -> None:
        """Remove what boxes whose processes were killed left in workspaces."""
        if self._sandbox is not None:
            await asyncio.to_thread(self._sandbox.sweep)

    def _watch_workspace(
        self, session_id: str, workspace: Workspace, known: Found, directory: Path, *, restore: bool
    ) -> None:
        from ai_session.sandbox.workspace.watch import WorkspaceWatch, watch_file

        assert self._sandbox is not None
        same = (watch for watch in self._watches.values() if watch.workspace is workspace)
        watch = next(same, None) or WorkspaceWatch(
            workspace,
            known,
            watch_file(directory.parent.parent, workspace.root),
            self._sandbox.placeholders,
            self.command_of,
            lambda: self._protect_again(workspace),
            self._event,
            restore=restore,
        )
        self._watches[session_id] = watch
        watch.add(session_id)

    async def _watch_again(self, spec: SessionSpec, directory: Path) -> None:
        """Watch the workspace of a session that an earlier daemon started."""
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
        """Protect again, in every box that can write to the workspace, what has lost its protection, for example a file
        replaced from outside. Returns the paths, relative to the workspace."""
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
        """Remove everything of a session's box, because its shell has ended."""
        self._pids.pop(session_id, None)
        self._introductions.pop(session_id, None)
        if watch := self._watches.get(session_id):
            # What its last command changed belongs in the record too.
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
        """Release what belongs to this process. Boxes stay for the next daemon."""
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
    """Import what a box of this kind needs. Takes 10 ms for each module."""
    from ai_session.sandbox.workspace import watch

    del watch
    if template.network == "proxy":
        from ai_session.sandbox.network import proxy

        del proxy
