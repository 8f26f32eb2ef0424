"""Verbs about the configuration: show, check, path, init."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from agentwire.cli.options import Group, Json, Option
from agentwire.cli.output import say, show_json
from agentwire.system import whole_files
from ai_session.cli.output import write_text
from ai_session.errors import ConfigInvalid

app = Group("Settings: defaults < file < environment < flags.")

File = Annotated[Path | None, Option("--file", help="Instead of ~/.config/ai-session/config.toml.", show_default=False)]


@app.command()
def show(
    file: File = None,
    default: Annotated[bool, Option("--defaults", help="Only the defaults, without file and variables.")] = False,
    as_json: Json = False,
) -> None:
    """Print the settings in force as a file, with the description and origin of each."""
    from ai_session.config import config

    loaded = config.Loaded(config.defaults(), {}, config.default_path()) if default else config.resolve(file)
    if as_json:
        show_json({"settings": loaded.settings.model_dump(), "origins": loaded.origins, "path": str(loaded.path)})
    else:
        write_text(config.render(loaded.settings, origins=loaded.origins))


@app.command()
def check(file: File = None, as_json: Json = False) -> None:
    """Check whether the file and the AI_SESSION_ variables are valid."""
    from ai_session.config import config

    loaded = config.resolve(file)
    if as_json:
        show_json({"valid": True, "path": str(loaded.path), "origins": loaded.origins})
    else:
        say(f"{loaded.path} {'is valid' if loaded.path.exists() else 'does not exist; the defaults apply'}.")


@app.command()
def path(as_json: Json = False) -> None:
    """Print the path of the file (AI_SESSION_CONFIG, else under HOME)."""
    from ai_session.config import config

    found = config.default_path()
    if as_json:
        show_json({"path": str(found), "exists": found.exists()})
    else:
        write_text(f"{found}\n")


@app.command()
def init(file: File = None, as_json: Json = False) -> None:
    """Write a file that names every setting with its default, all commented out; an existing file is not changed."""
    from ai_session.config import config

    target = file or config.default_path()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        whole_files.create(target, config.render(config.defaults(), commented=True).encode(), 0o666)
    except OSError as error:
        if isinstance(error, FileExistsError) and target.parent.is_dir():
            raise ConfigInvalid(f"{target} exists already", suggestion="edit it, or move it away first") from None
        what = f"{target} cannot be written: {error.strerror}"
        raise ConfigInvalid(what, suggestion="name another file with --file") from None
    if as_json:
        show_json({"path": str(target)})
    else:
        write_text(f"{target}\n")
