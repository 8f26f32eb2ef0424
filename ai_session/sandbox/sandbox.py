"""The sandbox of a shell: which level this machine supports, and the words that start a command in a box.

Levels, strongest first: bubblewrap with a system call filter and limits; the same if no fresh /proc can be mounted;
Landlock and the filter without namespaces; Seatbelt on macOS. The strongest one available is used.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from ai_session.errors import SandboxRefused, SandboxUnavailable
from ai_session.models import SandboxLevel, SandboxProfile
from ai_session.sandbox import bwrap, seccomp
from ai_session.sandbox import probe as sandbox_probe
from ai_session.sandbox.bwrap import Bubblewrap, Files, Plan, Sources
from ai_session.sandbox.network import entry
from ai_session.sandbox.probe import SandboxStatus
from ai_session.sandbox.workspace.closed_files import ClosedFiles
from ai_session.sandbox.workspace.notices import Found, found_in
from ai_session.sandbox.workspace.paths import absolute, shown
from ai_session.sandbox.workspace.placeholders import Placeholders
from ai_session.sandbox.workspace.protected_paths import (
    MOST,
    MOST_ALONE,
    MOST_BY_BUBBLEWRAP,
    Protection,
    describe,
    find_protection,
    secrets,
)
from ai_session.sandbox.workspace.workspace import Workspace, Workspaces

STRENGTH = tuple(SandboxLevel)
"""Levels, strongest first."""

SYSTEM = ("/", "/bin", "/boot", "/dev", "/etc", "/lib", "/lib64", "/opt", "/proc", "/run", "/sbin", "/sys", "/usr")
WORLD_WRITABLE = ("/tmp", "/var", "/var/tmp", "/var/run", "/home", "/srv", "/mnt", "/media")
NOTHING_PROTECTED = (
    "level landlock: nothing in the workspace is protected; git's config and hooks and settings of editors, agents and "
    "shells can be changed in it and .env files read; outside of it, modes and times of your files can be changed"
    " (chmod)"
)
OUT_OF = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN)
"""Errors that mean the system has run out of something, whichever the workspace."""
GUARDED = "guarded.json"
"""The file in a box's own directory that lists for later processes what is protected."""
STARTERS_ENV = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
"""The environment of what makes a box, outside of it: LD_PRELOAD, for example, must not lead into the workspace."""
ATTEMPTS = 3
"""The attempts to protect a workspace: another box that ends meanwhile may remove its placeholders."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Protected:
    """The outcome of protecting a workspace.

    ``unprotected`` says what of it is not protected, each in one line for a person. ``introduction`` is to be shown
    once.
    """

    unprotected: tuple[str, ...] = ()
    introduction: str = ""
    workspace: Workspace | None = None
    """What the box can write to; None if it can write to nothing."""
    known: Found = field(default_factory=Found)
    """What was there just before the box began."""
    guarded: tuple[tuple[str, str], ...] = ()
    """The paths protected in the box, and how: see guard.py."""
    later: tuple[tuple[str, str], ...] = ()
    """Those of them that are to be protected while the box is blocked."""


@dataclass(frozen=True, slots=True)
class PreparedSandbox(Protected):
    """A box that is ready to be entered: start ``(*argv, *command)`` with ``env``, and the command runs inside.

    With ``info_path`` the box is blocked until ``block_path``, a FIFO, is written to; ``info_path`` (JSON) names
    bubblewrap's child. ``notes`` say what is weaker than usual, each in one line for a person.
    """

    argv: tuple[str, ...]
    level: SandboxLevel
    env: Mapping[str, str]
    info_path: str = ""
    block_path: str = ""
    notes: tuple[str, ...] = ()
    release: Callable[[], None] = field(default=lambda: None)
    """Removes what was put into the workspace for this box. May be called twice."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A box to be made; the fields are the arguments of ``Sandbox.prepare``."""

    profile: SandboxProfile
    directory: Path
    readable: Sequence[str]
    writable: Sequence[str]
    env: Mapping[str, str]
    die_with_parent: bool
    watched: bool


