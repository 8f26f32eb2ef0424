"""The settings: one model per table of the file, one described field per setting. No I/O."""

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
"""Schemes of editors and terminals that are MCP clients, or have extensions that are."""


class Section(BaseModel):
    """One table of the file."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class SessionSettings(Section):
    """Defaults of a new session."""

    backend: str = Field(
        default="auto",
        pattern=r"^[a-z][a-z0-9_]*$",
        description="Where terminals live: pty, tmux, or auto (tmux where a usable one is installed, else pty).",
    )
    shell: str = Field(
        default="", description="bash, zsh, fish, dash, … or a path; empty: $SHELL if it is supported, else bash."
    )
    user_rc: bool = Field(default=True, description="Read the user's own start files (.bashrc, .zshrc, config.fish).")
    rows: int = Field(default=50, ge=2, le=1000, description="Height of a new terminal.")
    cols: int = Field(default=200, ge=10, le=1000, description="Width of a new terminal.")
    env: dict[str, str] = Field(
        default_factory=lambda: {"PAGER": "cat", "GIT_PAGER": "cat"},
        description="Variables set in every session; replaces the default as a whole.",
    )
    env_allow: tuple[str, ...] = Field(
        default=PASSED_ON,
        description="Variables a session takes from its client: names or patterns (LC_*). The terminal sets TERM.",
    )
    max_sessions: int = Field(default=64, ge=1, le=10_000, description="Maximum number of sessions open at once.")
    max_sessions_per_owner: int = Field(
        default=48,
        ge=1,
        description="How many of them one user may have, never over 3/4 of all; one run 3/4 of that, and one agent"
        " in it 3/4 again. A person at this machine is limited only by max_sessions.",
    )
    retain_bytes: int = Field(
        default=64 << 20, ge=1 << 20, description="Newest output kept on disk for each session, in bytes."
    )
    owned_idle_days: float = Field(
        default=7,
        ge=0,
        description="Days without use after which the session of a swarm's run is closed, if nothing runs in it"
        " and nobody is attached; checked hourly. 0: never.",
    )
    close_grace_seconds: float = Field(
        default=2.0,
        ge=0,
        le=30,
        description="How long a closing session's processes may run on after the hang-up before they are killed.",
    )


class OutputSettings(Section):
    """Limits of the text that a call returns."""

    max_chars: int = Field(
        default=7000,
        ge=200,
        le=200_000,
        description="Characters of output in one result (head and tail; the rest stays readable).",
    )


class TimeoutSettings(Section):
    """Limits of waiting. Clients stop waiting after about 60 s, so no call waits longer than 50."""

    execute_seconds: float = Field(
        default=30.0, gt=0, le=50, description="A command that takes longer is reported as running, and keeps running."
    )
    wait_seconds: float = Field(default=50.0, gt=0, le=50, description="Longest wait a caller may ask for.")
    interrupt_step_seconds: float = Field(
        default=2.0, gt=0, le=8, description="Pause between the steps of an interrupt: ^C, ^C, ^\\, TERM, KILL."
    )


class DaemonSettings(Section):
    """The process that serves every client of this user."""

    idle_exit_seconds: float = Field(
        default=0.0, ge=0, description="End after this time without clients and sessions; 0 means never."
    )


class ConsoleSettings(Section):
    """Content of ai-session console."""

    runs: tuple[str, ...] = Field(
        default=("ccswarm", "feed"),
        description="Program that reports runs, and its arguments (`ai-session docs runs-provider`): a path, or a"
        " name, which is looked for next to ai-session, then on PATH. []: none.",
    )


class CallSettings(Section):
    """Calls that carry a call_key."""

    key_hours: float = Field(
        default=24.0,
        gt=0,
        le=720,
        description="How long a call_key is known: the same call then gets the recorded result; later it runs again.",
    )


class SandboxSettings(Section):
    """Access of a session's shell to this machine."""

    profile: Literal["read-only", "workspace", "trusted"] = Field(
        default="workspace",
        description="Box of a new session: read-only, workspace (one directory writable) or trusted (no box at all).",
    )
    workspaces: tuple[str, ...] = Field(
        default=(),
        description="Directories, and all below them, that sessions may work in without asking. The directory the"
        " client was started in counts as well, unless it is / or contains the home directory; if the client's"
        " AI_SESSION_WORKSPACE names a directory around that one, all of it counts.",
    )
    minimum_level: Literal["bwrap", "bwrap-noproc", "landlock", "seatbelt"] = Field(
        default="landlock",
        description="Weakest containment that is accepted; where the machine offers less, no boxed session starts.",
    )
    readable: tuple[str, ...] = Field(default=(), description="More directories that a boxed shell can read.")
    writable: tuple[str, ...] = Field(default=(), description="More directories that a boxed shell can write to.")
    home_readable: tuple[str, ...] = Field(
        default=(
            *(".pyenv", ".cargo/bin", ".rustup", ".nvm", ".local/bin", ".local/share/uv/python", ".local/share/mise"),
            *(".gitconfig", "go/bin", ".bun/bin", ".deno/bin"),
        ),
        description="Paths below the home directory that a boxed shell can read; the rest of it is hidden.",
    )
    masked: tuple[str, ...] = Field(
        default=(
            *(".env", ".env.*", "!.env.example", "!.env.sample", "!.env.template", ".env*~"),
            *("prod*.env", "secret*.env", "local.env", ".git-credentials", ".netrc", ".pgpass"),
            *("/*.pem", "/*.key"),
        ),
        description="Files of the workspace that appear empty to a boxed shell if they exist when it starts: patterns"
        " as in .gitignore (a name alone matches at any depth, one with a leading / at the top only, ! makes an"
        " exception).",
    )
    protected: tuple[str, ...] = Field(
        default=(),
        description="Files and directories of the workspace that a boxed shell cannot change, in addition to what"
        " `ai-session policy protected` lists: patterns as in .gitignore; ! takes what it names off the list.",
    )

    @field_validator("masked", "protected")
    @classmethod
    def _are_patterns(cls, lines: tuple[str, ...]) -> tuple[str, ...]:
        for line in lines:
            if fold(parse(line).last) == GIT:
                raise ValueError(f"{line!r}: git's own files are protected independently of this list")
        return lines

    env_allow: tuple[str, ...] = Field(
        default=("LANG", "LANGUAGE", "LC_*", "TZ", "PATH", "HOME", "USER", "LOGNAME", "SHELL"),
        description="Variables a boxed shell takes from its client, instead of session.env_allow.",
    )
    memory_bytes: int = Field(
        default=4 << 30, ge=64 << 20, description="Memory limit for all processes of a box together."
    )
    processes: int = Field(default=512, ge=16, le=65_536, description="Maximum number of processes in one box at once.")
    file_bytes: int = Field(default=4 << 30, ge=1 << 20, description="Largest file a boxed process may write.")
    tmp_bytes: int = Field(default=2 << 30, ge=1 << 20, description="Size of a box's own /tmp, kept in memory.")


