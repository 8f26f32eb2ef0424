"""How programs are started that think for an agent: headless, with one MCP server and no other tools.

The files they read are in a private directory, and none of the person's own files is changed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from ccswarm.brains.cli.settings import CliSettings
from ccswarm.system.confined_files import write_files
from ccswarm.system.untrusted_tree import UntrustedTree

SERVER = "ccswarm"
CALL_SECONDS = 3600
"""How long a program waits for one call: longer than the bridge takes, and than the replacement of a lost worker."""

PROMPT, CONFIG = "prompt.txt", "mcp.json"
MOST_CHAT_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class StartOptions:
    """The options of one start. ``server`` is the command line of the MCP server, ``variables`` the names of
    environment variables it needs. ``session`` is the one to resume; empty at first."""

    settings: CliSettings
    directory: str
    server: Sequence[str]
    variables: Sequence[str]
    session: str = ""


@dataclass(frozen=True, slots=True)
class Launch:
    """A start of a program, with its ``files`` by path in the directory. The prompt is its standard input. ``prepare``
    runs before it: see ``ccswarm.bridge.keeper``."""

    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    files: Mapping[str, str] = field(default_factory=dict[str, str])
    prepare: Mapping[str, Any] | None = None


def claude(options: StartOptions) -> Launch:
    """Return the start of Claude Code, without its own tools, commands, attachments and settings files. With a key or
    token in its environment all its files are here. Otherwise it uses the person's login, and its transcript is stored
    with that."""
    settings = options.settings
    command = ["claude", *settings.args, "-p", "--output-format", "stream-json", "--verbose"]
    command += ["--mcp-config", f"{options.directory}/{CONFIG}", "--strict-mcp-config", "--tools", ""]
    command += ["--allowedTools", f"mcp__{SERVER}", "--permission-prompts", "none", "--setting-sources", ""]
    command += ["--disable-slash-commands"]
    command += ["--model", settings.model] if settings.model else []
    command += ["--resume", options.session] if options.session else []
    environment = {
        "CLAUDE_CODE_DISABLE_ATTACHMENTS": "1",  # otherwise it reads any file that a prompt names after an @
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CODE_MAX_RETRIES": "2",  # the default of 10 takes minutes even with a wrong key
        "CLAUDE_CODE_TMPDIR": f"{options.directory}/tmp",
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_TELEMETRY": "1",
        "MCP_TOOL_TIMEOUT": str(CALL_SECONDS * 1000),
    }
    if {"ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"} & set(settings.environment):
        environment["CLAUDE_CONFIG_DIR"] = f"{options.directory}/claude"
    if settings.base_url:
        environment["ANTHROPIC_BASE_URL"] = settings.base_url
    return Launch(command, environment, {CONFIG: _json_config(options), "tmp/keep": "", "claude/keep": ""})


def codex(options: StartOptions) -> Launch:
    """Return the start of Codex, without the person's configuration except for the login, if there is no key. Disabling
    features removes its own tools; those that a model brings are removed by a catalog of models without tools."""
    settings = options.settings
    server, *args = options.server
    mine = f"mcp_servers.{SERVER}"
    values: dict[str, Any] = {
        f"{mine}.command": server,
        f"{mine}.args": args,
        f"{mine}.env_vars": list(options.variables),
        f"{mine}.required": True,
        f"{mine}.startup_timeout_sec": 60,
        f"{mine}.default_tools_approval_mode": "approve",
        f"{mine}.tool_timeout_sec": CALL_SECONDS,
        "check_for_update_on_startup": False,
        "analytics.enabled": False,
        "web_search": "disabled",
        "project_doc_max_bytes": 0,
        "skills.bundled.enabled": False,
        "skills.include_instructions": False,
        "include_permissions_instructions": False,
        "include_apps_instructions": False,
        "include_environment_context": False,
        "model_catalog_json": f"{options.directory}/models.json",
        **{f"features.{name}": False for name in CODEX_FEATURES.split()},
    }
    if settings.base_url:
        provider = f"model_providers.{SERVER}"
        values |= {
            "model_provider": SERVER,
            f"{provider}.name": SERVER,
            f"{provider}.base_url": settings.base_url,
            f"{provider}.wire_api": "responses",
            f"{provider}.env_key": "CODEX_API_KEY",
            f"{provider}.request_max_retries": 2,
            f"{provider}.stream_max_retries": 2,
        }
    command = ["codex", "exec", *settings.args, "--json", "--skip-git-repo-check", "--ignore-user-config"]
    command += ["--ignore-rules", "-s", "read-only"]
    for name, value in values.items():
        command += ["-c", f"{name}={json.dumps(value)}"]  # JSON of these is TOML too
    command += ["-m", settings.model] if settings.model else []
    command += ["resume", options.session, "-"] if options.session else ["-"]
    home = {"CODEX_HOME": f"{options.directory}/codex"} if "CODEX_API_KEY" in settings.environment else {}
    prepare: dict[str, Any] = {
        "command": ["codex", "debug", "models", "--bundled"],
        "file": values["model_catalog_json"],
        "list": "models",
        "changes": CODEX_MODEL,
    }
    return Launch(command, home, {"codex/keep": ""}, prepare)


def gemini(options: StartOptions) -> Launch:
    """Return the start of Gemini CLI. It has its own home, so only a key works, and only the named tools."""
    settings = options.settings
    command = ["gemini", *settings.args, "-o", "stream-json", "--skip-trust", "-e", "none"]
    command += ["--allowed-mcp-server-names", SERVER]
    command += ["-m", settings.model] if settings.model else []
    command += ["--resume", options.session] if options.session else []
    server, *args = options.server
    variables = {name: f"${name}" for name in options.variables}
    mine = {"command": server, "args": args, "env": variables, "timeout": CALL_SECONDS * 1000, "trust": True}
    vertex = "GOOGLE_API_KEY" in settings.environment
    config = {
        "general": {
            "enableAutoUpdate": False,
            "enableAutoUpdateNotification": False,
            "topicUpdateNarration": False,
            "plan": {"enabled": False},
            "maxAttempts": 3,
        },
        "privacy": {"usageStatisticsEnabled": False},
        "security": {
            "auth": {"selectedType": "vertex-ai" if vertex else "gemini-api-key"},
            "folderTrust": {"enabled": False},
        },
        "tools": {"core": [f"mcp_{SERVER}_*"]},
        "skills": {"enabled": False},
        "hooksConfig": {"enabled": False},
        "experimental": {"enableAgents": False},
        "useWriteTodos": False,
        "context": {"fileName": ["none.md"], "includeDirectoryTree": False},
        "advanced": {"ignoreLocalEnv": True, "autoConfigureMemory": False},
        "mcpServers": {SERVER: mine},
    }
    environment = {
        "GEMINI_CLI_HOME": f"{options.directory}/gemini",
        "GEMINI_CLI_NO_RELAUNCH": "true",
        "GEMINI_CLI_TRUST_WORKSPACE": "true",
        "TMPDIR": f"{options.directory}/tmp",
    }
    if settings.base_url:
        environment["GOOGLE_GEMINI_BASE_URL"] = settings.base_url
    files = {"gemini/.gemini/settings.json": json.dumps(config, indent=1), "tmp/keep": ""}
    return Launch(command, environment, files)


CODEX_MODEL: Mapping[str, Any] = {
    "tool_mode": None,
    "apply_patch_tool_type": None,
    "multi_agent_version": None,
    "supports_search_tool": False,
    "experimental_supported_tools": [],
}
CODEX_FEATURES = """
shell_tool unified_exec view_image multi_agent goals apps plugins image_generation hooks remote_plugin skill_search
tool_suggest skill_mcp_dependency_install shell_snapshot browser_use browser_use_external computer_use in_app_browser
sleep_tool daemon_auto_start workspace_dependencies memories unbounded_connection_retries
"""


def other(options: StartOptions) -> Launch:
    """Return the start of another program, from ``settings.command``."""
    settings = options.settings
    words = settings.resume if options.session and settings.resume else settings.command
    values = {
        "prompt_file": f"{options.directory}/{PROMPT}",
        "mcp_config": f"{options.directory}/{CONFIG}",
        "directory": options.directory,
        "model": settings.model,
        "session": options.session,
    }
    filled = [_fill(word, values) for word in words]
    return Launch(filled, {}, {CONFIG: _json_config(options)})


def repair_gemini(directory: Path, session: str) -> None:
    """Remove duplicate tool results from gemini's stored sessions in its private home. It stores each result with its
    call and again as a separate line, and its API rejects both on resuming. Raises WorkRefused, ValueError or OSError
    if the files are not such sessions."""
    with UntrustedTree(directory) as tree:
        folders = tree.list("gemini/.gemini/tmp").directories
        for path in (entry.path for folder in folders for entry in tree.list(f"{folder}/chats").entries):
            if not fnmatchcase(path.rpartition("/")[2], "session-*.jsonl"):
                continue
            lines = (tree.read(path, MOST_CHAT_BYTES) or b"").decode().splitlines(keepends=True)
            if lines and json.loads(lines[0]).get("sessionId") == session:
                write_files(
                    directory, {path: "".join(line for line in lines if not _only_results(json.loads(line)))}, 0o600
                )


def _only_results(record: Mapping[str, Any]) -> bool:
    parts: Any = record.get("content")
    return record.get("type") == "user" and isinstance(parts, list) and all("functionResponse" in one for one in parts)  # pyright: ignore[reportUnknownVariableType]


def make_launch(options: StartOptions) -> Launch:
    """Return the start of the program that the settings name."""
    if options.settings.command:
        return other(options)
    return KNOWN[options.settings.program](options)


def resumable(settings: CliSettings) -> bool:
    """Report whether the program can resume a session."""
    return bool(settings.resume) if settings.command else settings.program in KNOWN


def _fill(word: str, values: Mapping[str, str]) -> str:
    for name, value in values.items():
        word = word.replace("{" + name + "}", value)
    return word


def _json_config(options: StartOptions) -> str:
    server, *args = options.server
    mine = {"command": server, "args": args, "env": {name: f"${{{name}}}" for name in options.variables}}
    return json.dumps({"mcpServers": {SERVER: mine}}, indent=1)


KNOWN: Mapping[str, Callable[[StartOptions], Launch]] = {"claude": claude, "codex": codex, "gemini": gemini}
INSTALL = {
    "claude": "npm install -g @anthropic-ai/claude-code",
    "codex": "npm install -g @openai/codex",
    "gemini": "npm install -g @google/gemini-cli",
}
LOGIN = {
    "claude": "run claude and /login there, or give it ANTHROPIC_API_KEY or CLAUDE_CODE_OAUTH_TOKEN in "
    "settings.environment",
    "codex": "run codex login there, or give it CODEX_API_KEY in settings.environment",
    "gemini": "give it GEMINI_API_KEY in settings.environment",
}
