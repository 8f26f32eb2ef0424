"""The files that the commands of a configuration, plan or suite name: programs to start and files passed to them.

Standard library only: servers use it before anything else.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import stat
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, cast

SEPARATORS = re.compile(r"[\s;&|()<>{}\"'`=:,]+")
ATTRIBUTE = re.compile(r"([A-Za-z_][\w.]*):[A-Za-z_][\w.]*")
"""The form ``package.module:name`` in which Python servers are passed to the programs that run them."""

LOADED_FILES = {
    "make": ("GNUmakefile", "makefile", "Makefile"),
    "just": ("justfile", ".justfile", "Justfile"),
    **dict.fromkeys(("npm", "pnpm", "yarn", "bun"), ("package.json",)),
    **dict.fromkeys(("uv", "poetry", "pdm", "hatch"), ("pyproject.toml",)),
    "deno": ("deno.json", "deno.jsonc"),
    "cargo": ("Cargo.toml",),
}
"""The files in its directory from which a program reads commands, though no argument names them."""
VENV_USERS = frozenset(("uv", "poetry", "pdm", "hatch", "pipenv"))
"""Programs that search for programs in ``.venv`` of their directory."""
PYTHON_STARTUP_FILES = ["sitecustomize.py", "usercustomize.py"]
"""The files of its search path that Python loads before any other."""
NODE_SUFFIXES = (".js", ".cjs", ".mjs", ".json", ".node")
"""The suffixes that Node adds to a name."""
MOST_DIRECTORY_CHANGES = 3
"""The most directory changes in a row that are followed: ``cd a && cd b``."""
VARIABLE_PREFIX = re.compile(r"\$\{?(\w+)\}?/")
"""A variable before a path. An unknown one is taken to be the directory where the program is started."""
NODE = frozenset(("node", "bun", "deno", "npx", "bunx", "npm", "pnpm", "yarn"))


@dataclass(frozen=True, slots=True)
class Command:
    """A command that is started. ``server`` is empty if it is not that of a server. ``directory`` is the one it names
    to be started in. Its words are relative to there, and if ``relative`` to the workspace. ``data`` are files that it
    names and that may change."""

    server: str
    words: tuple[str, ...]
    variables: Mapping[str, str] = field(default_factory=dict[str, str])
    directory: str = ""
    relative: bool = True
    data: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Directories:
    """The directories where commands are started (``bases``), and below which agents may write (``inside``). All are
    absolute; ``inside`` has each both as named and with links resolved."""

    bases: tuple[str, ...]
    inside: tuple[str, ...]

    @classmethod
    def of(cls, bases: Iterable[str | os.PathLike[str]], more: Iterable[str | os.PathLike[str]] = ()) -> Directories:
        """Return these directories, and ``more`` below which agents may write. ``/`` never counts as a workspace."""
        named = tuple(dict.fromkeys(os.path.abspath(one) for one in bases))
        below = (*named, *(os.path.abspath(one) for one in more))
        both = dict.fromkeys(path for one in below for path in (one, os.path.realpath(one)))
        return cls(named, tuple(path for path in both if path != "/"))

    def contains(self, path: str) -> bool:
        """Report whether an absolute path is below one of them."""
        return any(path.startswith(f"{one}/") for one in self.inside)


def read_text(text: str) -> Any:
    """Parse TOML or a JSON object, which may begin with a byte order mark. Raises ValueError."""
    text = text.removeprefix("\ufeff")
    return json.loads(text) if text.lstrip().startswith("{") else tomllib.loads(text)


def tables_in(data: bytes | None) -> dict[str, Any]:
    """Return the tables of a TOML or JSON text, or an empty table if it is neither; parsing reports that later."""
    try:
        found = read_text((data or b"").decode())
    except (ValueError, RecursionError):
        return {}
    plan = _table(found).get("ccswarmPlan")
    return tables_in(plan.encode()) if isinstance(plan, str) else _table(found)


def commands_in(tables: Mapping[str, Any]) -> list[Command]:
    """Return the commands of servers and notices, and those that prepare a suite's cases."""
    servers = _items(_table(tables.get("mcp")).get("servers"))
    cases = _items(tables.get("cases"))
    command = tuple(_texts(_table(tables.get("notify")).get("command")))
    notices = [Command("", command, directory="/", relative=False)] if command else []
    return [*map(_server, servers), *notices, *(setup for case in cases for setup in _setups(case))]


def workspace_in(tables: Mapping[str, Any]) -> str:
    """Return the workspace that the tables name; empty if none."""
    named = _table(tables.get("swarm")).get("workspace")
    return named if isinstance(named, str) else ""


def _setups(case: Mapping[str, Any]) -> Iterator[Command]:
    """Yield the commands that prepare a case. They run in a copy of its fixture."""
    fixture = str(case.get("fixture", ""))
    for text in _texts(case.get("setup")):
        yield Command("", (text,), directory=fixture, relative=bool(fixture))


def _server(table: Mapping[str, Any]) -> Command:
    command, name, directory = (str(table.get(key, "")) for key in ("command", "name", "cwd"))
    try:
        words = shlex.split(command)
    except ValueError:
        words = command.split()
    variables = {key: str(value) for key, value in _table(table.get("env")).items()}
    return Command(
        name, (*words, *_texts(table.get("args"))), variables, directory, data=tuple(_texts(table.get("data_files")))
    )


