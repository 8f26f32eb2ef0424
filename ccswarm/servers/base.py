"""What a server must implement, and what ``ccswarm mcp-server`` and ``ccswarm serve`` provide for it. A server only
translates: requests of clients become operations on runs or calls of an agent's tools, and results become responses."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from agentwire.system import peers
from agentwire.system.peers import is_loopback
from ccswarm.errors import UsageInvalid

if TYPE_CHECKING:
    from agentwire.http.access_token import AccessToken
    from ccswarm.config.config import Loaded
    from ccswarm.config.settings import Settings
    from ccswarm.runs.app import App


WORKSPACE = "ccswarm-workspace"
"""The workspace in the home, for servers that are started in no particular directory."""


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """The options of the program. ``config`` is as it was given, ``workspace`` has its links resolved; both are None if
    not given. ``agent`` is empty for the swarm itself; else the server offers that agent's tools. ``trace``: messages
    are logged to standard error."""

    config: Path | None = None
    workspace: Path | None = None
    agent: str = ""
    trace: bool = False
    types: tuple[str, ...] = ("coder",)
    """The types of the default agents, if the configuration names none."""
    runs_only: bool = False
    """Whether MCP clients are offered only the tools for runs, without those for projects and without prompts."""
    _roots: dict[Path, Path] = field(default_factory=dict[Path, Path], repr=False, compare=False)
    """Where directories that a configuration names led when they were first used."""

    async def loaded(self) -> Loaded:
        """Return the current configuration, which a person must have used as it is, with default agents if it names
        none: for operations that start something. Raises ConfigInvalid and ConfigChanged."""
        from ccswarm.config import config

        given = partial(config.load, self.config, remember_absent=True, workspace=self.workspace)
        return self._with_agents(await asyncio.to_thread(given))

    def last(self) -> Loaded:
        """Return the configuration as a person used it last, with the same defaults: for operations that read, continue
        or end. Raises ConfigInvalid."""
        from ccswarm.config import config

        return self._with_agents(config.load_last(self.config))

    def _with_agents(self, loaded: Loaded) -> Loaded:
        from ccswarm.config import config

        found = config.supplied(loaded.settings, self.types, config.server_environment())
        return replace(loaded, settings=found.settings)

    def root(self, loaded: Loaded) -> Path:
        """Return the directory that no client may leave. If it would contain the home, as for programs that desktop
        clients start in /, it is a directory in the home instead, which is created. Raises UsageInvalid if that fails,
        or if the path leads elsewhere than on first use."""
        if self.workspace:
            return self._require_unchanged(self.workspace, self.workspace, self.workspace.resolve())
        if named := loaded.settings.swarm.workspace:
            path = loaded.directory / Path(named).expanduser()
            return self._require_unchanged(path, now := path.resolve(), now)
        here = Path.cwd()
        if Path.home().resolve().is_relative_to(here):
            return _created(Path.home().resolve() / WORKSPACE, here)
        return here

    def _require_unchanged(self, path: Path, first: Path, now: Path) -> Path:
        if self._roots.setdefault(path, first) != now:
            raise UsageInvalid(
                f"the workspace {path} has been replaced by another directory",
                suggestion="check who replaced it; if it was you, start the server again to work in the new one",
            )
        return now


def _created(workspace: Path, here: Path) -> Path:
    try:
        workspace.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise UsageInvalid(
            f"the server was started in {here}, which is not a directory to work in, and {workspace} cannot be"
            f" created: {error.strerror}",
            suggestion="start it with --workspace DIR, or set swarm.workspace",
        ) from None
    return workspace


class Server(Protocol):
    """A server, found by name: ``ccswarm/servers/<name>.py`` exports it as ``PLUGIN``."""

    name: str

    def main(self, options: ServerOptions) -> int:
        """Serve on standard input and output until the client disconnects; return the exit code. Raises SwarmError."""
        ...


@dataclass(frozen=True, slots=True)
class Listening:
    """Where a dialect listens, and its limits. An empty ``host`` and a ``port`` of None mean the dialect's defaults;
    ``requests`` is the limit per second and address, 0 for none. ``no_auth``: no token is required."""

    host: str = ""
    port: int | None = None
    connections: int = 50
    requests: float = 100.0
    no_auth: bool = False


@dataclass(frozen=True, slots=True)
class Admission:
    """Who may use an address. If the environment names tokens, ``named``, every client needs one of them. Otherwise
    programs of this user need none, and all others need ``own``; if that is None, no client needs a token."""

    named: tuple[str, ...] = ()
    own: AccessToken | None = None

    def is_free(self, user: int | None) -> bool:
        """Report whether a program of that user needs no token; None is an unknown user."""
        return not self.named and (self.own is None or user == os.getuid())

    def caller(self, shown: Sequence[str]) -> str | None:
        """Return the caller that one of these tokens identifies, empty for this user; None if no token is valid."""
        if self.own and self.own.fits(shown):
            return ""
        pairs = [(one.encode(errors="replace"), token) for one in shown for token in self.named]
        token = next((token for one, token in pairs if hmac.compare_digest(one, token.encode())), "")
        return hashlib.sha256(token.encode()).hexdigest()[:16] if token else None


@dataclass(frozen=True, slots=True)
class ServeContext:
    """What all dialects of a process share. ``app`` executes runs as long as they serve. ``variables`` contain their
    secrets; ``tell`` prints a message for the person who started them, on a terminal if ``is_terminal``. ``token`` is
    for programs of other users."""

    options: ServerOptions
    app: App
    variables: Mapping[str, str]
    tell: Callable[[str], None]
    token: AccessToken
    is_terminal: bool = False

    def admission(self, listening: Listening, host: str, variable: str, named: Sequence[str]) -> Admission:
        """Return who may use what listens at ``host``; ``named`` are the tokens of ``variable``. Creates the token for
        other users if needed. Raises UsageInvalid if nothing would protect the address, and OperatorError."""
        if listening.no_auth and named:
            raise UsageInvalid(f"--no-auth and {variable} exclude each other", suggestion="leave one of them out")
        if listening.no_auth and not is_loopback(host):
            raise UsageInvalid(
                f"without a token, anybody who can reach {host} could give the agents work",
                suggestion="leave out --no-auth or --host",
            )
        if not named and not is_loopback(host):
            raise UsageInvalid(
                f"other machines can reach {host}, and anybody there could give the agents work",
                suggestion=f"set {variable} to a token for clients, or leave out --host",
            )
        if named or listening.no_auth:
            return Admission(tuple(named))
        self.token.make()
        return Admission(own=self.token)

    def tell_admission(self, admission: Admission, host: str, variable: str, protocol: str) -> None:
        """Print who needs a token, and how clients of ``protocol`` send it. The token itself is printed only once, when
        it is created, and only on a terminal: anything else may be a log."""
        if admission.named:
            self.tell(f"every client needs a token of {variable}")
            if not is_loopback(host):
                self.tell("warning: tokens and tasks cross the network unencrypted; use a tunnel or a TLS proxy")
        elif admission.own is None:
            self.tell("no token is required (--no-auth): every user of this machine can give the agents work, as you")
        else:
            who = "your own programs need no token, all others do"
            who = (
                who
                if peers.can_identify()
                else "this system does not report which user connects: every client needs the token"
            )
            is_new = admission.own.is_new and self.is_terminal
            way = ways_to_show(admission.own.read()).get(protocol) if is_new else None
            self.tell(f"{who}: {way or 'ccswarm token shows it'}")

    def port(self, listening: Listening, variable: str, own: int) -> int:
        """Return the port: the given one, that of the variable, or the dialect's default. Raises UsageInvalid."""
        if listening.port is not None:
            return listening.port
        named = self.variables.get(variable, "")
        if named and not (named.isascii() and named.isdecimal() and int(named) < 1 << 16):
            raise UsageInvalid(f"{variable} is {named[:20]!r}, which is not a port", suggestion="set it to a number")
        return int(named or own)


