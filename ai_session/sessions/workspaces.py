"""The directories that a session may work in: those in workspaces of the configuration, the client or a person.

A tool's argument never chooses a workspace: a directory in none is reported as ``outside``, and a person decides.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from ai_session.errors import DirectoryUnusable, SandboxRefused

DEFAULT_NAME = "ai-session-workspace"
"""Created in the home for clients that are not started in a project, such as desktop programs."""

SYSTEM = ("/usr", "/etc", "/bin", "/sbin", "/lib", "/lib64", "/opt", "/proc", "/sys", "/dev", "/boot", "/run")
SHARED = ("/tmp", "/var", "/var/tmp", "/srv", "/mnt", "/media")


@dataclass(frozen=True, slots=True)
class StartDirectory:
    """A directory to start in, without links, and its workspace.

    ``outside``: it is in no known workspace, so ``workspace`` is the directory itself and a person must agree. Without
    a box, ``directory`` may have links, and ``real`` is its path without them.
    """

    directory: str
    workspace: str
    outside: bool = False
    real: str = ""


class Workspaces:
    """The configured workspaces. No workspace may contain a ``private`` directory or be inside one."""

    def __init__(self, roots: Sequence[str], home: str, private: Sequence[str] = ()) -> None:
        self.home = os.path.realpath(home)
        self._private = [os.path.realpath(path) for path in private]
        self._roots = [os.path.realpath(os.path.join(self.home, os.path.expanduser(root))) for root in roots]

    @property
    def configured(self) -> tuple[str, ...]:
        """The workspaces that need no consent, as paths without links."""
        return tuple(self._roots)

    def start_directory(
        self, wanted: str, client_directory: str, *, around: str = "", make: bool = True
    ) -> StartDirectory:
        """Return where ``wanted`` is, which is relative to the client's directory; if empty, the default.

        Without ``make``, the default need not exist. ``client_directory`` is the kernel's path, without links. The
        client may name a directory ``around`` it to be the workspace instead, which is ignored if it does not contain
        it. Raises DirectoryUnusable; SandboxRefused for a directory that cannot be a workspace.
        """
        base = os.path.realpath(client_directory) if client_directory else ""
        if client_directory and base != os.path.normpath(client_directory):
            # The kernel's path had no links, so a link was created there since, maybe in a box.
            if not os.path.isabs(os.path.expanduser(wanted)):
                raise DirectoryUnusable(
                    f"the client's directory {client_directory!r} has been replaced by a link, which is not followed",
                    suggestion="pass an absolute working_directory, or restart the client",
                )
            base = ""
        usable = bool(base) and os.path.isdir(base) and not self.unfit(base)
        roots = [*self._roots, *([self._wider(base, around)] if usable else [])]
        start = base if usable or base in self._roots else roots[0] if roots else self._default(make=make)
        directory = os.path.realpath(existing_directory(wanted, start)) if wanted else start
        if make and not os.path.isdir(directory):
            raise DirectoryUnusable(f"the workspace {directory!r} does not exist", suggestion="create it, or pass one")
        holding = [root for root in roots or [start] if _holds(root, directory)]
        workspace = max(holding, key=len, default=directory)
        if reason := self.unfit(workspace):
            raise SandboxRefused(
                f"{workspace!r} cannot be a workspace: {reason}",
                suggestion="name the directory of one project, or start there; a person can open an unboxed session "
                "with ai-session new --profile trusted",
            )
        return StartDirectory(directory, workspace, outside=not holding)

    def _wider(self, directory: str, around: str) -> str:
        """Return ``around`` if it has no links, contains ``directory`` and can be a workspace; else ``directory``."""
        real = os.path.realpath(around) if around and "\0" not in around else ""
        fits = real and real == os.path.normpath(around) and os.path.isdir(real) and _holds(real, directory)
        return real if fits and not self.unfit(real) else directory

    def _default(self, *, make: bool) -> str:
        path = os.path.join(self.home, DEFAULT_NAME)
        try:
            if make:
                os.makedirs(path, mode=0o700, exist_ok=True)
        except OSError as error:
            raise DirectoryUnusable(
                f"no workspace: {path!r} cannot be created ({error.strerror})",
                suggestion="start the client in a project's directory, or set sandbox.workspaces in the configuration",
            ) from None
        return os.path.realpath(path)

    def unfit(self, directory: str) -> str:
        """Return why a directory cannot be a workspace; empty if it can."""
        if directory == "/" or _holds(directory, self.home):
            return "it contains the home directory"
        for path in self._private:
            if _holds(directory, path) or _holds(path, directory):
                return "ai-session keeps its own files there"
        for system in SYSTEM:
            if _holds(system, directory):
                return "it belongs to the system"
        return "every user can write to it" if directory in SHARED else ""


def _holds(outer: str, inner: str) -> bool:
    return inner == outer or inner.startswith(outer.rstrip("/") + "/")


def existing_directory(wanted: str, start: str) -> str:
    """Return ``wanted``, relative to ``start``. Raises DirectoryUnusable if it does not exist or cannot be entered."""
    if "\0" in wanted:
        raise DirectoryUnusable("working_directory contains a NUL byte", suggestion="pass an existing directory")
    path = os.path.join(start, os.path.expanduser(wanted))
    if not os.path.isdir(path):
        what = "is not a directory" if os.path.exists(path) else "does not exist"
        raise DirectoryUnusable(
            f"working_directory {path!r} {what}", suggestion="create it first, or pass an existing directory"
        )
    if not os.access(path, os.X_OK):
        raise DirectoryUnusable(f"no permission to enter {path!r}", suggestion="pass another directory")
    return os.path.normpath(path)


def unboxed(wanted: str, client_directory: str, home: str) -> StartDirectory:
    """Return where a session without a box starts: ``wanted``, the client's directory or the home.

    Raises DirectoryUnusable.
    """
    base = client_directory
    start = base if base and base != "/" and os.path.isdir(base) else home or "/"
    directory = existing_directory(wanted, start) if wanted else start if os.path.isdir(start) else "/"
    return StartDirectory(directory, "", real=os.path.realpath(directory))
