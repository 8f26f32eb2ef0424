"""Runs git so that only its caller decides what it does.

A repository's configuration names programs that git runs: hooks, filters, merge and diff drivers, file system monitors.
So configurations are only used by the commands of ``Git.person``, which start none of these programs. Everything that
reads trees or objects runs in a ``PrivateRepository``: a private directory with its own configuration over another
repository's objects.
"""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

from agentwire.system import program_path
from ccswarm.errors import Conflict, WorkRefused, WorkspaceUnusable
from ccswarm.system.bounded_process import Bounds, CallerCancelled, OutOfBounds, run
from ccswarm.system.confined_files import pinned_path

MOST_MEMORY = 2 << 30
PERSONS_OWN = Bounds(seconds=7200, cpu_seconds=3600)
"""The limits of a command that reads nothing of an agent's: a clone of a repository of any size."""
ASKS = ("config", "rev-parse", "update-ref", "var")
"""Commands that read or write a few lines, whatever the size of the repository."""
ASKING = Bounds(seconds=600)
OF_AGENTS = Bounds(seconds=1800, cpu_seconds=600, memory_bytes=MOST_MEMORY)
"""The limits of a command on an agent's files. A tree of some hundred bytes may stand for billions of files."""
COMPARING = Bounds(seconds=300, cpu_seconds=60, memory_bytes=MOST_MEMORY)
"""The limits of comparing names with an agent's patterns: seconds for a million names, or forever for a few."""
COMPARES = ("check-ignore", "check-attr")
OUT_OF_MEMORY = re.compile(r"out of memory|cannot allocate memory|mmap failed", re.IGNORECASE)

DISK_IS_FULL = re.compile(r"no space left|out of diskspace|disk quota exceeded", re.IGNORECASE)

NO_SYSTEM_CONFIG = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull, "GIT_ATTR_NOSYSTEM": "1"}
ALWAYS = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "LC_ALL": "C.UTF-8",
}
QUIET = (
    "-c",
    "core.hooksPath=/dev/null",
    "-c",
    "core.fsmonitor=false",
    "-c",
    "gc.auto=0",
    "-c",
    "maintenance.auto=false",
)

CHECKED_OUT = ("HEAD^{commit}", "--symbolic-full-name", "HEAD", "--")
"""The arguments by which ``rev-parse`` prints three lines: the commit, the ref of its branch (HEAD for none), and
``--``, which marks all of them as revisions."""
MOST_SAID = 1 << 16
LARGE_FILE = "32m"
"""The size from which git streams files instead of loading them into memory."""
IDENTITY = re.compile(r"(?P<name>.*) <(?P<email>.*)> \d+ [+-]\d+")
CONVERTING = ("core.autocrlf", "core.eol", "core.filemode", "core.ignorecase", "core.precomposeunicode")
"""A person's settings that decide how files become objects, and start nothing."""


PERSONS = (*ASKS, "clone", "checkout", "check-attr", "ls-files")


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting of git: its ``scope`` and ``name`` as git prints them, and the ``file`` that contains it: absolute,
    relative to the top of the work tree, or empty if it is in none."""

    scope: str
    file: str
    name: str
    value: str


@dataclass(frozen=True, slots=True)
class Repository:
    """The facts of a person's repository, read before using it. ``prefix`` is the workspace's path in it."""

    top: Path
    prefix: Path
    git_dir: Path
    common: Path
    """The directory that all its work trees share. It contains the hooks and the configuration."""
    objects: Path
    index: Path
    object_format: str
    head: str
    """The commit that is checked out."""
    onto: str
    """The ref of the branch that is checked out; HEAD for none."""
    configuration: tuple[Setting, ...]
    """All settings that the person's git uses here. Of settings with the same name the last one counts."""
    settings: Mapping[str, str]
    """The settings among ``CONVERTING``."""
    sparse: bool
    excluded: bytes
    """The patterns of files that are never committed, in addition to those in the tree."""
    shallow: bytes
    """The commits whose parents are missing, in git's file format."""

    @property
    def filters(self) -> tuple[str, ...]:
        """The names of the filters that files pass on their way into the repository."""
        names = [setting.name for setting in self.configuration if setting.name.startswith("filter.")]
        return tuple(dict.fromkeys(name[len("filter.") :].rpartition(".")[0] for name in names))


