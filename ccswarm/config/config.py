"""Reads the configuration and plans in the versions a person approved.

Only this module and ``files`` read ``os.environ``.
"""

from __future__ import annotations

import logging
import os
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TypeVar

from ccswarm.config import starters
from ccswarm.config.files import find, own, state_directory
from ccswarm.config.parsing import AnySection, parse, parse_as, parse_plan, refuse
from ccswarm.config.settings import (
    NotifySettings,
    ServerSettings,
    Settings,
)
from ccswarm.config.trust import (
    Change,
    ConfigTrust,
    Content,
    Source,
    Verdict,
    as_used_last,
    chosen,
    is_discovered,
    look,
    look_at_any,
    programs,
    refused,
)
from ccswarm.errors import ConfigChanged, ConfigInvalid

log = logging.getLogger(__name__)

OTEL_VARIABLES = {
    "endpoint": "OTEL_EXPORTER_OTLP_ENDPOINT",
    "traces_endpoint": "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "metrics_endpoint": "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT",
    "protocol": "OTEL_EXPORTER_OTLP_PROTOCOL",
}
"""The variables for settings of [telemetry] that the file does not set."""


Parsed = TypeVar("Parsed")


Confirm = Callable[[Change], bool]
"""Whether a person, shown the change, agrees to it."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A loaded configuration. ``path`` is None if there is no file, so all settings have their defaults.

    ``directory`` is that of the file, or the current one; relative paths in the file start there. ``digest`` is that of
    the file. ``changed`` describes the file's change if these settings are an earlier version that a person used.
    ``begun`` is true for a configuration that was discovered, not named, and is used for the first time without a
    question.
    """

    settings: Settings
    path: Path | None
    directory: Path
    digest: str = ""
    changed: Change | None = None
    begun: bool = False

    @property
    def sources(self) -> list[str]:
        """The files that a run records as its origin."""
        return [str(Source(self.path, self.digest))] if self.path else []


def load(
    path: Path | None = None,
    environ: Mapping[str, str] | None = None,
    *,
    confirm: Confirm | None = None,
    remember_absent: bool = False,
    workspace: Path | None = None,
) -> Loaded:
    """Load the configuration.

    It is ``path``, else $CCSWARM_CONFIG (either must exist), else the first that exists of ccswarm.toml and
    config/ccswarm.toml, these two in each parent directory within a git repository, and
    $XDG_CONFIG_HOME/ccswarm/config.toml.

    A path used for the first time is recorded with its content. Later a changed file is used only if ``confirm``
    returns true. The same holds for the files that its commands name below its directory, the current directory, the
    workspace it names and ``workspace``: such a file counts as changed if it did not exist when the configuration was
    first used. So does a discovered configuration that replaces another. With ``remember_absent``, which is for
    processes in which agents work, a file that was absent also counts as changed when it appears.

    ``steps`` at the top level become the task ``main``. Raises ConfigInvalid, naming every problem, and ConfigChanged.
    """
    pending = _PendingChanges(confirm)
    trust = ConfigTrust(state_directory(environ))
    content, seen = chosen(trust, path, environ, pending.add)
    loaded = _loaded(content, environ)
    named = pending.add_programs(trust, content, environ, workspace)
    pending.confirm_all()
    begun = bool(content and not pending.includes(content) and trust.verdict(content) is Verdict.FIRST)
    news = [one for one in (*named, *seen) if trust.verdict(one) is not Verdict.SAME]
    trust.use(one for one in news if one.there or remember_absent or trust.verdict(one) is Verdict.CHANGED)
    return replace(loaded, begun=bool(begun and content and is_discovered(content, path, environ)))


def notify_settings(environ: Mapping[str, str] | None = None) -> NotifySettings:
    """Return how the user is notified of runs, from the user's own configuration. Records nothing. If that file is
    invalid or has changed since it was last used, there are no notices, and the reason is logged."""
    file = own(environ)
    if not file.is_file():
        return NotifySettings()
    try:
        for change in changes(file, environ):
            raise change.error()
        return peek(file, environ).settings.notify
    except (ConfigChanged, ConfigInvalid) as error:
        log.warning("there are no notices of runs: %s; %s", error.message, error.suggestion)
        return NotifySettings()


def load_last(path: Path | None = None) -> Loaded:
    """Load the configuration as ``load`` does, or its last used version if it has changed. Records nothing. It is for
    verbs that only inspect or stop runs."""
    changes: list[Change] = []

    def last(change: Change) -> Content:
        changes.append(change)
        return as_used_last(change)

    content, _ = chosen(ConfigTrust(state_directory()), path, None, last)
    return replace(_loaded(content, None), changed=changes[0] if changes else None)


def peek(path: Path | None = None, environ: Mapping[str, str] | None = None) -> Loaded:
    """Load the configuration without asking for or recording approval. Start nothing from the result."""
    file = path or find(os.environ if environ is None else environ)
    return _loaded(look(file) if file else None, environ)


def change_of(path: Path) -> Change | None:
    """Return how a file has changed since a person used it, or None if it has not or was never used."""
    return ConfigTrust(state_directory()).change(look_at_any(path))


