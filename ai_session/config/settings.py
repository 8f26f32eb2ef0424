"""What can be configured: one model per table of the file, one described field per setting. Pure."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from agentwire.notices import settings as notices
from agentwire.system.path_patterns import fold, parse
from agentwire.system.protected_names import GIT

PASSED_ON = (
    *("HOME", "PATH", "SHELL", "USER", "LOGNAME", "LANG", "LANGUAGE", "LC_*", "TZ", "TMPDIR", "MANPATH", "INFOPATH"),
    *("XDG_*", "DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "DBUS_SESSION_BUS_ADDRESS", "SSH_AUTH_SOCK", "GNUPGHOME"),
    *("EDITOR", "VISUAL", "BROWSER", "LS_COLORS", "LESS", "NO_COLOR"),
    *("http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "no_proxy"),
    *("HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY", "ALL_PROXY", "NO_PROXY"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"),
    *("VIRTUAL_ENV", "CONDA_*", "PYENV_*", "PYTHONPATH", "UV_CACHE_DIR", "PIP_INDEX_URL", "PIP_CONFIG_FILE"),
    *("CARGO_HOME", "RUSTUP_*", "GOPATH", "GOROOT", "GOBIN", "JAVA_HOME", "ANDROID_HOME", "NVM_*", "NODE_PATH"),
    *("BUN_INSTALL", "DENO_DIR", "PNPM_HOME", "RBENV_*", "SDKMAN_*", "HOMEBREW_*", "NIX_*"),
    *("DOCKER_HOST", "DOCKER_CONTEXT", "KUBECONFIG", "AWS_PROFILE", "AWS_REGION"),
)


REDIRECT_SCHEMES = (
    *("cursor", "vscode", "vscode-insiders", "vscodium", "code-oss", "windsurf", "kiro", "trae", "antigravity"),
    *("claude", "warp"),
)
"""Of editors and terminals that are MCP clients, or whose extensions are."""


class Section(BaseModel):
    """One table of the file."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class SessionSettings(Section):
    """What a new session is when the caller does not say."""

    backend: str = Field(
        default="auto",
        pattern=r"^[a-z][a-z0-9_]*$",
        description="Where terminals live: pty, tmux, or auto (tmux where a usable one is installed, else pty).",
    )
    shell: str = Field(
        default="", description="bash, zsh, fish, posix or a path; empty takes $SHELL where it is supported, else bash."
    )
    user_rc: bool = Field(default=True, description="Read the person's own start files (.bashrc, .zshrc, config.fish).")
    rows: int = Field(default=50, ge=2, le=1000, description="Height of a new terminal.")
    cols: int = Field(default=200, ge=10, le=1000, description="Width of a new terminal.")
    env: dict[str, str] = Field(
        default_factory=lambda: {"PAGER": "cat", "GIT_PAGER": "cat"},
        description="Variables set in every session; replaces this default as a whole.",
    )
    env_allow: tuple[str, ...] = Field(
        default=PASSED_ON,
        description="Variables a session takes from its client: names or patterns (LC_*). The terminal sets TERM.",
    )
    max_sessions: int = Field(default=64, ge=1, le=10_000, description="Sessions open at once.")
    max_sessions_per_owner: int = Field(
        default=48,
        ge=1,
        description="Sessions of one user among them, never over 3/4; 3/4 of that for one run, and again for one agent"
        " in it. A person at this machine may open what is left.",
    )
    retain_bytes: int = Field(
        default=64 << 20, ge=1 << 20, description="Newest output kept on disk for each session, in bytes."
    )
    owned_idle_days: float = Field(
        default=7,
        ge=0,
        description="Age since its last use at which the session of a run (of a swarm) is closed, if nothing runs in it"
        " and nobody is attached; looked at every hour. 0: never.",
    )
    close_grace_seconds: float = Field(
        default=2.0,
        ge=0,
        le=30,
        description="Time a closing session's processes have after the hang-up before they are killed.",
    )


class OutputSettings(Section):
    """How much text a call returns."""

    max_chars: int = Field(
        default=7000,
        ge=200,
        le=200_000,
        description="Characters of output in one result (head and tail; the rest stays readable).",
    )


class TimeoutSettings(Section):
    """How long a call waits. Clients give up after about 60 s, so no call waits longer than 50."""

    execute_seconds: float = Field(
        default=30.0, gt=0, le=50, description="A command that runs longer is reported as running, and keeps running."
    )
    wait_seconds: float = Field(default=50.0, gt=0, le=50, description="Longest wait a caller may ask for.")
    interrupt_step_seconds: float = Field(
        default=2.0, gt=0, le=8, description="Time between the steps of an interrupt: ^C, ^C, ^\\, TERM, KILL."
    )


