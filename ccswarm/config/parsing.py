"""Parses TOML as settings, and plans over settings. Errors name every mistake and its position in the text."""

from __future__ import annotations

import difflib
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar, cast

from pydantic import ValidationError

from agentwire.validation import requirement
from ccswarm.config.files import own
from ccswarm.config.programs import read_text
from ccswarm.config.settings import (
    AgentSettings,
    Section,
    Settings,
    endpoint_problems,
    section_of,
)
from ccswarm.errors import ConfigInvalid

NAMED = {"servers": "name", "agents": "name", "tasks": "id", "steps": "id", "cases": "id"}
"""The lists whose items have a name, and the key that holds it."""
MESSAGES = {
    "string_pattern_mismatch": "should be letters, digits, - and _, at most 63, the first a letter or digit",
    "dict_type": "should be a table",
    "model_type": "should be a table",
}
"""What is wrong, in the words of TOML and of this project."""
BRAIN_SETTINGS = ("model", "base_url", "key", "price", "fallback", "effort", "program", "environment", "words", "steps")
"""The settings of brains, which users often write one level too high."""
AnySection = TypeVar("AnySection", bound=Section)
_Table = dict[str, Any]
_KeyPath = tuple[str | int, ...]


def parse_plan(text: str, base: Settings, *, where: str = "the plan") -> Settings:
    """Parse a plan in TOML or JSON over ``base``, as ``load_plan`` does. Accepts a result of ``generate_plan``, too."""
    data = plan_tables(text, where)
    refuse(where, [*_validation_problems(data, Settings), *_duplicate_names(data)])
    refuse(
        where,
        ["[notify] is allowed in your own configuration only, not in a plan"] if "notify" in data else [],
        f"write it to {own()}",
    )
    data, below = _with_main(data), base.model_dump()
    merged = _merged(below, data)
    merged["agents"] = _by_name(below["agents"], data.get("agents", ()))
    merged["mcp"]["servers"] = _by_name(below["mcp"]["servers"], data.get("mcp", {}).get("servers", ()))
    refuse(where, _server_problems(merged))
    return Settings.model_validate(merged)


def plan_tables(text: str, where: str = "the plan") -> _Table:
    """Return a plan's tables without validating them. Raises ConfigInvalid."""
    data = parsed(text, where)
    if isinstance(plan := data.get("ccswarmPlan"), str):
        refuse(where, [] if plan else ["ccswarmPlan is empty"], "see its check for the reason")
        return parsed(plan, where)
    return data


def parse(text: str, *, where: str = "the text") -> Settings:
    """Parse a TOML text as settings, as ``load`` does with a file. Raises ConfigInvalid."""
    data = parsed(text, where)
    refuse(where, [*_validation_problems(data, Settings), *_duplicate_names(data), *_server_problems(data)])
    return Settings.model_validate(_with_main(data))


def parse_as(
    model: type[AnySection],
    text: str,
    where: str,
    advice: str,
    problems: Callable[[AnySection], Iterable[str]] = lambda _: (),
) -> AnySection:
    """Parse a text of another kind. Raises ConfigInvalid with ``advice``."""
    data = parsed(text, where)
    refuse(where, _validation_problems(data, model), advice)
    made = model.model_validate(data)
    refuse(where, problems(made), advice)
    return made


def parsed(text: str, where: str) -> _Table:
    """Return the values of TOML or a JSON object. Raises ConfigInvalid."""
    try:
        return read_text(text)
    except (ValueError, RecursionError) as error:
        raise ConfigInvalid(f"{where}: {error}", suggestion="fix the syntax") from None


def refuse(where: str, problems: Iterable[str], advice: str = "ccswarm config reference lists every setting") -> None:
    """Raise ConfigInvalid if there are problems, naming each once."""
    if found := list(dict.fromkeys(problems)):
        raise ConfigInvalid(f"{where}: " + "; ".join(found), suggestion=advice)


def _validation_problems(data: _Table, model: type[Section]) -> Iterator[str]:
    try:
        model.model_validate(data)
    except ValidationError as error:
        messages_at: dict[_KeyPath, list[str]] = {}
        for problem in error.errors(include_url=False):
            path = _path_in_text(data, problem["loc"], problem["type"])
            messages_at.setdefault(path, []).append(_message(problem, path, model))
        for path, messages in messages_at.items():
            yield f"{_position(data, path)} {' or '.join(messages)}"


def _path_in_text(data: Any, loc: _KeyPath, kind: str) -> _KeyPath:
    """Return ``loc`` without the names of the alternatives that pydantic tried."""
    node, path = data, list[str | int]()
    for count, part in enumerate(loc, 1):
        if isinstance(node, Mapping) and part in node:
            node = cast("Mapping[Any, Any]", node)[part]
        elif isinstance(node, list) and isinstance(part, int):
            node = cast("list[Any]", node)[part]
        elif kind != "missing" or count < len(loc):
            continue
        path.append(part)
    return tuple(path)


