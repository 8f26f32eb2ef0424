"""Settings: defaults < file < environment < flags. The only reader of TOML and of ``os.environ``."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentwire.system import program_path
from agentwire.validation import requirement
from ai_session.errors import ConfigInvalid
from ai_session.system import runtime_directory as runtime

if TYPE_CHECKING:
    from pydantic import ValidationError

    from ai_session.config.settings import Section, Settings

PREFIX = "AI_SESSION_"
BARE_KEY = re.compile(r"[A-Za-z0-9_-]+\Z")
BOX_WRITABLE = "box-writable.jsonl"
"""The file in the runtime directory in which gate/written.py records where boxes may write."""

STANDARD = {
    "telemetry.endpoint": "OTEL_EXPORTER_OTLP_ENDPOINT",
    "telemetry.traces_endpoint": "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "telemetry.metrics_endpoint": "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT",
    "telemetry.protocol": "OTEL_EXPORTER_OTLP_PROTOCOL",
}
"""Variables of OpenTelemetry that set what the file does not. Its exporter reads the others itself."""

Stamp = list[int] | None


@dataclass(frozen=True, slots=True)
class Loaded:
    """Settings, and the origin of each that is not a default (``session.rows`` → a path, a variable or ``a flag``)."""

    settings: Settings
    origins: Mapping[str, str]
    path: Path


MESSAGES = {
    "tuple_type": 'should be a list of texts in brackets: ["…", "…"]',
    "list_type": "should be a list in brackets: […]",
    "dict_type": "should be a table",
    "model_type": "should be a table",
    "string_type": "should be a text in quotes",
}
"""Replacements for pydantic's messages that use Python's terms."""


def load(
    path: Path | None = None, environ: Mapping[str, str] | None = None, overrides: Mapping[str, Any] | None = None
) -> Settings:
    """Return the settings in force. ``overrides`` maps ``section.field`` to a value; None means not given.

    ``path`` (or AI_SESSION_CONFIG) must exist; the default file need not. Raises ConfigInvalid, naming every problem.
    """
    return resolve(path, environ, overrides).settings


def resolve(
    path: Path | None = None, environ: Mapping[str, str] | None = None, overrides: Mapping[str, Any] | None = None
) -> Loaded:
    """Return the settings and the origin of each value, see ``load``. Raises ConfigInvalid."""
    environ = os.environ if environ is None else environ
    file, values = _read_file(path, environ)
    origins = {name: str(file) for name in values}
    for name, value, variable in _from_opentelemetry(environ):
        if name not in values:
            values[name], origins[name] = value, variable
    for name, variable in variables().items():
        if variable in environ:
            values[name] = _from_text(name, environ[variable])
            origins[name] = variable
    _refuse_unknown_variables(environ)
    for name, value in (overrides or {}).items():
        if value is not None:
            values[name] = value
            origins[name] = "a flag"
    tree: dict[str, Any] = {}
    for name, value in values.items():
        section, _, key = name.partition(".")
        if key:
            tree.setdefault(section, {})[key] = value
        else:
            tree[section] = value
    from pydantic import ValidationError

    try:
        settings = type(defaults()).model_validate(tree)
    except ValidationError as error:
        raise _config_invalid(error, origins) from None
    return Loaded(settings, {name: origins[name] for name in fields() if name in origins}, file)


@cache
def defaults() -> Settings:
    """Return the settings without any configuration. The library that validates them takes 60 ms to import."""
    from ai_session.config.settings import Settings

    return Settings()


def fields() -> list[str]:
    """Return every setting as ``section.field``, in the order of the file."""
    return [f"{section}.{key}" for section, model in sections().items() for key in model.model_fields]


def sections() -> dict[str, type[Section]]:
    """Return the tables of the file, in order."""
    return {name: type(getattr(defaults(), name)) for name in type(defaults()).model_fields}


def variables() -> dict[str, str]:
    """Return the environment variable for each setting."""
    return {name: PREFIX + name.replace(".", "_").upper() for name in fields()}


def environment() -> Mapping[str, str]:
    """Return this process's environment, for modules that may not read it themselves."""
    return os.environ


