"""What can be configured and planned: sections, fields, defaults, what each means. Every plan is one of these too."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Annotated, Any, Literal, get_args
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, StringConstraints

from agentwire.notices import settings as notices
from agentwire.system.peers import is_loopback
from ccswarm.models import Priority

PLAYBOOK = "playbook"
"""The brain that carries out what is written, and asks no model."""
WORD_TOOLS = ("create_session", "execute_command", "read_output")
"""What an agent needs of its server of terminals to follow words."""

WORKSPACE = "AI_SESSION_WORKSPACE"
"""The variable by which ai-session is told where terminals may write, beside the directory it is started in."""

Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$")]
Approval = Literal["auto", "destructive", "all"]
Topology = Literal["hierarchical", "mesh", "ring", "star"]
Strategy = Literal["parallel", "sequential", "adaptive"]
Merge = Literal["auto", "branch", "ask"]


class Section(BaseModel):
    """Unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


def section_of(annotation: object) -> type[Section] | None:
    """The section that a field of that type, or each item of it, is."""
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return annotation
    return next(filter(None, map(section_of, get_args(annotation))), None)


class ToolFilter(Section):
    """Which tools of a server exist for this swarm."""

    allow: tuple[str, ...] = Field(default=("*",), description="Patterns of tool names; only these are seen.")
    deny: tuple[str, ...] = Field(
        default=(), description="Patterns of tool names that are not seen, whatever is allowed."
    )

    def sees(self, name: str) -> bool:
        """Whether the tool exists for this swarm."""
        allowed = any(fnmatchcase(name, pattern) for pattern in self.allow)
        return allowed and not any(fnmatchcase(name, pattern) for pattern in self.deny)


class AuthSettings(Section):
    """How ccswarm logs in at a server that wants OAuth. Where people log in with their browser and clients register by
    themselves nothing need be said. Secrets are named, never written: env:NAME (a variable, or what the system's
    keyring keeps for service ccswarm), or file:PATH."""

    grant: Literal["browser", "client_credentials"] = Field(
        default="browser", description="browser: a person logs in, ccswarm login; client_credentials: ccswarm itself."
    )
    client_id: str = Field(default="", description="ID of a client that was registered beforehand.")
    client_secret: str = Field(default="", description="The client's secret: env:NAME or file:PATH.")
    private_key: str = Field(default="", description="Or the client's private key in PEM: env:NAME or file:PATH.")
    algorithm: str = Field(default="RS256", description="Signature algorithm.")
    client_metadata_url: str = Field(default="", description="https address of ccswarm's client metadata document.")
    issuer: str = Field(default="", description="The only authorization server that is given the secret or key.")
    scopes: tuple[str, ...] = Field(
        default=(), description="Asked for in addition to those granted; of client_credentials all."
    )
    redirect_port: int = Field(default=0, ge=0, le=65535, description="Local port that the browser returns to; 0: any.")
    keep: Literal["file", "keyring"] = Field(default="file", description="Where the tokens of a login are kept.")


class ServerSettings(Section):
    """A tool server: started by ``command``, or reached at ``url``."""

    name: Name = Field(description="Prefix of its tools: NAME.tool.")
    command: str = Field(default="", description="Program and arguments, split as a shell splits them.")
    args: tuple[str, ...] = Field(default=(), description="More arguments, taken as they are.")
    env: dict[str, str] = Field(default={}, description="Variables for the server, besides HOME, PATH and the locale.")
    cwd: str = Field(default="", description="Directory it is started in; empty: where ccswarm was started.")
    data_files: tuple[str, ...] = Field(
        default=(), description="Files among those words that may change unasked, such as a database: no programs."
    )
    url: str = Field(default="", description="Address of a server that runs already (Streamable HTTP).")
    protocol: Literal["mcp", "rpc"] = Field(
        default="mcp", description="rpc: AgentVault's tool servers, where each tool is a method of JSON-RPC at the url."
    )
    headers: dict[str, str] = Field(
        default={}, description="HTTP headers; env:NAME, or $NAME in a text, stands for a variable."
    )
    auth: AuthSettings = Field(default=AuthSettings())
    ca_file: str = Field(default="", description="Certificates in PEM that are trusted in addition to the system's.")
    insecure: bool = Field(default=False, description="Whether plain http may be used over a network.")
    retry_after_seconds: float = Field(
        default=30, ge=0, description="Longest wait for a busy server that says when to retry (429, 503)."
    )
    tools: ToolFilter = Field(default=ToolFilter(), description="Which of its tools are used.")
    trusted: bool = Field(default=False, description="Whether what it says of its tools (read-only…) is believed.")
    timeout_seconds: float = Field(default=60, gt=0, description="Longest wait for one call.")
    connect_seconds: float = Field(default=20, gt=0, description="Longest wait until it is started and answers.")
    at_once: int = Field(default=16, ge=1, description="Calls under way at the same time.")
    _placed: bool = PrivateAttr(default=False)

    @property
    def placed(self) -> bool:
        """Whether ``cwd`` is a directory of agents' rather than one that the person configured for the server."""
        return self._placed

    def placed_in(self, directory: str, clone: str = "") -> ServerSettings:
        """It as it is started in ``directory``, absolute and without links, which agents may be changing: it starts
        there or not at all, even where a link has come to stand on the way. Terminals of ai-session may write in all of
        the ``clone`` around it."""
        env = {WORKSPACE: clone, **self.env} if clone else self.env
        copy = self.model_copy(update={"cwd": directory, "env": env})
        copy._placed = True
        return copy


