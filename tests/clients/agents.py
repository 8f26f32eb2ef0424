"""Claude Code, Codex and Gemini CLI: how each is set up, run once without a person, and read."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from pathlib import Path

PROMPT = "Do what the script says."
CODEX_CONFIG = """\
model = "fake"
model_provider = "fake"
approval_policy = "never"
check_for_update_on_startup = false
[analytics]
enabled = false
[features]
apps = false
plugins = false
[model_providers.fake]
name = "fake"
base_url = "{url}/v1"
wire_api = "responses"
env_key = "FAKE_KEY"
"""
GEMINI_SETTINGS = {
    "general": {"enableAutoUpdate": False},
    "privacy": {"usageStatisticsEnabled": False},
    "security": {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": False}},
}


@dataclass(frozen=True)
class Seen:
    """What the model could read in a result of a command."""

    output: str
    exit_code: int | None


class Agent(Protocol):
    """One client. ``name`` is what ``ai-session mcp install --client`` calls it."""

    name: str
    executable: str

    prefix: str
    """Of the names under which the model sees the tools."""

    healthy: str
    """What its list says of a server that it can use."""

    def prepare(self, home: Path, url: str) -> dict[str, str]:
        """Writes settings that know no server yet; the variables it needs to use the models at ``url``."""
        ...

    def arguments(self) -> list[str]:
        """With these it carries out one prompt."""
        ...

    def seen(self, result: str) -> Seen:
        """Reads the result of a command as the model got it."""
        ...


def seen_in_json(result: str) -> Seen:
    """A client that hands on the structured content, perhaps after a heading of its own."""
    facts: dict[str, Any] = json.loads(result[result.index("{") :])
    return Seen(facts["output"], facts.get("exit_code"))


class ClaudeCode:
    name = "claude-code"
    executable = "claude"
    prefix = "mcp__ai-session__"
    healthy = "✔ Connected"

    def prepare(self, home: Path, url: str) -> dict[str, str]:
        quiet = ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "DISABLE_AUTOUPDATER", "DISABLE_TELEMETRY")
        where = {"ANTHROPIC_BASE_URL": url, "CLAUDE_CODE_TMPDIR": str(home)}
        # By itself it asks its model after 3 s, with whatever tools there are: then time decides what the model sees.
        waits = {"CLAUDE_CODE_MCP_STARTUP_WAIT_MS": "60000"}
        return {**where, **waits, "ANTHROPIC_API_KEY": "dummy"} | dict.fromkeys(quiet, "1")

    def arguments(self) -> list[str]:
        allowed = ["--allowedTools", "mcp__ai-session", "--max-turns", "30"]
        return ["-p", PROMPT, *allowed, "--output-format", "json"]

    def seen(self, result: str) -> Seen:
        return seen_in_json(result)


class Codex:
    name = "codex"
    executable = "codex"
    prefix = "mcp__ai_session/"
    healthy = "enabled"

    def __init__(self, sandbox: str = "danger-full-access") -> None:
        self.sandbox = sandbox

    def prepare(self, home: Path, url: str) -> dict[str, str]:
        (home / ".codex").mkdir()
        (home / ".codex/config.toml").write_text(CODEX_CONFIG.format(url=url))
        return {"FAKE_KEY": "dummy"}

    def arguments(self) -> list[str]:
        return ["exec", "--skip-git-repo-check", "-s", self.sandbox, PROMPT]

    def seen(self, result: str) -> Seen:
        return seen_in_json(result)


class GeminiCli:
    name = "gemini"
    executable = "gemini"
    prefix = "mcp_ai-session_"
    healthy = "Connected"

    def prepare(self, home: Path, url: str) -> dict[str, str]:
        (home / ".gemini").mkdir()
        (home / ".gemini/settings.json").write_text(json.dumps(GEMINI_SETTINGS))
        return {"GOOGLE_GEMINI_BASE_URL": url, "GEMINI_API_KEY": "dummy"}

    def arguments(self) -> list[str]:
        return ["--approval-mode", "yolo", "-m", "gemini-2.5-pro", "-o", "json", "-p", PROMPT]

    def seen(self, result: str) -> Seen:
        match = re.search(r"<untrusted_context>\n(.*)\n</untrusted_context>", result, re.DOTALL)
        assert match, result
        head, _, output = match[1].partition("\n")
        code = re.search(r"exit code (-?\d+)", head)
        return Seen(output, int(code[1]) if code else None)
