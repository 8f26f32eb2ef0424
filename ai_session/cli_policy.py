"""Verbs about the policy: is it right, and what would it say. Both need no daemon."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ai_session.cli_output import Json, say, show_facts, show_json, show_rows

if TYPE_CHECKING:
    from ai_session.policy import Policy

app = typer.Typer(help="What is allowed, asked or denied.", rich_markup_mode=None)

File = Annotated[Path | None, typer.Argument(help="Instead of ~/.config/ai-session/config.toml.", show_default=False)]


@app.command()
def check(file: File = None, as_json: Json = False) -> None:
    """Say whether the mode and every rule are right, and whether the rules' own examples come out as they say."""
    path, policy = _load(file)
    tables = [rule.table for rule in policy.rules]
    examples = sum(len(table.examples.match) + len(table.examples.not_match) for table in tables)
    facts = {"valid": True, "path": str(path), "mode": policy.mode, "rules": len(tables), "examples": examples}
    if as_json:
        show_json({**facts, "policy_sha256": policy.digest})
    else:
        say(f"{path} is right: mode {policy.mode}, {len(tables)} rules, {examples} examples.")


@app.command()
def explain(
    command: Annotated[
        list[str], typer.Argument(metavar="COMMAND...", help="One word is a line as it is; several are quoted.")
    ],
    file: Annotated[Path | None, typer.Option("--file", help="Judge by this file.", show_default=False)] = None,
    mode: Annotated[str, typer.Option("--mode", help="As if in this mode.")] = "",
    client: Annotated[str, typer.Option("--client", help="As if asked for by this client.")] = "",
    agent: Annotated[str, typer.Option("--agent", help="As if asked for by this agent.")] = "",
    as_json: Json = False,
) -> None:
    """Say what the policy does with a command, by which rule and why: for a client and for you, in and out of a box.

    Nothing is run. Put -- before a command with options: ai-session policy explain -- git push --force
    """
    from ai_session.shell_words import parse

    _, policy = _load(file)
    if mode:
        policy = policy.with_mode(mode, by_person=True)
    text = command[0] if len(command) == 1 else shlex.join(command)
    line = parse(text)
    commands = [[word if word is not None else "?" for word in words] for words in line.commands]
    rows = _decisions(policy, text, client, agent)
    if as_json:
        plain = {"plain": not line.obscure, "obscure": line.obscure, "complete": line.complete}
        show_json({"command": text, **plain, "commands": commands, "decisions": rows})
        return
    reading = "plain words" if not line.obscure else f"not plain words: {line.obscure}"
    show_facts({"command": text, "read as": reading, "runs": "; ".join(" ".join(words) for words in commands)})
    show_rows(rows, ("who", "where", "verdict", "rule", "reason"))


def _load(file: Path | None) -> tuple[Path, Policy]:
    from ai_session import config
    from ai_session.policy import Policy

    loaded = config.resolve(file)
    settings = loaded.settings.policy
    return loaded.path, Policy(os.getuid(), settings.mode, settings.rules)


def _decisions(policy: Policy, text: str, client: str, agent: str) -> list[dict[str, Any]]:
    from ai_session.models import Effect, Principal, SandboxLevel
    from ai_session.policy import Action

    rows: list[dict[str, Any]] = []
    boxes = {"in a box": ("workspace", SandboxLevel.BWRAP), "without a box": ("trusted", SandboxLevel.NONE)}
    callers = {"client": Principal("mcp", os.getuid(), client=client), "you": Principal("person", os.getuid())}
    for who, principal in callers.items():
        for where, (profile, level) in boxes.items():
            decision = policy.decide(
                Action(principal, "execute_command", Effect.EXECUTE, agent, "", profile, level, command=text)
            )
            said = {"verdict": decision.verdict, "rule": decision.rule, "reason": decision.reason}
            rows.append({"who": who, "where": where, **said})
    return rows