class McpSettings(Section):
    """Where tools come from."""

    servers: tuple[ServerSettings, ...] = Field(default=(), description="The servers, each with a unique name.")


class Budget(Section):
    """What may be used up; 0: no limit. Reaching one ends what it is for, and keeps what was done."""

    seconds: float = Field(
        default=0,
        ge=0,
        description="Time from start to end, waiting included; for an agent, of all its tasks together.",
    )
    calls: int = Field(default=0, ge=0, description="Calls of tools.")
    tokens: int = Field(default=0, ge=0, description="Tokens of models, in and out.")
    dollars: float = Field(default=0, ge=0, description="Money; refused for a model whose price is not known.")


class SwarmSettings(Section):
    """How the agents work together."""

    name: Name = Field(default="swarm", description="What runs and sessions are named after.")
    topology: Topology = Field(default="hierarchical", description="Who may write to whom, and how work flows.")
    strategy: Strategy = Field(default="adaptive", description="How many tasks run at once.")
    max_agents: int = Field(default=8, ge=1, le=1000, description="Agents that may exist, and work, at the same time.")
    spawn_depth: int = Field(default=2, ge=0, description="How many levels deep agents may hand on tasks.")
    budget: Budget = Field(default=Budget(), description="Of a whole run.")
    workspace: str = Field(default="", description="Directory of the work; empty: where ccswarm was started.")
    merge: Merge = Field(
        default="auto",
        description="Accepted work in clones: auto merges it, ask if a person agrees, branch leaves it on a branch.",
    )
    shell: str = Field(default="ai-session", description="The server that runs the commands of gates.")


class AgentSettings(Section):
    """One agent."""

    name: Name = Field(description="Unique in the swarm.")
    type: Name = Field(default="coder", description="researcher, coder, analyst, optimizer, coordinator, or your own.")
    capabilities: tuple[str, ...] = Field(default=(), description="What tasks may ask for.")
    brain: Name = Field(default="playbook", description="Decision maker: playbook, llm, cli, or a plug-in.")
    grants: tuple[str, ...] = Field(default=(), description="Patterns of the tools it may use: SERVER.TOOL.")
    approval: Approval = Field(default="auto", description="Which calls a person has to agree to first.")
    workspace: Literal["clone", "shared"] = Field(
        default="shared",
        description="clone: a git clone for each attempt at a task, merged afterwards; shared: the swarm's directory.",
    )
    keep: Literal["nothing", "failed"] = Field(
        default="nothing",
        description="failed: terminals and clone of an attempt that did not succeed stay as they are, for a person.",
    )
    prompt: str = Field(default="", description="What a thinking brain learns of its role.")
    budget: Budget = Field(default=Budget(), description="Of this agent in one run.")
    settings: dict[str, Any] = Field(default={}, description="For its brain.")

    @property
    def takes_words(self) -> bool:
        """Whether it does what is only said: it thinks, or its settings say what it does then."""
        return self.brain != PLAYBOOK or bool(self.settings.get("steps") or self.follows_words)

    @property
    def follows_words(self) -> bool:
        """Whether it finds out by the words what to do, and no model is asked."""
        return self.brain == PLAYBOOK and bool(self.settings.get("words"))


class Retry(Section):
    """How often and when something that failed is tried again."""

    times: int = Field(default=0, ge=0, le=100, description="Tries after the first.")
    seconds: float = Field(default=1, ge=0, description="Pause before the second try.")
    factor: float = Field(default=2, ge=1, description="Factor by which each further pause grows.")


