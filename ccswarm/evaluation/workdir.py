"""The directory of a case: a repository created again for each try, and files written without following links."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from agentwire.system import program_path
from ccswarm.errors import WorkspaceUnusable
from ccswarm.evaluation.suite import Case
from ccswarm.system.confined_files import SHOWN_CHARS, remove_tree, write_files

WHEN = "2024-01-01T12:00:00Z"
"""The date of all commits of a case, so that their ids are the same in every try."""

SETUP_SECONDS = 60.0
NAME, EMAIL = "A Person", "person@example.org"
"""The author of all commits, also of the agents' ones."""


class WorkDirectory:
    """A directory that stays, while its content is replaced. Its methods block."""

    def __init__(self, directory: Path, environ: Mapping[str, str]) -> None:
        self.directory = directory
        directory.mkdir(mode=0o700)
        self._git = shutil.which("git", path=program_path.environment(environ)["PATH"]) or "git"
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

    def fill(self, case: Case, suite_directory: Path) -> None:
        """Create the initial repository of the case; ``suite_directory`` contains its fixture. Raises WorkspaceUnusable
        with the output of the command that failed."""
        self.clear()
        if case.fixture:
            shutil.copytree(suite_directory / case.fixture, self.directory, symlinks=True, dirs_exist_ok=True)
        self.put(case.files)
        self._run((self._git, "-c", "init.defaultBranch=main", "init", "-q"))
        with (self.directory / ".git/config").open("a") as config:
            config.write(f"[user]\n\tname = {NAME}\n\temail = {EMAIL}\n")
        self._run((self._git, "add", "--all"))
        self._run((self._git, "commit", "-q", "--allow-empty", "-m", "Begin"))
        for command in case.setup:
            self._run(("sh", "-e", "-c", command))

    def put(self, files: Mapping[str, str]) -> None:
        """Write files, replacing what is there. Raises WorkspaceUnusable and OSError."""
        write_files(self.directory, files)

    def clear(self) -> None:
        """Empty the directory. Raises WorkspaceUnusable if something cannot be removed."""
        for entry in os.scandir(self.directory):
            if entry.is_dir(follow_symlinks=False):
                remove_tree(entry.path)
            else:
                Path(entry.path).unlink(missing_ok=True)

    def keep(self, target: Path) -> None:
        """Move the content to ``target``."""
        target.mkdir(parents=True)
        for entry in os.scandir(self.directory):
            with suppress(FileNotFoundError):
                if entry.is_dir(follow_symlinks=False):
                    os.chmod(entry.path, 0o700)  # otherwise it could not be moved
                os.rename(entry.path, target / entry.name)

    def _run(self, argv: Sequence[str]) -> None:
        try:
            done = subprocess.run(
                argv,
                cwd=self.directory,
                env=self._environ,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=SETUP_SECONDS,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise WorkspaceUnusable(f"{argv[-1]}: {error}", suggestion="fix the setup of the case") from None
        if done.returncode:
            output = done.stdout.decode(errors="replace")[-SHOWN_CHARS:].strip()
            raise WorkspaceUnusable(
                f"{argv[-1]}: exit code {done.returncode}: {output}", suggestion="fix the setup of the case"
            )
