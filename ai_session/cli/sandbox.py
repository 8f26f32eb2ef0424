"""The verb sandbox: runs one command in a box on this terminal.

The daemon's policy decides before it starts, and the daemon records how it ends; without one nothing runs. If the
daemon ends meanwhile the command continues, and its end is recorded as lost.
"""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any

from agentwire.cli.options import Argument, Option
from agentwire.cli.output import leave, remark
from ai_session.cli.output import EXIT_EXEC_FAILED, report
from ai_session.client.connection import ControlClient, connect
from ai_session.errors import AiSessionError, DaemonUnavailable, InvalidArguments, SandboxUnavailable
from ai_session.models import SandboxLevel, SandboxProfile
from ai_session.system.variable_names import like

if TYPE_CHECKING:
    import asyncio

    from ai_session.sandbox.sandbox import PreparedSandbox
    from ai_session.sandbox.workspace.placeholders import Placeholders

GATE_SECONDS, SETTLE_SECONDS = 20.0, 0.9
COMMAND = "command"
SYSTEM_ERROR = "system_error"
NAMES = ("read-only", "workspace")
SESSION_VARIABLES = ("AI_SESSION_ID", "AI_SESSION_NAME", "AI_SESSION_CWD")
"""Variables of a session's shell; others with this prefix may be settings."""


def sandbox(
    command: Annotated[list[str], Argument(metavar="COMMAND...", help="The program and its arguments.")],
    profile: Annotated[str, Option("--profile", help="workspace (writable) or read-only.")] = "",
    workspace: Annotated[
        str, Option("--workspace", metavar="DIR", help="The directory to work in; default: this one.")
    ] = "",
    home: Annotated[
        str, Option("--home", metavar="DIR", help="The home directory, which is empty inside; default: $HOME.")
    ] = "",
    allow_domain: Annotated[
        list[str] | None,
        Option(
            "--allow-domain",
            metavar="NAME",
            help="Domain that may be reached: pypi.org or *.pypi.org; may be repeated.",
        ),
    ] = None,
) -> None:
    """Run a command in a box on this terminal and return its exit code.

    It sees the system read-only, an empty home and the workspace; settings are those of sessions (config: sandbox,
    network). Exit code 125 if there is no box, or the policy denies it; then nothing runs. ai-session sandbox -- npm
    test
    """
    try:
        with connect() as client:
            code = _run_allowed(client, command, profile, workspace, home, allow_domain)
    except AiSessionError as error:
        code = report(error, as_json=False, exit_code=EXIT_EXEC_FAILED)
    leave(code)


def _run_allowed(
    client: ControlClient,
    command: Sequence[str],
    name: str,
    workspace: str,
    home: str,
    domains: Sequence[str] | None,
) -> int:
    """Ask the gate, run the command and report its end to the gate."""
    asyncio = _asyncio()
    from ai_session.config import config

    here, home = _directory_of(workspace or os.getcwd()), home or str(config.home_directory())
    if os.path.lexists(home) and not os.path.isdir(home):
        raise InvalidArguments(f"no directory: {home!r}", suggestion="--home DIR")
    if name and name not in NAMES:
        raise _no_box(name)
    settings = None if _same_settings(client) else _own_settings()
    wanted = {"profile": name, "domains": domains}
    if settings is not None:
        chosen = make_profile(settings.template, name, here, home, domains)
        wanted = {"profile": chosen.name, "domains": chosen.domains}
    box = client.request("sandbox", argv=list(command), workspace=here, **wanted).get("box")
    try:
        if settings is None:
            settings = _received_settings(box)
        chosen = make_profile(settings.template, name, here, home, domains)
        code = asyncio.run(_run(client, settings, chosen, command))
    except (AiSessionError, OSError) as error:
        _report_end(client, code=error.code if isinstance(error, AiSessionError) else SYSTEM_ERROR)
        raise
    _report_end(client, exit_code=code)
    return code


def _asyncio() -> ModuleType:
    """Import asyncio without TLS, which this verb does not need: that saves a fifth of the 50 ms."""
    left_out = "ssl" not in sys.modules
    if left_out:
        sys.modules["ssl"] = None  # pyright: ignore[reportArgumentType]
    try:
        import asyncio
    finally:
        if left_out:
            del sys.modules["ssl"]
    return asyncio


@dataclass(frozen=True, slots=True)
class BoxOptions:
    """The options of boxes. ``template`` has every limit and list; ``machine`` is what the daemon found out."""

    template: SandboxProfile
    minimum_level: SandboxLevel
    env_allow: Sequence[str]
    env: Mapping[str, str]
    machine: Mapping[str, Any] | None = None