def files_of(
    command: Command, at: Directories, environ: Mapping[str, str], known: Callable[[str], bool] = lambda _: False
) -> list[str]:
    """Return the existing files that a command's words and variables name, below ``at`` or ``known``. They may be named
    as a path, as a Python module or package, through a search path, or because the program loads them from its
    directory. Paths are absolute and as named. Sockets and directories do not count."""
    bases = list(at.bases) if command.relative else ["/"]
    if command.directory:
        bases = list(dict.fromkeys(os.path.join(base, command.directory) for base in (os.getcwd(), *bases)))
    home = environ.get("HOME", "/")
    words = [one for word in (*command.words, *command.variables.values()) for one in _pieces(word, home)]
    entered = list[str]()
    for _ in range(MOST_DIRECTORY_CHANGES):
        entered += [path for path in _joined(bases, words) if at.contains(f"{path}/") and os.path.isdir(path)]
        bases = list(dict.fromkeys((*bases, *entered)))
    data = set(_joined(bases, [one for word in command.data for one in _pieces(word, home)]))
    named = (
        *_candidates(words, bases, command.variables),
        *_entry_points(words, dict.fromkeys(entered)),
        *_on_search_path(command, words, bases, at, environ),
    )
    found = filter(_is_file, dict.fromkeys(named))
    inside = (path for path in found if at.contains(path) or at.contains(os.path.realpath(path)) or known(path))
    return [path for path in inside if path not in data]


def _on_search_path(
    command: Command, words: Sequence[str], bases: Sequence[str], at: Directories, environ: Mapping[str, str]
) -> Iterator[str]:
    """Yield the candidates on the search path. Outside of agents' directories only whole words are searched there,
    because a link may lead to an agent's directory."""
    search = command.variables.get("PATH", environ.get("PATH", "")).split(":")
    for directory in dict.fromkeys(os.path.join(base, one) for one in search for base in bases):
        meant = words if at.contains(f"{directory}/") else command.words
        yield from (os.path.join(directory, word) for word in meant if "/" not in word and "\0" not in word)


def _candidates(words: Sequence[str], bases: Sequence[str], variables: Mapping[str, str]) -> Iterator[str]:
    yield from _joined(bases, words)
    names = {os.path.basename(word) for word in words}
    loaded = [file for name in names for file in LOADED_FILES.get(name, ())]
    loaded += [f".venv/bin/{word}" for word in words if "/" not in word] if names & VENV_USERS else []
    loaded += PYTHON_STARTUP_FILES if "PYTHONPATH" in variables else []
    if names & NODE:
        loaded += [f"{word}{ending}" for word in words for ending in NODE_SUFFIXES]
    modules = [word.replace(".", "/") for word in _modules(words)]
    packages = [word.rpartition("@")[0] or word for word in words] if names & NODE else []
    for base in bases:
        yield from (os.path.join(base, file) for file in loaded)
        for module in modules:
            yield f"{base}/{module}.py"
            steps = module.split("/")
            yield from (f"{base}/{'/'.join(steps[:count])}/__init__.py" for count in range(1, len(steps) + 1))
            yield f"{base}/{module}/__main__.py"
        for package in packages:
            yield f"{base}/node_modules/.bin/{package.rpartition('/')[2]}"
            yield f"{base}/node_modules/{package}/package.json"


def _entry_points(words: Iterable[str], directories: Iterable[str]) -> Iterator[str]:
    """Yield the files that run when a directory is named instead of a program."""
    node = not {"node", "bun", "deno"}.isdisjoint(os.path.basename(word) for word in words)
    for directory in directories:
        yield from (f"{directory}/{name}" for name in ("__main__.py", *(("index.js", "package.json") if node else ())))


def _modules(words: Sequence[str]) -> Iterator[str]:
    for before, word in pairwise(words):
        if before == "-m":
            yield word
    for word in words:
        if named := ATTRIBUTE.fullmatch(word):
            yield named[1]


def _pieces(word: str, home: str) -> Iterator[str]:
    """Yield the word and each part that may be a path or a name: ``--file=x``, ``-rx``, ``sh -c 'x $PWD/y'``."""
    word = VARIABLE_PREFIX.sub(lambda variable: f"{home}/" if variable[1] == "HOME" else "./", word)
    for piece in dict.fromkeys((word, word.partition("=")[2], *SEPARATORS.split(word))):
        for one in (piece, piece[2:] if piece[:1] == "-" and piece[1:2] != "-" else ""):
            if one and "\0" not in one and len(one) < 4096:
                yield home + one[1:] if one.startswith("~/") else one.replace("//", "/")


def _joined(bases: Iterable[str], words: Iterable[str]) -> Iterator[str]:
    words = list(words)
    for base in bases:
        yield from (os.path.normpath(os.path.join(base, word)) for word in words)


def _is_file(path: str) -> bool:
    """Report whether it can be read as a program, as even a FIFO can."""
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        return False
    return not stat.S_ISDIR(mode) and not stat.S_ISSOCK(mode)


def _table(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _items(value: object) -> list[dict[str, Any]]:
    return [_table(item) for item in cast("list[object]", value)] if isinstance(value, list) else []


def _texts(value: object) -> list[str]:
    return [item for item in cast("list[object]", value) if isinstance(item, str)] if isinstance(value, list) else []