class Git:
    """A runner of git with the person's ``environ``. Methods block.

    It runs no git from one of the ``written`` directories, or from another where agents leave programs. These
    directories, absolute and without links, are opened as they were when first seen; a replacement is refused. Methods
    raise WorkspaceUnusable with git's message if git fails, and OSError if the disk is full.
    """

    def __init__(
        self,
        environ: Mapping[str, str],
        *,
        written: Sequence[str] = (),
        of_agents: Bounds = OF_AGENTS,
        comparing: Bounds = COMPARING,
    ) -> None:
        self._written = tuple(written)
        self._identities: dict[Path, tuple[int, int] | None] = dict.fromkeys(map(Path, written))
        """The identities of ``written`` and of the work trees that contain them; None: not seen yet."""
        self._repositories: dict[Path, tuple[int, int]] = {}
        """The identities of the ``.git`` directory of each."""
        self._of_agents = of_agents
        self.comparing = comparing
        kept = {name: value for name, value in environ.items() if not name.startswith("GIT_")}
        people = {name: value for name, value in environ.items() if name.startswith(("GIT_AUTHOR_", "GIT_COMMITTER_"))}
        self._person = {**kept, **people, **ALWAYS} | {
            name: environ[name] for name in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM") if name in environ
        }
        self._private = {**kept, **ALWAYS, **NO_SYSTEM_CONFIG}

    @property
    def home(self) -> str:
        """The person's home directory."""
        return self._person.get("HOME") or os.path.expanduser("~")

    def expanded(self, path: str) -> str:
        """Expand a path in a configuration as git does."""
        path = path.removeprefix(":(optional)")
        if path.startswith("~/"):
            return os.path.join(self.home, path[2:])
        return os.path.expanduser(path) if path.startswith("~") else path

    def person(self, directory: Path, *words: str, stdin: bytes = b"", allowed: Sequence[int] = (0,)) -> str:
        """Run one of the few commands that start no program of a configuration, or make a clone. Returns its output."""
        assert words[0] in PERSONS
        with self._pinned(directory) as at:
            bounds = ASKING if words[0] in ASKS else PERSONS_OWN
            code, output, errors = self._run(words, at, self._person, bounds, stdin)
        if code not in allowed:
            raise unusable(words[0], directory, errors or output.decode(errors="replace"), code)
        return output.decode(errors="surrogateescape").removesuffix("\n")

    def private(
        self,
        repository: PrivateRepository,
        *words: str,
        stdin: bytes | IO[bytes] = b"",
        work_tree: Path | None = None,
        variables: Mapping[str, str] | None = None,
        output: IO[bytes] | None = None,
    ) -> bytes:
        """Run any command in a private repository, and return its output."""
        code, answer, errors = self.outcome(
            repository, *words, stdin=stdin, work_tree=work_tree, variables=variables, output=output
        )
        if code:
            raise unusable(words[0], repository.path, errors, code)
        return answer

    def outcome(
        self,
        repository: PrivateRepository,
        *words: str,
        stdin: bytes | IO[bytes] = b"",
        work_tree: Path | None = None,
        variables: Mapping[str, str] | None = None,
        output: IO[bytes] | None = None,
    ) -> tuple[int, bytes, str]:
        """Run a command as ``private`` does, and return its exit code, output and errors."""
        environ = {**self._private, **(variables or {}), "GIT_DIR": str(repository.path)}
        if work_tree:
            environ["GIT_WORK_TREE"] = str(work_tree)
        bounds = self.comparing if words[0] in COMPARES else self._of_agents
        code, answer, errors = self._run(words, work_tree or repository.path, environ, bounds, stdin, output)
        if code and OUT_OF_MEMORY.search(errors):
            raise WorkRefused(
                f"git {words[0]} needs more than {bounds.memory_bytes} bytes of memory for the agent's work",
                suggestion="git count-objects -vH shows its size; commit again without the large files",
            )
        return code, answer, errors

    def files(self, repository: PrivateRepository, directory: Path, commit: str, paths: Sequence[str]) -> Path:
        """Check out files of a commit, except for filters, in a new directory."""
        directory.mkdir()
        if paths:
            index = {"GIT_INDEX_FILE": str(directory.with_suffix(".index"))}
            self.private(repository, "read-tree", commit, variables=index)
            stdin = b"".join(path.encode(errors="surrogateescape") + b"\0" for path in paths)
            words = ("checkout-index", "-q", "-z", "--stdin")
            self.private(repository, *words, stdin=stdin, variables=index, work_tree=directory)
        return directory

    def repository(self, directory: Path) -> Repository:
        """Return the facts of the repository that contains ``directory``, which must have a commit."""
        words = ("--show-toplevel", "--absolute-git-dir", "--show-object-format", "--git-common-dir")
        inner = [word for name in ("objects", "index", "info/exclude", "shallow") for word in ("--git-path", name)]
        answer = self.person(directory, "rev-parse", *words, *inner, *CHECKED_OUT).split("\n")
        if len(answer) != len(words) + len(inner) // 2 + 3:
            raise WorkspaceUnusable(
                f"{str(directory)!r} cannot be cloned: its path contains a line break",
                suggestion="rename the directory, or use workspace = 'shared'",
            )
        top, git_dir, object_format, common = answer[: len(words)]
        *names, head, onto, _ = answer[len(words) :]
        below = self._path_within(Path(top), directory, Path(git_dir))
        objects, index, exclude, shallow = (directory / name for name in names)
        if objects.is_symlink():
            raise WorkspaceUnusable(
                f"{objects} is a symbolic link",
                suggestion="replace it with the objects themselves, as in a fresh git clone",
            )
        configuration = self._configuration(Path(top))
        known = {setting.name: setting.value.partition("\n")[0] for setting in configuration}
        return Repository(
            Path(top),
            below,
            Path(git_dir),
            directory / common,
            objects.resolve(),
            index,
            object_format,
            head,
            onto,
            configuration,
            {name: known[name] for name in CONVERTING if name in known},
            known.get("core.sparsecheckout") == "true",
            self._read_excludes(known.get("core.excludesfile", ""), exclude),
            shallow.read_bytes() if shallow.is_file() else b"",
        )

    def refs(self, directory: Path, wanted: Mapping[str, str]) -> None:
        """Set all refs to their commits, or none. An empty commit deletes the ref, which need not exist."""
        lines = (f"update {ref} {commit}\n" if commit else f"delete {ref}\n" for ref, commit in wanted.items())
        self.person(directory, "update-ref", "--stdin", stdin="".join(lines).encode())

    def through_filters(
        self, repository: PrivateRepository, commit: str, paths: Iterable[str], drivers: Collection[str]
    ) -> dict[str, str]:
        """Return those of ``paths`` that ``commit`` sends through one of ``drivers``, with its name."""
        stdin = b"".join(os.fsencode(path) + b"\0" for path in paths)
        if not drivers or not stdin:
            return {}
        index = {"GIT_INDEX_FILE": str(repository.path / "attributes.index")}
        self.private(repository, "read-tree", commit, variables=index)
        words = ("check-attr", "--cached", "-z", "--stdin", "filter")
        said = self.private(repository, *words, stdin=stdin, variables=index)
        fields = said.decode(errors="surrogateescape").split("\0")
        return {path: name for path, name in zip(fields[::3], fields[2::3], strict=False) if name in drivers}

    def identity(self, directory: Path, configuration: Iterable[Setting]) -> dict[str, str]:
        """Return the identity of commits as git's variables. Raises Conflict if git has none. ``configuration`` is the
        repository's: git is only asked for what it does not name."""
        settings = {setting.name: setting.value for setting in configuration}
        found: dict[str, str] = {}
        for who in ("AUTHOR", "COMMITTER"):
            named = {
                variable: self._person.get(
                    variable, settings.get(f"{who}.{what}".lower(), settings.get(f"user.{what}"))
                )
                for what in ("name", "email")
                if (variable := f"GIT_{who}_{what.upper()}")
            }
            if all(value and value[0].isalnum() for value in named.values()):
                found |= {variable: value for variable, value in named.items() if value}
                continue
            said = self.person(directory, "var", f"GIT_{who}_IDENT", allowed=(0, 128))
            if not (known := IDENTITY.fullmatch(said)):
                raise Conflict(
                    f"git has no author for commits in {directory}",
                    suggestion='git config --global user.name "…", and user.email "…"; then ccswarm resume',
                )
            found |= {f"GIT_{who}_NAME": known["name"], f"GIT_{who}_EMAIL": known["email"]}
        return found

    def _configuration(self, top: Path) -> tuple[Setting, ...]:
        """Return the settings, except for those on ccswarm's own command lines."""
        words = ("config", "-z", "--show-scope", "--show-origin", "--list", "--includes")
        fields = self.person(top, *words).split("\0")
        found: list[Setting] = []
        for scope, origin, entry in zip(fields[::3], fields[1::3], fields[2::3], strict=False):
            kind, _, file = origin.partition(":")
            name, _, value = entry.partition("\n")
            if scope != "command":
                found.append(Setting(scope, file if kind == "file" else "", name, value))
        return tuple(found)

    @contextmanager
    def _pinned(self, directory: Path) -> Generator[Path]:
        if directory not in self._identities:
            yield directory
            return
        try:
            with pinned_path(directory) as name:
                self._require_same(directory, os.stat(name))
                yield Path(name)
        except OSError as error:
            raise WorkspaceUnusable(
                f"{directory} cannot be entered without following a link ({error.strerror})",
                suggestion="check who replaced it, and make it a directory again",
            ) from None

    def _path_within(self, top: Path, directory: Path, git_dir: Path) -> Path:
        """Return the path of ``directory`` within the files of its repository, ``top``. Raises WorkspaceUnusable if
        settings move these elsewhere, or if the repository was replaced."""
        real = directory.resolve()
        if top != next((one for one in (real, *real.parents) if os.path.lexists(one / ".git")), None):
            raise WorkspaceUnusable(
                f"the repository of {directory} has its files in {top}, according to core.worktree",
                suggestion="start ccswarm where the .git of these files is, or use workspace = 'shared'",
            )
        if directory in self._identities:
            self._identities.setdefault(top, None)
            inside = _identity(os.stat(git_dir)) if git_dir.is_dir() else (0, 0)
            if self._repositories.setdefault(directory, inside) != inside:
                raise _replaced_directory(git_dir)
        return real.relative_to(top)

    def _require_same(self, path: Path, info: os.stat_result) -> None:
        if self._identities[path] not in (None, _identity(info)):
            raise _replaced_directory(path)
        self._identities[path] = _identity(info)

    def _read_excludes(self, named: str, own: Path) -> bytes:
        home = self._person.get("XDG_CONFIG_HOME") or str(Path(self._person.get("HOME", "/"), ".config"))
        found = b""
        for path in (Path(self.expanded(named) or f"{home}/git/ignore"), own):
            with suppress(OSError):
                found += path.read_bytes() + b"\n"
        return found

    def _run(
        self,
        words: Sequence[str],
        directory: Path,
        environ: Mapping[str, str],
        bounds: Bounds,
        stdin: bytes | IO[bytes] = b"",
        output: IO[bytes] | None = None,
    ) -> tuple[int, bytes, str]:
        with _temporary_file() as said, _file_of(stdin) as given:
            try:
                code, answer = run(
                    ("git", *QUIET, *words),
                    directory,
                    program_path.environment(environ, self._written),
                    bounds,
                    stdin=given,
                    stderr=said,
                    stdout=output,
                )
            except OSError as error:
                raise WorkspaceUnusable(
                    f"git cannot be run in {directory}: {error.strerror}",
                    suggestion="install git, or use workspace = 'shared'",
                ) from None
            except OutOfBounds as out:
                raise _too_much(words[0], out) from None
            except CallerCancelled:
                raise WorkspaceUnusable(
                    f"git {words[0]} in {directory} was ended together with its task", suggestion="do it again"
                ) from None
            said.seek(0)
            complaint = said.read(MOST_SAID).decode(errors="replace").strip("\n")
            if code and DISK_IS_FULL.search(complaint):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(directory))
            return code, answer, complaint