def changes(path: Path | None = None, environ: Mapping[str, str] | None = None) -> list[Change]:
    """Return the changes that ``load`` would ask about. Records nothing. Raises ConfigInvalid."""
    found: list[Change] = []

    def now(change: Change) -> Content:
        found.append(change)
        return change.now

    trust = ConfigTrust(state_directory(environ))
    content, _ = chosen(trust, path, environ, now)
    verdict = trust.verdict(content) if content else Verdict.FIRST
    named = programs(content, environ) if content else []
    return [*found, *filter(None, (trust.program_change(one, verdict) for one in named))]


class _PendingChanges:
    """Changed files, about which a person is asked once all of them are known to be readable."""

    def __init__(self, confirm: Confirm | None) -> None:
        self._confirm = confirm
        self._changes: list[Change] = []

    def add(self, change: Change) -> Content:
        if not self._confirm:
            return refused(change)
        self._changes.append(change)
        return change.now

    def add_programs(
        self, trust: ConfigTrust, content: Content | None, environ: Mapping[str, str] | None, workspace: Path | None
    ) -> list[Content]:
        """Add the changes of the files that its commands name, and return these files. Raises ConfigInvalid."""
        if not content:
            return []
        verdict, named = trust.verdict(content), programs(content, environ, workspace)
        for program in named:
            if change := trust.program_change(program, verdict):
                self.add(change)
        return [program.content for program in named]

    def includes(self, content: Content) -> bool:
        """Whether its change is among them."""
        return any(change.now == content for change in self._changes)

    def confirm_all(self) -> None:
        """Raise ConfigChanged unless a person agrees to every change."""
        for change in self._changes:
            if not self._confirm or not self._confirm(change):
                raise change.error()


def _loaded(content: Content | None, environ: Mapping[str, str] | None) -> Loaded:
    environ = os.environ if environ is None else environ
    if content is None:
        return Loaded(_with_otel_variables(Settings(), environ), None, Path.cwd())
    settings = _with_otel_variables(parse(_text(content), where=str(content.named)), environ)
    if "notify" in settings.model_fields_set and content.path != Path(os.path.abspath(own(environ))):
        refuse(
            str(content.named),
            ["[notify] is allowed in your own configuration only, not in a project's file"],
            f"write it to {own(environ)}",
        )
    return Loaded(settings, content.path, content.path.parent, content.digest)


def _with_otel_variables(settings: Settings, environ: Mapping[str, str]) -> Settings:
    """Add what OpenTelemetry's variables set and the file does not. Its exporter reads the other variables."""
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return settings
    found = {name: value for name, variable in OTEL_VARIABLES.items() if (value := environ.get(variable, "").strip())}
    for signal in ("traces", "metrics"):
        if environ.get(f"OTEL_{signal.upper()}_EXPORTER", "").strip() == "none":
            found[f"{signal}_endpoint"] = "none"
    unset = {name: value for name, value in found.items() if name not in settings.telemetry.model_fields_set}
    return settings.model_copy(update={"telemetry": settings.telemetry.model_copy(update=unset)}) if unset else settings


def load_plan(
    path: Path,
    base: Settings,
    *,
    confirm: Confirm | None = None,
    workspace: Path | None = None,
    guessed: bool = False,
) -> Loaded:
    """Load a plan file over ``base``.

    Its tables are merged key by key, and so are servers and agents of the same name; others are added. Its tasks or
    steps replace those of ``base``. A changed file needs approval as in ``load``; so does a new one if ``guessed``,
    which means that the user may have meant a task's text. Raises ConfigInvalid and ConfigChanged.
    """
    read = partial(parse_plan, base=base, where=str(path))
    content, settings = _load_approved(path, confirm, read, workspace, guessed=guessed)
    return Loaded(settings, content.path, content.path.parent, content.digest)


@dataclass(frozen=True, slots=True)
class Supplied:
    """Settings with default agents. ``note`` tells which were added and why; it is empty if none were."""

    settings: Settings
    note: str = ""


def supplied(settings: Settings, types: Sequence[str], environ: Mapping[str, str]) -> Supplied:
    """Add default agents of these types if the settings have neither agents nor tasks. Raises ConfigInvalid. They use a
    key from the environment, else an installed agent program, else the commands in a task's text."""
    if settings.agents or settings.tasks:
        return Supplied(settings)
    who, why = starters.found(environ, partial(secret, environ=environ))
    state, there = state_directory(environ), [server.name for server in settings.mcp.servers]
    if settings.swarm.shell not in (starters.SHELL, *there):
        return Supplied(settings)
    try:
        starters.prepare(who, state)
    except OSError as error:
        raise ConfigInvalid(
            f"{state} cannot be written: {error.strerror}", suggestion="free disk space there"
        ) from None
    added = parse(starters.addition(who, types, environ=environ, state_directory=state, servers=there).text)
    servers = settings.mcp.model_copy(update={"servers": (*settings.mcp.servers, *added.mcp.servers)})
    using = f"using {', '.join(types)}, {starters.BUDGET_WORDS[who]}"
    note = f"no agent is configured ({why}): {using}; ccswarm init writes this to a file"
    if who in starters.RIGHTS:
        note += f"\nnote: {starters.RIGHTS[who]}"
    return Supplied(settings.model_copy(update={"agents": added.agents, "mcp": servers}), note)