class Expect(Section):
    """What a call must have answered; all that is given must hold."""

    exit_code: int | None = Field(default=None, description="The result's exit_code.")
    status: str | None = Field(default=None, description="The result's status.")
    contains: str | None = Field(default=None, description="Part of the text.")
    matches: str | None = Field(default=None, description="Regular expression found in the text.")
    equals: dict[str, Any] = Field(default={}, description="Fields of the structured result, by path: value.")


class PlanStep(Section):
    """One step of a playbook: a call of a tool. ``${steps.ID.FIELD}``, ``${needs.TASK.FIELD}``, ``${item}`` and
    ``${run.id}`` in its arguments stand for values known then."""

    id: Name = Field(description="Unique in the task.")
    agent: Name | None = Field(default=None, description="Who calls; empty: the task's agent.")
    tool: str = Field(description="SERVER.TOOL")
    args: dict[str, Any] = Field(default={}, description="The tool's arguments.")
    needs: tuple[Name, ...] | None = Field(default=None, description="Steps before it; not given: the one before.")
    when: str = Field(default="", description="Runs only if this is so: ${…} == value, != value, or ${…} alone.")
    for_each: str | tuple[Any, ...] | None = Field(default=None, description="Once for each of these, as ${item}.")
    parallel: int = Field(default=1, ge=1, le=64, description="How many items of for_each run at once.")
    retry: Retry = Field(default=Retry(), description="When it failed.")
    timeout_seconds: float | None = Field(default=None, gt=0, description="Longest wait for its answer.")
    save_as: Name | None = Field(default=None, description="A second name for its result.")
    expect: Expect = Field(default=Expect(), description="What its answer must be.")
    gate: bool = Field(default=False, description="Its failure fails the task at once; else what needs it is skipped.")
    always: bool = Field(default=False, description="At the end, after all others, also where they failed.")


class Gate(Section):
    """A check after a task's work: a command, or any tool. The orchestrator runs those that the person wrote; all
    others are commands, and act for an agent."""

    command: str = Field(default="", description="Run in the swarm's shell server; exit code 0 passes.")
    tool: str = Field(default="", description="SERVER.TOOL, instead of a command.")
    args: dict[str, Any] = Field(default={}, description="The tool's arguments.")
    expect: Expect = Field(default=Expect(), description="What the tool must answer.")
    timeout_seconds: float = Field(default=600, gt=0, description="Longest time it may take.")


class Review(Section):
    """What other agents must say of a task's work after its gates hold. Each does so as a task of its own, whose
    success accepts the work."""

    by: tuple[Name, ...] = Field(default=(), description="The agents that are asked; none: no review.")
    quorum: int = Field(default=0, ge=0, description="How many of them must accept it; 0: all.")
    text: str = Field(default="", description="What they are to look at, besides the task and the report.")
    steps: tuple[PlanStep, ...] = Field(default=(), description="The playbook of reviewers that follow one.")


class TaskSettings(Section):
    """One piece of work."""

    id: Name = Field(description="Unique in the plan.")
    text: str = Field(default="", description="What is to be done, for people and thinking brains.")
    agent: Name | None = Field(default=None, description="Who does it; empty: the first suitable agent that is free.")
    type: Name | None = Field(default=None, description="Only agents of this type.")
    capabilities: tuple[str, ...] = Field(default=(), description="Only agents that have all of these.")
    priority: Priority = Field(default="medium", description="low, medium, high or critical.")
    needs: tuple[Name, ...] = Field(default=(), description="Tasks that must have succeeded before.")
    steps: tuple[PlanStep, ...] = Field(default=(), description="The playbook.")
    gates: tuple[Gate, ...] = Field(default=(), description="What must hold afterwards.")
    review: Review = Field(default=Review(), description="What other agents must say of it.")
    visits: int = Field(
        default=0,
        ge=0,
        le=20,
        description="How many times it may be done until gates and review hold; 0: 3 where its brain thinks, else 1.",
    )
    retry: Retry = Field(default=Retry(), description="When it failed.")
    attempts: int = Field(
        default=1, ge=1, le=16, description="How many are made in parallel, each in its own clone; gates decide."
    )
    pick: Literal["first that holds"] = Field(
        default="first that holds", description="Which of them counts: the first whose gates and review hold."
    )
    timeout_seconds: float = Field(
        default=3600,
        gt=0,
        description="Longest time of one try, from its start until its work is merged, pauses included.",
    )
    budget: Budget = Field(default=Budget(), description="Of this task.")