class PrivateRepository:
    """A private git directory at ``path``, mode 0700, with ``head`` checked out. It has the objects of a person's
    repository, but none of its configuration, hooks and attributes. New objects are stored in it, or with ``writing``
    in the person's repository."""

    def __init__(self, path: Path, repository: Repository, head: str, *, writing: bool = False) -> None:
        self.path = path
        self.object_format = repository.object_format
        self.keeps_modes = repository.settings.get("core.filemode") != "false"
        self.converts = (
            repository.settings.get("core.autocrlf", "false").casefold() not in ("", "false", "input")
            or repository.settings.get("core.eol", "").casefold() == "crlf"
        )
        """Whether any file may be converted on checkout, whatever the attributes are."""
        path.mkdir(mode=0o700)
        (path / "refs").mkdir()
        (path / "info").mkdir()
        (path / "info/exclude").write_bytes(repository.excluded)
        (path / "HEAD").write_text(head + "\n")
        if repository.shallow:
            (path / "shallow").write_bytes(repository.shallow)
        self.objects = path / "objects"
        if writing:
            self.objects.symlink_to(repository.objects)
            kept: list[str] = []
        else:
            # A crash makes it useless in any case, and waiting for the disk with each object takes minutes.
            kept = ["fsync = none"]
            (self.objects / "info").mkdir(parents=True)
            (self.objects / "pack").mkdir()
            (self.objects / "info/alternates").write_bytes(_alternate(repository.objects))
        lines = [
            "[core]",
            "repositoryFormatVersion = 1",
            "bare = false",
            "logAllRefUpdates = false",
            "splitIndex = false",
            f"bigFileThreshold = {LARGE_FILE}",
            *kept,
        ]
        lines += [f"{name.removeprefix('core.')} = {value}" for name, value in repository.settings.items()]
        lines += ["[extensions]", f"objectFormat = {repository.object_format}"]
        (path / "config").write_text("\n".join(lines) + "\n")


