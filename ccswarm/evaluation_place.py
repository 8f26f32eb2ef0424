"""Where a case is worked on: a repository made anew for each try, and files put into it that nobody can lead astray."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from ccswarm.errors import WorkspaceUnusable
from ccswarm.evaluation import Case

WHEN = "2024-01-01T12:00:00Z"
"""All commits of a case are made then, so that they are called the same in every try."""

SETUP_SECONDS = 60.0
SHOWN_CHARS = 1000
NAME, EMAIL = "A Person", "person@example.org"
"""Whose all commits are, the agents' as well."""


class Place:
    """A directory that stays, and whose content is replaced. Its methods block."""

    def __init__(self, directory: Path, environ: Mapping[str, str]) -> None:
        self.directory = directory
        directory.mkdir(mode=0o700)
        self._environ = {
            **{name: environ[name] for name in ("PATH", "TMPDIR") if name in environ},
            "GIT_AUTHOR_DATE": WHEN,
            "GIT_COMMITTER_DATE": WHEN,
            "HOME": str(directory),
            "LC_ALL": "C.UTF-8",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_TERMINAL_PROMPT": "0",
        }

    def fill(self, case: Case, beside: Path) -> None:
        """What the case begins with; ``beside`` is where its fixture is. Raises WorkspaceUnusable with the words of
        the command that failed."""
        self.clear()
        if case.fixture:
            shutil.copytree(beside / case.fixture, self.directory, symlinks=True, dirs_exist_ok=True)
        self.put(case.files)
        self._run(("git", "-c", "init.defaultBranch=main", "init", "-q"))
        with (self.directory / ".git/config").open("a") as config:
            config.write(f"[user]\n\tname = {NAME}\n\temail = {EMAIL}\n")
        self._run(("git", "add", "--all"))
        self._run(("git", "commit", "-q", "--allow-empty", "-m", "Begin"))
        for command in case.setup:
            self._run(("sh", "-e", "-c", command))

    def put(self, files: Mapping[str, str]) -> None:
        """Write files whatever is there: links are replaced and never followed, what else is in the way is removed.
        Raises WorkspaceUnusable, OSError."""
        for name, content in files.items():
            path = self.directory / name
            at = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY)
            try:
                for folder in [*path.relative_to(self.directory).parents][-2::-1]:
                    inner = _folder(at, self.directory / folder)
                    os.close(at)
                    at = inner
                _remove(at, path)
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
                with os.fdopen(os.open(path.name, flags, 0o644, dir_fd=at), "w", encoding="utf-8") as file:
                    file.write(content)
            finally:
                os.close(at)

    def clear(self) -> None:
        """Everything out; the directory stays. Raises WorkspaceUnusable where something cannot be removed."""
        for entry in os.scandir(self.directory):
            if entry.is_dir(follow_symlinks=False):
                remove_tree(entry.path)
            else:
                Path(entry.path).unlink(missing_ok=True)

    def keep(self, target: Path) -> None:
        """Move what is there to ``target``."""
        target.mkdir(parents=True)
        for entry in os.scandir(self.directory):
            with suppress(FileNotFoundError):
                if entry.is_dir(follow_symlinks=False):
                    os.chmod(entry.path, 0o700)  # else it could not be moved
                os.rename(entry.path, target / entry.name)

    def _run(self, words: Sequence[str]) -> None:
        try:
            done = subprocess.run(
                words,
                cwd=self.directory,
                env=self._environ,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=SETUP_SECONDS,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise WorkspaceUnusable(f"{words[-1]}: {error}", suggestion="mend the setup of the case") from None
        if done.returncode:
            said = done.stdout.decode(errors="replace")[-SHOWN_CHARS:].strip()
            raise WorkspaceUnusable(
                f"{words[-1]}: exit code {done.returncode}: {said}", suggestion="mend the setup of the case"
            )


def remove_tree(path: str | Path) -> None:
    """A directory with all that is in it, however deep it is and whatever an agent closed. Raises WorkspaceUnusable."""
    try:
        shutil.rmtree(path)
    except (OSError, RecursionError):
        subprocess.run(("chmod", "-R", "u+rwX", "--", path), capture_output=True)
        done = subprocess.run(("rm", "-rf", "--", path), capture_output=True)
        if done.returncode:
            said = done.stderr.decode(errors="replace")[-SHOWN_CHARS:].strip()
            raise WorkspaceUnusable(f"{path} cannot be removed: {said}", suggestion="remove it by hand") from None


def _folder(at: int, path: Path) -> int:
    """Opened, below the directory ``at``; made where it is not there or is something else."""
    try:
        return os.open(path.name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=at)
    except OSError:
        _remove(at, path)
        os.mkdir(path.name, dir_fd=at)
        return os.open(path.name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=at)


def _remove(at: int, path: Path) -> None:
    try:
        os.unlink(path.name, dir_fd=at)
    except FileNotFoundError:
        return
    except (IsADirectoryError, PermissionError):
        remove_tree(path)
