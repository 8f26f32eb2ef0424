"""Verbs about the policy: what is in force, in which mode, whether a file is valid, and what would be decided.

Only setting the mode needs the daemon.
"""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from agentwire.cli.options import Argument, Group, Json, Option
from agentwire.cli.output import remark, say, show_facts, show_json, show_rows
from agentwire.counts import counted
from ai_session.cli.output import write_text
from ai_session.cli.signing import Act, request
from ai_session.client.connection import connect
from ai_session.errors import DaemonUnavailable

if TYPE_CHECKING:
    from ai_session.gate.policy.policy import Policy

app = Group("What is allowed, asked or denied.")

File = Annotated[Path | None, Argument(help="Instead of ~/.config/ai-session/config.toml.", show_default=False)]


@app.command()
def show(as_json: Json = False) -> None:
    """Show the mode and the rules in force; if a daemon runs, those that it uses."""
    found = in_force()
    if as_json:
        show_json(found)
        return
    show_facts({name: found[name] for name in ("mode", "configured_mode", "daemon", "policy_sha256")})
    rows = [
        {"id": rule["id"], "decision": rule["decision"], "about": _about(rule), "reason": rule.get("reason")}
        for rule in found["rules"]
    ]
    above = found["administrator"]
    for rule in above["rules"] if above else ():
        known = {"id": f"administrator:{rule['id']}", "decision": rule["decision"], "about": _about(rule)}
        rows.append({**known, "reason": rule.get("reason")})
    if rows:
        show_rows(rows, ("id", "decision", "about", "reason"))
    for hook in found["hooks"]:
        remark(f"Asked before each call: {hook}")
    if above:
        remark(f"The administrator's policy, {above['path']}, has mode {above['mode']}; the stricter of both decides.")
    if unsure := [rule["id"] for rule in found["rules"] if rule["decision"] == "allow" and "commands" in rule]:
        written = ", ".join(found.get("box_writable", ())) or "none yet"
        remark(f"Outside of a box, where a box may write, leave by {', '.join(unsure)} does not hold in: {written}")
    if found["file_differs"]:
        remark("The file has changed since the daemon started; to apply it: ai-session daemon restart")


@app.command()
def mode(
    wanted: Annotated[
        str,
        Argument(
            metavar="[MODE]",
            help="read-only, ask-all, workspace or trusted: from the tightest to the loosest.",
            complete=lambda incomplete: ["read-only", "ask-all", "workspace", "trusted"],
        ),
    ] = "",
    as_json: Json = False,
) -> None:
    """Show the mode in force, or set it for every call from now on.

    Anyone may make it stricter, which persists across restarts. Only a person may make it less strict: in a terminal of
    this machine that no agent owns, or with a signature. A mode less strict than configured ends with the daemon.
    """
    if not wanted:
        found = in_force()
    else:
        with connect() as client:

            def act() -> Act:
                now = client.request("policy")
                about = {"mode": wanted, "policy_sha256": now["policy_sha256"]}
                return Act("mode", about, f"Set mode {wanted} for every client; it is {now['mode']} now.")

            found = request(client, "policy", act, mode=wanted)
    if as_json:
        show_json({name: found[name] for name in ("mode", "configured_mode", "policy_sha256")})
    else:
        write_text(found["mode"] + "\n")
        if found["mode"] != found["configured_mode"]:
            remark(f"Configured is {found['configured_mode']}.")


@app.command()
def check(file: File = None, as_json: Json = False) -> None:
    """Check the mode and every rule, and whether the rules' own examples have the results that they state."""
    path, policy = _load(file)
    tables = [rule.table for rule in policy.rules]
    examples = sum(len(table.examples.match) + len(table.examples.not_match) for table in tables)
    facts = {"valid": True, "path": str(path), "mode": policy.mode, "rules": len(tables), "examples": examples}
    if as_json:
        show_json({**facts, "policy_sha256": policy.digest})
    else:
        say(f"{path} is valid: mode {policy.mode}, {counted(len(tables), 'rule')}, {counted(examples, 'example')}.")
        for rule in policy.rules:
            if rule.table.decision == "allow" and rule.table.commands:
                say(f"{rule.id}: outside a box it does not apply where a box may write what the commands read.")


