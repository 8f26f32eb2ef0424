"""Where MCP clients keep their servers, and how an entry gets in and out without touching anything else."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import stat
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentwire.errors import ConfigInvalid

MOST_BYTES = {".json": 32 << 20, ".toml": 1 << 20}
"""Of a file that is read, by its kind: what a project holds may have been made to keep its reader busy."""

UNATTENDED = {"codex": 'default_tools_approval_mode = "approve"'}
"""What a person may add to our entry where the client, with nobody to ask, refuses commands otherwise."""


@dataclass(frozen=True, slots=True)
class ConfigLocation:
    """One file of one client, and ``name``, what our entry in it is called. ``keys`` lead to the table that holds the
    servers."""

    name: str
    client: str
    scope: str
    path: Path
    keys: tuple[str, ...]
    extra: Mapping[str, Any]


def places(name: str, home: Path, here: Path, variables: Mapping[str, str]) -> list[ConfigLocation]:
    """Every file we know of, for the entry of the program ``name``; a client's first is its default."""
    mac = sys.platform == "darwin"
    support = (
        home / "Library/Application Support" if mac else Path(variables.get("XDG_CONFIG_HOME") or home / ".config")
    )
    claude = Path(variables.get("CLAUDE_CONFIG_DIR") or home) / ".claude.json"
    codex = Path(variables.get("CODEX_HOME") or home / ".codex") / "config.toml"
    servers, typed = ("mcpServers",), {"type": "stdio"}
    return [
        ConfigLocation(name, "claude-desktop", "user", support / "Claude/claude_desktop_config.json", servers, {}),
        ConfigLocation(name, "claude-code", "user", claude, servers, typed),
        ConfigLocation(name, "claude-code", "project", here / ".mcp.json", servers, typed),
        ConfigLocation(name, "claude-code", "local", claude, ("projects", str(here), "mcpServers"), typed),
        ConfigLocation(name, "codex", "user", codex, ("mcp_servers",), {}),
        ConfigLocation(name, "codex", "project", here / ".codex/config.toml", ("mcp_servers",), {}),
        ConfigLocation(name, "cursor", "user", home / ".cursor/mcp.json", servers, {}),
        ConfigLocation(name, "cursor", "project", here / ".cursor/mcp.json", servers, {}),
        ConfigLocation(name, "vscode", "user", support / "Code/User/mcp.json", ("servers",), typed),
        ConfigLocation(name, "vscode", "project", here / ".vscode/mcp.json", ("servers",), typed),
        ConfigLocation(name, "gemini", "user", home / ".gemini/settings.json", servers, {}),
        ConfigLocation(name, "gemini", "project", here / ".gemini/settings.json", servers, {}),
    ]


def read(place: ConfigLocation) -> str:
    """The file's text, empty when there is none. Raises ConfigInvalid when it cannot be read."""
    most = MOST_BYTES[place.path.suffix]
    try:
        with open(place.path, "rb", opener=_at_once) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise OSError(errno.EINVAL, "not a regular file")
            data = file.read(most + 1)
            if len(data) > most:
                raise OSError(errno.EFBIG, f"more than {most >> 20} MiB")
            return data.decode("utf-8-sig")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigInvalid(
            f"{place.path} cannot be read: {error}", suggestion="fix the file, then try again"
        ) from None


def _at_once(path: str, flags: int) -> int:
    """Never waits, as for who holds a lease on a project's file, or for who writes to a FIFO."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)


def entry(place: ConfigLocation, text: str) -> dict[str, Any] | None:
    """What the file says of us now. Raises ConfigInvalid for a file that is not valid."""
    return _inside(place, _parse(place, text))


def with_entry(place: ConfigLocation, text: str, command: str, args: list[str]) -> str:
    """The text with our entry in it; keys of the person's own in the entry stay."""
    wanted = {**place.extra, "command": command, "args": args}
    if place.path.suffix == ".toml":
        return _toml_edited(place, text, wanted)
    data = _parse(place, text)
    table = _table(place, data, create=True)
    assert table is not None
    table[place.name] = {**(_inside(place, data) or {}), **wanted}
    return _json_text(data, text)


