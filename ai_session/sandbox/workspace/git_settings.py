"""Which files git's configs lead it to: the repository's own config, the person's and the system's, with what these
include, as git itself reads them. It is asked outside of boxes, and only to list; it starts no program for that.
"""

from __future__ import annotations

import os
import re
import selectors
import subprocess
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice

from ai_session.config.config import environment, outside_path
from ai_session.sandbox.workspace import repositories
from ai_session.sandbox.workspace.repositories import Named
from ai_session.system.path_steps import led_to

SECONDS = 2.0
"""For all repositories of a workspace together, at one look; git takes some milliseconds for each."""
MOST_ASKED = 50
"""Repositories. Of further ones their own config is read, without what it includes."""
MOST_BYTES = 1 << 20
MOST_NAMED = 200
"""Of one repository."""
MOST_INACTIVE = 8
"""Files of one repository that are included under a condition which does not hold now, and may hold later."""
SETTLED_NS = 100_000_000
"""A file read this soon after its last change may change again without a new time."""

ENVIRONMENT = re.compile(r"PATH|XDG_CONFIG_HOME|GIT_CONFIG_(GLOBAL|SYSTEM|NOSYSTEM|COUNT|PARAMETERS|(KEY|VALUE)_\d+)")
SYSTEM_CONFIG = "/etc/gitconfig"

RUN = re.compile(
    r"""
    core\.(fsmonitor|pager|editor|sshcommand|askpass|gitproxy|attributesfile|alternaterefscommand)
    | credential\.(.*\.)?helper | diff\.external | diff\..*\.(command|textconv) | merge\..*\.driver
    | filter\..*\.(clean|smudge|process) | (difftool|mergetool|guitool|browser|man)\..*\.(cmd|path)
    | gpg\.(.*\.)?(program|defaultkeycommand) | pager\..* | sequence\.editor | interactive\.difffilter
    | hook\..*\.command | trailer\..*\.(cmd|command) | tar\..*\.command | submodule\..*\.update
    | remote\..*\.(uploadpack|receivepack) | uploadpack\.packobjectshook | gc\.recentobjectshook
    | sendemail\.(.*\.)?\w+cmd | imap\.tunnel | lfs\.(customtransfer|extension)\..*\.(path|clean|smudge)
    """,
    re.VERBOSE | re.DOTALL,
)
"""Keys whose values git runs, or is led by to programs; an alias that begins with ``!`` is one more."""
DIRECTORIES = ("core.hookspath", "init.templatedir")
"""Keys whose values are directories of programs."""
INCLUDES = re.compile(r"include\.path|includeif\..*\.path", re.DOTALL)

_BETWEEN = re.compile(r"[\s'\"=;&|()<>`{}!,]+")
_VARIABLE = re.compile(r"\$\w*/")
_NO_NAME = re.compile(r"[*?$%\\\[\]]")

