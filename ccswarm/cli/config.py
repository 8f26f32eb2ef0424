"""The verbs config check, show, path and reference."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from agentwire.cli.options import Group
from agentwire.cli.output import EXIT_ERROR, leave, remark, say, show_facts, show_json
from agentwire.visible import visible
from ccswarm.cli.output import Json, show_line, show_text
from ccswarm.cli.parameters import Config, peek
from ccswarm.errors import ConfigInvalid, PlanInvalid

if TYPE_CHECKING:
    from ccswarm.config.trust import Change

HIDDEN = "[not shown]"
"""The replacement of what may be a secret."""

NAMED = re.compile(r"([A-Za-z]+ )?\$\w+\Z|env:\w+\Z")
"""A header's value that only names a variable."""

QUERY = re.compile(r"(?<=\?).*|(?<=://)[^/?#]*(?=@)", re.DOTALL)
BEHIND_HOST = re.compile(r"(?<=[^:/]/).+|(?<=\?).*", re.DOTALL)
HIDDEN_IN_URLS = {
    "url": QUERY,
    "base_url": QUERY,
    "endpoint": QUERY,
    "traces_endpoint": QUERY,
    "metrics_endpoint": QUERY,
    "ntfy": BEHIND_HOST,
    "webhook": BEHIND_HOST,
    "database_url": re.compile(r"(?<=://).*(@|password).*", re.DOTALL),
}
"""What may be a secret in a URL, by the name of the setting. Who knows the path of a topic or webhook can use it."""

app = Group("Check, show and explain the configuration.")

File = Annotated[
    Path | None, typer.Argument(metavar="[FILE]", help="Configuration file to use instead of the one found.")
]


@app.command()
def check(file: File = None, as_json: Json = False) -> None:
    """Report whether the configuration and its tasks are valid; no server is asked (ccswarm plan check asks them).

    Exit codes: 0 valid, 2 not: every problem is listed with its location.
    """
    from agentwire import plugins
    from ccswarm.config import config, starters
    from ccswarm.plan.check import plan_problems

    loaded = peek(file)
    settings = loaded.settings
    if wrong := plan_problems(settings, None):
        raise PlanInvalid(f"{loaded.path}: {'; '.join(wrong)}", suggestion="fix the problems listed above")
    plugins.load("ccswarm.engines", settings.engine.name)
    for brain in dict.fromkeys(agent.brain for agent in settings.agents):
        starters.load_brain(brain)
    facts = {
        "servers": [server.name for server in settings.mcp.servers],
        "agents": [agent.name for agent in settings.agents],
        "tasks": [task.id for task in settings.tasks],
    }
    changes: list[Change] = []
    with suppress(ConfigInvalid):  # the state directory may be unusable, but nothing else here needs it
        changes = config.changes(file)
    if as_json:
        show_json({"valid": True, "path": _text(loaded.path), **facts, "changed": bool(changes)})
    else:
        show_facts({"path": _text(loaded.path) or "none; the defaults apply", **facts})
        say("It is valid.")
        for change in changes:
            error = change.error()
            remark(visible(f"{error.message}: {error.suggestion}"))


@app.command()
def show(file: File = None, as_json: Json = False) -> None:
    """Print the current settings as a file, without what may be a secret: variables, headers, queries and passwords of
    URLs, and the paths of topics and webhooks for notices. Arguments of commands are shown.

    Exit codes: 0 shown, 2 the configuration is not valid.
    """
    loaded = peek(file)
    settings: dict[str, Any] = _without_secrets(loaded.settings.model_dump(mode="json", exclude_unset=not as_json))
    if as_json:
        show_json({"path": _text(loaded.path), "settings": settings})
    else:
        show_text(f"# {_text(loaded.path) or 'no file; the defaults apply'}\n" + "".join(_toml(settings, "")))


@app.command()
def path(config: Config = None, as_json: Json = False) -> None:
    """Print the path of the configuration in use.

    Exit codes: 0 there is one, 1 there is none, and the defaults apply.
    """
    from ccswarm.config import config as files

    found = config or files.find(files.server_environment())
    exists = found is not None and found.exists()
    if as_json:
        show_json({"path": _text(found and found.absolute()), "exists": exists})
    elif found:
        show_line(str(found.absolute()))
    else:
        say("There is none: ccswarm init writes one.")
    leave(0 if exists else EXIT_ERROR)


@app.command()
def reference(as_json: Json = False) -> None:
    """Print every setting with its default and description, all commented out; --json: as a JSON schema.

    Exit code: 0.
    """
    from ccswarm.config import reference_text
    from ccswarm.config.settings import Settings

    if as_json:
        show_json(Settings.model_json_schema())
    else:
        show_text(reference_text.reference())


def _text(file: Path | None) -> str | None:
    return None if file is None else str(file)


def _without_secrets(table: dict[str, Any]) -> dict[str, Any]:
    """Replace what may be a secret, in all tables."""
    for name, value in table.items():
        if name == "env" and isinstance(value, dict):
            table[name] = dict.fromkeys(cast("dict[str, Any]", value), HIDDEN)
        elif name == "headers" and isinstance(value, dict):
            headers = cast("dict[str, Any]", value).items()
            table[name] = {key: one if NAMED.match(str(one)) else HIDDEN for key, one in headers}
        elif isinstance(value, str) and (hide := HIDDEN_IN_URLS.get(name)):
            table[name] = hide.sub(HIDDEN, value)
        for inner in cast("list[object]", value if isinstance(value, list) else [value]):
            if isinstance(inner, dict):
                _without_secrets(cast("dict[str, Any]", inner))
    return table


def _toml(table: Mapping[str, Any], name: str) -> Iterator[str]:
    """Yield the lines of a table: its values first, then its tables."""
    inner = {key: value for key, value in table.items() if _is_table(value) or _is_tables(value)}
    for key, value in table.items():
        if key not in inner and value is not None:
            yield f"{_key(key)} = {_value(value)}\n"
    for key, value in inner.items():
        header = f"{name}.{_key(key)}" if name else _key(key)
        for one in (value,) if _is_table(value) else value:
            lines = list(_toml(one, header))
            if not _is_table(value):
                yield f"\n[[{header}]]\n"
            elif lines and not lines[0].startswith("\n"):
                yield f"\n[{header}]\n"
            yield from lines


def _is_table(value: object) -> bool:
    return isinstance(value, Mapping)


def _is_tables(value: object) -> bool:
    items = cast("Sequence[object]", value if isinstance(value, list) else ())
    return bool(items) and all(map(_is_table, items))


def _key(key: str) -> str:
    return key if key.isascii() and key.replace("-", "").replace("_", "").isalnum() else _value(key)


def _value(value: object) -> str:
    if isinstance(value, Mapping):
        table = cast("Mapping[str, object]", value)
        return "{ " + ", ".join(f"{_key(key)} = {_value(one)}" for key, one in table.items()) + " }" if table else "{}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_value, cast("list[object]", value))) + "]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
