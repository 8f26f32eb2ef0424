"""How programs are started that think for an agent: headless, with one MCP server, and nothing of their own to act
with. The files they read lie in a private directory, and none of the person's own is changed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ccswarm.brains.cli_settings import CliSettings

SERVER = "ccswarm"
CALL_SECONDS = 600
"""How long a program waits for one call: longer than the desk takes, and a worker that replaces a lost one."""

PROMPT, CONFIG = "prompt.txt", "mcp.json"


@dataclass(frozen=True, slots=True)
class Given:
    """What one start is made of. ``server`` are the words of its MCP server and ``variables`` what that one needs:
    names whose values the program's own environment has. ``session`` is what it goes on with, empty at first."""

    settings: CliSettings
    directory: str
    server: Sequence[str]
    variables: Sequence[str]
    session: str = ""


@dataclass(frozen=True, slots=True)
class Launch:
    """``files`` by their path in the directory; the prompt is its standard input."""

    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    files: Mapping[str, str] = field(default_factory=dict[str, str])


def claude(given: Given) -> Launch:
    """Claude Code. Its own tools are off, and so are the settings of the directory and whatever it would report."""
    settings = given.settings
    command = ["claude", *settings.args, "-p", "--output-format", "stream-json", "--verbose"]
    command += ["--mcp-config", f"{given.directory}/{CONFIG}", "--strict-mcp-config"]
    command += ["--tools", "", "--allowedTools", f"mcp__{SERVER}"]
    command += ["--model", settings.model] if settings.model else []
    command += ["--resume", given.session] if given.session else []
    environment = {
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "MCP_TIMEOUT": "60000",
        "MCP_TOOL_TIMEOUT": str(CALL_SECONDS * 1000),
    }
    if settings.base_url:
        environment["ANTHROPIC_BASE_URL"] = settings.base_url
    return Launch(command, environment, {CONFIG: _json_config(given)})


def codex(given: Given) -> Launch:
    """Codex, with a home of its own: what is in the person's configuration would be added to ours."""
    settings = given.settings
    command = ["codex", "exec", *settings.args, "--json", "--skip-git-repo-check"]
    command += ["--model", settings.model] if settings.model else []
    command += ["resume", given.session, "-"] if given.session else ["-"]
    server, *args = given.server
    lines = [
        'approval_policy = "never"',
        'sandbox_mode = "read-only"',
        "[features]",
        "shell_tool = false",
        f"[mcp_servers.{SERVER}]",
        f"command = {json.dumps(server)}",
        f"args = {json.dumps(args)}",
        f"env_vars = {json.dumps(list(given.variables))}",
        'default_tools_approval_mode = "approve"',
        f"tool_timeout_sec = {CALL_SECONDS}",
        "startup_timeout_sec = 60",
    ]
    if settings.base_url:
        lines[:0] = ['model_provider = "ccswarm"']
        lines += [
            "[model_providers.ccswarm]",
            'name = "ccswarm"',
            f"base_url = {json.dumps(settings.base_url)}",
            'wire_api = "responses"',
            'env_key = "OPENAI_API_KEY"',
        ]
    home = f"{given.directory}/codex"
    return Launch(command, {"CODEX_HOME": home}, {"codex/config.toml": "\n".join(lines) + "\n"})


def gemini(given: Given) -> Launch:
    """Gemini CLI, with the settings of its directory: an untrusted one would take its tools away."""
    settings = given.settings
    command = ["gemini", *settings.args, "--output-format", "stream-json", "--approval-mode", "yolo", "--skip-trust"]
    command += ["--model", settings.model] if settings.model else []
    command += ["--resume", given.session] if given.session else []
    server, *args = given.server
    mine = {
        "command": server,
        "args": args,
        "env": {name: f"${name}" for name in given.variables},
        "timeout": CALL_SECONDS * 1000,
        "trust": True,
    }
    config = {
        "mcpServers": {SERVER: mine},
        "mcp": {"allowed": [SERVER]},
        "tools": {"core": ["none"]},
        "privacy": {"usageStatisticsEnabled": False},
        "telemetry": {"enabled": False},
    }
    environment = {"GOOGLE_GEMINI_BASE_URL": settings.base_url} if settings.base_url else {}
    return Launch(command, environment, {".gemini/settings.json": json.dumps(config, indent=1)})


def other(given: Given) -> Launch:
    """Whatever ``settings.command`` says."""
    settings = given.settings
    words = settings.resume if given.session and settings.resume else settings.command
    values = {
        "prompt_file": f"{given.directory}/{PROMPT}",
        "mcp_config": f"{given.directory}/{CONFIG}",
        "directory": given.directory,
        "model": settings.model,
        "session": given.session,
    }
    filled = [_filled(word, values) for word in words]
    return Launch(filled, {}, {CONFIG: _json_config(given)})


def launch_of(given: Given) -> Launch:
    """How the program of these settings is started."""
    if given.settings.command:
        return other(given)
    return KNOWN[given.settings.program](given)


def resumable(settings: CliSettings) -> bool:
    """Whether the program can go on where it was."""
    return bool(settings.resume) if settings.command else settings.program in KNOWN


def _filled(word: str, values: Mapping[str, str]) -> str:
    for name, value in values.items():
        word = word.replace("{" + name + "}", value)
    return word


def _json_config(given: Given) -> str:
    server, *args = given.server
    mine = {"command": server, "args": args, "env": {name: f"${{{name}}}" for name in given.variables}}
    return json.dumps({"mcpServers": {SERVER: mine}}, indent=1)


KNOWN: Mapping[str, Callable[[Given], Launch]] = {"claude": claude, "codex": codex, "gemini": gemini}
INSTALL = {
    "claude": "npm install -g @anthropic-ai/claude-code",
    "codex": "npm install -g @openai/codex",
    "gemini": "npm install -g @google/gemini-cli",
}
LOGIN = {
    "claude": "run claude and /login there, or give it ANTHROPIC_API_KEY in settings.environment",
    "codex": "run codex login there, or give it OPENAI_API_KEY in settings.environment",
    "gemini": "run gemini there and log in, or give it GEMINI_API_KEY in settings.environment",
}
