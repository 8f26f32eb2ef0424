"""Tools that open, list, describe, resize and close sessions."""

from __future__ import annotations

import os
import re
from dataclasses import asdict, replace
from datetime import datetime
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from ai_session.errors import InvalidArguments, SessionExists, SessionNotFound
from ai_session.models import PROFILES, Effect, SandboxLevel, SessionSpec, SessionState, ToolResult
from ai_session.sessions.names import checked_name
from ai_session.sessions.report import cut, record_facts
from ai_session.sessions.session import Session
from ai_session.sessions.spec import NewSession
from ai_session.sessions.workspaces import existing_directory, unboxed
from ai_session.terminal.masking import Spans
from ai_session.tools.base import (
    Arguments,
    Context,
    EffectfulArguments,
    SessionId,
    Subject,
    Tool,
    checked_text,
    output,
    subject_of,
)

COMMAND_CHARS = 200
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


MOST_VARIABLE_BYTES = 128 << 10
"""Linux's limit for one variable with its name, ``=`` and a NUL."""

MOST_ENV_BYTES = 1 << 20
"""The limit for all of them; Linux allows twice as much, including arguments and a session's other variables."""

OWN_VARIABLES = ("AI_SESSION_ID", "AI_SESSION_NAME", "AI_SESSION_CWD")
OF_THE_BOX = ("HOME", "TMPDIR")


def checked_env(env: dict[str, str]) -> dict[str, str]:
    """Return variables that a process can have. Raises ValueError that names the variable, never its value."""
    total = 0
    for name, value in env.items():
        if not VARIABLE.match(name):
            raise ValueError(f"has {name[:40]!r}, which is not the name of a variable")
        if name in OWN_VARIABLES:
            raise ValueError(f"{name} is set by ai-session itself")
        try:
            size = len(checked_text(value).encode("utf-8", "surrogateescape")) + len(name) + 2
        except ValueError as problem:
            raise ValueError(f"{name[:40]}: {problem}") from None
        if size > MOST_VARIABLE_BYTES:
            raise ValueError(f"{name[:40]} is too long ({size} bytes of at most {MOST_VARIABLE_BYTES}): use a file")
        total += size
    if total > MOST_ENV_BYTES:
        raise ValueError(f"the variables are too long together ({total} bytes of at most {MOST_ENV_BYTES}): use a file")
    return env


class CreateSession(EffectfulArguments):
    name: Annotated[
        str,
        AfterValidator(checked_name),
        Field(description="Unique name: letters, digits, . _ -, e.g. 'build'."),
    ]
    working_directory: Annotated[str, Field(description="Default: the client's directory.")] = ""
    shell: Annotated[str, Field(description="bash, zsh, fish, sh, dash… or a path.")] = ""
    backend: Annotated[str, Field(description="auto, tmux or pty.")] = ""
    env: Annotated[dict[str, str], AfterValidator(checked_env)] = Field(
        default_factory=dict[str, str], description="Extra environment variables."
    )
    rows: Annotated[int, Field(ge=2, le=1000)] = 0
    cols: Annotated[int, Field(ge=2, le=1000)] = 0


class OneSession(Arguments):
    session_id: SessionId


class NoArguments(Arguments):
    pass


class CloseSession(EffectfulArguments):
    session_id: SessionId


class ResizeSession(EffectfulArguments):
    session_id: SessionId
    rows: Annotated[int, Field(ge=2, le=1000)]
    cols: Annotated[int, Field(ge=2, le=1000)]


def subject_of_new(context: Context, arguments: CreateSession) -> Subject:
    """Return a new session's box: as configured or a person's choice. Raises DirectoryUnusable, SandboxRefused."""
    old = context.sessions.own(arguments.name)
    if old is not None:
        return Subject(old, old.spec.profile, old.spec.level)
    principal, boxes = context.principal, context.sessions.boxes
    template = boxes.profile(context.profile)
    loosens = PROFILES.index(template.name) > PROFILES.index(boxes.profile("").name)
    if template.name == "trusted":
        home = principal.env.get("HOME", "")
        start = unboxed(arguments.working_directory, principal.working_directory, home)
        return Subject(profile=template, start=start, loosens=loosens)
    start = context.workspaces.start_directory(
        arguments.working_directory, principal.working_directory, around=principal.workspace
    )
    profile = replace(template, workspace=start.workspace, home=context.workspaces.home)
    return Subject(profile=profile, level=boxes.minimum_level, start=start, loosens=loosens)