class DaemonSettings(Section):
    """The process that serves every client of this user."""

    idle_exit_seconds: float = Field(
        default=0.0, ge=0, description="End after this time without clients and sessions; 0 means never."
    )


class ConsoleSettings(Section):
    """What ai-session console shows."""

    runs: tuple[str, ...] = Field(
        default=("ccswarm", "feed"),
        description="Program that reports runs, and its arguments (`ai-session docs runs-provider`): a path, or a"
        " name, which is looked for beside ai-session, then on PATH. []: none.",
    )


class CallSettings(Section):
    """Calls that carry a call_key."""

    key_hours: float = Field(default=24.0, gt=0, le=720, description="How long the result of a keyed call is kept.")


class SandboxSettings(Section):
    """What the shell of a session may reach."""

    profile: Literal["read-only", "workspace", "trusted"] = Field(
        default="workspace",
        description="Box of a new session: read-only, workspace (one directory writable) or trusted (no box at all).",
    )
    workspaces: tuple[str, ...] = Field(
        default=(),
        description="Directories that sessions may work in without asking, each with all below it. The directory the"
        " client was started in counts as well, unless it is / or holds the home; where the client has"
        " AI_SESSION_WORKSPACE in its environment, a directory around that one, all of that directory counts.",
    )
    minimum_level: Literal["bwrap", "bwrap-noproc", "landlock", "seatbelt"] = Field(
        default="landlock", description="Weakest containment a boxed session may start in; below it, none starts."
    )
    readable: tuple[str, ...] = Field(default=(), description="Further directories a boxed shell sees, read-only.")
    writable: tuple[str, ...] = Field(default=(), description="Further directories a boxed shell may write to.")
    home_readable: tuple[str, ...] = Field(
        default=(
            *(".pyenv", ".cargo/bin", ".rustup", ".nvm", ".local/bin", ".local/share/uv/python", ".local/share/mise"),
            *(".gitconfig", "go/bin", ".bun/bin", ".deno/bin"),
        ),
        description="Parts of the home, relative to it, that a boxed shell sees, read-only; the rest is hidden.",
    )
    masked: tuple[str, ...] = Field(
        default=(
            *(".env", ".env.*", "!.env.example", "!.env.sample", "!.env.template", ".env*~"),
            *("prod*.env", "secret*.env", "local.env", ".git-credentials", ".netrc", ".pgpass"),
            *("/*.pem", "/*.key"),
        ),
        description="Files of the workspace that a boxed shell finds empty: patterns as in .gitignore, so that a name"
        " fits at any depth and one with a / before it at the top alone; ! excepts.",
    )
    protected: tuple[str, ...] = Field(
        default=(),
        description="Files and directories of the workspace that a boxed shell cannot change, in addition to what"
        " `ai-session policy protected` lists: patterns as in .gitignore; one with ! takes what it names off the list.",
    )

    @field_validator("masked", "protected")
    @classmethod
    def _are_patterns(cls, lines: tuple[str, ...]) -> tuple[str, ...]:
        for line in lines:
            if fold(parse(line).last) == GIT:
                raise ValueError(f"{line!r}: what git keeps is protected apart from this list")
        return lines

    env_allow: tuple[str, ...] = Field(
        default=("LANG", "LANGUAGE", "LC_*", "TZ", "PATH", "HOME", "USER", "LOGNAME", "SHELL"),
        description="Variables a boxed shell takes from its client, instead of session.env_allow.",
    )
    memory_bytes: int = Field(default=4 << 30, ge=64 << 20, description="Memory of all processes of a box together.")
    processes: int = Field(default=512, ge=16, le=65_536, description="Processes in one box at once.")
    file_bytes: int = Field(default=4 << 30, ge=1 << 20, description="Largest file a boxed process may write.")
    tmp_bytes: int = Field(default=2 << 30, ge=1 << 20, description="Size of a box's own /tmp, kept in memory.")


class NetworkSettings(Section):
    """What a boxed shell may reach over the network: nothing but what is named here."""

    allow_domains: tuple[str, ...] = Field(
        default=(), description="Names (pypi.org) or suffixes (*.pypi.org, not pypi.org itself); empty means nothing."
    )
    ports: tuple[int, ...] = Field(default=(80, 443), description="Ports of these domains.")
    ask: bool = Field(
        default=False, description="Ask a person about a domain that is not named, and hold the connection meanwhile."
    )