def _temporary_file() -> IO[bytes]:
    """Return a temporary file, in memory if no disk has space."""
    try:
        return TemporaryFile()
    except OSError:
        if not sys.platform == "linux":
            raise
        return open(os.memfd_create("ccswarm"), "w+b")


def _file_of(data: bytes | IO[bytes]) -> AbstractContextManager[IO[bytes]]:
    """Return a file to read ``data`` from. Closes it only if it is a new one."""
    if not isinstance(data, bytes):
        return nullcontext(data)
    if not data:
        return open(os.devnull, "rb")
    file = _temporary_file()
    file.write(data)
    file.seek(0)
    return file


def _alternate(objects: Path) -> bytes:
    path = os.fsencode(objects)
    quoted = path.replace(b"\\", b"\\\\").replace(b'"', b'\\"')
    return b'"%s"\n' % quoted


def _identity(info: os.stat_result) -> tuple[int, int]:
    return info.st_dev, info.st_ino


def _replaced_directory(path: Path) -> WorkspaceUnusable:
    return WorkspaceUnusable(
        f"{path} has been replaced by another directory",
        suggestion="check who replaced it; if it was you, restart ccswarm to continue with the new one",
    )


def unusable(command: str, directory: Path, said: str, code: int) -> WorkspaceUnusable:
    """Return the error for a git command that failed."""
    return WorkspaceUnusable(
        f"git {command} in {directory}: {said or f'exit code {code}'}",
        suggestion="the workspace must be a git repository with a commit; or set workspace = 'shared'",
    )


def _too_much(command: str, out: OutOfBounds) -> WorkRefused:
    if command in COMPARES:
        return WorkRefused(
            f"git cannot evaluate the .gitignore and .gitattributes files: {command} {out}",
            suggestion="use fewer * in their patterns",
        )
    return WorkRefused(
        f"the tree contains too many or too large files: {command} {out}",
        suggestion="git log --stat shows where they come from; commit again without them",
    )