def outside_path() -> str:
    """Return PATH for programs that run outside of boxes: without the directories in which boxes write."""
    written: list[str] = []
    for directory in runtime_directories(home_directory(), os.getuid()):
        with suppress(OSError, ValueError, KeyError, TypeError):
            for line in (directory / BOX_WRITABLE).read_bytes().splitlines():
                entry = json.loads(line)
                written.append(entry if isinstance(entry, str) else str(entry["path"]))
    return program_path.environment(os.environ, written)["PATH"]


def read_toml(text: str) -> dict[str, Any]:
    """Parse any TOML text. Raises ValueError."""
    import tomllib  # takes 6 ms, and few verbs need it

    return tomllib.loads(text)


def home_directory(environ: Mapping[str, str] | None = None) -> Path:
    """Return HOME, or the directory in the password database if a client passes none."""
    return Path(runtime.home(os.environ if environ is None else environ))


def default_path(environ: Mapping[str, str] | None = None) -> Path:
    """Return the path of the file: AI_SESSION_CONFIG, else below HOME. Half of the clients pass no XDG variables."""
    environ = os.environ if environ is None else environ
    named = environ.get(PREFIX + "CONFIG")
    return Path(named) if named else home_directory(environ) / ".config/ai-session/config.toml"


def stamp(path: str | os.PathLike[str]) -> Stamp:
    """Return a value that changes whenever the file is changed or replaced; None if there is no file."""
    try:
        info = os.stat(path)
    except OSError:
        return None
    return [info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns]


def render(settings: Settings, *, origins: Mapping[str, str] | None = None, commented: bool = False) -> str:
    """Return the settings as TOML with each field's description; a ``commented`` file changes nothing yet."""
    lines: list[str] = []
    for section, model in sections().items():
        lines += ["", f"# {(model.__doc__ or '').strip()}", f"[{section}]"]
        values: Section = getattr(settings, section)
        for key, info in model.model_fields.items():
            origin = (origins or {}).get(f"{section}.{key}")
            lines.append(f"# {info.description}{f' (from {origin})' if origin else ''}")
            assignment = f"{key} = {_toml(getattr(values, key))}".split("\n")
            lines += [f"# {line}" for line in assignment] if commented else assignment
    return "\n".join(lines[1:]) + "\n"


def _toml(value: object) -> str:
    if isinstance(value, Mapping):
        table: Mapping[str, object] = value  # pyright: ignore[reportUnknownVariableType]
        inner = ", ".join(f"{k if BARE_KEY.match(k) else _toml(k)} = {_toml(v)}" for k, v in table.items())
        return "{ " + inner + " }" if inner else "{}"
    if isinstance(value, tuple):
        items: tuple[object, ...] = value  # pyright: ignore[reportUnknownVariableType]
        rows = [""]
        for item in map(_toml, items):
            if rows[-1] and len(rows[-1]) + len(item) > 110:
                rows.append("")
            rows[-1] += (", " if rows[-1] else "") + item
        return f"[{rows[0]}]" if len(rows) == 1 else "[\n    " + ",\n    ".join(rows) + ",\n]"
    # DEL is the only character that JSON does not escape and TOML forbids.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _read_file(path: Path | None, environ: Mapping[str, str]) -> tuple[Path, dict[str, Any]]:
    file = default_path(environ) if path is None else path
    required = path is not None or bool(environ.get(PREFIX + "CONFIG"))
    try:
        data = read_toml(file.read_bytes().decode().removeprefix("\ufeff"))  # some editors write a BOM
    except FileNotFoundError:
        if required:
            raise ConfigInvalid(f"{file} does not exist", suggestion="ai-session config init writes one") from None
        return file, {}
    except UnicodeDecodeError:
        raise ConfigInvalid(f"{file} is not text in UTF-8", suggestion="save it again, as UTF-8") from None
    except IsADirectoryError:
        step = "name a file in it" if required else "move it away"
        raise ConfigInvalid(f"{file} is a directory, not a file of settings", suggestion=step) from None
    except (OSError, ValueError) as error:
        why = (error.strerror if isinstance(error, OSError) else "") or error
        raise ConfigInvalid(f"{file}: {why}", suggestion="fix the file, or move it away") from None
    values: dict[str, Any] = {}
    for section, content in data.items():
        if isinstance(content, dict) and content:
            table: dict[str, Any] = content  # pyright: ignore[reportUnknownVariableType]
            values |= {f"{section}.{key}": value for key, value in table.items()}
        else:
            values[section] = content
    return file, values


