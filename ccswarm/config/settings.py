"""Settings and plans: sections, fields, their defaults and meaning. A plan has the same shape as the settings."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, time
from fnmatch import fnmatchcase
from math import isfinite
from typing import Annotated, Any, Literal, TypeVar, cast, get_args
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PrivateAttr, StringConstraints

from agentwire.notices import settings as notices
from agentwire.system.peers import is_loopback
from ccswarm.models import Priority

PLAYBOOK = "playbook"
"""The brain that executes written steps without a model."""
WORD_TOOLS = ("create_session", "execute_command", "read_output")
"""The tools of a terminal server that an agent needs to follow a task's text."""

WORKSPACE = "AI_SESSION_WORKSPACE"
"""The variable that names a directory in which ai-session's terminals may write, besides their first one."""

Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$")]
Approval = Literal["auto", "destructive", "all"]
Topology = Literal["hierarchical", "mesh", "ring", "star"]
Strategy = Literal["parallel", "sequential", "adaptive"]
Merge = Literal["auto", "branch", "ask"]
_Value = TypeVar("_Value")


def only_json(value: _Value) -> _Value:
    """Return ``value``. Raises ValueError, naming each, for values that TOML has and JSON lacks: dates, nan, inf."""
    found: list[tuple[str, object]] = [("", value)]
    wrong: list[str] = []
    for at, one in found:  # which grows: the call stack might be too small for the nesting
        if isinstance(one, Mapping):
            found += [(f"{at}.{key}", item) for key, item in cast("Mapping[str, object]", one).items()]
        elif isinstance(one, (list, tuple)):
            found += [(f"{at}[{number}]", item) for number, item in enumerate(cast("Sequence[object]", one))]
        elif isinstance(one, (date, time)):
            where = at.removeprefix(".")
            wrong.append(f'has a date or time at {where}, which JSON does not have: write the text "{one.isoformat()}"')
        elif isinstance(one, float) and not isfinite(one):
            wrong.append(f"has {one} at {at.removeprefix('.')}, which JSON does not have")
    if wrong:
        raise ValueError(" and ".join(wrong))
    return value


JsonTable = Annotated[dict[str, Any], AfterValidator(only_json)]
ForEach = Annotated[str | tuple[Any, ...] | None, AfterValidator(only_json)]


