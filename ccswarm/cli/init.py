"""The verb init: writes a first configuration, or adds agents to an existing one."""

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
from agentwire.visible import visible
from ccswarm.cli.output import Json, show_line, show_text
from ccswarm.cli.trust import asker
from ccswarm.config import starters
from ccswarm.errors import ConfigInvalid, OperatorError, UsageInvalid

if TYPE_CHECKING:
    from ccswarm.config.settings import Settings

STARTER = Path("ccswarm.toml")
Who = StrEnum("Who", list(starters.WITH))
Purpose = StrEnum("Purpose", list(starters.FOR))
INLINE = re.compile(r"^servers\s*=\s*\[", re.MULTILINE)
"""Servers as an inline list, to which a table could not add."""
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
    """Write a configuration that runs as it is, or add agents to an existing one, and say what to do next.

    Without options it has agents that need no key, and tasks that survey the directory. With --with or --for it has the
    chosen agents and no tasks: give them some with ccswarm run "…". An existing file keeps its whole content, with
    comments, and gets the agents that it lacks.

    Exit codes: 0 written, 2 it cannot be written, or has all of this already, 5 the file changed since a person used it
    and nobody agreed.
    """
    from ccswarm.config import config, reference_text

    if not file.exists() and (option := _option_meant(str(file))):
        raise UsageInvalid(f"{file} is not a file to write", suggestion=f"ccswarm init {option}")
    target = file / STARTER if file.is_dir() else file
    exists = target.exists() and not force
    chosen: starters.With | None = who.value if who else None  # type: ignore[assignment]
    meant: starters.For | None = purpose.value if purpose else None  # type: ignore[assignment]
    environ = config.server_environment()
    if not exists and not chosen and not meant:
        _save(target, None, reference_text.starter(), force)
        _report(target, ["ccswarm doctor", "ccswarm run"], {"agents": []}, as_json, "")
        return
    before = config.load(target, confirm=asker()).settings if exists else None
    if before and before.agents and not chosen and not meant:
        raise ConfigInvalid(
            f"{target} exists already, and has agents",
            suggestion="add others: ccswarm init --with claude, or --for visionflow; or overwrite it: --force",
        )
    chosen = chosen or starters.found(environ, config.secret)[0]
    text = target.read_text() if exists else None
    added = _addition(chosen, meant, before, environ, target, thinking=bool(who) and chosen != "none")
    if not added.agents:
        raise ConfigInvalid(f"{target} has such agents already", suggestion=_run(TRY[meant], target, environ))
    text_to_write = _extended(target, text, before, added, as_json) if text is not None else _new_file(added)
    _save(target, text, text_to_write, force)
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
    _report(target, [first], facts, as_json, starters.needs(chosen, environ, config.secret))


def _option_meant(word: str) -> str:
    """Return the option that takes this word as its value; empty if none does."""
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
    """Return the lacking agents and servers; with ``thinking``, agents that follow a task literally do not count."""
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


def _new_file(added: starters.Addition) -> str:
    return f"# Agents for ccswarm. Every setting is listed by: ccswarm config reference\n\n{added.text}"


def _extended(target: Path, text: str, before: Settings | None, added: starters.Addition, as_json: bool) -> str:
    """Return the file's text with the addition; the existing text stays unchanged. Raises ConfigInvalid if that is
    impossible, after printing what to paste."""
    from ccswarm.config import parsing

    assert before
    joined = f"{text.rstrip()}\n\n{added.text}" if text.strip() else added.text
    if added.servers and INLINE.search(text):
        tables, _, agents = added.text.partition("[[agents]]")
        inline = "".join(f"\n  {{ {', '.join(_keys(one))} }}," for one in tables.split("[[mcp.servers]]")[1:])
        extended = INLINE.sub(lambda match: match[0] + inline, text.rstrip(), count=1)
        joined = f"{extended}\n\n[[agents]]{agents}"
    with suppress(ConfigInvalid):
        parsed = parsing.parse(joined)
        same = parsed.model_copy(update={"agents": before.agents, "mcp": before.mcp}) == before
        servers = {server.name for server in parsed.mcp.servers}
        if same and servers == {*(server.name for server in before.mcp.servers), *added.servers}:
            return joined
    if not as_json:
        show_text(added.text)
    raise ConfigInvalid(f"{target} cannot be extended as it is written", suggestion="paste the text above into it")


def _keys(table: str) -> list[str]:
    return [line for line in table.splitlines() if "=" in line]


def _save(target: Path, before: str | None, text: str, force: bool) -> None:
    """Write the file if it still contains ``before``, or, with ``force``, in any case, without following links, and
    record it as used by the person."""
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
        what = f"{target} has just been written by another program"
        raise ConfigInvalid(what, suggestion="inspect it, then repeat the command")
    path = Path(os.path.abspath(target))
    with suppress(OperatorError):  # it is approved on first use instead
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
    """Return the command, with the file if it is not found by default."""
    from ccswarm.config import config

    found = config.find(environ)
    return (
        command
        if found and found.exists() and found.samefile(target)
        else f"{command} --config {shlex.quote(str(target))}"
    )


def _report(target: Path, steps: list[str], facts: Mapping[str, object], as_json: bool, missing: str) -> None:
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
        remark(visible(f"missing: {missing}"))
    notes = {"ccswarm doctor": "   # check that everything it needs is there", "ccswarm run": "      # carry it out"}
    for index, step in enumerate(steps):
        say(("next: " if not index else "      ") + step + notes.get(step, ""))
