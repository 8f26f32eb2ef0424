"""git, run so that nothing but its caller decides what it does.

A repository's configuration names programs that git runs: hooks, filters, merge and diff drivers, file system monitors.
So the only commands that ever meet a configuration are those in ``Git.person``, which start none of these programs.
Everything that looks into trees or objects runs in a ``PrivateRepository``: a directory of ours with a configuration of
ours over somebody's objects.
"""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
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
"""Of a command that reads nothing of an agent's: a clone of a repository of any size."""
ASKS = ("config", "rev-parse", "update-ref", "var")
"""Commands that read or write some lines, whatever the size of the repository."""
ASKING = Bounds(seconds=600)
OF_AGENTS = Bounds(seconds=1800, cpu_seconds=600, memory_bytes=MOST_MEMORY)
"""Of a command on what an agent made. A tree of some hundred bytes may stand for billions of files."""
COMPARING = Bounds(seconds=300, cpu_seconds=60, memory_bytes=MOST_MEMORY)
"""Of one that compares names with an agent's patterns: seconds for a million names, and for ever for one of some."""
COMPARES = ("check-ignore", "check-attr")
OUT_OF_MEMORY = re.compile(r"out of memory|cannot allocate memory|mmap failed", re.IGNORECASE)

DISK_IS_FULL = re.compile(r"no space left|out of diskspace|disk quota exceeded", re.IGNORECASE)

NOTHING_OF_OTHERS = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull, "GIT_ATTR_NOSYSTEM": "1"}
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
"""What ``rev-parse`` is asked for three lines about it: the commit, the ref of its branch (HEAD where it is none), and
``--``, which says that all of them are no files."""
MOST_SAID = 1 << 16
LARGE_FILE = "32m"
"""From this size on git passes files through instead of holding them, with others, in memory."""
IDENTITY = re.compile(r"(?P<name>.*) <(?P<email>.*)> \d+ [+-]\d+")
CONVERTING = ("core.autocrlf", "core.eol", "core.filemode", "core.ignorecase", "core.precomposeunicode")
"""Settings of a person's that decide how files become objects, and start nothing."""


PERSONS = (*ASKS, "clone", "checkout", "check-attr", "ls-files")


@dataclass(frozen=True, slots=True)
class Repository:
    """A person's: what of it is known before anything of it is used. ``prefix`` is where in it the workspace lies."""

    top: Path
    prefix: Path
    git_dir: Path
    objects: Path
    index: Path
    object_format: str
    head: str
    """The commit that is checked out."""
    onto: str
    """The ref of the branch that is checked out; HEAD where it is none."""
    settings: Mapping[str, str]
    sparse: bool
    excluded: bytes
    """Patterns of files that are never committed, beside those of the tree."""
    shallow: bytes
    """Commits whose parents are not there, as git writes them down."""


