"""The verb init: a configuration to begin with, or agents that are added to the one there is."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agentwire.cli.output import remark, say, show_json
from agentwire.cli.refusals import next_step
from agentwire.system import whole_files
from ccswarm.cli.output import Json, printable, show_line, show_text
from ccswarm.cli.trust import asker
from ccswarm.config import starters
from ccswarm.errors import ConfigInvalid, OperatorError, UsageInvalid

if TYPE_CHECKING:
    from ccswarm.config.settings import Settings

STARTER = Path("ccswarm.toml")
Who = StrEnum("Who", list(starters.WITH))
Purpose = StrEnum("Purpose", list(starters.FOR))
INLINE = re.compile(r"^servers\s*=\s*\[", re.MULTILINE)
"""Servers as one list, which a table after it could not add to."""
TRY: Mapping[starters.For | None, str] = {
    "visionflow": "ccswarm serve --tcp",
    "a2a": "ccswarm serve --a2a",
    "orchestre": "ccswarm mcp install --client claude-code",
    None: 'ccswarm run "make the tests pass"',
}


def init(
    file: Annotated[
        Path, typer.Argument(metavar="[FILE]", help="File to write; a directory gets ccswarm.toml.")
    ] = STARTER,
    who: Annotated[
        Who | None, typer.Option("--with", help="Brain of the agents; none: they follow the words of their tasks.")
    ] = None,
    purpose: Annotated[
        Purpose | None, typer.Option("--for", help="What the agents are for; default: ccswarm run.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
    as_json: Json = False,
) -> None:
    """Write a configuration that runs as it is, or add agents to the one there is, and say what to do next.

    Without options it is one with agents that need no key, and tasks that look at the directory. With --with or --for
    it has the agents that are meant and no tasks: give them some with ccswarm run "…". A file that is there keeps all
    it says, with its comments, and gets the agents that it lacks.

    Exit codes: 0 written, 2 it cannot be written, or says all of this already, 5 the file changed since a person used
    it and nobody agreed.
    """
    from ccswarm.config import config, reference_text

    if not file.exists() and (option := _option_meant(str(file))):
        raise UsageInvalid(f"{file} is not a file to write", suggestion=f"ccswarm init {option}")
    target = file / STARTER if file.is_dir() else file
    there = target.exists() and not force
    chosen: starters.With | None = who.value if who else None  # type: ignore[assignment]
    meant: starters.For | None = purpose.value if purpose else None  # type: ignore[assignment]
    environ = config.server_environment()
    if not there and not chosen and not meant:
        _save(target, None, reference_text.starter(), force)
        _tell(target, ["ccswarm doctor", "ccswarm run"], {"agents": []}, as_json, "")
        return
    before = config.load(target, confirm=asker()).settings if there else None
    if before and before.agents and not chosen and not meant:
        raise ConfigInvalid(
            f"{target} exists already, and has agents",
            suggestion="add others: ccswarm init --with claude, or --for visionflow; or overwrite it: --force",
        )
    chosen = chosen or starters.found(environ, config.secret)[0]
    text = target.read_text() if there else None
    added = _addition(chosen, meant, before, environ, target, thinking=bool(who) and chosen != "none")
    if not added.agents:
        raise ConfigInvalid(f"{target} has such agents already", suggestion=_run(TRY[meant], target, environ))
    made = _joined(target, text, before, added, as_json) if text is not None else _begun(added)
    _save(target, text, made, force)
    try:
        starters.prepare(chosen, config.state_directory())
    except OSError as error:
        raise OperatorError(str(error), suggestion="free disk space there") from None
    first = TRY[meant] if meant or chosen != "none" else 'ccswarm run "list the files"'
    facts = {"agents": list(added.agents), "with": chosen, "budget": starters.BUDGET_WORDS[chosen]}
    if chosen in starters.RIGHTS:
        facts["rights"] = starters.RIGHTS[chosen]
    if chosen != "none" and (limits := before.swarm.budget.model_dump(exclude_defaults=True) if before else {}):
        words = ", ".join(f"{name} = {most:g}" for name, most in limits.items())
        facts["limits"] = f"[swarm] budget limits a whole run, too: {words}"
    _tell(target, [first], facts, as_json, starters.needs(chosen, environ, config.secret))


def _option_meant(word: str) -> str:
    """The option that a name of who thinks, or of what for, belongs to; empty for other words."""
    if word in starters.FOR:
        return f"--for {word}"
    return f"--with {word}" if word in starters.WITH and word != "local" else ""


def _addition(
    who: starters.With,
    purpose: starters.For | None,
    before: Settings | None,
    environ: Mapping[str, str],
    target: Path,
    *,
    thinking: bool,
) -> starters.Addition:
    """What is lacking; where it is to be ``thinking``, agents that go by a task's words do not count."""
    from ccswarm.config import config

    agents = before.agents if before else ()
    types = starters.agents_for(purpose)
    able = [one for one in agents if one.takes_words and not (thinking and one.follows_words)]
    lacking = [kind for kind in types if not any(one.type == kind for one in able)]
    repository = any(
        (directory / ".git").exists() for directory in (target.absolute().parent, *target.absolute().parents)
    )
    return starters.addition(
        who,
        lacking,
        environ=environ,
        state_directory=config.state_directory(),
        clone=repository and purpose is None,
        fresh=before is None,
        servers=[server.name for server in before.mcp.servers] if before else (),
        taken=[agent.name for agent in agents],
    )