def _message(problem: Mapping[str, Any], path: _KeyPath, whole: type[Section]) -> str:
    kind = problem["type"]
    if kind == "string_pattern_mismatch" and path[-1] == "brain":
        return 'should be playbook, llm or cli: a model is named in its settings = { model = "MAKER:NAME" }'
    if kind in MESSAGES:
        return MESSAGES[kind]
    if kind == "extra_forbidden":
        model = _section_at(path[:-1], whole)
        if model is AgentSettings and path[-1] in BRAIN_SETTINGS:
            return f"is not known: it belongs in the agent's settings = {{ {path[-1]} = … }}"
        if path == ("mcpServers",):
            return "is not known: a server is a table [[mcp.servers]] with its name and its command"
        near = difflib.get_close_matches(str(path[-1]), list(model.model_fields), n=1) if model else []
        return "is not known" + (f" (did you mean {near[0]}?)" if near else "")
    return requirement(problem)


def _section_at(path: _KeyPath, whole: type[Section]) -> type[Section] | None:
    model: type[Section] | None = whole
    for part in path:
        if isinstance(part, str):
            field = model.model_fields.get(part) if model else None
            model = section_of(field.annotation) if field else None
    return model


def _position(data: Any, path: _KeyPath) -> str:
    """Format a position as ``[tasks.count.steps.lines] tool``: the tables by name, then the key."""
    parts: list[str] = []
    node = data
    for part in path:
        known = isinstance(node, (Mapping, list)) and (isinstance(part, int) or part in node)
        node = cast("Any", node)[part] if known else None
        if isinstance(part, int):
            name = _name(node, parts[-1] if parts else "")
            parts.append(name or f"#{part + 1}")
        else:
            parts.append(part)
    table = ".".join(parts[:-1])
    return (f"[{table}] " if table else "") + (parts[-1] if parts else "the file")


def _name(item: object, of: str) -> str:
    name = _table(item).get(NAMED.get(of, ""), "")
    return name if isinstance(name, str) else ""


def _duplicate_names(data: _Table) -> Iterator[str]:
    tasks = _items(data.get("tasks"))
    main = [{"id": "main"}] if "steps" in data else []
    lists = [
        ("mcp.servers", "servers", _items(_table(data.get("mcp")).get("servers"))),
        ("agents", "agents", _items(data.get("agents"))),
        ("tasks", "tasks", [*tasks, *main]),
        ("steps", "steps", _items(data.get("steps"))),
    ]
    lists += [(f"tasks.{_name(task, 'tasks')}.steps", "steps", _items(task.get("steps"))) for task in tasks]
    for table, kind, items in lists:
        names = Counter(filter(None, (_name(item, kind) for item in items)))
        saved = Counter(filter(None, (str(item.get("save_as", "")) for item in items)))
        if kind == "agents" and "orchestrator" in names:
            yield "[agents] the name orchestrator is reserved for running gates"
        for key, counted in ((NAMED[kind], names), ("save_as", saved)):
            yield from (f"[{table}] {key} {name} occurs {count} times" for name, count in counted.items() if count > 1)
        yield from (f"[{table}] save_as {name} is also the id of a step" for name in saved if name in names)


def _server_problems(data: _Table) -> Iterator[str]:
    for server in _items(_table(data.get("mcp")).get("servers")):
        if server.get("name") == "swarm":
            yield "[mcp.servers.swarm] this name is reserved for the swarm's own server"
        command, url = str(server.get("command", "")), str(server.get("url", ""))
        table = f"[mcp.servers.{_name(server, 'servers') or '#?'}]"
        try:
            words = shlex.split(command)
        except ValueError as error:
            yield f"{table} command cannot be split: {error}"
            continue
        if bool(words) == bool(url):
            yield f"{table} needs either a command or a url"
        elif url:
            yield from (f"{table} {problem}" for problem in endpoint_problems(server))
        elif server.get("protocol", "mcp") != "mcp":
            yield f"{table} protocol {server['protocol']} needs a url"


def _table(value: object) -> _Table:
    return cast("_Table", value) if isinstance(value, dict) else {}


def _items(value: object) -> list[_Table]:
    return [_table(item) for item in cast("Sequence[object]", value)] if isinstance(value, (list, tuple)) else []


def _with_main(data: _Table) -> _Table:
    if "steps" not in data:
        return data
    main = {"id": "main", "steps": data["steps"]}
    return {**{key: value for key, value in data.items() if key != "steps"}, "tasks": [*data.get("tasks", []), main]}


def _merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> _Table:
    """Merge tables key by key. Any other value in ``over`` replaces that in ``base``."""
    both = {key: _merged(base[key], over[key]) for key in over if isinstance(base.get(key), dict)}
    return {**base, **over, **both}


def _by_name(base: Sequence[_Table], over: Sequence[_Table]) -> list[_Table]:
    named = {item["name"]: item for item in base}
    for item in over:
        named[item["name"]] = _merged(named.get(item["name"], {}), item)
    return list(named.values())
