"""The files that git's configs lead it to: the repository's, the person's and the system's with their includes.

git itself lists them. It runs outside of boxes, and only to list, for which it starts no program.
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
from ai_session.system.path_steps import links_below

SECONDS = 2.0
"""For all repositories of a workspace together, at one update; git takes some milliseconds for each."""
MOST_LISTED = 50
"""The number of repositories for which git is run. Of further ones only their own config is read, without includes."""
MOST_BYTES = 1 << 20
MOST_NAMED = 200
"""The maximum for one repository."""
MOST_INACTIVE = 8
"""The number of a repository's files whose include condition is false now and may be true later."""
SETTLED_NS = 100_000_000
"""A file read this soon after its last change may change again without a new timestamp."""

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
"""The keys whose values git runs or that lead it to programs; an alias that begins with ``!`` is one too."""
DIRECTORIES = ("core.hookspath", "init.templatedir")
"""The keys whose values are directories of programs."""
INCLUDES = re.compile(r"include\.path|includeif\..*\.path", re.DOTALL)

_SEPARATORS = re.compile(r"[\s'\"=;&|()<>`{}!,]+")
_VARIABLE = re.compile(r"\$\w*/")
_NOT_IN_A_NAME = re.compile(r"[*?$%\\\[\]]")

Stamp = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a config: the file it is in, its key in lower case and its value."""

    origin: str
    key: str
    value: str


@dataclass(slots=True)
class _Listing:
    """The entries git listed, and the stamps of the files they depend on; ``again`` if those may have changed."""

    entries: tuple[Entry, ...]
    stamps: dict[str, Stamp] = field(default_factory=dict[str, Stamp])
    again: bool = False


class GitSettings:
    """The settings of the repositories in one workspace. May be used by several threads, one at a time."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._known: dict[str, _Listing] = {}
        self.unread: tuple[str, ...] = ()
        """The repositories whose settings could not be read completely."""

    def named(self, gits: Sequence[str], home: str) -> dict[str, tuple[Named, ...]]:
        """Return the paths in the workspace that the settings of each repository name, existing or not. Blocks."""
        program, until = self._program() if gits else "", time.monotonic() + SECONDS
        unread: dict[str, None] = {}
        found: dict[str, tuple[Named, ...]] = {}
        everywhere: tuple[Entry, ...] | None = None
        self._known = {git: known for git, known in self._known.items() if git in set(gits)}
        for number, git in enumerate(gits):
            entries = self._entries(program, git, home, until) if program and number < MOST_LISTED else None
            if entries is None and program:
                unread[git] = None
            if entries and everywhere is None:
                everywhere = tuple(one for one in entries if not _below(one.origin, self._root))
            # For the case that git reports nothing, such as for a config with an error in it.
            own = repositories.named_by_config(git, home)
            named = [*own, *self._named_by_entries(entries or everywhere or (), git, home)]
            within = dict.fromkeys(here for one in dict.fromkeys(named) for here in self._inside(one))
            if len(within) > MOST_NAMED:
                unread[git] = None
            found[git] = tuple(within)[:MOST_NAMED]
        self.unread = tuple(unread)
        return found

    def _inside(self, named: Named) -> Iterator[Named]:
        """Yield ``named`` if it is in the workspace, or else the links and targets through which it leads there."""
        if _below(named.path, self._root):
            yield named
            return
        files = [named.path]
        if named.directory:
            with suppress(OSError), os.scandir(named.path) as entries:
                files += [entry.path for entry in islice(entries, MOST_NAMED) if entry.is_symlink()]
        for path in files:
            with suppress(OSError, ValueError):
                links, end = links_below(path, self._root)
                yield from (Named(link, False, required=False, on_the_way=True) for link in links)
                if end:
                    yield Named(end, named.directory and path == named.path, required=False)

    def _program(self) -> str:
        """Return the path of git, but never of one in the workspace; empty if there is none."""
        # shutil, which has a function for this, takes 5 ms to import.
        programs = (os.path.join(directory, "git") for directory in outside_path().split(os.pathsep))
        found = next((program for program in programs if os.path.isfile(program) and os.access(program, os.X_OK)), "")
        return "" if not found or _below(os.path.realpath(found), self._root) else found

    def _entries(self, program: str, git: str, home: str, until: float) -> tuple[Entry, ...] | None:
        """Return every entry git reads there, or None if it takes too long or lists too much."""
        known = self._known.get(git)
        if known is not None and not known.again and known.stamps == _stamps(known.stamps):
            return known.entries
        variables = _environment(home)
        listed = _run([program, f"--git-dir={git}", *LIST], variables, until)
        if listed is None:
            return None
        entries = list(_parsed(listed))
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
        self._known[git] = _Listing(tuple(entries), stamps, time.time_ns() - latest < SETTLED_NS)
        return tuple(entries)

    def _named_by_entries(self, entries: Iterable[Entry], git: str, home: str) -> Iterator[Named]:
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
                yield from self._named_by_command(entry.value, top, home)

    def _named_by_command(self, command: str, top: str, home: str) -> Iterator[Named]:
        """Yield the files a command names, relative to where git runs it or to a directory that it names."""
        words = [word for word in _SEPARATORS.split(command) if word]
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
                may_be_made = folder == top and not word.startswith(("/", "-")) and _looks_like_a_file(word)
                if os.path.isfile(path) or may_be_made:
                    yield Named(path, False, required=False)


LIST = ("--no-pager", "config", "-z", "--list", "--includes", "--show-origin")


def _looks_like_a_file(word: str) -> bool:
    """Report whether a word that names nothing yet looks like a file's name and not like a program's or an option."""
    return ("/" in word or "." in word.strip(".")) and not _NOT_IN_A_NAME.search(word)


def _environment(home: str) -> dict[str, str]:
    """Return the person's environment without variables that lead git or its dynamic loader elsewhere."""
    allowed = {name: value for name, value in environment().items() if ENVIRONMENT.fullmatch(name)}
    return {**allowed, "HOME": home, "LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0"}


def _standard(git: str, home: str, variables: dict[str, str]) -> list[str]:
    """Return the files that git reads, or would read if they existed."""
    own = [os.path.join(git, name) for name in ("config", "config.worktree", "commondir", "HEAD")]
    folder = variables.get("XDG_CONFIG_HOME") or f"{home}/.config"
    return [*own, git, f"{home}/.gitconfig", f"{folder}/git/config", SYSTEM_CONFIG]


def _stamps(paths: Iterable[str]) -> dict[str, Stamp]:
    stamps: dict[str, Stamp] = dict.fromkeys(paths, ())
    for path in stamps:
        with suppress(OSError, ValueError):
            info = os.stat(path)
            # The directory's stamp is left out: it changes with each lock file of git.
            stamps[path] = () if os.path.isdir(path) else (info.st_ctime_ns, info.st_ino, info.st_dev, info.st_size)
    return stamps


def _run(argv: Sequence[str], variables: dict[str, str], until: float) -> bytes | None:
    """Return what it prints, nothing if it fails, or None if it takes too long or prints too much."""
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
    """Yield the entries in git's output, in which origin and entry alternate, each followed by NUL."""
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