class Git:
    """``environ`` is the person's; no git is run that lies in one of the ``written`` directories, or in another place
    where agents leave programs. These directories, absolute and without links, are entered as they were when they were
    first seen: what somebody puts in their place is refused. Methods block. All raise WorkspaceUnusable with git's own
    words when git fails, OSError where it says that the disk is full."""

    def __init__(
        self,
        environ: Mapping[str, str],
        *,
        written: Sequence[str] = (),
        of_agents: Bounds = OF_AGENTS,
        comparing: Bounds = COMPARING,
    ) -> None:
        self._written = tuple(written)
        self._known: dict[Path, tuple[int, int] | None] = dict.fromkeys(map(Path, written))
        """Identities of ``written`` and of the work trees that these lie in; None: not seen yet."""
        self._repositories: dict[Path, tuple[int, int]] = {}
        """Those of the ``.git`` that each leads to."""
        self._of_agents = of_agents
        self.comparing = comparing
        kept = {name: value for name, value in environ.items() if not name.startswith("GIT_")}
        people = {name: value for name, value in environ.items() if name.startswith(("GIT_AUTHOR_", "GIT_COMMITTER_"))}
        self._person = {**kept, **people, **ALWAYS} | {
            name: environ[name] for name in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM") if name in environ
        }
        self._private = {**kept, **ALWAYS, **NOTHING_OF_OTHERS}

    @property
    def home(self) -> str:
        """The person's directory."""
        return self._person.get("HOME") or os.path.expanduser("~")

    def person(self, directory: Path, *words: str, stdin: bytes = b"", allowed: Sequence[int] = (0,)) -> str:
        """For those few commands that start no program of a configuration, and for making a clone."""
        assert words[0] in PERSONS
        with self._entered(directory) as at:
            bounds = ASKING if words[0] in ASKS else PERSONS_OWN
            code, output, said = self._run(words, at, self._person, bounds, stdin)
        if code not in allowed:
            raise unusable(words[0], directory, said or output.decode(errors="replace"), code)
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
        """Any command, in a repository of ours."""
        code, answer, said = self.outcome(
            repository, *words, stdin=stdin, work_tree=work_tree, variables=variables, output=output
        )
        if code:
            raise unusable(words[0], repository.path, said, code)
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
        """The same for a command whose exit code means something: that, its answer, its complaint."""
        environ = {**self._private, **(variables or {}), "GIT_DIR": str(repository.path)}
        if work_tree:
            environ["GIT_WORK_TREE"] = str(work_tree)
        bounds = self.comparing if words[0] in COMPARES else self._of_agents
        code, answer, said = self._run(words, work_tree or repository.path, environ, bounds, stdin, output)
        if code and OUT_OF_MEMORY.search(said):
            raise WorkRefused(
                f"git {words[0]} needs more than {bounds.memory_bytes} bytes of memory for the agent's work",
                suggestion="git count-objects -vH shows its size; commit again without the large files",
            )
        return code, answer, said

    def files(self, repository: PrivateRepository, directory: Path, commit: str, paths: Sequence[str]) -> Path:
        """Files of a commit as they are checked out, but for filters, in a new directory."""
        directory.mkdir()
        if paths:
            index = {"GIT_INDEX_FILE": str(directory.with_suffix(".index"))}
            self.private(repository, "read-tree", commit, variables=index)
            given = b"".join(path.encode(errors="surrogateescape") + b"\0" for path in paths)
            words = ("checkout-index", "-q", "-z", "--stdin")
            self.private(repository, *words, stdin=given, variables=index, work_tree=directory)
        return directory

    def repository(self, directory: Path) -> Repository:
        """The one that ``directory`` lies in, which must have a commit."""
        asked = ("--show-toplevel", "--absolute-git-dir", "--show-object-format")
        inner = [word for name in ("objects", "index", "info/exclude", "shallow") for word in ("--git-path", name)]
        answer = self.person(directory, "rev-parse", *asked, *inner, *CHECKED_OUT).split("\n")
        if len(answer) != len(asked) + len(inner) // 2 + 3:
            raise WorkspaceUnusable(
                f"{str(directory)!r} cannot be cloned: its path contains a line break",
                suggestion="rename the directory, or use workspace = 'shared'",
            )
        top, git_dir, object_format = answer[: len(asked)]
        *names, head, onto, _ = answer[len(asked) :]
        self._check(directory, Path(top), Path(git_dir))
        objects, index, exclude, shallow = (directory / name for name in names)
        if objects.is_symlink():
            raise WorkspaceUnusable(
                f"{objects} is a symbolic link",
                suggestion="replace it by the objects themselves, as in a fresh git clone",
            )
        said = self.person(directory, "config", "--type=path", "--get-regexp", r"^core\.[a-z]+$", allowed=(0, 1))
        known: dict[str, str] = {}
        for line in said.splitlines():
            name, _, known[name] = line.partition(" ")
        return Repository(
            Path(top),
            directory.resolve().relative_to(Path(top).resolve()),
            Path(git_dir),
            objects.resolve(),
            index,
            object_format,
            head,
            onto,
            {name: known[name] for name in CONVERTING if name in known},
            known.get("core.sparsecheckout") == "true",
            self._excluded(known.get("core.excludesfile", ""), exclude),
            shallow.read_bytes() if shallow.is_file() else b"",
        )

    def refs(self, directory: Path, wanted: Mapping[str, str]) -> None:
        """Set all of them, each to its commit, or none; where that is empty, the ref goes, which need not be there."""
        lines = (f"update {ref} {commit}\n" if commit else f"delete {ref}\n" for ref, commit in wanted.items())
        self.person(directory, "update-ref", "--stdin", stdin="".join(lines).encode())

    def filters(self, directory: Path) -> tuple[str, ...]:
        """Programs that files go through on their way into the repository, by name."""
        said = self.person(directory, "config", "--name-only", "--get-regexp", r"^filter\.", allowed=(0, 1))
        return tuple(dict.fromkeys(line[len("filter.") :].rpartition(".")[0] for line in said.splitlines()))

    def through_filters(
        self, repository: PrivateRepository, commit: str, paths: Iterable[str], drivers: Collection[str]
    ) -> dict[str, str]:
        """Which of ``paths`` go through one of ``drivers``, as the attributes of ``commit`` say."""
        given = b"".join(os.fsencode(path) + b"\0" for path in paths)
        if not drivers or not given:
            return {}
        index = {"GIT_INDEX_FILE": str(repository.path / "attributes.index")}
        self.private(repository, "read-tree", commit, variables=index)
        words = ("check-attr", "--cached", "-z", "--stdin", "filter")
        said = self.private(repository, *words, stdin=given, variables=index)
        fields = said.decode(errors="surrogateescape").split("\0")
        return {path: name for path, name in zip(fields[::3], fields[2::3], strict=False) if name in drivers}

    def identity(self, directory: Path) -> dict[str, str]:
        """Who commits, as git's own variables. Raises Conflict where git does not know."""
        found: dict[str, str] = {}
        for who in ("AUTHOR", "COMMITTER"):
            said = self.person(directory, "var", f"GIT_{who}_IDENT", allowed=(0, 128))
            if not (known := IDENTITY.fullmatch(said)):
                raise Conflict(
                    f"git does not know who commits in {directory}",
                    suggestion='git config --global user.name "…", and user.email "…"; then ccswarm resume',
                )
            found |= {f"GIT_{who}_NAME": known["name"], f"GIT_{who}_EMAIL": known["email"]}
        return found

    @contextmanager
    def _entered(self, directory: Path) -> Generator[Path]:
        if directory not in self._known:
            yield directory
            return
        try:
            with pinned_path(directory) as name:
                self._recognize(directory, os.stat(name))
                yield Path(name)
        except OSError as error:
            raise WorkspaceUnusable(
                f"{directory} cannot be entered without following a link ({error.strerror})",
                suggestion="check who replaced it, and make it a directory again",
            ) from None

    def _check(self, directory: Path, top: Path, git_dir: Path) -> None:
        """Raises WorkspaceUnusable where settings of a repository put its files elsewhere, or it is not what it was."""
        real = directory.resolve()
        if top != next((one for one in (real, *real.parents) if os.path.lexists(one / ".git")), None):
            raise WorkspaceUnusable(
                f"the repository of {directory} has its files in {top}, according to core.worktree",
                suggestion="start ccswarm where the .git of these files is, or use workspace = 'shared'",
            )
        if directory in self._known:
            self._known.setdefault(top, None)
            inside = _identity(os.stat(git_dir)) if git_dir.is_dir() else (0, 0)
            if self._repositories.setdefault(directory, inside) != inside:
                raise _another(git_dir)

    def _recognize(self, path: Path, info: os.stat_result) -> None:
        if self._known[path] not in (None, _identity(info)):
            raise _another(path)
        self._known[path] = _identity(info)

    def _excluded(self, named: str, own: Path) -> bytes:
        home = self._person.get("XDG_CONFIG_HOME") or str(Path(self._person.get("HOME", "/"), ".config"))
        found = b""
        for path in (Path(named or f"{home}/git/ignore"), own):
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
        with _file() as said, _file() as given:
            if isinstance(stdin, bytes):
                given.write(stdin)
                given.seek(0)
            try:
                code, answer = run(
                    ("git", *QUIET, *words),
                    directory,
                    program_path.environment(environ, self._written),
                    bounds,
                    stdin=given if isinstance(stdin, bytes) else stdin,
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
    """A git directory of ours, mode 0700, at ``path``: what a person's repository has of objects is there, nothing of
    its configuration, hooks and attributes. ``head`` is checked out in it.

    New objects are kept in it, apart from the person's, or with ``writing`` go to the person's.
    """

    def __init__(self, path: Path, repository: Repository, head: str, *, writing: bool = False) -> None:
        self.path = path
        self.object_format = repository.object_format
        self.keeps_modes = repository.settings.get("core.filemode") != "false"
        self.converts = (
            repository.settings.get("core.autocrlf", "false").casefold() not in ("", "false", "input")
            or repository.settings.get("core.eol", "").casefold() == "crlf"
        )
        """Whether any file may be other bytes when it is checked out, whatever attributes say."""
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
            # It is gone after a crash in any case, and a wait for the disk with each object takes minutes.
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


def _file() -> IO[bytes]:
    """A temporary one; in memory where no disk has room for it."""
    try:
        return TemporaryFile()
    except OSError:
        if not sys.platform == "linux":
            raise
        return open(os.memfd_create("ccswarm"), "w+b")


def _alternate(objects: Path) -> bytes:
    path = os.fsencode(objects)
    quoted = path.replace(b"\\", b"\\\\").replace(b'"', b'\\"')
    return b'"%s"\n' % quoted


def _identity(info: os.stat_result) -> tuple[int, int]:
    return info.st_dev, info.st_ino


def _another(path: Path) -> WorkspaceUnusable:
    return WorkspaceUnusable(
        f"{path} has been replaced by another directory",
        suggestion="check who replaced it; if it was you, restart ccswarm to continue with the new one",
    )


def unusable(command: str, directory: Path, said: str, code: int) -> WorkspaceUnusable:
    """What git said when it failed."""
    return WorkspaceUnusable(
        f"git {command} in {directory}: {said or f'exit code {code}'}",
        suggestion="the workspace must be a git repository with a commit; or set workspace = 'shared'",
    )


def _too_much(command: str, out: OutOfBounds) -> WorkRefused:
    if command in COMPARES:
        return WorkRefused(
            f"git cannot evaluate the .gitignore and .gitattributes files: {command} {out}",
            suggestion="write their patterns with fewer stars",
        )
    return WorkRefused(
        f"the tree contains too many or too large files: {command} {out}",
        suggestion="git log --stat shows where they come from; commit again without them",
    )