def who_takes_words(settings: Settings, types: Sequence[str], purpose: str) -> list[str]:
    """Return the lines that a server prints at its start: the agents that take tasks in words, and which of ``types``
    are missing, with the command that adds them. ``purpose`` is a value of ``ccswarm init --for``, or empty."""
    agents = settings.agents[: settings.swarm.max_agents]
    able = [agent for agent in agents if agent.takes_words]
    missing = [kind for kind in types if not any(agent.type == kind for agent in able)]
    named = ", ".join(f"{agent.name} ({agent.type})" for agent in able) or "none"
    lines = [f"agents that take tasks in words: {named}"]
    option = f" --for {purpose}" if purpose else ""
    if missing:
        lines.append(f"missing: an agent of type {', '.join(missing)}; add it: ccswarm init{option}")
    elif not able:
        lines.append(f"missing: an agent that takes words; add it: ccswarm init{option}")
    return lines


def ways_to_show(token: str) -> dict[str, str]:
    """Return how clients send the token, by protocol."""
    asked = {"jsonrpc": "2.0", "id": 0, "method": "authenticate", "params": {"token": token}}
    return {
        "visionflow": json.dumps(asked, separators=(",", ":")),
        "a2a": f"Authorization: Bearer {token}",
        "agentvault": f"AGENTVAULT_KEY_CCSWARM={token}",
    }


class Dialect(Protocol):
    """A server at an address, of which ``ccswarm serve`` opens several at once; it is found like a Server."""

    name: str

    def settings(self, settings: Settings, variables: Mapping[str, str]) -> Settings:
        """Return the settings: the configuration, with what the dialect's own variables add. Raises SwarmError."""
        ...

    async def serve(self, serve_context: ServeContext, listening: Listening, stop: asyncio.Event) -> None:
        """Serve until ``stop`` is set, then answer pending requests and disconnect all clients. Print the address once
        it listens, as ``NAME is served at HOST port PORT``. Raises SwarmError if it cannot start."""
        ...