def without_entry(place: ConfigLocation, text: str) -> str:
    """The text without our entry."""
    if place.path.suffix == ".toml":
        return _toml_edited(place, text, None)
    data = _parse(place, text)
    table = _table(place, data, create=False)
    if table is None or place.name not in table:
        return text
    del table[place.name]
    return _json_text(data, text)


def snippet(place: ConfigLocation, command: str, args: list[str]) -> str:
    """What to add by hand."""
    wanted = {**place.extra, "command": command, "args": args}
    if place.path.suffix == ".toml":
        hint = UNATTENDED.get(place.client)
        return _toml_lines(place, wanted) + (f"# lets it run commands with nobody to ask:\n# {hint}\n" if hint else "")
    data: dict[str, Any] = {place.name: wanted}
    for key in reversed(place.keys):
        data = {key: data}
    return json.dumps(data, indent=2, ensure_ascii=False)


def _parse(place: ConfigLocation, text: str) -> dict[str, Any]:
    if not text.strip():
        return {}
    try:
        data: Any = tomllib.loads(text) if place.path.suffix == ".toml" else json.loads(text, object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        raise _not_valid(place, str(error)) from None
    if not isinstance(data, dict):
        raise _not_valid(place, "it does not hold an object")
    return data  # pyright: ignore[reportUnknownVariableType]


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuses what would be lost in writing it back."""
    table = dict(pairs)
    if len(table) != len(pairs):
        raise ValueError("a JSON object has a duplicate key")
    return table


def _not_valid(place: ConfigLocation, why: str) -> ConfigInvalid:
    return ConfigInvalid(
        f"{place.path} is not valid: {why}",
        suggestion="fix it, or add the entry by hand (comments in JSON would be lost): "
        f"{place.name} mcp install --client {place.client} --scope {place.scope} --print",
    )


def _table(place: ConfigLocation, data: dict[str, Any], *, create: bool) -> dict[str, Any] | None:
    for key in place.keys:
        if key not in data:
            if not create:
                return None
            data[key] = {}
        if not isinstance(data[key], dict):
            raise _not_valid(place, f"{key!r} is not an object")
        data = data[key]
    return data


def _inside(place: ConfigLocation, data: dict[str, Any]) -> dict[str, Any] | None:
    found: Any = (_table(place, data, create=False) or {}).get(place.name)
    if found is not None and not isinstance(found, dict):
        raise _not_valid(place, f"its entry {place.name!r} is not an object")
    return found  # pyright: ignore[reportUnknownVariableType]


def _json_text(data: dict[str, Any], before: str) -> str:
    """JSON in the file's own indentation."""
    found = re.search(r"\n([ \t]+)\S", before)
    return json.dumps(data, indent=found[1] if found else 2, ensure_ascii=False) + "\n"


def _toml_lines(place: ConfigLocation, wanted: Mapping[str, Any]) -> str:
    # JSON's strings and arrays of strings are TOML's too.
    return f"[mcp_servers.{place.name}]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in wanted.items())


def _toml_edited(place: ConfigLocation, before: str, wanted: Mapping[str, Any] | None) -> str:
    """The text with ``wanted`` in our entry, without the entry for None; nothing else in it changes."""
    import tomlkit  # takes 30 ms, for which most verbs have no use
    from tomlkit.exceptions import TOMLKitError

    expected = _parse(place, before)
    table = _table(place, expected, create=wanted is not None)
    if table is None or (wanted is None and place.name not in table):
        return before
    if wanted is None:
        del table[place.name]
    else:
        table[place.name] = {**table.get(place.name, {}), **wanted}
    with contextlib.suppress(TOMLKitError, ValueError, TypeError, LookupError):
        document = tomlkit.parse(before)
        servers = document.setdefault("mcp_servers", tomlkit.table(is_super_table=True))
        if wanted is None:
            del servers[place.name]
        else:
            servers.setdefault(place.name, tomlkit.table()).update(wanted)
        after = document.as_string()
        if _without_empty(tomllib.loads(after)) == _without_empty(expected):
            return after
    raise ConfigInvalid(
        f"{place.path} is written in a way that cannot be edited without touching the rest",
        suggestion=f"add by hand: {_toml_lines(place, wanted)!r}"
        if wanted
        else f"remove mcp_servers.{place.name} by hand",
    )


def _without_empty(data: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in data.items() if value != {}}
