"""Default agents: those ``ccswarm init`` writes, and those in use if a configuration names none.

Only ``prepare`` writes files, and only ``load_brain`` imports.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, get_args

from agentwire import plugins
from agentwire.extras import install
from agentwire.system import whole_files
from ccswarm.errors import ConfigInvalid

With = Literal["claude", "codex", "gemini", "anthropic", "openai", "local", "none"]
"""What the agents think with: a command-line program, a vendor's model, a local model, or nothing."""
For = Literal["visionflow", "a2a", "orchestre"]
WITH: tuple[With, ...] = get_args(With)
FOR: tuple[For, ...] = get_args(For)

TYPES = ("coder", "researcher", "analyst", "optimizer", "coordinator")
"""The types of agents, as VisionFlow names them. The first is used where one agent is enough."""
CLIS: tuple[With, ...] = ("claude", "codex")
KEYS: Mapping[With, str] = {
    "anthropic": "ANTHROPIC_API_KEY",
    "openai": "OPENAI_API_KEY",
    "gemini": "GEMINI_API_KEY",
}
CLI_KEYS: Mapping[With, tuple[tuple[str, str], ...]] = {
    "claude": tuple(
        (name, name)
        for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN", "ANTHROPIC_BASE_URL")
    ),
    "codex": (("CODEX_API_KEY", "CODEX_API_KEY"), ("CODEX_API_KEY", "OPENAI_API_KEY")),
}
"""For each program, its variables for the key and the API's address, with the variable each is read from."""
MAKERS: Mapping[str, re.Pattern[str]] = {
    "anthropic": re.compile(r"anthropic|claude|opus|sonnet|haiku"),
    "openai": re.compile(r"openai|(chat)?gpt|codex|o\d"),
    "gemini": re.compile(r"gemini|google"),
}
"""The vendors of models, by the beginning of a model's name."""
PROGRAM = re.compile(r"(claude|codex|gemini)([ _-]?(code|cli))?", re.IGNORECASE)
LOCAL = re.compile(r"local|ollama|lm_?studio|vllm|llama", re.IGNORECASE)
BRAINS: Mapping[With, str] = {
    "anthropic": 'brain = "llm"\nsettings = { model = "anthropic:claude-sonnet-5" }  # the key: ANTHROPIC_API_KEY\n',
    "openai": 'brain = "llm"\nsettings = { model = "openai:gpt-5.1" }  # the key: OPENAI_API_KEY\n',
    "gemini": 'brain = "llm"\nsettings = { model = "gemini:gemini-2.5-pro" }  # the key: GEMINI_API_KEY\n',
    "local": 'brain = "llm"\nsettings = { model = "openai:qwen3-coder", base_url = "http://127.0.0.1:11434/v1" }\n',
    "none": 'settings = { words = "playbooks" }  # no model: a playbook is chosen by the words of a task\n',
}
BUDGETS: Mapping[With, str] = {
    "anthropic": "{ dollars = 2, seconds = 1800 }",
    "openai": "{ dollars = 2, seconds = 1800 }",
    "claude": "{ tokens = 2_000_000, seconds = 1800 }",
    "codex": "{ tokens = 2_000_000, seconds = 1800 }",
    "gemini": "{ dollars = 2, seconds = 1800 }",
    "local": "{ seconds = 1800 }",
    "none": "{ seconds = 600, calls = 50 }",
}
BUDGET_WORDS: Mapping[With, str] = {
    "anthropic": "at most $2 and 30 minutes a run",
    "openai": "at most $2 and 30 minutes a run",
    "claude": "at most 2,000,000 tokens and 30 minutes a run",
    "codex": "at most 2,000,000 tokens and 30 minutes a run",
    "gemini": "at most $2 and 30 minutes a run",
    "local": "at most 30 minutes a run",
    "none": "working without a model, by the words of a task",
}
RIGHTS: Mapping[With, str] = {
    who: f"{who} itself runs with your login and outside of any sandbox, its own tools switched off: it acts only"
    " through the agent's tools, whose sessions are sandboxed (ai-session docs brains-cli: Where it runs)"
    for who in CLIS
}
"""The rights of programs that have more than an agent."""
INSTALL: Mapping[With, str] = {
    "claude": "npm install -g @anthropic-ai/claude-code",
    "codex": "npm install -g @openai/codex",
}
SHELL = "ai-session"
PROGRAMS = "programs"
"""The server in whose terminals these programs run, with a home of its own."""
SERVER = '{ name = "ai-session", command = "ai-session mcp-server --stdio", trusted = true }'
GRANTS = tuple(f"{SHELL}.{tool}" for tool in ("create_session", "execute_command", "read_output", "close_session"))
MERGING = """\
[swarm]
merge = "ask"  # an agent's work is shown to you, and merged if you agree; auto: merged if its gates pass
"""
TRUSTED = """\
# Terminals for the programs that act as brains of ccswarm's agents, with your login: they are not in a box, as when
# you start such a program yourself. No agent is granted these terminals.
[sandbox]
profile = "trusted"

[policy]
mode = "trusted"

[daemon]
idle_exit_seconds = 60  # its daemon ends by itself: ai-session daemon stop ends the one of your own home
"""


@dataclass(frozen=True, slots=True)
class Addition:
    """TOML to append, with the names of its agents and servers."""

    text: str
    agents: tuple[str, ...]
    servers: tuple[str, ...]


def programs_home(state_directory: Path) -> Path:
    """Return the home of the daemon in whose terminals programs run."""
    return state_directory / "programs"