def subject_of_closing(context: Context, arguments: CloseSession) -> Subject:
    """Return the session, or no subject if a call with a key names one that does not exist: it may have ended it."""
    if arguments.call_key and context.sessions.find(arguments.session_id) is None:
        return Subject()
    return subject_of(context, arguments)


async def create_session(context: Context, arguments: CreateSession) -> ToolResult:
    """Create a session, unless an earlier daemon created it for the same call."""
    old = context.sessions.own(arguments.name) if context.repeated else None
    if old is not None and old.exit is None and old.spec.call_key == arguments.call_key:
        await old.wait_started()
        return _created(old, context)
    if (authorized := context.subject.session) is not None and context.sessions.own(arguments.name) is not authorized:
        raise SessionNotFound(
            f"session {arguments.name!r} was closed in the meantime",
            suggestion="make the call again to open another",
        )
    directory = last = ""
    if authorized is not None:
        last = authorized.at.cwd or authorized.spec.working_directory
        _require_as_asked(authorized, context, arguments)
        if arguments.working_directory:
            directory = existing_directory(arguments.working_directory, context.principal.working_directory)
    start, profile = context.subject.start, context.subject.profile
    if profile.name != "trusted" and (names := [name for name in OF_THE_BOX if name in arguments.env]):
        raise InvalidArguments(
            f"env: {' and '.join(names)} cannot be set for a session in a sandbox",
            suggestion=f"leave {' and '.join(names)} out, or set it for one command: {names[0]}=DIRECTORY COMMAND",
        )
    session = await context.sessions.create(
        NewSession(
            name=arguments.name,
            client_env=context.principal.env,
            env=arguments.env,
            shell=_shell(context, arguments),
            backend=arguments.backend,
            working_directory=start.directory if start else "",
            rows=arguments.rows,
            cols=arguments.cols,
            profile=context.subject.profile,
            call_key=arguments.call_key,
        )
    )
    notes: list[str] = []
    if authorized is not None:
        notes.append(_ignored(session.spec, directory, arguments))
        if not os.path.isdir(last):
            notes.append(f"{last} no longer exists: the session goes on in {session.spec.working_directory}")
    return _created(session, context, "; ".join(filter(None, notes)))


def _ignored(spec: SessionSpec, directory: str, arguments: CreateSession) -> str:
    """Return a note of what a session that was started again does not take; ``directory`` is the one asked for."""
    asked = {
        "env": any(spec.env.get(name) != value for name, value in arguments.env.items()),
        "working_directory": directory and os.path.realpath(directory) != os.path.realpath(spec.working_directory),
        "rows": arguments.rows not in (0, spec.rows),
        "cols": arguments.cols not in (0, spec.cols),
    }
    names = [name for name, differs in asked.items() if differs]
    verb = "is" if len(names) == 1 else "are"
    return f"{' and '.join(names)} {verb} ignored: the session goes on as it was" if names else ""


def _shell(context: Context, arguments: CreateSession) -> str:
    """Return the name or the absolute path of the shell; a relative path counts from the client's directory.

    Raises InvalidArguments if the client has none.
    """
    if not os.path.dirname(arguments.shell):
        return arguments.shell
    path = os.path.join(context.principal.working_directory, os.path.expanduser(arguments.shell))
    if not os.path.isabs(path):
        raise InvalidArguments(
            f"shell {arguments.shell!r} is relative, and the client has no directory from which it counts",
            suggestion="pass the name of a shell, or an absolute path",
        )
    return path


def _require_as_asked(session: Session, context: Context, arguments: CreateSession) -> None:
    """Raise SessionExists if what would be started again is not what was asked for."""
    spec = session.spec
    shell, has_shell = arguments.shell, os.path.basename(spec.shell)
    if os.path.dirname(shell):
        shell, has_shell = os.path.realpath(_shell(context, arguments)), os.path.realpath(spec.shell)
    has = {
        "profile": (context.profile, spec.profile.name),
        "shell": (shell, has_shell),
        "backend": (arguments.backend if arguments.backend != "auto" else "", spec.backend),
    }
    if other := [f"{what} {real}, not {asked}" for what, (asked, real) in has.items() if asked and asked != real]:
        state, use = (
            ("has ended", "start it again as it was") if session.exit else ("already exists", "use it as it is")
        )
        raise SessionExists(
            f"session {spec.name!r} {state} ({spec.session_id}), with {' and '.join(other)}",
            suggestion=f"leave that out to {use}, close it first, or choose another name",
        )