@app.command()
def explain(
    command: Annotated[
        list[str], Argument(metavar="COMMAND...", help="A single word is shell text; several are quoted.")
    ],
    file: Annotated[Path | None, Option("--file", help="Use this policy file.", show_default=False)] = None,
    mode: Annotated[str, Option("--mode", help="Assume this mode; default: the one in force.")] = "",
    client: Annotated[str, Option("--client", help="Assume that this client asks.")] = "",
    agent: Annotated[str, Option("--agent", help="Assume that this agent asks.")] = "",
    as_json: Json = False,
) -> None:
    """Show what the policy does with a command, by which rule and why: for a client and for you, in and out of a box.

    Nothing is run. Put -- before a command with options: ai-session policy explain -- git push --force
    """
    from ai_session.gate.policy.explain import decisions, reading
    from ai_session.gate.policy.mode import decide

    _, policy = _load(file)
    if mode or not file:
        policy = policy.with_mode(mode or in_force()["mode"], by_person=True)
    text = command[0] if len(command) == 1 else shlex.join(command)
    read = reading(text)
    above = None if file else _administrator()[0]
    rows = decisions(lambda action: decide(policy, above, action), os.getuid(), text, client, agent)
    if as_json:
        show_json({"command": text, **read, "decisions": rows})
        return
    how = "plain words" if read["plain"] else f"not plain words: {read['obscure']}"
    runs = "; ".join(" ".join(words) for words in read["commands"])
    show_facts({"command": text, "mode": policy.mode, "read as": how, "runs": runs})
    show_rows(rows, ("who", "where", "verdict", "rule", "reason"))


@app.command()
def protected(
    paths: Annotated[
        list[str] | None, Argument(metavar="[PATH]...", help="Show for each which pattern decides about it.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show which names in a workspace a boxed shell cannot change, or whether paths are among them.

    Patterns as in .gitignore; yours, of sandbox.protected, come last and decide where they match. Git's own files are
    protected separately, whatever their names. Paths are relative to the workspace.
    """
    from agentwire.system.path_patterns import fold
    from agentwire.system.protected_names import GIT, GROUPS
    from agentwire.system.protected_names import protected as patterns
    from ai_session.config import config

    own = config.load().sandbox.protected
    if paths:
        found = patterns(own)
        rows: list[dict[str, Any]] = []
        for path in paths:
            plain = os.path.normpath(path).lstrip("/")
            git = GIT in map(fold, plain.split("/"))
            outer = found.around(plain, directory=path.endswith("/"))
            line = found.deciding(outer or plain, directory=bool(outer) and outer != plain)
            rows.append(
                {"path": path, "protected": git or bool(outer), "by": GIT if git else line.text if line else None}
            )
        show_json(rows) if as_json else show_rows(rows, ("path", "protected", "by"))
        return
    rows = [{"pattern": line, "for": group} for group, lines in GROUPS.items() for line in lines]
    rows += [{"pattern": line, "for": "excepted by you" if line.startswith("!") else "you"} for line in own]
    show_json(rows) if as_json else show_rows(rows, ("pattern", "for"))


def in_force() -> dict[str, Any]:
    """Return what the daemon uses, or would use if it were started now; ``daemon``: whether one runs."""
    from ai_session.config import config
    from ai_session.gate.policy.mode import FILE, PolicyInForce

    try:
        with connect(start=False) as client:
            found: dict[str, Any] = {**client.request("policy"), "daemon": True}
    except DaemonUnavailable:
        file = config.runtime_directory(config.home_directory(), os.getuid()) / FILE
        found = PolicyInForce(_load(None)[1], file, *_administrator()).facts()
        return {**found, "daemon": False, "file_differs": False}
    above = _administrator()[0]
    used: dict[str, Any] = found["administrator"] or {}
    differs = used.get("policy_sha256") != (above.digest if above else None)
    return {**found, "file_differs": differs or found["configured_sha256"] != _load(None)[1].digest}


def check_readable() -> None:
    """Raise ConfigInvalid if a daemon that is started now could not use the settings, or one of the policies."""
    _load(None)
    _administrator()


def _administrator() -> tuple[Policy | None, str]:
    """Return the administrator's policy, and its path."""
    from ai_session.gate.policy import administrator

    found = administrator.read()
    return found.policy(os.getuid()), found.path


def _about(rule: dict[str, Any]) -> str:
    selectors = {name: value for name, value in rule.items() if name not in ("id", "decision", "reason", "examples")}
    return "; ".join(f"{name} {', '.join(map(_words, value))}" for name, value in selectors.items())


def _words(value: Any) -> str:
    return " ".join(value) if isinstance(value, list) else str(value)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]


def _load(file: Path | None) -> tuple[Path, Policy]:
    from ai_session.config import config
    from ai_session.gate.policy.policy import HookProgram, Policy

    loaded = config.resolve(file)
    settings = loaded.settings.policy
    hook = HookProgram.of(settings.hook, settings.hook_seconds, "the configuration")
    return loaded.path, Policy(os.getuid(), settings.mode, settings.rules, hook=hook)