Stamp = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of a config: the file it stands in, its key in small letters and its value."""

    origin: str
    key: str
    value: str


@dataclass(slots=True)
class _Known:
    """What git said, and the state of the files that this depends on; ``again``: it may have changed meanwhile."""

    entries: tuple[Entry, ...]
    stamps: dict[str, Stamp] = field(default_factory=dict[str, Stamp])
    again: bool = False


class GitSettings:
    """Of the repositories of one workspace. May be used by several threads, one after the other."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._known: dict[str, _Known] = {}
        self.unread: tuple[str, ...] = ()
        """Repositories of which git's settings were not read, or not all of them."""

    def named(self, gits: Sequence[str], home: str) -> dict[str, tuple[Named, ...]]:
        """What the settings of each repository name in the workspace, whether it is there or not. Blocks."""
        program, until = self._program() if gits else "", time.monotonic() + SECONDS
        unread: dict[str, None] = {}
        found: dict[str, tuple[Named, ...]] = {}
        everywhere: tuple[Entry, ...] | None = None
        self._known = {git: known for git, known in self._known.items() if git in set(gits)}
        for number, git in enumerate(gits):
            entries = self._entries(program, git, home, until) if program and number < MOST_ASKED else None
            if entries is None and program:
                unread[git] = None
            if entries and everywhere is None:
                everywhere = tuple(one for one in entries if not _below(one.origin, self._root))
            # Where git says nothing, such as of a config with an error in it.
            own = repositories.named_by_config(git, home)
            named = [*own, *self._of_entries(entries or everywhere or (), git, home)]
            within = dict.fromkeys(here for one in dict.fromkeys(named) for here in self._here(one))
            if len(within) > MOST_NAMED:
                unread[git] = None
            found[git] = tuple(within)[:MOST_NAMED]
        self.unread = tuple(unread)
        return found

    def _here(self, named: Named) -> Iterator[Named]:
        """It where it lies in the workspace; where links from outside lead there, what they lead to."""
        if _below(named.path, self._root):
            yield named
            return
        files = [named.path]
        if named.directory:
            with suppress(OSError), os.scandir(named.path) as entries:
                files += [entry.path for entry in islice(entries, MOST_NAMED) if entry.is_symlink()]
        for path in files:
            with suppress(OSError, ValueError):
                links, end = led_to(path, self._root)
                yield from (Named(link, False, required=False, on_the_way=True) for link in links)
                if end:
                    yield Named(end, named.directory and path == named.path, required=False)

    def _program(self) -> str:
        """git; never one that lies in the workspace."""
        # shutil, which has a function for this, takes 5 ms to import.
        programs = (os.path.join(directory, "git") for directory in outside_path().split(os.pathsep))
        found = next((program for program in programs if os.path.isfile(program) and os.access(program, os.X_OK)), "")
        return "" if not found or _below(os.path.realpath(found), self._root) else found

    def _entries(self, program: str, git: str, home: str, until: float) -> tuple[Entry, ...] | None:
        """All that git reads there; None where it does not say in time, or says too much."""
        known = self._known.get(git)
        if known is not None and not known.again and known.stamps == _stamps(known.stamps):
            return known.entries
        variables = _environment(home)
        asked = _run([program, f"--git-dir={git}", *LIST], variables, until)
        if asked is None:
            return None
        entries = list(_parsed(asked))
        origins = {entry.origin for entry in entries}
        included = dict.fromkeys(_included(entries, home))
        inactive = [path for path in included if path not in origins and os.path.isfile(path)]
        for path in inactive[:MOST_INACTIVE]:
            more = _run([program, *LIST, "--file", path], variables, until)
            if more is None:
                return None
            entries += _parsed(more)
        paths = (*{entry.origin for entry in entries}, *included, *_standard(git, home, variables))
        stamps = _stamps(paths)
        latest = max((stamp[0] for stamp in stamps.values() if stamp), default=0)
        self._known[git] = _Known(tuple(entries), stamps, time.time_ns() - latest < SETTLED_NS)
        return tuple(entries)

    def _of_entries(self, entries: Iterable[Entry], git: str, home: str) -> Iterator[Named]:
        top = os.path.dirname(git) if os.path.basename(git) == ".git" else git
        own = {os.path.join(git, name) for name in ("config", "config.worktree")}
        for entry in entries:
            if entry.origin and entry.origin not in own:
                yield Named(entry.origin, False)
            if not entry.value:
                continue
            if entry.key in DIRECTORIES:
                yield Named(os.path.normpath(os.path.join(top, _expanded(entry.value, home))), True)
            elif INCLUDES.fullmatch(entry.key):
                yield Named(_include(entry, home), False)
            elif RUN.fullmatch(entry.key) or (entry.key.startswith("alias.") and entry.value.startswith("!")):
                yield from self._of_command(entry.value, top, home)

    def _of_command(self, command: str, top: str, home: str) -> Iterator[Named]:
        """Files that a command names, relative to where git runs it or to a directory that it names."""
        words = [word for word in _BETWEEN.split(command) if word]
        folders = [top]
        for before, word in zip(("", *words), words, strict=False):
            if before == "git" and "/" not in word:
                continue
            word = _expanded(_VARIABLE.sub("", word, count=1), home)
            if word.startswith("/") and os.path.isfile(word):
                yield Named(word, False, required=False)
            for folder in tuple(folders):
                path = os.path.normpath(os.path.join(folder, word.lstrip("/")))
                if os.path.isdir(path):
                    folders.append(path)
                    continue
                could_be_made = folder == top and not word.startswith(("/", "-")) and _could_be_made(word)
                if os.path.isfile(path) or could_be_made:
                    yield Named(path, False, required=False)