class Section(BaseModel):
    """A table of settings. Unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


def section_of(annotation: object) -> type[Section] | None:
    """Return the section class of a field with this annotation, or of its items; None for other types."""
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return annotation
    return next(filter(None, map(section_of, get_args(annotation))), None)


class ToolFilter(Section):
    """Which tools of a server this swarm sees."""

    allow: tuple[str, ...] = Field(default=("*",), description="Patterns of tool names; only matching tools are seen.")
    deny: tuple[str, ...] = Field(default=(), description="Patterns of tool names that are hidden even if allowed.")

    def sees(self, name: str) -> bool:
        """Report whether the swarm sees the tool."""
        allowed = any(fnmatchcase(name, pattern) for pattern in self.allow)
        return allowed and not any(fnmatchcase(name, pattern) for pattern in self.deny)


class AuthSettings(Section):
    """How ccswarm logs in to a server that requires OAuth. Where people log in with a browser and clients register
    themselves, nothing need be set. Secrets are referred to, never written: env:NAME (a variable, or an entry of the
    system's keyring for the service ccswarm) or file:PATH."""

    grant: Literal["browser", "client_credentials"] = Field(
        default="browser", description="browser: a person logs in with ccswarm login; client_credentials: ccswarm does."
    )
    client_id: str = Field(default="", description="ID of a client registered in advance.")
    client_secret: str = Field(default="", description="The client's secret: env:NAME or file:PATH.")
    private_key: str = Field(default="", description="Or the client's private key in PEM: env:NAME or file:PATH.")
    algorithm: str = Field(default="RS256", description="Signature algorithm.")
    client_metadata_url: str = Field(default="", description="https URL of ccswarm's client metadata document.")
    issuer: str = Field(default="", description="The only authorization server that gets the secret or key.")
    scopes: tuple[str, ...] = Field(
        default=(), description="Scopes to request in addition to those granted; for client_credentials, all of them."
    )
    redirect_port: int = Field(
        default=0, ge=0, le=65535, description="Local port the browser is redirected to; 0: any free one."
    )
    keep: Literal["file", "keyring"] = Field(default="file", description="Where tokens are stored after a login.")


class ServerSettings(Section):
    """A tool server: started with ``command`` or reached at ``url``."""

    name: Name = Field(description="Prefix of its tools: NAME.tool.")
    command: str = Field(default="", description="Program and arguments, split like a shell command line.")
    args: tuple[str, ...] = Field(default=(), description="More arguments, passed as they are.")
    env: dict[str, str] = Field(
        default={}, description="Environment variables for the server, in addition to HOME, PATH and the locale."
    )
    cwd: str = Field(default="", description="Directory it is started in; empty: where ccswarm was started.")
    data_files: tuple[str, ...] = Field(
        default=(),
        description="Files named in command or args that may change freely, such as a database; never programs.",
    )
    url: str = Field(default="", description="URL of a running server (Streamable HTTP).")
    protocol: Literal["mcp", "rpc"] = Field(
        default="mcp", description="rpc: an AgentVault tool server, where each tool is a JSON-RPC method at the url."
    )
    headers: dict[str, str] = Field(
        default={}, description="HTTP headers; env:NAME, or $NAME within a text, is replaced by a variable."
    )
    auth: AuthSettings = Field(default=AuthSettings())
    ca_file: str = Field(default="", description="CA certificates (PEM) to trust in addition to the system's.")
    insecure: bool = Field(default=False, description="Allow plain http to another machine.")
    retry_after_seconds: float = Field(
        default=30, ge=0, description="Longest total wait for a busy server that says when to retry (429, 503)."
    )
    tools: ToolFilter = Field(default=ToolFilter(), description="Which of its tools the swarm sees.")
    trusted: bool = Field(
        default=False, description="Whether its annotations of tools (read-only, destructive …) are believed."
    )
    timeout_seconds: float = Field(default=60, gt=0, description="Time limit for one call.")
    connect_seconds: float = Field(
        default=20, gt=0, description="Time limit for starting or connecting, up to the first answer."
    )
    at_once: int = Field(default=16, ge=1, description="Maximum number of calls in progress at the same time.")
    _placed: bool = PrivateAttr(default=False)

    @property
    def placed(self) -> bool:
        """Whether ``cwd`` is an agent's directory rather than one that the user configured."""
        return self._placed

    def placed_in(self, directory: str, clone: str = "") -> ServerSettings:
        """Return a copy that starts in ``directory``, an absolute path without links that agents may be changing. The
        server starts there or not at all, even if part of the path has become a link. Its terminals may write in the
        whole ``clone`` around it."""
        env = {WORKSPACE: clone, **self.env} if clone else self.env
        copy = self.model_copy(update={"cwd": directory, "env": env})
        copy._placed = True
        return copy


class McpSettings(Section):
    """Where tools come from."""

    servers: tuple[ServerSettings, ...] = Field(default=(), description="The servers; each has a unique name.")


class Budget(Section):
    """Limits; 0: none. Reaching one ends the run, agent or task it is for; work already done is kept."""

    seconds: float = Field(
        default=0,
        ge=0,
        description="Time from start to end, including waiting; for an agent, the total of its tasks.",
    )
    calls: int = Field(default=0, ge=0, description="Tool calls.")
    tokens: int = Field(default=0, ge=0, description="Model tokens, input and output.")
    dollars: float = Field(
        default=0, ge=0, description="Cost in US dollars; refused for a model whose price is unknown."
    )


class SwarmSettings(Section):
    """How the agents work together."""

    name: Name = Field(default="swarm", description="Prefix of the names of runs and sessions.")
    topology: Topology = Field(default="hierarchical", description="Who may send messages to whom, and how work flows.")
    strategy: Strategy = Field(default="adaptive", description="How many tasks run at once.")
    max_agents: int = Field(
        default=8, ge=1, le=1000, description="Maximum number of agents that exist and work at the same time."
    )
    spawn_depth: int = Field(default=2, ge=0, description="How many levels deep agents may delegate tasks.")
    budget: Budget = Field(default=Budget(), description="Budget of a whole run.")
    workspace: str = Field(default="", description="Directory to work in; empty: where ccswarm was started.")
    merge: Merge = Field(
        default="auto",
        description="Accepted work in clones: auto: merged; ask: merged if a person agrees; branch: left on a branch.",
    )
    shell: str = Field(default="ai-session", description="Name of the server that runs the commands of gates.")


class AgentSettings(Section):
    """One agent."""

    name: Name = Field(description="Name, unique in the swarm.")
    type: Name = Field(
        default="coder", description="Role: researcher, coder, analyst, optimizer, coordinator, or your own."
    )
    capabilities: tuple[str, ...] = Field(default=(), description="Abilities that tasks can require.")
    brain: Name = Field(default="playbook", description="Decision maker: playbook, llm, cli, or a plug-in.")
    grants: tuple[str, ...] = Field(default=(), description="Patterns of the tools it may call: SERVER.TOOL.")
    approval: Approval = Field(default="auto", description="Which calls need a person's approval.")
    workspace: Literal["clone", "shared"] = Field(
        default="shared",
        description="clone: a git clone for each attempt at a task, merged afterwards; shared: the swarm's directory.",
    )
    keep: Literal["nothing", "failed"] = Field(
        default="nothing",
        description="failed: the terminals and clone of a failed attempt are kept for inspection.",
    )
    prompt: str = Field(default="", description="Description of its role, for brains with a model.")
    budget: Budget = Field(default=Budget(), description="Budget of this agent in one run.")
    settings: JsonTable = Field(default={}, description="Settings of its brain.")

    @property
    def takes_words(self) -> bool:
        """Whether the agent can do a task given only as text: it has a model, or its settings define what to do."""
        return self.brain != PLAYBOOK or bool(self.settings.get("steps") or self.follows_words)

    @property
    def follows_words(self) -> bool:
        """Whether the agent follows the commands in a task's text without a model."""
        return self.brain == PLAYBOOK and bool(self.settings.get("words"))


class Retry(Section):
    """How often and when a failure is retried."""

    times: int = Field(default=0, ge=0, le=100, description="Retries after the first try.")
    seconds: float = Field(default=1, ge=0, description="Pause before the first retry.")
    factor: float = Field(default=2, ge=1, description="Factor by which each later pause grows.")


class Expect(Section):
    """What a call's result must be; all given conditions must hold."""

    exit_code: int | None = Field(default=None, description="The result's exit_code must equal this.")
    status: str | None = Field(default=None, description="The result's status must equal this.")
    contains: str | None = Field(default=None, description="The text must contain this.")
    matches: str | None = Field(default=None, description="The text must match this regular expression somewhere.")
    equals: JsonTable = Field(default={}, description="Values of fields of the structured result, by path.")


class PlanStep(Section):
    """One step of a playbook: a tool call. ``${steps.ID.FIELD}``, ``${needs.TASK.FIELD}``, ``${item}`` and
    ``${run.id}`` in its arguments are replaced when the step starts."""

    id: Name = Field(description="ID, unique in the task.")
    agent: Name | None = Field(default=None, description="Agent that calls the tool; not given: the task's agent.")
    tool: str = Field(description="Tool to call: SERVER.TOOL.")
    args: JsonTable = Field(default={}, description="The tool's arguments.")
    needs: tuple[Name, ...] | None = Field(
        default=None, description="Steps that must run before it; not given: the previous one."
    )
    when: str = Field(default="", description="Condition to run it: ${…} == value, ${…} != value, or ${…} alone.")
    for_each: ForEach = Field(default=None, description="Run it once for each of these, as ${item}.")
    parallel: int = Field(default=1, ge=1, le=64, description="Maximum number of items of for_each to run at once.")
    retry: Retry = Field(default=Retry(), description="Retries after a failure.")
    timeout_seconds: float | None = Field(default=None, gt=0, description="Time limit for the call.")
    save_as: Name | None = Field(default=None, description="A second name for its result.")
    expect: Expect = Field(default=Expect(), description="What its result must be.")
    gate: bool = Field(
        default=False, description="Its failure fails the task at once; otherwise only steps that need it are skipped."
    )
    always: bool = Field(default=False, description="Run it after all others, even if they failed.")


class Gate(Section):
    """A check after a task's work: a command or any tool. The orchestrator runs the ones a person wrote; all
    others must be commands and run on behalf of an agent."""

    command: str = Field(default="", description="Command for the swarm's shell server; exit code 0 passes.")
    tool: str = Field(default="", description="Tool to call instead of a command: SERVER.TOOL.")
    args: JsonTable = Field(default={}, description="The tool's arguments.")
    expect: Expect = Field(default=Expect(), description="What the tool's result must be.")
    timeout_seconds: float = Field(default=600, gt=0, description="Time limit for the check.")


class Review(Section):
    """A review of a task's work by other agents after its gates pass. Each review is a task of its own, whose
    success is a vote for the work."""

    by: tuple[Name, ...] = Field(default=(), description="The reviewing agents; empty: no review.")
    quorum: int = Field(default=0, ge=0, description="How many of them must accept the work; 0: all.")
    text: str = Field(default="", description="What they should look at, besides the task and the report.")
    steps: tuple[PlanStep, ...] = Field(default=(), description="The steps of reviewers whose brain is playbook.")


class TaskSettings(Section):
    """One piece of work."""

    id: Name = Field(description="ID, unique in the plan.")
    text: str = Field(default="", description="What to do, for people and for brains with a model.")
    agent: Name | None = Field(
        default=None, description="Agent that does it; not given: the first suitable one that is free."
    )
    type: Name | None = Field(default=None, description="Only agents of this type.")
    capabilities: tuple[str, ...] = Field(default=(), description="Only agents that have all of these.")
    priority: Priority = Field(default="medium", description="low, medium, high or critical.")
    needs: tuple[Name, ...] = Field(default=(), description="Tasks that must succeed first.")
    steps: tuple[PlanStep, ...] = Field(default=(), description="The steps of its playbook.")
    gates: tuple[Gate, ...] = Field(default=(), description="Checks that its work must pass.")
    review: Review = Field(default=Review(), description="Review of its work by other agents.")
    rounds: int = Field(
        default=0,
        ge=0,
        le=20,
        description="Maximum number of rounds of work until gates and review pass; 0: 3 for a brain with a model,"
        " else 1.",
    )
    retry: Retry = Field(default=Retry(), description="Retries after a failure.")
    attempts: int = Field(
        default=1, ge=1, le=16, description="Attempts made in parallel, in a clone each; the first that passes counts."
    )
    timeout_seconds: float = Field(
        default=3600,
        gt=0,
        description="Time limit for one try and its merge, with pauses, without the wait for a person to accept it.",
    )
    budget: Budget = Field(default=Budget(), description="Budget of this task.")


class EngineSettings(Section):
    """Where runs are kept and executed."""

    name: Name = Field(default="dbos", description="Name of the engine.")
    database_url: str = Field(default="", description="postgresql://…; empty: a SQLite file in the state directory.")
    worker_id: str = Field(
        default="", description="Stable name of this worker; empty: made from host name and process ID."
    )
    pool_size: int = Field(default=6, ge=2, description="Database connections of one worker.")
    poll_seconds: float = Field(default=0.2, gt=0, description="Interval at which queued work is looked for.")
    heartbeat_seconds: float = Field(default=5, gt=0, description="Interval of a worker's heartbeats.")
    lost_after_seconds: float = Field(
        default=30, gt=0, description="Time without a heartbeat after which a worker counts as lost."
    )
    threads: int = Field(default=16, ge=4, description="Threads of one worker.")
    at_once: int = Field(
        default=0,
        ge=0,
        description="Maximum number of tasks in progress, including those that wait for people; 0: no limit.",
    )
    starts: int = Field(
        default=0, ge=0, description="Maximum number of tasks started within period_seconds; 0: no limit."
    )
    period_seconds: float = Field(default=60, gt=0, description="Period in which starts are counted.")
    retention_days: float = Field(default=7, gt=0, description="How long finished runs are kept.")
    clone_days: float = Field(
        default=7,
        ge=0,
        description="Days after the end of a run when its clones and refs of unmerged work are removed.",
    )
    clone_bytes: int = Field(
        default=20 << 30,
        ge=0,
        description="Disk space for kept clones; the oldest are removed first, but not their refs. 0: no limit.",
    )


class NotifySettings(notices.NotifySettings, Section):
    """How you are notified that a run is over or waits for you. Only your own configuration is used for this."""


class TelemetrySettings(Section):
    """Where traces and metrics are exported (OpenTelemetry); without an endpoint, nowhere."""

    endpoint: str = Field(default="", description="Collector for OTLP over HTTP: http://localhost:4318.")
    traces_endpoint: str = Field(default="", description="Full endpoint for traces instead; `none` turns them off.")
    metrics_endpoint: str = Field(default="", description="Full endpoint for metrics instead; `none` turns them off.")
    protocol: str = Field(default="http/protobuf", description="Only `http/protobuf`; else nothing is exported.")
    headers: dict[str, str] = Field(default={}, description="Headers of each export request, such as an API key.")
    metrics_seconds: float = Field(default=60, ge=0.1, description="Time between two exports of metrics.")


class A2aSettings(Section):
    """What ccswarm serve --a2a offers to other agents."""

    agent: str = Field(
        default="", description="Agent whose granted tools AgentVault's clients may call; empty: the only agent."
    )
    allowed_hosts: tuple[str, ...] = Field(
        default=(),
        description="Host names that clients may use in addition to this machine's and --host.",
    )


class Settings(Section):
    """All settings. A plan file has the same shape and may leave out what the configuration sets already."""

    mcp: McpSettings = McpSettings()
    swarm: SwarmSettings = SwarmSettings()
    engine: EngineSettings = EngineSettings()
    notify: NotifySettings = NotifySettings()
    telemetry: TelemetrySettings = TelemetrySettings()
    a2a: A2aSettings = A2aSettings()
    agents: tuple[AgentSettings, ...] = ()
    tasks: tuple[TaskSettings, ...] = ()
    steps: tuple[PlanStep, ...] = Field(default=(), description="The steps of a plan with one task.")

    def agents_for(self, task: TaskSettings) -> list[AgentSettings]:
        """Return the agents among the first ``max_agents`` that match the task's requirements, in their order."""
        return [
            agent
            for agent in self.agents[: self.swarm.max_agents]
            if task.agent in (None, agent.name)
            and task.type in (None, agent.type)
            and set(task.capabilities) <= set(agent.capabilities)
        ]


SECRET_HEADER = re.compile(r"AUTH|TOKEN|SECRET|KEY|COOKIE|PASSW|CREDENTIAL", re.IGNORECASE)
REFERENCE = re.compile(r"env:[A-Za-z_][A-Za-z0-9_]*|file:.+|.*(?<!\$)(\$\$)*\$\{?[A-Za-z_].*", re.DOTALL)


def in_clear(url: str) -> bool:
    """Report whether traffic to ``url`` is unencrypted: plain http to another machine."""
    parts = urlsplit(url)
    return parts.scheme != "https" and not is_loopback(parts.hostname or "")


def endpoint_problems(server: Mapping[str, Any]) -> Iterator[str]:
    """Yield the problems of a server's table, if the server is reached at a URL."""
    url = str(server.get("url", ""))
    if not url.startswith(("http://", "https://")):
        yield "url should begin with https:// (or http://)"
    elif urlsplit(url).username:
        yield 'url should not contain a user name or password: use headers = { Authorization = "env:NAME" }'
    elif in_clear(url) and not server.get("insecure"):
        yield "url is plain http to another machine: use https, or set insecure = true"
    for name, value in server.get("headers", {}).items():
        if SECRET_HEADER.search(name) and not REFERENCE.fullmatch(str(value)):
            yield f"headers.{name} should not be written here: refer to a variable, env:NAME"
    auth = server.get("auth", {})
    for name in ("client_secret", "private_key"):
        if auth.get(name) and not str(auth[name]).startswith(("env:", "file:")):
            yield f"auth.{name} should not be written here: use env:NAME or file:PATH"
    secret = auth.get("client_secret") or auth.get("private_key")
    if secret and not (auth.get("client_id") and auth.get("issuer")):
        yield "auth needs client_id and issuer, so that only that authorization server gets the secret or key"
    if auth.get("grant") == "client_credentials" and not secret:
        yield "auth.grant client_credentials needs client_secret or private_key"