def _from_text(name: str, text: str) -> Any:
    section, _, key = name.partition(".")
    if sections()[section].model_fields[key].annotation is str:
        return text
    try:
        return read_toml(f"value = {text}")["value"]
    except ValueError:
        return text


def _from_opentelemetry(environ: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """Yield setting, value and origin from OpenTelemetry's variables; nothing if they disable it."""
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return
    for signal in ("traces", "metrics"):
        if environ.get(variable := f"OTEL_{signal.upper()}_EXPORTER", "").strip() == "none":
            yield f"telemetry.{signal}_endpoint", "none", variable
    for name, variable in STANDARD.items():
        if value := environ.get(variable, "").strip():
            yield name, value, variable


def _refuse_unknown_variables(environ: Mapping[str, str]) -> None:
    """Refuse variables of a section, and those close to a setting's; sessions export others with this prefix."""
    import difflib

    known = list(variables().values())
    for name in sorted(environ):
        if name.startswith(PREFIX) and name not in known:
            table = f"{PREFIX}{name.removeprefix(PREFIX).partition('_')[0]}_"
            siblings = [variable for variable in known if variable.startswith(table)]
            near = difflib.get_close_matches(name, siblings or known, n=1, cutoff=0 if siblings else 0.85)
            if near:
                raise ConfigInvalid(f"the variable {name} sets nothing", suggestion=f"did you mean {near[0]}?")


def _config_invalid(error: ValidationError, origins: Mapping[str, str]) -> ConfigInvalid:
    import difflib

    problems: list[str] = []
    suggestions: list[str] = []
    for item in error.errors(include_url=False):
        where = ".".join(str(part) for part in item["loc"])
        setting = ".".join(str(part) for part in item["loc"][:2])
        origin = next((o for name, o in origins.items() if name == setting or name.startswith(setting + ".")), "")
        if item["type"] == "extra_forbidden":
            known = fields() if "." in where else list(sections())
            near = difflib.get_close_matches(where, known, n=1, cutoff=0)
            message = "is not a setting"
            suggestions.append(f"did you mean {near[0]}?")
        else:
            message = MESSAGES.get(item["type"]) or requirement(item)
        problems.append(f"{where}: {message}" + (f" (from {origin})" if origin else ""))
    suggestions.append("ai-session config show --defaults lists every setting")
    return ConfigInvalid("; ".join(problems), suggestion=" ".join(dict.fromkeys(suggestions)))


def runtime_directories(home: Path, uid: int) -> list[Path]:
    """Return where the daemon's socket may be, best first. HOME and uid alone decide, so that every client agrees."""
    return [Path(directory) for directory in runtime.candidates(str(home), uid)]


def runtime_directory(home: Path, uid: int) -> Path:
    """Return the first candidate that can be created and written; it is created with mode 0700.

    Raises RuntimeDirectoryUnsafe if one exists that is not a private directory of ``uid``, or cannot be entered, or if
    none can be created.
    """
    return Path(runtime.usable(str(home), uid))