@dataclass(frozen=True, slots=True)
class Machine:
    """Facts about the machine that one process determines for others of the same user and groups.

    ``closed`` holds system files to be shown empty, and trees too large to be searched: see ClosedFiles.
    """

    status: SandboxStatus
    bubblewrap: Bubblewrap | None
    closed: tuple[list[str], list[str]]
    ids: tuple[int, ...]

    def facts(self) -> dict[str, Any]:
        """Return the facts as a JSON object."""
        found = asdict(self.bubblewrap) | {"options": sorted(self.bubblewrap.options)} if self.bubblewrap else None
        return {"status": asdict(self.status), "bubblewrap": found, "closed": self.closed, "ids": self.ids}

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Machine:
        """Build a Machine from ``facts()``. Raises TypeError, KeyError or ValueError for those of another version."""
        status: dict[str, Any] = {**facts["status"]}
        status["level"], status["reasons"] = SandboxLevel(status["level"]), tuple(status["reasons"])
        bubblewrap: Bubblewrap | None = None
        if facts["bubblewrap"] is not None:
            found: dict[str, Any] = {**facts["bubblewrap"]}
            found["options"], found["starter"] = frozenset(found["options"]), tuple(found["starter"])
            bubblewrap = Bubblewrap(**found)
        here, unknown = facts["closed"]
        return cls(SandboxStatus(**status), bubblewrap, (here, unknown), tuple(facts["ids"]))


def ids() -> tuple[int, ...]:
    """Return the ids by which the kernel decides what this process may read."""
    return (os.geteuid(), os.getegid(), *sorted(os.getgroups()))


