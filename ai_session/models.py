"""Frozen values that cross a process or module boundary, and nothing else.

Units are in the names: ``*_seconds`` are floats, ``*_bytes`` and ``*_offset`` count raw log bytes, ``*_at`` are UTC
seconds since the epoch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Literal, get_args

CommandStatus = Literal["finished", "running", "interrupted", "lost"]
InputMode = Literal["line", "password", "raw"]
ChangeKind = Literal["list", "state", "output", "tools"]

MOST_CHANGED_COMMANDS = 64
"""The most commands named in one change; a change of more names none, which means any."""


class Effect(StrEnum):
    """The effect of a tool; a tool without one is never offered."""

    READ = "read"
    WRITE = "write"
    EXECUTE = "execute"
    NETWORK = "network"
    DESTRUCTIVE = "destructive"


class SandboxLevel(StrEnum):
    """The containment of a shell, strongest first; ``none`` only if a person or the configuration requests it."""

    BWRAP = "bwrap"
    BWRAP_NOPROC = "bwrap-noproc"
    LANDLOCK = "landlock"
    SEATBELT = "seatbelt"
    NONE = "none"


class SessionState(StrEnum):
    """The state of a session, derived from marks, the kernel's foreground group or termios, never from output text."""

    STARTING = "starting"
    READY = "ready"
    RUNNING = "running"
    WAITING_INPUT = "waiting_input"
    STOPPED = "stopped"
    EXITED = "exited"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Principal:
    """The other end of a connection, identified by the server, never by a message.

    ``subject`` is the user of a verified token, empty for the user of this machine. ``scopes`` are those of the token;
    None: a program that can connect to this user's socket may do what the user may. ``process`` distinguishes ``pid``
    from a later process with the same number, if the system supports it.
    """

    kind: Literal["mcp", "person"]
    uid: int
    pid: int | None = None
    client: str = ""
    working_directory: str = ""
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    subject: str = ""
    scopes: frozenset[str] | None = None
    process: str = ""

    @property
    def workspace(self) -> str:
        """The directory that sessions opened from ``working_directory`` may write in, if the client names one."""
        return self.env.get("AI_SESSION_WORKSPACE", "")


@dataclass(frozen=True, slots=True)
class ExitStatus:
    """The end of a shell. ``lost``: it has ended with an unknown status. ``reason``: why the session ended it."""

    code: int | None = None
    signal: int | None = None
    lost: bool = False
    reason: str = ""

    def __str__(self) -> str:
        return f"{self._how()}: {self.reason}" if self.reason else self._how()

    def _how(self) -> str:
        if self.lost:
            return "terminal lost, exit status unknown"
        if self.signal is not None:
            return f"killed by signal {self.signal}"
        return f"exit status {self.code}" if self.code is not None else "exit status unknown"


@dataclass(frozen=True, slots=True)
class SandboxProfile:
    """The box of one shell, from the configuration or a person, never from a tool's arguments. Paths are absolute.

    ``workspace`` is writable in profile ``workspace``, visible in ``read-only``. ``masked`` and ``protected`` are
    patterns as in .gitignore: of files that appear empty, and of settings in addition to those that are always
    protected. ``network``: ``off`` is a separate network without a way out, ``proxy`` adds the daemon's proxy to
    ``domains``, ``host`` does not restrict the network.
    """

    name: Literal["read-only", "workspace", "trusted"] = "trusted"
    workspace: str = ""
    home: str = ""
    readable: tuple[str, ...] = ()
    writable: tuple[str, ...] = ()
    home_readable: tuple[str, ...] = ()
    masked: tuple[str, ...] = ()
    protected: tuple[str, ...] = ()
    network: Literal["off", "proxy", "host"] = "off"
    domains: tuple[str, ...] = ()
    ports: tuple[int, ...] = (80, 443)
    memory_bytes: int = 4 << 30
    processes: int = 512
    file_bytes: int = 4 << 30
    tmp_bytes: int = 2 << 30


STARTER = "ai-session-starter"
"""The ``$0`` of a script that prepares a program's terminal and variables, and then becomes the program."""

TRUSTED = SandboxProfile()
PROFILES = ("read-only", "workspace", "trusted")
"""Strictest first."""


@dataclass(frozen=True, slots=True)
class SessionSpec:
    """The specification of a session; stored on disk so that a later daemon can adopt it."""

    session_id: str
    name: str
    shell: str
    backend: str
    working_directory: str
    env: Mapping[str, str]
    rows: int
    cols: int
    created_at: float
    nonce: str
    cookie: str
    profile: SandboxProfile = TRUSTED
    level: SandboxLevel = SandboxLevel.NONE
    call_key: str = ""
    """The key of the call that requested its current shell."""
    owner: str = ""
    """A path, ``user:NAME/run:RUN/agent:NAME`` or its known beginning; empty: the user of this machine."""
    shared_with: tuple[str, ...] = ()
    once: bool = False
    """The session serves one call, which closes it; a later daemon does not need it."""
    unprotected: tuple[str, ...] = ()
    """Descriptions of what its box does not protect in its workspace."""


@dataclass(frozen=True, slots=True)
class TerminalSpec:
    """The facts that a backend needs to open a terminal. ``directory`` is private (0700) and outlives the daemon.

    A backend that writes the log itself appends to ``directory / "log"``. The writer of the log retains the newest
    ``retain_bytes`` of it, and little more.
    """

    session_id: str
    directory: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    working_directory: str
    rows: int
    cols: int
    retain_bytes: int = 64 << 20


@dataclass(frozen=True, slots=True)
class BackendStatus:
    """Whether a backend works here, with its ``version``; if not, the ``reason`` and a ``suggestion``."""

    name: str
    usable: bool
    version: str = ""
    reason: str = ""
    suggestion: str = ""