def peek_plan(path: Path, base: Settings) -> Settings:
    """Load a plan as ``load_plan`` does, without asking for approval."""
    return parse_plan(_text(look(path)), base, where=str(path))


def as_started(sources: Sequence[str]) -> Settings | None:
    """Return the settings a run was started from: that version of each file, or one approved since. None if there are
    no sources or a file no longer exists. Raises ConfigInvalid, and ConfigChanged if a file has neither version and was
    never used here."""
    trust = ConfigTrust(state_directory())
    texts: list[str] = []
    for source in map(Source.parse, sources):
        content = look(source.path)
        if content.data is None:
            return None
        if content.digest != source.digest and trust.verdict(content) is not Verdict.SAME:
            content = _last_used_version(trust, content)
        texts.append(_text(content))
    if not texts:
        return None
    settings = parse(texts[0], where=str(Source.parse(sources[0]).path))
    for source, text in zip(sources[1:], texts[1:], strict=True):
        settings = parse_plan(text, settings, where=str(Source.parse(source).path))
    return settings


def servers_of(sources: tuple[str, ...]) -> Sequence[ServerSettings]:
    """Return the servers of a run's settings, as ``as_started`` finds them. Raises ConfigInvalid, ConfigChanged."""
    settings = as_started(sources)
    return settings.mcp.servers if settings else ()


def settings_of(sources: Sequence[str]) -> tuple[Settings | None, Sequence[str]]:
    """Return the current settings of a configuration and plans over it, and their sources. None and the same sources if
    a file no longer exists. Raises ConfigInvalid, and ConfigChanged if one is not approved."""
    files = [Source.parse(source) for source in sources]
    if not files or not all(file.path.is_file() for file in files):
        return None, sources
    loaded = load(files[0].path)
    found = loaded.sources
    for plan in files[1:]:
        loaded = load_plan(plan.path, loaded.settings)
        found += loaded.sources
    return loaded.settings, found


def _last_used_version(trust: ConfigTrust, content: Content) -> Content:
    change = trust.change(content)
    if change and change.before.data is not None:
        return change.before
    raise (
        change.error()
        if change
        else ConfigChanged(
            f"{content.path} is not the file that the run was started from, and has not been used here",
            suggestion=f"ccswarm trust {shlex.quote(str(content.path))}",
            path=str(content.path),
        )
    )


def _load_approved(
    path: Path,
    confirm: Confirm | None,
    read: Callable[[str], Parsed],
    workspace: Path | None = None,
    *,
    guessed: bool = False,
) -> tuple[Content, Parsed]:
    trust = ConfigTrust(state_directory())
    pending = _PendingChanges(confirm)
    content = look(path)
    change = trust.change(content) or (trust.mistaken(content) if guessed else None)
    if change:
        content = pending.add(change)
    made = read(_text(content))
    named = pending.add_programs(trust, content, None, workspace)
    pending.confirm_all()
    trust.use(one for one in (*named, content) if trust.verdict(one) is not Verdict.SAME)
    return content, made


def server_environment() -> dict[str, str]:
    """Return this process's environment, from which clients select what a server or a header gets."""
    return dict(os.environ)


def secret(name: str, environ: Mapping[str, str] | None = None) -> str:
    """Return the environment variable, else the system keyring's entry of service ``ccswarm``, else ``""``. The keyring
    is only used if its package is installed."""
    if value := (os.environ if environ is None else environ).get(name, ""):
        return value
    try:
        keyring = import_module("keyring")
        return keyring.get_password("ccswarm", name) or ""
    except Exception:  # a keyring that cannot be opened, for any reason, has no secret
        return ""


def command_of(server: ServerSettings) -> list[str]:
    """Return the words that start a server; empty for a server that is reached at a URL."""
    return [*shlex.split(server.command), *server.args]


def load_as(
    model: type[AnySection],
    path: Path,
    advice: str,
    problems: Callable[[AnySection], Iterable[str]] = lambda _: (),
    *,
    confirm: Confirm | None = None,
) -> AnySection:
    """Load another kind of TOML file, which needs a person's approval as a plan does. Raises ConfigInvalid, naming
    every problem and giving ``advice``, and ConfigChanged."""
    return _load_approved(path, confirm, lambda text: parse_as(model, text, str(path), advice, problems))[1]


def text_of(path: Path) -> str:
    """Return the text of a file without approval. Raises ConfigInvalid if it cannot be read."""
    return _text(look(path))


def _text(content: Content) -> str:
    if content.data is None:
        raise ConfigInvalid(
            f"{content.named} does not exist", suggestion="name another; ccswarm init writes ccswarm.toml"
        )
    try:
        return content.data.decode()
    except UnicodeDecodeError:
        raise ConfigInvalid(f"{content.named} is not text in UTF-8", suggestion="save it again, as UTF-8") from None