class Sandbox:
    """Makes boxes. ``runtime_directory`` is never visible in one; ``proxy_env`` makes programs use the proxy.

    ``machine`` holds the facts that another process determined; they are used if its ids are this process's.
    ``placeholders`` is for the watches of workspaces.
    """

    def __init__(
        self,
        *,
        runtime_directory: Path,
        minimum_level: SandboxLevel = SandboxLevel.LANDLOCK,
        proxy_env: Mapping[str, str] | None = None,
        machine: Machine | None = None,
    ) -> None:
        self._machine = machine if machine is not None and machine.ids == ids() else None
        self._runtime = runtime_directory.resolve()
        self._minimum = minimum_level
        self._proxy_env = dict(proxy_env or {})
        self.placeholders = Placeholders(self._runtime)
        self._workspaces = Workspaces()
        self._closed = ClosedFiles()
        self._bubblewrap = self._machine.bubblewrap if self._machine else None
        self._status = self._machine.status if self._machine else None
        self._probing = asyncio.Lock()
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def probe(self) -> SandboxStatus:
        """Return what this machine supports, determined once by making boxes."""
        async with self._probing:
            if self._status is None:
                self._status, self._bubblewrap = await asyncio.to_thread(sandbox_probe.probe)
        return self._status

    async def facts(self) -> dict[str, Any]:
        """Return the facts of a ``Machine``, for another process."""
        status = await self.probe()
        closed: tuple[list[str], list[str]] = ([], [])
        if self._bubblewrap is not None:
            closed = await asyncio.to_thread(self._find_closed)
        return Machine(status, self._bubblewrap, closed, ids()).facts()

    def _find_closed(self) -> tuple[list[str], list[str]]:
        return self._machine.closed if self._machine else self._closed.find()

    async def make_ready(self) -> None:
        """Do in advance what is done once, for a process that will make many boxes."""
        # Concurrently: the probe waits for the programs that it starts.
        status, _ = await asyncio.gather(self.probe(), asyncio.to_thread(self._closed.watch))
        if status.level not in (SandboxLevel.BWRAP, SandboxLevel.BWRAP_NOPROC):
            self._closed.close()

    async def prepare(
        self,
        profile: SandboxProfile,
        directory: Path,
        *,
        readable: Sequence[str] = (),
        writable: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        die_with_parent: bool = False,
        watched: bool = False,
    ) -> PreparedSandbox:
        """Make a box of ``profile`` with its own files in ``directory``, a private one inside the runtime directory.

        ``readable`` and ``writable`` are further paths of the caller's. With ``watched``, the kernel reports changes of
        the workspace from before the box begins, as far as it can, until ``PreparedSandbox.workspace`` is released.
        ``trusted`` returns no box. Raises SandboxUnavailable below the minimum level and SandboxRefused if the
        workspace cannot be protected.
        """
        wanted = Wanted(profile, directory, readable, writable, dict(env or {}), die_with_parent, watched)
        if profile.name == "trusted":
            return PreparedSandbox((), SandboxLevel.NONE, wanted.env)
        status = await self.probe()
        if STRENGTH.index(status.level) > STRENGTH.index(self._minimum) or status.level is SandboxLevel.NONE:
            raise self._too_weak(status)
        directory.mkdir(mode=0o700, exist_ok=True)
        # All in one thread, and one box of a workspace at a time: concurrent threads that stat hundreds of files spend
        # most of their time on passing the interpreter lock.
        async with self._turns.setdefault(profile.workspace, asyncio.Lock()):
            made = await asyncio.to_thread(self._make, status.level, wanted)
        if isinstance(made, PreparedSandbox):
            return made
        boxed, sources, notice = made
        loop = asyncio.get_running_loop()

        def close_sources() -> None:
            nonlocal notice
            if notice >= 0:
                loop.remove_reader(notice)
                os.close(notice)
                notice = -1
            sources.close()

        def release() -> None:
            close_sources()
            self.placeholders.drop(directory)

        loop.add_reader(notice, close_sources)
        return replace(boxed, level=status.level, release=release)

    def _too_weak(self, status: SandboxStatus) -> SandboxUnavailable:
        message = (
            f"this machine can make {status.level} boxes, but {self._minimum} is required: {'; '.join(status.reasons)}"
        )
        if status.level is SandboxLevel.NONE:
            return SandboxUnavailable(
                message,
                suggestion="run: ai-session doctor; a person can open an unboxed session with "
                "ai-session new --profile trusted",
            )
        return SandboxUnavailable(
            message,
            suggestion=f'run: ai-session doctor; a person can set sandbox.minimum_level = "{status.level}" and run '
            "ai-session daemon restart, or open an unboxed session with ai-session new --profile trusted",
        )

    def release(self, directory: Path) -> None:
        """Remove what was put into the workspace for a box, also one of an earlier process. May be called twice."""
        self.placeholders.drop(directory)

    def close(self) -> None:
        """Release what makes the next box faster."""
        self._closed.close()

    def sweep(self) -> None:
        """Remove what boxes whose processes were killed left in workspaces. Blocks."""
        self.placeholders.sweep()

    def observed(self, profile: SandboxProfile, level: SandboxLevel, *, watched: bool = True) -> Workspace | None:
        """Return the workspace of a box that an earlier process made, as it is now, or None if the box cannot write.

        With ``watched``, the caller must ``release`` it. Blocks. Raises OSError.
        """
        if profile.name != "workspace" or level is SandboxLevel.NONE:
            return None
        workspace = self._workspaces.of(profile.workspace, profile.protected, profile.masked)
        if watched:
            workspace.hold()
        with workspace.tree.lock:
            if level is SandboxLevel.LANDLOCK:
                workspace.open_to_writing(None)
                workspace.update(profile.home)
            else:
                with suppress(SandboxRefused):
                    workspace.open_to_writing(one.path for one in find_protection(workspace, profile.home).unprotected)
        return workspace

    def _make(self, level: SandboxLevel, wanted: Wanted) -> PreparedSandbox | tuple[PreparedSandbox, Sources, int]:
        self._check(wanted.profile)
        if level is SandboxLevel.LANDLOCK:
            boxed = _landlock(wanted)
            workspace = self.observed(wanted.profile, level, watched=wanted.watched)
            return replace(boxed, workspace=workspace, known=found_in(workspace) if workspace else {})
        if level is SandboxLevel.SEATBELT:
            return _seatbelt(wanted)
        assert self._bubblewrap is not None
        return self._bwrap(self._bubblewrap, wanted)

    def _check(self, profile: SandboxProfile) -> None:
        """Raise SandboxRefused if a path of the profile would expose what the box must hide."""
        if not profile.workspace:
            raise SandboxRefused("a box needs a workspace", suggestion="name the directory of one project")
        for path in (profile.workspace, *profile.writable):
            if reason := self._why_not_writable(path, profile.home):
                raise SandboxRefused(
                    f"a box cannot write to {path!r}: {reason}",
                    suggestion="choose the directory of one project",
                )
        for path in profile.readable:
            if reason := self._why_unsafe(path):
                raise SandboxRefused(
                    f"{path!r} cannot be shown in a box: {reason}", suggestion="name a directory inside it"
                )

    def _why_not_writable(self, path: str, home: str) -> str:
        if home and _holds(path, os.path.realpath(home)):
            return "it contains the home directory"
        if path in (*SYSTEM, *WORLD_WRITABLE) or any(_holds(top, path) for top in ("/proc", "/sys", "/dev", "/run")):
            return "it belongs to the system or is writable by everybody"
        return self._why_unsafe(path)

    def _why_unsafe(self, path: str) -> str:
        if not os.path.isabs(path) or os.path.realpath(path) != path.rstrip("/"):
            return "it is reached through a symbolic link, or is not an absolute path"
        if _holds(path, str(self._runtime)) or _holds(str(self._runtime), path):
            return "ai-session keeps its own files there"
        return ""

    def _bwrap(self, bubblewrap: Bubblewrap, wanted: Wanted) -> tuple[PreparedSandbox, Sources, int]:
        profile, directory = wanted.profile, wanted.directory
        files, sources = Files(directory), Sources()
        protection = Protected()
        try:
            plan = Plan(bubblewrap, sources, files / "empty")
            closed, unknown = self._find_closed()
            for attempt in range(1, ATTEMPTS + 1):
                try:
                    plan = Plan(bubblewrap, sources, files / "empty")
                    plan.system([*closed, *unknown], network=profile.network == "host")
                    self._show(plan, wanted)
                    protection = self._protect(plan, wanted)
                    break
                except FileNotFoundError:
                    if attempt == ATTEMPTS:
                        raise
            proxied = profile.network == "proxy"
            inside = {**wanted.env, "TMPDIR": "/tmp", **(self._proxy_env if proxied else {})}
            gated = proxied or bool(protection.later)
            argv = bwrap.write(
                bubblewrap, plan, files, profile, inside, die_with_parent=wanted.die_with_parent, gated=gated
            )
            (directory / GUARDED).write_text(json.dumps(protection.guarded))
            notice = os.open(files / "taken", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        except BaseException as problem:
            sources.close()
            self.placeholders.drop(directory)
            if wanted.watched and protection.workspace is not None:
                protection.workspace.release()
            if isinstance(problem, OSError) and problem.errno not in OUT_OF:
                raise SandboxRefused(
                    f"the box cannot be made: {problem}", suggestion="make it readable, or use another directory"
                ) from problem
            raise
        info = block = ""
        if gated:
            info, block = files / "info", files / "block"
        notes = [f"{top} is too large to be searched for unreadable files, and is hidden" for top in unknown]
        boxed = PreparedSandbox(
            argv,
            SandboxLevel.BWRAP,
            dict(STARTERS_ENV),
            info,
            block,
            tuple(notes),
            **{one.name: getattr(protection, one.name) for one in fields(protection)},
        )
        return boxed, sources, notice

    def _show(self, plan: Plan, wanted: Wanted) -> None:
        """Mount everything that is visible; a later mount replaces an earlier one at the same path."""
        profile = wanted.profile
        writes = profile.name == "workspace"
        plan.scratch("/tmp", profile.tmp_bytes, "1777")
        if profile.home:
            plan.scratch(os.path.realpath(profile.home), min(bwrap.HOME_BYTES, profile.tmp_bytes), "0700")
        for name in profile.home_readable:
            path = os.path.normpath(os.path.join(profile.home, name))
            if os.access(path, os.R_OK) and not self._why_unsafe(path):
                plan.show(path, write=False)
        for path in profile.readable:
            if os.access(path, os.R_OK):
                plan.show(path, write=False)
        for path in (*profile.writable, profile.workspace):
            plan.show(path, write=writes)
        for path in wanted.readable:
            plan.show(path, write=False)
        for path in wanted.writable:
            plan.show(path, write=True)

    def _protect(self, plan: Plan, wanted: Wanted) -> Protected:
        profile = wanted.profile
        roots = [profile.workspace, *profile.writable]
        found = [self._workspaces.of(root, profile.protected, profile.masked) for root in roots]
        first = found[0]
        if profile.name != "workspace":
            plan.protect(one := secrets(first, most=MOST_ALONE))
            return Protected(unprotected=describe(one))
        if wanted.watched:
            first.hold()
        try:
            return self._protect_all(plan, wanted, found)
        except BaseException:
            if wanted.watched:
                first.release()
            raise

    def _protect_all(self, plan: Plan, wanted: Wanted, found: Sequence[Workspace]) -> Protected:
        first = found[0]
        most = MOST if entry.can_guard() else MOST_ALONE
        protections: list[Protection] = []
        for one in found:
            taken = sum(protection.mounts for protection in protections)
            protections.append(find_protection(one, wanted.profile.home, most=most - taken, made=one is first))
        protections = self._put_placeholders(protections, wanted.directory)
        later: list[tuple[str, str]] = []
        if sum(protection.mounts for protection in protections) > MOST_BY_BUBBLEWRAP and most == MOST:
            later = [guard for protection in protections for guard in protection.guards()]
        else:
            for one in protections:
                plan.protect(replace(one, read_only=(*one.read_only, *(p.path for p in one.placeholders))))
        first.open_to_writing(one.path for one in protections[0].unprotected)
        return Protected(
            unprotected=tuple(line for one in protections for line in describe(one)),
            introduction=self._introduce(first, protections[0]),
            workspace=first,
            known=self._known(first),
            guarded=tuple(guard for protection in protections for guard in protection.guards()),
            later=tuple(later),
        )

    def _put_placeholders(self, found: Sequence[Protection], directory: Path) -> list[Protection]:
        """Make the missing placeholders. Return ``found`` with those that exist now."""
        wanted = [placeholder for one in found for placeholder in one.placeholders]
        put = self.placeholders.put(directory, wanted, [path for one in found for path in one.read_only])
        return [replace(one, placeholders=tuple(p for p in one.placeholders if p.path in put)) for one in found]

    def _known(self, workspace: Workspace) -> Found:
        """Return what is there without unchanged placeholders: one that another box made meanwhile is writable in this
        one, so what is put into it must be noticed."""
        found = found_in(workspace)
        there = {absolute(workspace.root, key[1]): key for key in found if key[0] == "settings"}
        for path in self.placeholders.unchanged(there.keys() & self.placeholders.held()):
            del found[there[path]]
        return found

    def _introduce(self, workspace: Workspace, found: Protection) -> str:
        ours = [one.path for one in found.placeholders if one.ignored]
        if not ours or not self.placeholders.introduce(workspace.root):
            return ""
        first = os.path.basename(ours[0])
        return (
            f"while sessions run in {shown(workspace.root)}, {len(ours)} empty directories ({first} …) keep settings "
            "from being planted there; git ignores them"
        )


def _landlock(wanted: Wanted) -> PreparedSandbox:
    from ai_session.sandbox import landlock

    profile = wanted.profile
    program = seccomp.build(network=profile.network == "host", unix_sockets=False, no_namespaces=True)
    argv = landlock.prefix(profile, wanted.directory, wanted.readable, wanted.writable, program, wanted.env)
    unprotected = (NOTHING_PROTECTED,) if profile.name == "workspace" else ()
    return PreparedSandbox(tuple(argv), SandboxLevel.LANDLOCK, dict(STARTERS_ENV), unprotected=unprotected)


def _seatbelt(wanted: Wanted) -> PreparedSandbox:
    from ai_session.sandbox import seatbelt

    profile, directory = wanted.profile, wanted.directory
    whole = replace(
        profile,
        readable=(*profile.readable, *wanted.readable),
        writable=(*profile.writable, *wanted.writable, str(directory)),
    )
    text = directory / "profile.sb"
    text.write_text(seatbelt.profile_text(whole))
    return PreparedSandbox((sandbox_probe.SEATBELT, "-f", str(text)), SandboxLevel.SEATBELT, wanted.env)


def _holds(outer: str, inner: str) -> bool:
    return inner == outer or inner.startswith(outer.rstrip("/") + "/")