@dataclass(frozen=True, slots=True)
class CommandRecord:
    """One command of a session: the position of its output in the log, and how it ended."""

    command_id: str
    seq: int
    command: str
    status: CommandStatus
    started_at: float
    start_offset: int
    end_offset: int | None = None
    exit_code: int | None = None
    duration_seconds: float | None = None
    cwd: str = ""
    call_key: str = ""
    stderr_path: str = ""
    note: str = ""
    """An event that happened to it, apart from its exit code."""


@dataclass(frozen=True, slots=True)
class ScreenSnapshot:
    """The visible grid. ``lines`` has ``rows`` entries, trailing blanks cut; cursor is zero-based."""

    rows: int
    cols: int
    lines: tuple[str, ...]
    cursor_row: int
    cursor_col: int
    cursor_visible: bool
    title: str
    alternate_screen: bool


Scope = Literal["once", "session", "always", "prefix", "folder"]
SCOPES: tuple[Scope, ...] = get_args(Scope)
"""The extents of an approval, narrowest first."""


@dataclass(frozen=True, slots=True)
class Question:
    """A question to a person before a call runs. ``message`` is complete and printable; secrets are masked.

    ``detail`` is what a lasting answer applies to: one directory, one domain, one command. ``prefix``, if the command
    only reads, is the first words of all the commands that the answer may apply to instead; ``folder`` is the
    directory, without links, below which it may apply to every new session.
    """

    question_id: str
    principal: Principal
    tool: str
    session: str
    message: str
    rule: str
    arguments_sha256: str
    policy_sha256: str
    asked_at: float
    expires_at: float
    detail: str = ""
    prefix: str = ""
    folder: str = ""

    @property
    def scopes(self) -> tuple[Scope, ...]:
        """The scopes that an approval of this question may have."""
        session: tuple[Scope, ...] = ("session",) if self.session else ()
        prefix: tuple[Scope, ...] = ("prefix",) if self.prefix else ()
        folder: tuple[Scope, ...] = ("folder",) if self.folder else ()
        return ("once", *session, "always", *prefix, *folder)


@dataclass(frozen=True, slots=True)
class Answer:
    """A person's answer. ``scope``: this call only, the same call in this session, the same call always, or always
    everything with the same beginning or below the same directory."""

    allowed: bool
    scope: Scope = "once"
    reason: str = ""
    by: str = ""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call of a tool, whichever way it arrived.

    ``profile`` is a person's choice for a new session, which only a person's connection may set. ``state`` and
    ``answers`` come from the response to a question. ``agent``, ``run`` and ``client_call_id`` are claims of the
    client: they are recorded in the audit log, and what an agent opens in a run is hidden from the run's other agents.
    ``trace`` is for telemetry alone: ``traceparent``, ``tracestate`` and ``baggage`` as the client sent them, and
    attributes of its request under the names of OpenTelemetry's conventions (``mcp.method.name``,
    ``network.transport``). ``patience_seconds`` limits how long the caller waits for a command, whatever the arguments
    say. ``unlisted``: the server chose the tool, not its client, so it may be one that is not listed to clients.
    """

    principal: Principal
    name: str
    arguments: Mapping[str, Any]
    call_id: str
    profile: str = ""
    agent: str = ""
    run: str = ""
    client_call_id: str = ""
    state: str = ""
    answers: Mapping[str, Any] = field(default_factory=dict[str, Any])
    trace: Mapping[str, str] = field(default_factory=dict[str, str])
    patience_seconds: float | None = None
    unlisted: bool = False


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The result of a call. ``text`` and ``structured`` carry the same facts; ``meta`` accompanies them.

    With ``question`` nothing ran: the caller should ask its person, and call again with ``state`` and the answer.
    """

    text: str
    structured: Mapping[str, Any]
    is_error: bool = False
    call_id: str = ""
    meta: Mapping[str, Any] = field(default_factory=dict[str, Any])
    question: Question | None = None
    state: str = ""

    @classmethod
    def failure(cls, code: str, message: str, suggestion: str, call_id: str = "", **more: Any) -> ToolResult:
        """Return an error result with its code and the next step."""
        error = {"code": code, "message": message, "suggestion": suggestion} | more
        text = f"error {code}: {message}" + (f"\nnext: {suggestion}" if suggestion else "")
        return cls(text, {"error": error}, is_error=True, call_id=call_id)


@dataclass(frozen=True, slots=True)
class Change:
    """``list``: a session appeared, disappeared, or its name or sharing changed. ``state``: what is known of it
    changed. ``output``: it printed. ``tools``: the caller may use other tools than before; of no session.

    ``name`` is the session's, empty if it had several in the meantime. ``commands``, for ``output``, are the ids of
    those that may have printed or ended, always including ``all``; empty: any.
    """

    kind: ChangeKind
    session_id: str = ""
    name: str = ""
    commands: frozenset[str] = frozenset()

    def merged(self, later: Change) -> Change:
        """Return this change combined with a later one of the same kind and session."""
        both = self.commands | later.commands
        known = self.commands and later.commands and len(both) <= MOST_CHANGED_COMMANDS
        name = later.name if later.name == self.name else ""
        return replace(later, name=name, commands=both if known else frozenset())

    def facts(self) -> dict[str, Any]:
        """Return plain JSON values for ``from_facts``."""
        return {"kind": self.kind, "session_id": self.session_id, "name": self.name, "commands": sorted(self.commands)}

    @staticmethod
    def from_facts(facts: Mapping[str, Any]) -> Change:
        """Return the change described by ``facts``."""
        return Change(facts["kind"], facts["session_id"], facts["name"], frozenset(facts["commands"]))