def _begun(added: starters.Addition) -> str:
    return f"# Agents for ccswarm. Every setting is listed by: ccswarm config reference\n\n{added.text}"


def _joined(target: Path, text: str, before: Settings | None, added: starters.Addition, as_json: bool) -> str:
    """The file with what is added behind it; what it says already stays as it is, to the letter. Raises ConfigInvalid
    where that cannot be done, with what to paste."""
    from ccswarm.config import parsing

    assert before
    joined = f"{text.rstrip()}\n\n{added.text}" if text.strip() else added.text
    if added.servers and INLINE.search(text):
        tables, _, agents = added.text.partition("[[agents]]")
        inline = "".join(f"\n  {{ {', '.join(_keys(one))} }}," for one in tables.split("[[mcp.servers]]")[1:])
        begun = INLINE.sub(lambda match: match[0] + inline, text.rstrip(), count=1)
        joined = f"{begun}\n\n[[agents]]{agents}"
    with suppress(ConfigInvalid):
        made = parsing.parse(joined)
        same = made.model_copy(update={"agents": before.agents, "mcp": before.mcp}) == before
        servers = {server.name for server in made.mcp.servers}
        if same and servers == {*(server.name for server in before.mcp.servers), *added.servers}:
            return joined
    if not as_json:
        show_text(added.text)
    raise ConfigInvalid(f"{target} cannot be extended as it is written", suggestion="paste the text above into it")


def _keys(table: str) -> list[str]:
    return [line for line in table.splitlines() if "=" in line]


def _save(target: Path, before: str | None, text: str, force: bool) -> None:
    """A new file in place of one that holds ``before``, or, with ``force``, of whatever is there; links are not
    followed. It is one that a person has used."""
    from ccswarm.config import config
    from ccswarm.config.trust import ConfigTrust, Content

    data = text.encode()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        saved = _put(target, before, data, force)
    except OSError as error:
        what = f"{target} cannot be written: {error.strerror}"
        raise ConfigInvalid(what, suggestion=next_step(error, "name another file")) from None
    if not saved:
        what = f"{target} has just been written by somebody else"
        raise ConfigInvalid(what, suggestion="look at it, then do this again")
    path = Path(os.path.abspath(target))
    with suppress(OperatorError):  # then it is agreed to when it is used first
        data = Content.of(path, Path(os.path.realpath(target)), text.encode(), target)
        ConfigTrust(config.state_directory()).record(data)


def _put(target: Path, before: str | None, data: bytes, force: bool) -> bool:
    if force or (before is None and target.is_symlink()):
        whole_files.replace(target, data, 0o666)
        return True
    if before is not None:
        return whole_files.exchange(target, data, lambda: target.read_text() == before)
    with suppress(FileExistsError):
        whole_files.create(target, data, 0o666)
        return True
    return False


def _run(command: str, target: Path, environ: Mapping[str, str]) -> str:
    """The command, with the file where it is not the one that is found."""
    from ccswarm.config import config

    found = config.find(environ)
    return (
        command
        if found and found.exists() and found.samefile(target)
        else f"{command} --config {shlex.quote(str(target))}"
    )


def _tell(target: Path, steps: list[str], facts: Mapping[str, object], as_json: bool, missing: str) -> None:
    from ccswarm.config import config

    steps = [_run(step, target, config.server_environment()) for step in steps]
    if as_json:
        show_json({"path": str(target.absolute()), **facts, "missing": missing, "next": steps})
        return
    show_line(str(target))
    if agents := facts.get("agents"):
        names: list[str] = list(agents)  # type: ignore[call-overload]
        what = "agent " if len(names) == 1 else "agents "
        say(f"added: {what}{', '.join(names)} ({facts['with']}; {facts['budget']})")
    for note in filter(None, (facts.get("rights"), facts.get("limits"))):
        remark(f"note: {note}")
    if missing:
        remark(printable(f"missing: {missing}"))
    notes = {"ccswarm doctor": "   # check that everything it needs is there", "ccswarm run": "      # carry it out"}
    for index, step in enumerate(steps):
        say(("next: " if not index else "      ") + step + notes.get(step, ""))