def checked_hook(words: tuple[str, ...]) -> tuple[str, ...]:
    """A program by its path, with arguments; or nothing. Raises ValueError."""
    if words and not words[0].startswith("/"):
        raise ValueError(f"{words[0]!r} is not the absolute path of a program")
    if any("\0" in word for word in words):
        raise ValueError("holds a NUL character")
    return words


class PolicySettings(Section):
    """What is allowed, asked or denied."""

    mode: Literal["read-only", "workspace", "ask-all", "trusted"] = Field(
        default="workspace",
        description="read-only: nothing runs; workspace: free inside the box, asks to leave it; ask-all: asks before"
        " every effect; trusted: never asks.",
    )
    rules: tuple[dict[str, Any], ...] = Field(
        default=(), description="Rules, each a table: `ai-session docs policy`. The strictest that fits decides."
    )
    ask_seconds: float = Field(default=45.0, gt=0, le=50, description="How long a call waits for a person's answer.")
    hook: tuple[str, ...] = Field(
        default=(),
        description="A program, by its absolute path, and its arguments: asked before each call runs, and can only"
        " tighten what the rules say; empty: none. See `ai-session docs policy-hook`.",
    )
    hook_seconds: float = Field(
        default=5.0, gt=0, le=30, description="How long it may take; without an answer the call is denied."
    )

    @field_validator("hook")
    @classmethod
    def _is_a_path(cls, words: tuple[str, ...]) -> tuple[str, ...]:
        return checked_hook(words)


class ConsentSettings(Section):
    """Whose answers count as a person's: `ai-session docs consent`."""

    from_remote: Literal["signed", "terminal"] = Field(
        default="signed",
        description="By ssh, or from outside a container: only signed answers count (signed), or those from any"
        " terminal that no agent of this machine owns (terminal), which an agent that can log in can have as well.",
    )
    terminals: tuple[str, ...] = Field(
        default=(),
        description="Programs whose windows count as a person's terminals, besides those known: absolute paths.",
    )


class RateSettings(Section):
    """How often each client may call; a refused call says when to come back."""

    read_per_minute: int = Field(default=6000, ge=1, description="Calls that only look.")
    effect_per_minute: int = Field(default=1200, ge=1, description="Calls that run, write or end something.")
    sessions_per_minute: int = Field(default=120, ge=1, description="New sessions.")
    output_bytes_per_minute: int = Field(default=64 << 20, ge=1 << 16, description="Output returned by calls.")
    questions_per_minute: int = Field(default=10, ge=1, description="Questions put to a person.")


class AuditSettings(Section):
    """The record of every call."""

    segment_bytes: int = Field(default=64 << 20, ge=1 << 16, description="A new file is started after this many bytes.")
    retain_days: int = Field(default=365, ge=1, description="Files older than this may be removed, with a tombstone.")


class RedactionSettings(Section):
    """What is masked in results, recordings and the audit log."""

    enabled: bool = Field(default=True, description="Mask what looks like a secret, and the values named below.")
    environment: tuple[str, ...] = Field(
        default=(
            *("*TOKEN", "*_KEY", "*SECRET", "*PASSWORD", "*PASSPHRASE"),
            *("*_PASS", "*_PASSWD", "*_PWD", "*_CREDENTIALS", "*_PAT"),
        ),
        description="Variables of the clients whose values are masked wherever they appear: names or patterns.",
    )
    patterns: tuple[str, ...] = Field(default=(), description="Further regular expressions (RE2) of secrets.")


class HttpSettings(Section):
    """What `ai-session mcp-server --http` listens on, and how much it bears: `ai-session docs http`."""

    host: str = Field(default="127.0.0.1", description="Address to listen on.")
    port: int = Field(default=8765, ge=0, le=65_535, description="Port to listen on; 0: any free one.")
    public_url: str = Field(
        default="", description="Its public URL, if another: https://mcp.example.org; needed behind a proxy."
    )
    tls_certificate: str = Field(default="", description="File with the certificate chain (PEM); empty: no TLS here.")
    tls_key: str = Field(default="", description="File with its private key; empty: it is in the same file.")
    allowed_hosts: tuple[str, ...] = Field(
        default=(),
        description="Additional names that clients may call it by, besides this machine's and that of public_url.",
    )
    allowed_origins: tuple[str, ...] = Field(
        default=(), description="Web pages that may use it, in addition to its own: https://app.example.org."
    )
    trusted_proxies: tuple[str, ...] = Field(
        default=(), description="Addresses or networks of proxies whose X-Forwarded-For and -Proto are believed."
    )
    max_body_bytes: int = Field(default=4 << 20, ge=1 << 10, le=64 << 20, description="Longest request.")
    max_connections: int = Field(
        default=2000, ge=8, le=100_000, description="Connections at once; the longest idle one makes room for another."
    )
    max_requests: int = Field(
        default=1000, ge=1, description="Requests of one user under way at once; never over 3/4 of max_connections."
    )
    max_user_sessions: int = Field(
        default=500,
        ge=1,
        description="MCP sessions of one user (before 2026-07-28), never over 3/4 of max_connections; the longest idle"
        " one makes room for another.",
    )
    legacy_sse: bool = Field(default=False, description="Serve the transport of 2024-11-05 as well, at /sse.")


