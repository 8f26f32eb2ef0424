"""The files in which MCP clients configure their servers. An entry is edited without changing any other setting: TOML
keeps its text, JSON is formatted again."""

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
from agentwire.json_lines import unique_keys

MOST_BYTES = {".json": 32 << 20, ".toml": 1 << 20}
"""The largest file that is read, by its suffix: a project may contain one that was made to keep its reader busy."""

UNATTENDED = {"codex": 'default_tools_approval_mode = "approve"'}
"""A line that a person may add to our entry if the client, running unattended, refuses commands."""


@dataclass(frozen=True, slots=True)
class ConfigLocation:
    """One file of one client. ``name`` is the name of our entry in it; ``keys`` lead to the table of servers."""

    name: str
    client: str
    scope: str
    path: Path
    keys: tuple[str, ...]
    extra: Mapping[str, Any]


def locations(name: str, home: Path, here: Path, variables: Mapping[str, str]) -> list[ConfigLocation]:
    """Return every known file for the entry of the program ``name``; the first one of a client is its default."""
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


def read(location: ConfigLocation) -> str:
    """Return the file's text, empty if there is no file. Raises ConfigInvalid if it cannot be read."""
    most = MOST_BYTES[location.path.suffix]
    try:
        with open(location.path, "rb", opener=_open_nonblocking) as file:
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
            f"{location.path} cannot be read: {error}", suggestion="fix the file, then try again"
        ) from None


def _open_nonblocking(path: str, flags: int) -> int:
    """Open without waiting for another process, such as the writer of a FIFO or the holder of a lease on the file."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)


def entry(location: ConfigLocation, text: str) -> dict[str, Any] | None:
    """Return our entry in the file's text, None if there is none. Raises ConfigInvalid if the text is not valid."""
    return _entry_in(location, _parse(location, text))


def with_entry(location: ConfigLocation, text: str, command: str, args: list[str]) -> str:
    """Return the text with our entry in it; additional keys that the person set in the entry remain."""
    wanted = {**location.extra, "command": command, "args": args}
    if location.path.suffix == ".toml":
        return _toml_edited(location, text, wanted)
    data = _parse(location, text)
    table = _table(location, data, create=True)
    assert table is not None
    table[location.name] = {**(_entry_in(location, data) or {}), **wanted}
    return _json_text(data, text)


def without_entry(location: ConfigLocation, text: str) -> str:
    """Return the text without our entry."""
    if location.path.suffix == ".toml":
        return _toml_edited(location, text, None)
    data = _parse(location, text)
    table = _table(location, data, create=False)
    if table is None or location.name not in table:
        return text
    del table[location.name]
    return _json_text(data, text)


def snippet(location: ConfigLocation, command: str, args: list[str]) -> str:
    """Return the entry as text to be added by hand."""
    wanted = {**location.extra, "command": command, "args": args}
    if location.path.suffix == ".toml":
        hint = UNATTENDED.get(location.client)
        return _toml_lines(location, wanted) + (f"# lets it run commands without asking:\n# {hint}\n" if hint else "")
    data: dict[str, Any] = {location.name: wanted}
    for key in reversed(location.keys):
        data = {key: data}
    return json.dumps(data, indent=2, ensure_ascii=False)


def _parse(location: ConfigLocation, text: str) -> dict[str, Any]:
    if not text.strip():
        return {}
    try:
        data: Any = (
            tomllib.loads(text) if location.path.suffix == ".toml" else json.loads(text, object_pairs_hook=unique_keys)
        )
    except (ValueError, RecursionError) as error:
        raise _not_valid(location, str(error)) from None
    if not isinstance(data, dict):
        raise _not_valid(location, "it is not a JSON object")
    return data  # pyright: ignore[reportUnknownVariableType]


def _not_valid(location: ConfigLocation, why: str) -> ConfigInvalid:
    return ConfigInvalid(
        f"{location.path} is not valid: {why}",
        suggestion="fix it, or add the entry by hand (comments in JSON would be lost): "
        f"{location.name} mcp install --client {location.client} --scope {location.scope} --print",
    )


def _table(location: ConfigLocation, data: dict[str, Any], *, create: bool) -> dict[str, Any] | None:
    for key in location.keys:
        if key not in data:
            if not create:
                return None
            data[key] = {}
        if not isinstance(data[key], dict):
            raise _not_valid(location, f"{key!r} is not an object")
        data = data[key]
    return data


def _entry_in(location: ConfigLocation, data: dict[str, Any]) -> dict[str, Any] | None:
    found: Any = (_table(location, data, create=False) or {}).get(location.name)
    if found is not None and not isinstance(found, dict):
        raise _not_valid(location, f"its entry {location.name!r} is not an object")
    return found  # pyright: ignore[reportUnknownVariableType]


def _json_text(data: dict[str, Any], before: str) -> str:
    """Return JSON with the indentation of the file."""
    found = re.search(r"\n([ \t]+)\S", before)
    return json.dumps(data, indent=found[1] if found else 2, ensure_ascii=False) + "\n"


def _toml_lines(location: ConfigLocation, wanted: Mapping[str, Any]) -> str:
    # Strings and arrays of strings in JSON are valid TOML.
    return f"[mcp_servers.{location.name}]\n" + "".join(
        f"{key} = {json.dumps(value)}\n" for key, value in wanted.items()
    )


def _toml_edited(location: ConfigLocation, before: str, wanted: Mapping[str, Any] | None) -> str:
    """Return the text with ``wanted`` in our entry, or without the entry if that is None; the rest stays as it is."""
    import tomlkit  # takes 30 ms, and few verbs need it
    from tomlkit.exceptions import TOMLKitError

    expected = _parse(location, before)
    table = _table(location, expected, create=wanted is not None)
    if table is None or (wanted is None and location.name not in table):
        return before
    if wanted is None:
        del table[location.name]
    else:
        table[location.name] = {**table.get(location.name, {}), **wanted}
    with contextlib.suppress(TOMLKitError, ValueError, TypeError, LookupError):
        document = tomlkit.parse(before)
        servers = document.setdefault("mcp_servers", tomlkit.table(is_super_table=True))
        if wanted is None:
            del servers[location.name]
        else:
            servers.setdefault(location.name, tomlkit.table()).update(wanted)
        after = document.as_string()
        if _without_empty(tomllib.loads(after)) == _without_empty(expected):
            return after
    raise ConfigInvalid(
        f"{location.path} is written in a way that cannot be edited without touching the rest",
        suggestion=f"add by hand: {_toml_lines(location, wanted)!r}"
        if wanted
        else f"remove mcp_servers.{location.name} by hand",
    )


def _without_empty(data: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in data.items() if value != {}}