def _created(session: Session, context: Context, note: str = "") -> ToolResult:
    """Return the result. The introduction is for people, who see the files, and not in the text for a model."""
    facts = session_facts(session, context.spans) | _workspace_facts(session, context)
    notes = "; ".join(filter(None, (note, context.sessions.boxes.introduction(session.spec.session_id))))
    text = _describe(facts | ({"note": note} if note else {}))
    return ToolResult(text=text, structured=facts | ({"note": notes} if notes else {}))


async def get_session_info(context: Context, arguments: OneSession) -> ToolResult:
    session = context.sessions.get(arguments.session_id)
    await context.sessions.boxes.catch_up()
    facts = session_facts(session, context.spans, full=True) | _workspace_facts(session, context)
    return ToolResult(text=_describe(facts), structured=facts)


def _workspace_facts(session: Session, context: Context) -> dict[str, Any]:
    """Return what is unprotected in the session's workspace and what has appeared there, if anything."""
    spec = session.spec
    rows = [notice.facts() for notice in context.sessions.boxes.notices(spec.session_id)]
    lists: dict[str, Any] = {"unprotected": list(spec.unprotected), "notices": rows}
    return {name: found for name, found in lists.items() if found}


async def list_sessions(context: Context, arguments: NoArguments) -> ToolResult:
    await context.sessions.boxes.catch_up()
    sessions = context.sessions.all()
    rows = [session_facts(session, context.spans) | _workspace_facts(session, context) for session in sessions]
    text = "\n".join(_describe(row) for row in rows) or "no sessions; create_session opens one"
    used = [{"used_at": session.used_at, "in_use": session.in_use} for session in sessions]
    return ToolResult(text=text, structured={"sessions": [row | use for row, use in zip(rows, used, strict=True)]})


async def close_session(context: Context, arguments: CloseSession) -> ToolResult:
    if context.repeated and context.sessions.find(arguments.session_id) is None:
        gone = {"session_id": arguments.session_id, "name": arguments.session_id, "closed": True}
        return ToolResult(
            text=f"session {arguments.session_id!r} was ended by an earlier run of this call", structured=gone
        )
    session = context.sessions.get(arguments.session_id)
    await context.sessions.close(session)
    facts = {"session_id": session.spec.session_id, "name": session.spec.name, "closed": True}
    return ToolResult(text=f"session {session.spec.name!r} and all its processes have been ended", structured=facts)


async def resize_session(context: Context, arguments: ResizeSession) -> ToolResult:
    session = context.sessions.get(arguments.session_id)
    await context.sessions.resize(session, arguments.rows, arguments.cols)
    facts = {"session_id": session.spec.session_id, "rows": arguments.rows, "cols": arguments.cols}
    return ToolResult(text=f"{arguments.rows} rows, {arguments.cols} columns", structured=facts)


def sandbox_of(spec: SessionSpec) -> str:
    """Return the box in a few words: ``workspace (bwrap, network off)``, or ``none``."""
    if spec.level is SandboxLevel.NONE:
        return "none"
    return f"{spec.profile.name} ({spec.level}, network {spec.profile.network})"


