"""Which files the commands of a configuration, plan or suite name: programs that it starts and what these are given.

Standard library only: a server asks before it answers anything.
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
"""How servers of Python are named to those that carry them: ``package.module:name``."""

LOADED = {
    "make": ("GNUmakefile", "makefile", "Makefile"),
    "just": ("justfile", ".justfile", "Justfile"),
    **dict.fromkeys(("npm", "pnpm", "yarn", "bun"), ("package.json",)),
    **dict.fromkeys(("uv", "poetry", "pdm", "hatch"), ("pyproject.toml",)),
    "deno": ("deno.json", "deno.jsonc"),
    "cargo": ("Cargo.toml",),
}
"""Files that a program takes commands from where it is started, though no word names them."""
ENVIRONMENTS = frozenset(("uv", "poetry", "pdm", "hatch", "pipenv"))
"""They look for programs in ``.venv`` where they are started."""
STARTED = ["sitecustomize.py", "usercustomize.py"]
"""What Python loads from a search path of its own before anything else."""
ENDINGS = (".js", ".cjs", ".mjs", ".json", ".node")
"""What Node adds to a name."""
DEEP = 3
"""How many directories a line may change to one after the other: ``cd a && cd b``."""
VARIABLE = re.compile(r"\$\{?(\w+)\}?/")
"""Before a path; of one that is not known the directory counts where the program is started."""
NODE = frozenset(("node", "bun", "deno", "npx", "bunx", "npm", "pnpm", "yarn"))


@dataclass(frozen=True, slots=True)
class Command:
    """Something that is started. ``server`` is empty where it is none. ``directory`` is what it names itself to be
    started in; ``relative`` where its words count from there, or else from where the work is. ``data`` are files that
    it names and that may change."""

    server: str
    words: tuple[str, ...]
    variables: Mapping[str, str] = field(default_factory=dict[str, str])
    directory: str = ""
    relative: bool = True
    data: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Directories:
    """Where commands are started (``bases``), and below which agents may write (``inside``). Absolute, as they are
    named and with links followed."""

    bases: tuple[str, ...]
    inside: tuple[str, ...]

    @classmethod
    def of(cls, bases: Iterable[str | os.PathLike[str]], more: Iterable[str | os.PathLike[str]] = ()) -> Directories:
        """Those, and ``more`` that agents may write below. The whole file system is no workspace."""
        named = tuple(dict.fromkeys(os.path.abspath(one) for one in bases))
        below = (*named, *(os.path.abspath(one) for one in more))
        both = dict.fromkeys(path for one in below for path in (one, os.path.realpath(one)))
        return cls(named, tuple(path for path in both if path != "/"))

    def have(self, path: str) -> bool:
        """Whether an absolute path is below one of them."""
        return any(path.startswith(f"{one}/") for one in self.inside)


def read_text(text: str) -> Any:
    """What TOML, or a JSON object, says; some editors put a byte order mark before it. Raises ValueError."""
    text = text.removeprefix("\ufeff")
    return json.loads(text) if text.lstrip().startswith("{") else tomllib.loads(text)


def tables_in(data: bytes | None) -> dict[str, Any]:
    """The data of a TOML or JSON text; empty if it is neither, which is reported when the text is parsed."""
    try:
        found = read_text((data or b"").decode())
    except (ValueError, RecursionError):
        return {}
    plan = _table(found).get("ccswarmPlan")
    return tables_in(plan.encode()) if isinstance(plan, str) else _table(found)


def commands_in(tables: Mapping[str, Any]) -> list[Command]:
    """The commands of servers, of notices, and those that prepare the cases of a suite."""
    servers = _items(_table(tables.get("mcp")).get("servers"))
    cases = _items(tables.get("cases"))
    command = tuple(_texts(_table(tables.get("notify")).get("command")))
    notices = [Command("", command, directory="/", relative=False)] if command else []
    return [*map(_server, servers), *notices, *(setup for case in cases for setup in _setups(case))]


def workspace_in(tables: Mapping[str, Any]) -> str:
    """The directory of the work that they name; empty for none."""
    named = _table(tables.get("swarm")).get("workspace")
    return named if isinstance(named, str) else ""


def _setups(case: Mapping[str, Any]) -> Iterator[Command]:
    """They are carried out in a copy of the fixture."""
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
    """The files that are there and that its words and variables name, below ``at`` or ``known``: as a path, as a module
    or package of Python, by a search path, or since the program looks for them where it is started. Absolute, as they
    are named. Sockets and directories are none."""
    bases = list(at.bases) if command.relative else ["/"]
    if command.directory:
        bases = list(dict.fromkeys(os.path.join(base, command.directory) for base in (os.getcwd(), *bases)))
    home = environ.get("HOME", "/")
    words = [one for word in (*command.words, *command.variables.values()) for one in _pieces(word, home)]
    entered = list[str]()
    for _ in range(DEEP):
        entered += [path for path in _joined(bases, words) if at.have(f"{path}/") and os.path.isdir(path)]
        bases = list(dict.fromkeys((*bases, *entered)))
    data = set(_joined(bases, [one for word in command.data for one in _pieces(word, home)]))
    named = (
        *_candidates(words, bases, command.variables),
        *_entries(words, dict.fromkeys(entered)),
        *_searched(command, words, bases, at, environ),
    )
    found = filter(_is_file, dict.fromkeys(named))
    inside = (path for path in found if at.have(path) or at.have(os.path.realpath(path)) or known(path))
    return [path for path in inside if path not in data]


def _searched(
    command: Command, words: Sequence[str], bases: Sequence[str], at: Directories, environ: Mapping[str, str]
) -> Iterator[str]:
    """By the search path. Elsewhere than in directories of agents it is only asked for whole words: a link there may
    lead to one of these."""
    search = command.variables.get("PATH", environ.get("PATH", "")).split(":")
    for directory in dict.fromkeys(os.path.join(base, one) for one in search for base in bases):
        meant = words if at.have(f"{directory}/") else command.words
        yield from (os.path.join(directory, word) for word in meant if "/" not in word and "\0" not in word)


def _candidates(words: Sequence[str], bases: Sequence[str], variables: Mapping[str, str]) -> Iterator[str]:
    yield from _joined(bases, words)
    names = {os.path.basename(word) for word in words}
    loaded = [file for name in names for file in LOADED.get(name, ())]
    loaded += [f".venv/bin/{word}" for word in words if "/" not in word] if names & ENVIRONMENTS else []
    loaded += STARTED if "PYTHONPATH" in variables else []
    if names & NODE:
        loaded += [f"{word}{ending}" for word in words for ending in ENDINGS]
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


def _entries(words: Iterable[str], directories: Iterable[str]) -> Iterator[str]:
    """What is started of a directory that is named in the place of a program."""
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
    """The word, and what may be a path or a name in it: ``--file=x``, ``-rx``, ``sh -c 'x $PWD/y'``."""
    word = VARIABLE.sub(lambda variable: f"{home}/" if variable[1] == "HOME" else "./", word)
    for piece in dict.fromkeys((word, word.partition("=")[2], *SEPARATORS.split(word))):
        for one in (piece, piece[2:] if piece[:1] == "-" and piece[1:2] != "-" else ""):
            if one and "\0" not in one and len(one) < 4096:
                yield home + one[1:] if one.startswith("~/") else one.replace("//", "/")


def _joined(bases: Iterable[str], words: Iterable[str]) -> Iterator[str]:
    words = list(words)
    for base in bases:
        yield from (os.path.normpath(os.path.join(base, word)) for word in words)


def _is_file(path: str) -> bool:
    """Whether it could be read as a program: a FIFO could."""
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