class NetworkSettings(Section):
    """Network access of a boxed shell: only what is named here."""

    allow_domains: tuple[str, ...] = Field(
        default=(),
        description="Domain names (pypi.org) or suffixes (*.pypi.org, which excludes pypi.org itself); empty: none.",
    )
    ports: tuple[int, ...] = Field(default=(80, 443), description="Ports of these domains.")
    ask: bool = Field(
        default=False,
        description="Ask a person about a domain that is not listed; the connection waits for the answer.",
    )


def checked_hook(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the command line of a hook: an absolute path with arguments, or empty. Raises ValueError."""
    if words and not words[0].startswith("/"):
        raise ValueError(f"{words[0]!r} is not the absolute path of a program")
    if any("\0" in word for word in words):
        raise ValueError("contains a NUL character")
    return words


class PolicySettings(Section):
    """Calls that are allowed, asked about or denied."""

    mode: Literal["read-only", "workspace", "ask-all", "trusted"] = Field(
        default="workspace",
        description="read-only: nothing runs; workspace: free inside the box, asks to leave it; ask-all: asks before"
        " every effect; trusted: never asks.",
    )
    rules: tuple[dict[str, Any], ...] = Field(
        default=(), description="Rules, each a table: `ai-session docs policy`. The strictest one that matches decides."
    )
    ask_seconds: float = Field(default=45.0, gt=0, le=50, description="How long a call waits for a person's answer.")
    hook: tuple[str, ...] = Field(
        default=(),
        description="Absolute path and arguments of a program that is asked before each call runs; it can only"
        " make the decision stricter. Empty: none. See `ai-session docs policy-hook`.",
    )
    hook_seconds: float = Field(
        default=5.0, gt=0, le=30, description="Time limit for the hook; without an answer the call is denied."
    )

    @field_validator("hook")
    @classmethod
    def _is_a_path(cls, words: tuple[str, ...]) -> tuple[str, ...]:
        return checked_hook(words)


class ConsentSettings(Section):
    """Answers that count as those of a person: `ai-session docs consent`."""

    from_remote: Literal["signed", "terminal"] = Field(
        default="signed",
        description="Answers over SSH or from outside a container. signed: only signed ones count; terminal: also those"
        " from any terminal that no agent of this machine owns (an agent that can log in can get one).",
    )
    terminals: tuple[str, ...] = Field(
        default=(),
        description="More programs whose windows count as a person's terminals: absolute paths.",
    )


class RateSettings(Section):
    """Limits of each client's calls; the error states when to retry."""

    read_per_minute: int = Field(default=6000, ge=1, description="Calls that only read.")
    effect_per_minute: int = Field(default=1200, ge=1, description="Calls that run, write or end something.")
    sessions_per_minute: int = Field(default=120, ge=1, description="New sessions.")
    output_bytes_per_minute: int = Field(default=64 << 20, ge=1 << 16, description="Bytes of output returned by calls.")
    questions_per_minute: int = Field(default=10, ge=1, description="Questions put to a person.")


class AuditSettings(Section):
    """The record of every call."""

    segment_bytes: int = Field(default=64 << 20, ge=1 << 16, description="Size at which a new file is started.")
    retain_days: int = Field(default=365, ge=1, description="Files older than this may be removed, with a tombstone.")


class RedactionSettings(Section):
    """Masking of results, recordings and the audit log."""

    enabled: bool = Field(
        default=True, description="Mask what looks like a secret, and the values of the variables below."
    )
    environment: tuple[str, ...] = Field(
        default=(
            *("*TOKEN", "*_KEY", "*SECRET", "*PASSWORD", "*PASSPHRASE"),
            *("*_PASS", "*_PASSWD", "*_PWD", "*_CREDENTIALS", "*_PAT"),
        ),
        description="Variables of the clients whose values are masked wherever they appear: names or patterns.",
    )
    patterns: tuple[str, ...] = Field(default=(), description="More regular expressions (RE2) that match secrets.")


class HttpSettings(Section):
    """Addresses, TLS and limits of `ai-session mcp-server --http`: `ai-session docs http`."""

    host: str = Field(default="127.0.0.1", description="Address to listen on.")
    port: int = Field(default=8765, ge=0, le=65_535, description="Port to listen on; 0: any free one.")
    public_url: str = Field(
        default="", description="Public URL, if it differs (https://mcp.example.org); required behind a proxy."
    )
    tls_certificate: str = Field(default="", description="File with the certificate chain (PEM); empty: no TLS.")
    tls_key: str = Field(default="", description="File with its private key; empty: it is in the same file.")
    allowed_hosts: tuple[str, ...] = Field(
        default=(),
        description="Host names that clients may use in addition to this machine's and that of public_url.",
    )
    allowed_origins: tuple[str, ...] = Field(
        default=(), description="Origins of web pages that may use it, in addition to its own: https://app.example.org."
    )
    trusted_proxies: tuple[str, ...] = Field(
        default=(),
        description="Addresses or networks of proxies whose X-Forwarded-For and X-Forwarded-Proto are believed.",
    )
    max_body_bytes: int = Field(default=4 << 20, ge=1 << 10, le=64 << 20, description="Largest request body.")
    max_connections: int = Field(
        default=2000,
        ge=8,
        le=100_000,
        description="Maximum number of connections at once; a new one beyond that closes the one idle longest.",
    )
    max_requests: int = Field(
        default=1000,
        ge=1,
        description="Maximum number of requests of one user in progress at once; never over 3/4 of max_connections.",
    )
    max_user_sessions: int = Field(
        default=500,
        ge=1,
        description="Maximum number of MCP sessions of one user (before 2026-07-28), never over 3/4 of max_connections;"
        " a new one beyond that ends the one idle longest.",
    )
    legacy_sse: bool = Field(default=False, description="Also serve the HTTP+SSE transport of 2024-11-05, at /sse.")


class OauthSettings(Section):
    """Issuer of the tokens of clients of the HTTP server: `ai-session docs oauth`."""

    mode: Literal["builtin", "external"] = Field(
        default="builtin", description="builtin: the HTTP server signs users in itself; external: another issuer does."
    )
    issuer: str = Field(default="", description="The external issuer, exactly as in its tokens' iss claim.")
    jwks_url: str = Field(default="", description="URL of the issuer's keys (JWKS); empty: the one in its metadata.")
    introspection_url: str = Field(
        default="", description="URL at which each token is introspected, instead of verifying JWTs."
    )
    client_id: str = Field(default="", description="Client ID used for introspection requests.")
    client_secret_file: str = Field(default="", description="File with the client secret, readable by its owner.")
    client_secret_variable: str = Field(
        default="", description="Or the environment variable that holds the client secret."
    )
    audience: str = Field(
        default="", description="Audience that tokens must name; empty: the URL of the HTTP server's /mcp."
    )
    algorithms: tuple[
        Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"], ...
    ] = Field(default=("RS256", "ES256", "EdDSA"), min_length=1, description="Signature algorithms accepted on JWTs.")
    access_token_seconds: int = Field(
        default=3600, ge=60, le=86_400, description="Lifetime of access tokens issued by the built-in server."
    )
    refresh_days: int = Field(
        default=30, ge=1, le=365, description="A client unused for this long has to sign in again."
    )
    registration: bool = Field(default=True, description="Clients may register themselves (RFC 7591).")
    redirect_schemes: tuple[str, ...] = Field(
        default=REDIRECT_SCHEMES,
        description="URL schemes allowed in redirect URIs (cursor://…), in addition to https, http to this machine"
        " and reversed domain names (com.example.app); replaces the default as a whole.",
    )
    cimd: bool = Field(
        default=True, description="A client may identify itself by the URL of its metadata document (CIMD)."
    )
    cimd_loopback: bool = Field(default=False, description="Allow such documents on this machine, for development.")


class NotifySettings(notices.NotifySettings, Section):
    """Notices that something waits for you (`ai-session docs notifications`); by default nothing is sent."""

    command_seconds: float = Field(
        default=0.0, ge=0, description="Notify of a command that still runs after this many seconds; 0: never."
    )
    show_commands: bool = Field(
        default=False, description="Include the text of commands in notices; secrets stay masked."
    )


class TelemetrySettings(Section):
    """Export of traces and metrics (`ai-session docs telemetry`); without an endpoint, nothing is exported."""

    endpoint: str = Field(default="", description="Collector for OTLP over HTTP: http://localhost:4318.")
    traces_endpoint: str = Field(default="", description="Full endpoint for traces instead; `none` turns them off.")
    metrics_endpoint: str = Field(default="", description="Full endpoint for metrics instead; `none` turns them off.")
    protocol: str = Field(default="http/protobuf", description="Only `http/protobuf`; else nothing is exported.")
    headers: dict[str, str] = Field(
        default_factory=dict[str, str], description="Headers of each export request, such as an API key."
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