def _same_settings(client: ControlClient) -> bool:
    """Report whether the daemon's settings are those that this process would read, which would take longest."""
    from ai_session.config import config

    if any(name.startswith(config.PREFIX) and name not in SESSION_VARIABLES for name in config.environment()):
        return False
    try:
        files: dict[str, Any] = client.request("settings")["read_from"]
    except InvalidArguments:  # an older daemon
        return False
    return str(config.default_path()) in files and all(config.stamp(path) == then for path, then in files.items())


def _received_settings(box: Mapping[str, Any]) -> BoxOptions:
    given: dict[str, Any] = box["template"]
    lists: dict[str, Any] = {name: (*value,) if isinstance(value, list) else value for name, value in given.items()}  # pyright: ignore[reportUnknownVariableType]
    level = SandboxLevel(box["minimum_level"])
    return BoxOptions(SandboxProfile(**lists), level, box["env_allow"], box["env"], box["machine"])


def _own_settings() -> BoxOptions:
    from ai_session.config import config
    from ai_session.daemon.app import box_template
    from ai_session.gate.policy import administrator

    settings = administrator.read().bound(config.load())
    own = settings.sandbox
    return BoxOptions(
        box_template(settings), SandboxLevel(own.minimum_level), own.env_allow, dict(settings.session.env)
    )


def _report_end(client: ControlClient, **how: Any) -> None:
    try:
        client.request("ended", **how)
    except DaemonUnavailable:
        remark(
            "warning: the connection to the daemon was lost, so the audit log does not record how this command ended"
        )


async def _run(client: ControlClient, settings: BoxOptions, chosen: SandboxProfile, command: Sequence[str]) -> int:
    from ai_session.config import config
    from ai_session.sandbox.network.entry import environment as proxy_environment
    from ai_session.sandbox.sandbox import Machine, Sandbox

    environ = config.environment()
    runtime = config.runtime_directory(config.home_directory(), os.getuid())
    passes = like(tuple(settings.env_allow))
    env = {key: value for key, value in environ.items() if passes(key)}
    env = {"LANG": "C.UTF-8", **env, **settings.env, "HOME": chosen.home}
    box = Sandbox(
        runtime_directory=runtime,
        minimum_level=settings.minimum_level,
        proxy_env=proxy_environment() if chosen.network == "proxy" else {},
        machine=Machine.of(settings.machine) if settings.machine else None,
    )
    with _directory(runtime / "boxes") as directory:
        boxed = await box.prepare(chosen, directory, env=env, die_with_parent=True, watched=True)
        try:
            for note in (*boxed.notes, *boxed.unprotected):
                remark(f"warning: {note}")
            if boxed.introduction and sys.stderr.isatty():
                remark(f"note: {boxed.introduction}")
            client.request("started", level=boxed.level)
            return await _start(
                client, boxed, command, chosen, environ.get("TERM", "dumb"), directory, box.placeholders
            )
        finally:
            boxed.release()


def _directory_of(workspace: str) -> str:
    if not os.path.isdir(workspace):
        raise InvalidArguments(f"no such directory: {workspace!r}", suggestion="--workspace DIR")
    return os.path.realpath(workspace)


def _no_box(name: str) -> InvalidArguments:
    return InvalidArguments(f"no box is called {name!r}", suggestion=f"--profile {' or '.join(NAMES)}")


def make_profile(
    template: SandboxProfile, name: str, workspace: str, home: str, domains: Sequence[str] | None
) -> SandboxProfile:
    """Return the box that settings and options describe. Raises InvalidArguments."""
    wanted = name or template.name
    if wanted not in NAMES:
        raise _no_box(wanted)
    home = os.path.realpath(home)
    allowed = tuple(template.domains if domains is None else domains)

    def resolved(names: Sequence[str]) -> tuple[str, ...]:
        return tuple(os.path.realpath(os.path.expanduser(path)) for path in names)

    return replace(
        template,
        name="read-only" if wanted == "read-only" else "workspace",
        workspace=workspace,
        home=home,
        readable=resolved(template.readable),
        writable=resolved(template.writable),
        home_readable=tuple(os.path.join(home, path) for path in template.home_readable),
        network="proxy" if allowed else "off",
        domains=allowed,
    )