def prepare(who: With, state_directory: Path) -> None:
    """Create the home of the terminals for a program, if ``who`` is one. Raises OSError."""
    if who in CLIS:
        directory = programs_home(state_directory) / ".config/ai-session"
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with suppress(FileExistsError):
            whole_files.create(directory / "config.toml", TRUSTED.encode())


def agents_for(purpose: For | None) -> Sequence[str]:
    """Return the types of agents for a purpose."""
    return TYPES if purpose == "visionflow" else TYPES[:1]


def addition(
    who: With,
    types: Sequence[str],
    *,
    environ: Mapping[str, str],
    state_directory: Path,
    clone: bool = False,
    fresh: bool = False,
    servers: Sequence[str] = (),
    taken: Sequence[str] = (),
) -> Addition:
    """Return the TOML that defines agents of these types, without servers that exist already. An agent whose name is
    ``taken`` gets a suffix for what it thinks with. With ``clone`` they work in clones of the repository; ``fresh``
    tells that the file is new."""
    text, added = "", list[str]()
    if SHELL not in servers:
        text += f"[[mcp.servers]]\n{_table_lines(SERVER)}\n"
        added.append(SHELL)
    if who in CLIS and PROGRAMS not in servers:
        home = json.dumps(str(programs_home(state_directory)))
        text += (
            f"[[mcp.servers]]  # terminals for {who} itself, with your login; no agent is granted them\n"
            f'name = "{PROGRAMS}"\ncommand = "ai-session mcp-server --stdio"\nenv = {{ HOME = {home} }}\n\n'
        )
        added.append(PROGRAMS)
    named = {name: kind for kind in types if (name := kind if kind not in taken else f"{kind}-{who}") not in taken}
    if clone and who != "none" and fresh:
        text += f"{MERGING}\n"
    text += "\n".join(_agent(name, kind, who, environ, clone=clone) for name, kind in named.items())
    return Addition(text.rstrip() + "\n" if text else "", tuple(named), tuple(added))


def _agent(name: str, kind: str, who: With, environ: Mapping[str, str], *, clone: bool) -> str:
    workspace = 'workspace = "clone"  # a clone of the repository for each attempt\n' if clone and who != "none" else ""
    grants = json.dumps([f"{SHELL}.*"] if who != "none" else GRANTS)
    return (
        f'[[agents]]\nname = "{name}"\ntype = "{kind}"\n{_brain(who, environ)}grants = {grants}\n{workspace}'
        f"budget = {BUDGETS[who]}\n"
    )


def _brain(who: With, environ: Mapping[str, str]) -> str:
    if who not in CLIS:
        return BRAINS[who]
    variables = {"HOME": environ.get("HOME", ""), "PATH": "$PATH"}
    for name, variable in CLI_KEYS[who]:
        if environ.get(variable) and name not in variables:
            variables[name] = f"${variable}"
    words = ", ".join(f"{name} = {json.dumps(value)}" for name, value in variables.items() if value)
    return f'brain = "cli"\nsettings = {{ program = "{who}", shell = "{PROGRAMS}", environment = {{ {words} }} }}\n'


def _table_lines(table: str) -> str:
    return table.strip("{} ").replace(", ", "\n") + "\n"


def maker_of(model: str) -> str:
    """Return the vendor of a model, by its name; empty if unknown."""
    return next((maker for maker, begins in MAKERS.items() if begins.match(model.lower())), "")


def brain_for(name: str) -> str:
    """Return the settings for an agent whose brain was given as a program, vendor or model; empty for other words."""
    program, maker = PROGRAM.fullmatch(name), maker_of(name)
    ways = [f'brain = "cli" and settings = {{ program = "{program[1].lower()}" }}'] if program else []
    if LOCAL.match(name):
        ways.append(BRAINS["local"].strip().replace("\n", " and "))
    elif maker:
        own = re.search(r'"(.*?:.*?)"', BRAINS[maker])  # type: ignore[index]
        model = f"{maker}:{name}" if re.search(r"\d", name) else own[1] if own else ""
        ways.append(f'brain = "llm" and settings = {{ model = "{model}" }}')
    return ", or ".join(ways)


def load_brain(name: str) -> Any:
    """Return the plug-in of that name. Raises ConfigInvalid, with the right settings for a program or model."""
    try:
        return plugins.load("ccswarm.brains", name)
    except ConfigInvalid as error:
        if meant := brain_for(name):
            raise ConfigInvalid(error.message, suggestion=meant) from None
        raise


def found(environ: Mapping[str, str], secret: Callable[[str], str]) -> tuple[With, str]:
    """Return what agents can think with here, and why. A key comes before a program, and "none" is the last choice."""
    missing = ""
    for who, name in KEYS.items():
        if not secret(name):
            continue
        if find_spec("pydantic_ai") is None:
            missing = missing or f"{name} is set, but to use models, run: {install('llm')}"
            continue
        return who, f"{name} is set"
    path = environ.get("PATH", os.defpath)
    for who in CLIS:
        if shutil.which(who, path=path):
            return who, f"{who} is installed" + (f" ({missing})" if missing else "")
    return "none", missing or "there is no key, and neither claude nor codex is installed"


def needs(who: With, environ: Mapping[str, str], secret: Callable[[str], str]) -> str:
    """Return what is missing to use it; empty if nothing is known to be."""
    if who in CLIS and not shutil.which(who, path=environ.get("PATH", os.defpath)):
        return f"{who} is not installed: {INSTALL[who]}"
    if who in BRAINS and who != "none" and find_spec("pydantic_ai") is None:
        return f"packages for models; run: {install('llm')}"
    if who in KEYS and not secret(KEYS[who]):
        return f"{KEYS[who]} is not set"
    return ""