LIST = ("--no-pager", "config", "-z", "--list", "--includes", "--show-origin")


def _could_be_made(word: str) -> bool:
    """Whether a word that names nothing yet looks like a file's name rather than another program's or an option."""
    return ("/" in word or "." in word.strip(".")) and not _NO_NAME.search(word)


def _environment(home: str) -> dict[str, str]:
    """As the person's, without what leads git, or this process's own loader, elsewhere."""
    kept = {name: value for name, value in environment().items() if ENVIRONMENT.fullmatch(name)}
    return {**kept, "HOME": home, "LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0"}


def _standard(git: str, home: str, variables: dict[str, str]) -> list[str]:
    """Files that git reads, or would read if they were there."""
    own = [os.path.join(git, name) for name in ("config", "config.worktree", "commondir", "HEAD")]
    folder = variables.get("XDG_CONFIG_HOME") or f"{home}/.config"
    return [*own, git, f"{home}/.gitconfig", f"{folder}/git/config", SYSTEM_CONFIG]


def _stamps(paths: Iterable[str]) -> dict[str, Stamp]:
    stamps: dict[str, Stamp] = dict.fromkeys(paths, ())
    for path in stamps:
        with suppress(OSError, ValueError):
            info = os.stat(path)
            # A directory changes with each lock that git makes in it.
            stamps[path] = () if os.path.isdir(path) else (info.st_ctime_ns, info.st_ino, info.st_dev, info.st_size)
    return stamps


def _run(argv: Sequence[str], variables: dict[str, str], until: float) -> bytes | None:
    """What it prints; empty where it fails, None where that takes too long or is too much."""
    data = bytearray()
    child = subprocess.Popen(
        argv,
        cwd="/",
        env=variables,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    assert child.stdout is not None
    with child.stdout as output, selectors.DefaultSelector() as ready:
        ready.register(output, selectors.EVENT_READ)
        try:
            while len(data) <= MOST_BYTES and ready.select(max(0.0, until - time.monotonic())):
                if not (part := os.read(output.fileno(), 1 << 16)):
                    return bytes(data) if child.wait(max(0.01, until - time.monotonic())) == 0 else b""
                data += part
        except subprocess.TimeoutExpired:
            pass
        finally:
            child.kill()
            child.wait()
    return None


def _parsed(data: bytes) -> Iterator[Entry]:
    """git's output: origin and entry by turns, each with a NUL behind it."""
    fields = data.split(b"\0")
    for origin, entry in zip(fields[::2], fields[1::2], strict=False):
        kind, _, path = os.fsdecode(origin).partition(":")
        key, _, value = entry.decode(errors="surrogateescape").partition("\n")
        yield Entry(os.path.normpath(path) if kind == "file" and path.startswith("/") else "", key.lower(), value)


def _included(entries: Iterable[Entry], home: str) -> Iterator[str]:
    return (_include(entry, home) for entry in entries if entry.value and INCLUDES.fullmatch(entry.key))


def _include(entry: Entry, home: str) -> str:
    return os.path.normpath(os.path.join(os.path.dirname(entry.origin) or "/", _expanded(entry.value, home)))


def _expanded(path: str, home: str) -> str:
    return os.path.join(home, path[2:]) if path.startswith("~/") else path


def _below(path: str, root: str) -> bool:
    return path.startswith(root.rstrip("/") + "/")