async def _start(
    client: ControlClient,
    boxed: PreparedSandbox,
    command: Sequence[str],
    profile: SandboxProfile,
    term: str,
    directory: Path,
    placeholders: Placeholders,
) -> int:
    import asyncio

    from ai_session.cli import foreground_job
    from ai_session.sandbox.limits.cgroup import delegated
    from ai_session.sandbox.limits.watch import ResourceWatch

    here = ""
    with suppress(FileNotFoundError):  # it has been removed; the workspace is another
        here = os.getcwd()
    inside = here == profile.workspace or here.startswith(profile.workspace.rstrip("/") + "/")
    async with AsyncExitStack() as stack:
        stack.enter_context(foreground_job.terminal_restored())
        process = await foreground_job.start(
            boxed.argv, command, boxed.level, {**boxed.env, "TERM": term}, here if inside else profile.workspace
        )
        watch = ResourceWatch(delegated())
        stack.callback(watch.close)
        watch.add(name := f"command-{process.pid}", process.pid, profile, lambda met: remark(f"warning: {met}"))
        stack.callback(watch.remove, name)
        await _watch_workspace(stack, client, boxed, process.pid, directory, placeholders)
        ended = asyncio.ensure_future(foreground_job.until_ended(process, boxed.level))
        if boxed.info_path:
            await _open_gate(stack, client, boxed, profile, ended)
        return await ended


async def _watch_workspace(
    stack: AsyncExitStack,
    client: ControlClient,
    boxed: PreparedSandbox,
    pid: int,
    directory: Path,
    placeholders: Placeholders,
) -> None:
    """Watch the workspace: what appears is reported when the command ends, and recorded by the daemon."""
    from ai_session.sandbox.network.entry import renew
    from ai_session.sandbox.workspace.watch import WorkspaceWatch
    from ai_session.sandbox.workspace.words import sentence

    if (workspace := boxed.workspace) is None:
        return

    async def protect_again() -> list[str]:
        return [os.path.relpath(path, workspace.root) for path in await renew(pid, boxed.guarded)]

    watch = WorkspaceWatch(
        workspace,
        boxed.known,
        directory / "watch.json",
        placeholders,
        lambda _: "",
        protect_again,
        _recorder(client),
    )
    watch.add(COMMAND)

    async def end() -> None:
        await watch.settle(SETTLE_SECONDS)
        if news := [notice.facts() for notice in watch.news(COMMAND)]:
            remark(f"warning: {sentence(news)}")
        await watch.aclose()

    stack.push_async_callback(end)


def _recorder(client: ControlClient) -> Callable[..., None]:
    def record(event: str, **facts: Any) -> None:
        known = {name: fact for name, fact in facts.items() if fact is not None}
        with suppress(DaemonUnavailable):  # reported when the command has ended
            client.send_request("reached", event=event, **known)

    return record


async def _open_gate(
    stack: AsyncExitStack,
    client: ControlClient,
    boxed: PreparedSandbox,
    profile: SandboxProfile,
    ended: asyncio.Future[int],
) -> None:
    """Let the command start once everything is protected and its proxy listens; otherwise end the box. The daemon
    records the command's connections."""
    import asyncio

    from ai_session.sandbox.network.entry import Box, guard_inside, open_gate

    async def start(box: Box) -> None:
        await guard_inside(box.pid, boxed.later)
        if profile.network == "proxy":
            from ai_session.sandbox.network.proxy import SessionProxy
            from ai_session.sandbox.network.rules import NetworkRules

            proxy = SessionProxy(NetworkRules(profile.domains, profile.ports), event=_recorder(client))
            stack.push_async_callback(proxy.aclose)
            await proxy.start(box)

    gate = asyncio.ensure_future(open_gate(boxed.info_path, boxed.block_path, start))
    done, _ = await asyncio.wait((gate, ended), timeout=GATE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
    if gate not in done:
        gate.cancel()
        await asyncio.wait((gate,))
        if not done:
            raise SandboxUnavailable("the box did not start", suggestion="run: ai-session doctor")
    else:
        gate.result()


@contextmanager
def _directory(parent: Path) -> Generator[Path]:
    """Yield a private directory for one box. Directories of processes that were killed are removed first."""
    parent.mkdir(mode=0o700, exist_ok=True)
    turn = os.open(parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(turn, fcntl.LOCK_EX)  # a directory that is just being created is not locked yet
        for old in parent.iterdir():
            with suppress(OSError), open(old / "alive", "a") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove(old)
        directory = parent / os.urandom(8).hex()
        directory.mkdir(mode=0o700)
        alive = open(directory / "alive", "w")  # noqa: SIM115
        fcntl.flock(alive, fcntl.LOCK_EX)
    finally:
        os.close(turn)
    try:
        with alive:
            yield directory
    finally:
        _remove(directory)


def _remove(directory: Path) -> None:
    try:
        for entry in os.scandir(directory):
            os.unlink(entry)
        directory.rmdir()
    except OSError:
        from shutil import rmtree  # takes 5 ms, and most boxes leave plain files alone

        rmtree(directory, ignore_errors=True)