class OauthSettings(Section):
    """Who vouches for the clients of the HTTP front: `ai-session docs oauth`."""

    mode: Literal["builtin", "external"] = Field(
        default="builtin", description="builtin: this front signs its people in itself; external: another issuer does."
    )
    issuer: str = Field(default="", description="The external issuer, exactly as its tokens name it.")
    jwks_url: str = Field(default="", description="URL of its keys; empty: the one in its metadata.")
    introspection_url: str = Field(
        default="", description="URL at which each token is introspected, instead of reading JWTs."
    )
    client_id: str = Field(default="", description="Client ID used for introspection requests.")
    client_secret_file: str = Field(default="", description="File with the client secret, readable by its owner.")
    client_secret_variable: str = Field(
        default="", description="Or the environment variable that holds the client secret."
    )
    audience: str = Field(
        default="", description="Audience that tokens must have; empty: the URL of the HTTP server's /mcp."
    )
    algorithms: tuple[
        Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"], ...
    ] = Field(default=("RS256", "ES256", "EdDSA"), min_length=1, description="Signatures accepted on JWTs.")
    access_token_seconds: int = Field(
        default=3600, ge=60, le=86_400, description="Lifetime of access tokens issued by the built-in server."
    )
    refresh_days: int = Field(
        default=30, ge=1, le=365, description="A client unused for this long has to sign in again."
    )
    registration: bool = Field(default=True, description="Clients may register themselves (RFC 7591).")
    redirect_schemes: tuple[str, ...] = Field(
        default=REDIRECT_SCHEMES,
        description="Schemes that clients may have answers sent to (cursor://…), besides https, http of this machine"
        " and reversed domain names (com.example.app); replaces this default as a whole.",
    )
    cimd: bool = Field(default=True, description="Clients may be named by the URL of a document that describes them.")
    cimd_loopback: bool = Field(default=False, description="Such documents may be on this machine, for development.")


class NotifySettings(notices.NotifySettings, Section):
    """How you are told that something waits (`ai-session docs notifications`); without a way, nothing is sent."""

    command_seconds: float = Field(
        default=0.0, ge=0, description="Notify of a command that still runs after this many seconds; 0: never."
    )
    show_commands: bool = Field(
        default=False, description="Include the text of commands in notices; secrets stay masked."
    )


class TelemetrySettings(Section):
    """Where traces and metrics are exported (`ai-session docs telemetry`); without an address there are none."""

    endpoint: str = Field(default="", description="Collector for OTLP over HTTP: http://localhost:4318.")
    traces_endpoint: str = Field(default="", description="Another address for traces; none: no traces.")
    metrics_endpoint: str = Field(default="", description="Another address for metrics; none: no metrics.")
    protocol: str = Field(default="http/protobuf", description="Protocol; no other is supported.")
    headers: dict[str, str] = Field(
        default_factory=dict[str, str], description="Headers of each request, such as an API key."
    )
    metrics_seconds: float = Field(default=60.0, ge=0.1, description="Time between two exports of metrics.")


class Settings(Section):
    """Everything that can be configured."""

    session: SessionSettings = SessionSettings()
    sandbox: SandboxSettings = SandboxSettings()
    network: NetworkSettings = NetworkSettings()
    policy: PolicySettings = PolicySettings()
    consent: ConsentSettings = ConsentSettings()
    rates: RateSettings = RateSettings()
    audit: AuditSettings = AuditSettings()
    redaction: RedactionSettings = RedactionSettings()
    output: OutputSettings = OutputSettings()
    timeouts: TimeoutSettings = TimeoutSettings()
    daemon: DaemonSettings = DaemonSettings()
    calls: CallSettings = CallSettings()
    console: ConsoleSettings = ConsoleSettings()
    http: HttpSettings = HttpSettings()
    oauth: OauthSettings = OauthSettings()
    notify: NotifySettings = NotifySettings()
    telemetry: TelemetrySettings = TelemetrySettings()
