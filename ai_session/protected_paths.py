"""What of a workspace a box must not change, move or read: git's own, agents' and editors' settings, secrets.

Such files are later read by programs outside of the box: git, editors, shells, other agents.
"""

from __future__ import annotations

import fnmatch
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ai_session import repositories
from ai_session.directory_memory import DirectoryMemory
from ai_session.errors import SandboxRefused
from ai_session.repositories import Repositories

DIRECTORIES = (
    *(".claude", ".codex", ".cursor", ".gemini", ".agents", ".ai-session", ".vscode", ".idea", ".husky"),
    ".devcontainer",
)
FILES = (
    *(".gitmodules", ".mcp.json", ".envrc", ".npmrc", ".pre-commit-config.yaml", ".gitconfig", ".ripgreprc"),
    *(".bashrc", ".bash_profile", ".zshrc", ".profile"),
)
"""At the top of the workspace and of each repository."""

MOST = 240
"""Protected paths of one box; bubblewrap takes 30 ms for 100 mounts, 140 ms for 300 and 1.8 s for 1,200."""
EACH = 6
"""Of them, in an ordinary repository."""

SYSTEM_DEPTH, SYSTEM_DIRECTORIES = 20, 10_000


@dataclass(frozen=True, slots=True)
class Placeholder:
    """Something absent that is put there for a box's life: an empty directory, or a file with this content."""

    path: str
    content: bytes | None = None


@dataclass(frozen=True, slots=True)
class Protection:
    """``read_only`` exist and are no links; ``pins`` are the directories on the way to them, which must not be moved
    away; ``masked`` are to be found empty. ``complete`` unless the workspace was too large to be walked whole."""

    read_only: tuple[str, ...] = ()
    pins: tuple[str, ...] = ()
    masked: tuple[str, ...] = ()
    placeholders: tuple[Placeholder, ...] = ()
    complete: bool = True


def survey(
    root: str, home: str, known: Repositories, *, masked: Sequence[str] = (), made: Sequence[str] = DIRECTORIES
) -> Protection:
    """What is to be protected below ``root``; directories ``made`` also where they are absent.

    Raises SandboxRefused where it cannot be done.
    """
    found = known.below(root)
    read_only: dict[str, None] = {}
    placeholders: dict[str, Placeholder] = {}
    for path in (f"{root}/{name}" for name in made):
        if not os.path.lexists(path):
            placeholders[path] = Placeholder(path)
    for top in dict.fromkeys((root, *map(os.path.dirname, found.git))):
        read_only |= dict.fromkeys(f"{top}/{n}" for n in (*DIRECTORIES, *FILES) if os.path.lexists(f"{top}/{n}"))
    for place, git in enumerate(found.git):
        fine = len(read_only) + len(placeholders) + EACH + len(found.git) - place <= MOST
        if not fine and git != root:
            # No commits there, in exchange for one mount instead of six.
            read_only[git] = None
            continue
        named = [path for path in repositories.named_by_config(git, home) if _below(path, root)]
        read_only |= dict.fromkeys((*repositories.deciding(git), *filter(os.path.lexists, named)))
        for path, content in repositories.absent(git):
            placeholders[path] = Placeholder(path, content)
    hidden = tuple(_masked(root, masked))
    paths = tuple(path for path in read_only if path not in hidden)
    for path in (*paths, *placeholders):
        _refuse_link(path, root)
    everything = (*paths, *placeholders, *hidden)
    pins = dict.fromkeys(pin for path in everything for pin in _between(root, path))
    if len(everything) + len(pins) > 2 * MOST:
        raise SandboxRefused(
            f"{root!r} holds {len(found.git)} repositories, more than can be protected",
            suggestion="choose the directory of one project as the workspace",
        )
    return Protection(paths, tuple(pins), hidden, tuple(placeholders.values()), found.complete)


def secrets(root: str, masked: Sequence[str]) -> Protection:
    """What a box finds empty below ``root`` where it can change nothing anyway."""
    return Protection(masked=tuple(_masked(root, masked)))


def _masked(root: str, patterns: Sequence[str]) -> Iterator[str]:
    """A link is masked where it leads to, if that can be seen inside."""
    try:
        names = sorted(os.listdir(root))
    except OSError:
        return
    for name in names:
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns):
            path = os.path.realpath(f"{root}/{name}")
            if _below(path, root) and os.path.exists(path):
                yield path


def _between(root: str, path: str) -> Iterator[str]:
    """Directories above ``path`` and below ``root``."""
    directory = os.path.dirname(path)
    while _below(directory, root):
        yield directory
        directory = os.path.dirname(directory)


def _below(path: str, root: str) -> bool:
    return path.startswith(root.rstrip("/") + "/")


def _refuse_link(path: str, root: str) -> None:
    """A mount follows links: what is bound would be somewhere else than what is protected."""
    for part in (path, *_between(root, path)):
        if os.path.islink(part):
            raise SandboxRefused(
                f"{part!r} is a symbolic link, so that {path!r} cannot be protected",
                suggestion="replace the link by what it leads to, or choose another workspace",
            )
    if os.path.lexists(path) and stat.S_IFMT(os.lstat(path).st_mode) not in (stat.S_IFREG, stat.S_IFDIR):
        raise SandboxRefused(
            f"{path!r} is neither a file nor a directory and cannot be protected", suggestion="remove it"
        )


class ClosedFiles:
    """What lies under system directories, is closed to other users, but could be read by this one.

    For root, whose own these files are, no permission would stand in the way inside a box. May be used by several
    threads.
    """

    def __init__(self, tops: Sequence[str] = ("/etc", "/opt")) -> None:
        self._tops = tops
        self._memory = DirectoryMemory(_closed, depth=SYSTEM_DEPTH, most=SYSTEM_DIRECTORIES)

    def find(self) -> tuple[list[str], list[str]]:
        """Such files and directories, and those of the tops that are too large to be looked through."""
        found: list[str] = []
        unknown: list[str] = []
        for top in self._tops:
            facts, complete = self._memory.walk(top)
            if complete:
                found += [path for paths in facts for path in paths]
            else:
                unknown.append(top)
        return found, unknown


def _closed(entries: Iterable[os.DirEntry[str]], path: str) -> tuple[list[str], tuple[str, ...]]:
    del path
    own = {os.getegid(), *os.getgroups()}
    inner: list[str] = []
    found: list[str] = []
    for entry in entries:
        if entry.is_symlink():
            continue
        folder = entry.is_dir(follow_symlinks=False)
        info = entry.stat(follow_symlinks=False)
        needed = 0o005 if folder else 0o004
        if info.st_mode & needed == needed:
            if folder:
                inner.append(entry.name)
        elif os.geteuid() in (0, info.st_uid) or info.st_gid in own:
            found.append(entry.path)
    return inner, tuple(found)
