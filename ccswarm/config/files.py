"""The locations of ccswarm's configuration and state. Standard library only: servers use it before anything else."""

from __future__ import annotations

import os
import pwd
import shlex
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path

from ccswarm.errors import ConfigInvalid

VARIABLE = "CCSWARM_CONFIG"
NAMES = (Path("ccswarm.toml"), Path("config/ccswarm.toml"))
"""The names of a configuration in the directory where ccswarm is started."""


def environment(environ: Mapping[str, str] | None = None) -> Mapping[str, str]:
    """Return ``environ``, or this process's environment by default."""
    return os.environ if environ is None else environ


def candidates(environ: Mapping[str, str] | None = None) -> Sequence[Path]:
    """Return the paths where the configuration is searched, in order. $CCSWARM_CONFIG replaces all of them."""
    environ = environment(environ)
    if named := environ.get(VARIABLE):
        return (Path(named),)
    return (*NAMES, *_in_parents(), own(environ))


def is_own(path: Path, environ: Mapping[str, str] | None = None) -> bool:
    """Report whether a configuration belongs to the directory where ccswarm is started, not to the user in general."""
    return not environment(environ).get(VARIABLE) and path in map(Path.absolute, candidates(environ)[:-1])


def _in_parents() -> Sequence[Path]:
    """Return the paths in each parent directory, up to the root of this git repository, if the user owns them all.
    Outside of a repository, as in /tmp, another user could create a configuration there."""
    above: list[Path] = []
    try:
        here = Path.cwd()
        for folder in (here, *here.parents):
            if folder.stat().st_uid != os.getuid():
                return ()
            above.append(folder)
            if os.path.lexists(folder / ".git"):
                return [one / name for one in above[1:] for name in NAMES]
    except OSError:  # the directory was removed or is not readable
        pass
    return ()


def own(environ: Mapping[str, str] | None = None) -> Path:
    """Return the path of the user's own configuration, which applies everywhere."""
    return _directory(environment(environ), "XDG_CONFIG_HOME", ".config") / "ccswarm/config.toml"


def find(environ: Mapping[str, str] | None = None) -> Path | None:
    """Return the path of the configuration, or None. A path in $CCSWARM_CONFIG need not exist."""
    environ = environment(environ)
    found = candidates(environ)
    if environ.get(VARIABLE):
        return found[0]
    return next((path for path in found if os.path.lexists(path)), None)


def state_directory(environ: Mapping[str, str] | None = None) -> Path:
    """Return $XDG_STATE_HOME/ccswarm, else ~/.local/state/ccswarm; creates it with mode 0700. Raises ConfigInvalid if
    it cannot be created or is not a private directory of this user."""
    directory = _directory(environment(environ), "XDG_STATE_HOME", ".local/state") / "ccswarm"
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        directory.mkdir(mode=0o700, exist_ok=True)
        info = directory.lstat()
    except OSError as error:
        raise ConfigInvalid(f"{directory}: {error.strerror}", suggestion="fix it, or set XDG_STATE_HOME") from None
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.getuid():
        raise ConfigInvalid(
            f"{directory} is not a directory that belongs to you", suggestion="check who made it, then remove it"
        )
    if stat.S_IMODE(info.st_mode) & 0o077:
        raise ConfigInvalid(f"{directory} is open to others", suggestion=f"chmod 700 {shlex.quote(str(directory))}")
    return directory


def clones_directory(state_directory: Path) -> Path:
    """Return the directory of the clones of attempts, which has one subdirectory for each run."""
    return state_directory / "workspaces"


def clone_around(state_directory: Path, directory: Path) -> Path | None:
    """Return the clone that contains ``directory``, or None if it is the top of a clone or in none."""
    root = clones_directory(state_directory)
    names = directory.relative_to(root).parts if directory.is_relative_to(root) else ()
    return root.joinpath(*names[:2]) if len(names) > 2 else None


def _directory(environ: Mapping[str, str], variable: str, default: str) -> Path:
    named = environ.get(variable, "")
    # The XDG specification treats a relative path as not set.
    return Path(named) if named.startswith("/") else Path(_home(environ)) / default


def _home(environ: Mapping[str, str]) -> str:
    return environ.get("HOME") or pwd.getpwuid(os.getuid()).pw_dir