def session_facts(session: Session, spans: Spans | None, *, full: bool = False) -> dict[str, Any]:
    """Return the facts of a session that any permitted caller may know."""
    spec, state = session.spec, session.state()
    busy = state in (SessionState.RUNNING, SessionState.WAITING_INPUT, SessionState.STOPPED)
    holder = session.holder() if busy else None
    facts: dict[str, Any] = {
        "session_id": spec.session_id,
        "name": spec.name,
        "state": str(state),
        "shell": os.path.basename(spec.shell),
        "backend": spec.backend,
        "working_directory": session.cwd,
        "sandbox": sandbox_of(spec),
    }
    if spec.profile.workspace:
        facts["workspace"] = spec.profile.workspace
    if spec.owner:
        facts["owner"] = spec.owner
    if spec.shared_with:
        facts["shared_with"] = list(spec.shared_with)
    if session.running:
        record = session.running.record
        facts["running"] = {"command_id": record.command_id, "command": cut(record.command, 0, COMMAND_CHARS, spans)}
    if state is SessionState.WAITING_INPUT and holder:
        facts["input_mode"] = holder.input_mode
    if session.typist:
        facts["typing_by"] = session.typist.who
    if session.exit:
        known = {k: v for k, v in asdict(session.exit).items() if v is not None and v is not False and k != "reason"}
        facts["exit"] = known | {"text": str(session.exit)}
    if not full:
        return facts
    facts |= {
        "shell_version": session.at.version,
        "pid": session.terminal.pid if session.terminal else 0,
        "rows": spec.rows,
        "cols": spec.cols,
        "created_at": spec.created_at,
        "used_at": session.used_at,
        "viewers": session.viewers,
        "commands": session.history.count,
        "output_bytes": session.log.end,
        "retained_from_offset": session.log.first,
    }
    if holder and not holder.leads_itself:
        facts["foreground"] = holder.name
    if last := session.history.last:
        shown = cut(last.command, 0, COMMAND_CHARS, spans)
        facts["last"] = {"command_id": last.command_id, "command": shown, **record_facts(last)}
    return facts


def _describe(facts: dict[str, Any]) -> str:
    words = [f"{facts['name']} ({facts['session_id']}): {facts['state']}"]
    for name, value in facts.items():
        if name in ("session_id", "name", "state"):
            continue
        if name == "notices":
            value = "; ".join(f"{row['kind']} {row['path']}" for row in value)
        elif name == "unprotected":
            value = "; ".join(value)
        elif name in ("created_at", "used_at"):
            value = datetime.fromtimestamp(value).astimezone().isoformat(timespec="seconds")
        elif isinstance(value, dict):
            value = " ".join(f"{k}={v}" for k, v in value.items())  # pyright: ignore[reportUnknownVariableType]
        words.append(f"{name} {value}")
    return ", ".join(words)


SESSION = output(
    "session_id",
    "name",
    "state",
    "shell",
    "backend",
    "working_directory",
    "sandbox",
    unprotected="array?",
    notices="array?",
    note="string?",
)

PLUGIN = (
    Tool(
        name="create_session",
        title="Create terminal session",
        description="Create a persistent terminal session: a real interactive shell that keeps its directory, "
        "variables, functions and background jobs between commands and survives client restarts. A name "
        "whose shell has exited is started again where it left off. The session lives until close_session.",
        effect=Effect.EXECUTE,
        arguments=CreateSession,
        subject=subject_of_new,
        run=create_session,
        output_schema=SESSION,
        resumable=True,
        always_load=True,
        opens=True,
    ),
    Tool(
        name="get_session_info",
        title="Get session info",
        description="Session status: state (starting, ready, running, waiting_input, stopped, exited, lost), directory,"
        " running and last command, exit status, size.",
        effect=Effect.READ,
        arguments=OneSession,
        run=get_session_info,
        output_schema=SESSION,
        read_only=True,
        idempotent=True,
        always_load=True,
    ),
    Tool(
        name="list_sessions",
        title="List sessions",
        description="List all terminal sessions with their state.",
        effect=Effect.READ,
        arguments=NoArguments,
        run=list_sessions,
        output_schema={
            "type": "object",
            "properties": {"sessions": {"type": "array", "items": {"type": "object"}}},
            "required": ["sessions"],
        },
        read_only=True,
        idempotent=True,
        needed_to_end=True,
    ),
    Tool(
        name="close_session",
        title="Close session",
        description="Close a session: ends its shell and every process started in it and deletes its output.",
        effect=Effect.DESTRUCTIVE,
        arguments=CloseSession,
        subject=subject_of_closing,
        run=close_session,
        output_schema=output("session_id", "name", closed="boolean"),
        destructive=True,
        idempotent=True,
        resumable=True,
        closes=True,
        ends_only=True,
    ),
    Tool(
        name="resize_session",
        title="Resize session",
        description="Resize the terminal; full-screen programs redraw.",
        effect=Effect.WRITE,
        arguments=ResizeSession,
        run=resize_session,
        output_schema=output("session_id", rows="integer", cols="integer"),
        idempotent=True,
    ),
)