class EngineSettings(Section):
    """Where runs are kept and executed."""

    name: Name = Field(default="dbos", description="The engine.")
    database_url: str = Field(default="", description="postgresql://…; empty: a SQLite file in the state directory.")
    worker_id: str = Field(default="", description="Stable name of this worker; empty: made from host and process.")
    pool_size: int = Field(default=6, ge=2, description="Connections of one worker.")
    poll_seconds: float = Field(default=0.2, gt=0, description="Time between two looks for queued work.")
    heartbeat_seconds: float = Field(default=5, gt=0, description="Time between two signs of life of a worker.")
    lost_after_seconds: float = Field(
        default=30, gt=0, description="Time without a sign of life after which it counts as lost."
    )
    threads: int = Field(default=16, ge=4, description="Threads of one worker.")
    at_once: int = Field(
        default=0, ge=0, description="Tasks under way, also those that wait for people, not their parts; 0: no limit."
    )
    starts: int = Field(default=0, ge=0, description="Tasks that may start within period_seconds; 0: no limit.")
    period_seconds: float = Field(default=60, gt=0, description="Period in which starts are counted.")
    retention_days: float = Field(default=7, gt=0, description="How long finished runs are kept.")
    clone_days: float = Field(
        default=7,
        ge=0,
        description="Age at which clones and refs of work that was not merged are removed, when a run ends.",
    )
    clone_bytes: int = Field(
        default=20 << 30,
        ge=0,
        description="Disk space for kept clones; the oldest are removed first, their refs stay. 0: no limit.",
    )


class NotifySettings(notices.NotifySettings, Section):
    """How you are told that a run is over or waits for you. It counts in your own configuration alone."""


class TelemetrySettings(Section):
    """Where traces and metrics are exported (OpenTelemetry); without an address there are none."""

    endpoint: str = Field(default="", description="Collector for OTLP over HTTP: http://localhost:4318.")
    traces_endpoint: str = Field(default="", description="Another address for traces; none: no traces.")
    metrics_endpoint: str = Field(default="", description="Another address for metrics; none: no metrics.")
    protocol: str = Field(default="http/protobuf", description="Protocol; no other is supported.")
    headers: dict[str, str] = Field(default={}, description="Headers of each request, such as an API key.")
    metrics_seconds: float = Field(default=60, ge=0.1, description="Time between two exports of metrics.")


class A2aSettings(Section):
    """What ccswarm serve --a2a does for other agents."""

    agent: str = Field(
        default="", description="Whose tools AgentVault's clients call, with its grants; empty: the only agent's."
    )
    allowed_hosts: tuple[str, ...] = Field(
        default=(),
        description="Additional names that clients may call the server by, besides this machine's and --host.",
    )


class Settings(Section):
    """Everything. A plan file has the same shape, and may leave out what the configuration says already."""

    mcp: McpSettings = McpSettings()
    swarm: SwarmSettings = SwarmSettings()
    engine: EngineSettings = EngineSettings()
    notify: NotifySettings = NotifySettings()
    telemetry: TelemetrySettings = TelemetrySettings()
    a2a: A2aSettings = A2aSettings()
    agents: tuple[AgentSettings, ...] = ()
    tasks: tuple[TaskSettings, ...] = ()
    steps: tuple[PlanStep, ...] = Field(default=(), description="A plan of one task: its steps.")

    def agents_for(self, task: TaskSettings) -> list[AgentSettings]:
        """The agents that fit what the task says of its agent, of as many as may exist, in the order they are
        written."""
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
    """Whether what is sent there could be read on the way: plain http to another machine."""
    parts = urlsplit(url)
    return parts.scheme != "https" and not is_loopback(parts.hostname or "")


def endpoint_problems(server: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with how a server at a url is reached, as the file says it."""
    url = str(server.get("url", ""))
    if not url.startswith(("http://", "https://")):
        yield "url should begin with https:// (or http://)"
    elif urlsplit(url).username:
        yield 'url should have no name or password in it: use headers = { Authorization = "env:NAME" }'
    elif in_clear(url) and not server.get("insecure"):
        yield "url is plain http to another machine: use https, or say insecure = true"
    for name, value in server.get("headers", {}).items():
        if SECRET_HEADER.search(name) and not REFERENCE.fullmatch(str(value)):
            yield f"headers.{name} should not be written here: name a variable, env:NAME"
    auth = server.get("auth", {})
    for name in ("client_secret", "private_key"):
        if auth.get(name) and not str(auth[name]).startswith(("env:", "file:")):
            yield f"auth.{name} should not be written here: env:NAME, or file:PATH"
    secret = auth.get("client_secret") or auth.get("private_key")
    if secret and not (auth.get("client_id") and auth.get("issuer")):
        yield "auth needs client_id and issuer, so that only that authorization server is given the secret or key"
    if auth.get("grant") == "client_credentials" and not secret:
        yield "auth.grant client_credentials needs client_secret or private_key"
