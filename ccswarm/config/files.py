"""Where the configuration and the state of ccswarm are. Standard library only: servers ask before anything else."""

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
"""What a configuration is called in the directory that ccswarm is started in."""


def environment(environ: Mapping[str, str] | None = None) -> Mapping[str, str]:
    """``environ``, else this process's own."""
    return os.environ if environ is None else environ


def candidates(environ: Mapping[str, str] | None = None) -> Sequence[Path]:
    """Where the configuration is looked for, in order; what $CCSWARM_CONFIG names is the only place."""
    environ = environment(environ)
    if named := environ.get(VARIABLE):
        return (Path(named),)
    return (*NAMES, *_above(), own(environ))


def is_own(path: Path, environ: Mapping[str, str] | None = None) -> bool:
    """Whether a configuration is that of the place where ccswarm is started, and not the person's for all places."""
    return not environment(environ).get(VARIABLE) and path in map(Path.absolute, candidates(environ)[:-1])


def _above() -> Sequence[Path]:
    """Within a git repository: in each directory above this one, up to the repository's own. Nobody else has made one
    appear there, as somebody may in /tmp."""
    above: list[Path] = []
    try:
        here = Path.cwd()
        for folder in (here, *here.parents):
            if folder.stat().st_uid != os.getuid():
                return ()
            above.append(folder)
            if os.path.lexists(folder / ".git"):
                return [one / name for one in above[1:] for name in NAMES]
    except OSError:  # the directory is gone, or not to be looked into
        pass
    return ()


def own(environ: Mapping[str, str] | None = None) -> Path:
    """The person's own configuration, for all places."""
    return _directory(environment(environ), "XDG_CONFIG_HOME", ".config") / "ccswarm/config.toml"


def find(environ: Mapping[str, str] | None = None) -> Path | None:
    """Where the configuration is; None when there is none. What $CCSWARM_CONFIG names need not be there."""
    environ = environment(environ)
    found = candidates(environ)
    if environ.get(VARIABLE):
        return found[0]
    return next((path for path in found if os.path.lexists(path)), None)


def state_directory(environ: Mapping[str, str] | None = None) -> Path:
    """$XDG_STATE_HOME/ccswarm, else ~/.local/state/ccswarm; made with mode 0700. Raises ConfigInvalid when it cannot
    be made, or is not a private directory of this user."""
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
    """Where the clones of attempts lie, those of a run in a directory of its own."""
    return state_directory / "workspaces"


def clone_around(state_directory: Path, directory: Path) -> Path | None:
    """The clone that ``directory`` lies below; None where it is the top of one, or in none."""
    root = clones_directory(state_directory)
    names = directory.relative_to(root).parts if directory.is_relative_to(root) else ()
    return root.joinpath(*names[:2]) if len(names) > 2 else None


def _directory(environ: Mapping[str, str], variable: str, default: str) -> Path:
    named = environ.get(variable, "")
    # As the XDG specification has it: a relative path counts as not set.
    return Path(named) if named.startswith("/") else Path(_home(environ)) / default


def _home(environ: Mapping[str, str]) -> str:
    return environ.get("HOME") or pwd.getpwuid(os.getuid()).pw_dir
