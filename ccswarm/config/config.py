"""Reads the configuration and plans, where a person has used them as they are. With ``files`` the only reader of
``os.environ``."""

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

STANDARD = {
    "endpoint": "OTEL_EXPORTER_OTLP_ENDPOINT",
    "traces_endpoint": "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "metrics_endpoint": "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT",
    "protocol": "OTEL_EXPORTER_OTLP_PROTOCOL",
}
"""Of [telemetry]: variables that set what the file does not."""


AnyRead = TypeVar("AnyRead")


Confirm = Callable[[Change], bool]
"""Whether a person, who is shown what has changed, agrees to it."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """``path`` is None where there is no file, and then all is as by default. ``directory`` is the file's own, or the
    current one: what relative paths in it count from. ``digest`` is that of the file. ``changed`` is what has become of
    it where this is what a person used last. ``begun``: nobody named it, it was come upon and is used for the first
    time, without a question."""

    settings: Settings
    path: Path | None
    directory: Path
    digest: str = ""
    changed: Change | None = None
    begun: bool = False

    @property
    def sources(self) -> list[str]:
        """What a run of it says it was started from."""
        return [str(Source(self.path, self.digest))] if self.path else []


def load(
    path: Path | None = None,
    environ: Mapping[str, str] | None = None,
    *,
    confirm: Confirm | None = None,
    remember_absent: bool = False,
    workspace: Path | None = None,
) -> Loaded:
    """The configuration: ``path``, else $CCSWARM_CONFIG (either must exist), else the first that is there of
    ccswarm.toml and config/ccswarm.toml, these two in each directory above within a git repository, and
    $XDG_CONFIG_HOME/ccswarm/config.toml.

    It is used as it is where nobody has used the path before, and recorded then, or where a person used it like this;
    else only where ``confirm`` says yes. The same holds for files that its commands name below its directory, the
    current one, the one that it names for the work, and ``workspace``: such a file is new where it was not there when
    the configuration was used first. So is a configuration that nobody named and that takes the place of another. With
    ``remember_absent`` a file that was looked for in vain has changed when it appears: for whoever has agents work.

    A list of ``steps`` at the top has become the task ``main``. Raises ConfigInvalid, naming every problem, and
    ConfigChanged.
    """
    asked = _Asked(confirm)
    trust = ConfigTrust(state_directory(environ))
    content, seen = chosen(trust, path, environ, asked.later)
    loaded = _loaded(content, environ)
    named = asked.about_programs(trust, content, environ, workspace)
    asked.now()
    begun = bool(content and not asked.asked(content) and trust.verdict(content) is Verdict.FIRST)
    news = [one for one in (*named, *seen) if trust.verdict(one) is not Verdict.SAME]
    trust.use(one for one in news if one.there or remember_absent or trust.verdict(one) is Verdict.CHANGED)
    return replace(loaded, begun=bool(begun and content and is_discovered(content, path, environ)))


def notify_settings(environ: Mapping[str, str] | None = None) -> NotifySettings:
    """How the person is notified of runs: from the person's own configuration, whichever is in use. If that is invalid,
    or has changed since the person used it, there are no notices, and the reason is logged. Records nothing."""
    file = own(environ)
    if not file.is_file():
        return NotifySettings()
    try:
        for change in changes(file, environ):
            raise change.error()
        return peek(file, environ).settings.notify
    except (ConfigChanged, ConfigInvalid) as error:
        log.warning("nobody is notified of runs: %s; %s", error.message, error.suggestion)
        return NotifySettings()


def load_last(path: Path | None = None) -> Loaded:
    """As ``load``, as a person used it last where it has changed since: for what only looks at runs, or stops them.
    Records nothing."""
    changes: list[Change] = []

    def last(change: Change) -> Content:
        changes.append(change)
        return as_used_last(change)

    content, _ = chosen(ConfigTrust(state_directory()), path, None, last)
    return replace(_loaded(content, None), changed=changes[0] if changes else None)


def peek(path: Path | None = None, environ: Mapping[str, str] | None = None) -> Loaded:
    """As ``load``, whether a person has agreed to it or not: to be looked at, and for nothing of it to be started."""
    file = path or find(os.environ if environ is None else environ)
    return _loaded(look(file) if file else None, environ)


def change_of(path: Path, environ: Mapping[str, str] | None = None) -> Change | None:
    """What has become of a file since a person used it; None where it is the same, or nobody has used it."""
    return ConfigTrust(state_directory(environ)).change(look_at_any(path))


def changes(path: Path | None = None, environ: Mapping[str, str] | None = None) -> list[Change]:
    """What ``load`` would ask about. Records nothing. Raises ConfigInvalid."""
    found: list[Change] = []

    def now(change: Change) -> Content:
        found.append(change)
        return change.now

    trust = ConfigTrust(state_directory(environ))
    content, _ = chosen(trust, path, environ, now)
    verdict = trust.verdict(content) if content else Verdict.FIRST
    named = programs(content, environ) if content else []
    return [*found, *filter(None, (trust.program_change(one, verdict) for one in named))]


class _Asked:
    """Files that have changed, about which a person is asked when it is known that they can be read."""

    def __init__(self, confirm: Confirm | None) -> None:
        self._confirm = confirm
        self._changes: list[Change] = []

    def later(self, change: Change) -> Content:
        if not self._confirm:
            return refused(change)
        self._changes.append(change)
        return change.now

    def about_programs(
        self, trust: ConfigTrust, content: Content | None, environ: Mapping[str, str] | None, workspace: Path | None
    ) -> list[Content]:
        """Those that its commands name. Raises ConfigInvalid."""
        if not content:
            return []
        verdict, named = trust.verdict(content), programs(content, environ, workspace)
        for program in named:
            if change := trust.program_change(program, verdict):
                self.later(change)
        return [program.content for program in named]

    def asked(self, content: Content) -> bool:
        """Whether it is among them."""
        return any(change.now == content for change in self._changes)

    def now(self) -> None:
        """Raises ConfigChanged where a person does not agree."""
        for change in self._changes:
            if not self._confirm or not self._confirm(change):
                raise change.error()


def _loaded(content: Content | None, environ: Mapping[str, str] | None) -> Loaded:
    environ = os.environ if environ is None else environ
    if content is None:
        return Loaded(_with_standard(Settings(), environ), None, Path.cwd())
    settings = _with_standard(parse(_text(content), where=str(content.named)), environ)
    if "notify" in settings.model_fields_set and content.path != Path(os.path.abspath(own(environ))):
        refuse(
            str(content.named),
            ["[notify] is allowed in your own configuration only, not in a project's file"],
            f"write it to {own(environ)}",
        )
    return Loaded(settings, content.path, content.path.parent, content.digest)


def _with_standard(settings: Settings, environ: Mapping[str, str]) -> Settings:
    """What OpenTelemetry's variables say where the file says nothing; its exporter itself reads the others."""
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return settings
    found = {name: value for name, variable in STANDARD.items() if (value := environ.get(variable, "").strip())}
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
    """What a plan file says, over what ``base`` says: its tables key by key, its servers and agents added to those of
    ``base`` (of one name: key by key). Tasks or steps of a plan are all the tasks there are. As with ``load`` a person
    has to have used it as it is; where it is ``guessed`` that a file was meant, before. Raises ConfigInvalid,
    ConfigChanged."""
    read = partial(parse_plan, base=base, where=str(path))
    content, settings = _used(path, confirm, read, workspace, guessed=guessed)
    return Loaded(settings, content.path, content.path.parent, content.digest)


@dataclass(frozen=True, slots=True)
class Supplied:
    """``note`` says who was added and why; empty where nobody was."""

    settings: Settings
    note: str = ""


def supplied(settings: Settings, types: Sequence[str], environ: Mapping[str, str]) -> Supplied:
    """With agents of these types to begin with, where a configuration names none and has no tasks: a key in the
    environment, or a program that thinks, is enough; without either they go by a task's words. Raises ConfigInvalid."""
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
    names = f"there {'is' if len(types) == 1 else 'are'} {', '.join(types)}"
    note = f"no agent is configured ({why}): {names}, {starters.BUDGET_WORDS[who]}; ccswarm init writes this to a file"
    if who in starters.RIGHTS:
        note += f"\nnote: {starters.RIGHTS[who]}"
    return Supplied(settings.model_copy(update={"agents": added.agents, "mcp": servers}), note)


def peek_plan(path: Path, base: Settings) -> Settings:
    """As ``load_plan``, whether a person has agreed to it or not."""
    return parse_plan(_text(look(path)), base, where=str(path))


def as_started(sources: Sequence[str]) -> Settings | None:
    """What the configuration and the plans say that a run was started from: as they were then or as a person has used
    them since, whatever lies there now. None where there are none, or one is gone. Raises ConfigInvalid; ConfigChanged
    where a file is neither, and nobody used it here."""
    trust = ConfigTrust(state_directory())
    texts: list[str] = []
    for source in map(Source.parse, sources):
        content = look(source.path)
        if content.data is None:
            return None
        if content.digest != source.digest and trust.verdict(content) is not Verdict.SAME:
            content = _used_here(trust, content)
        texts.append(_text(content))
    if not texts:
        return None
    settings = parse(texts[0], where=str(Source.parse(sources[0]).path))
    for source, text in zip(sources[1:], texts[1:], strict=True):
        settings = parse_plan(text, settings, where=str(Source.parse(source).path))
    return settings


def servers_of(sources: tuple[str, ...]) -> Sequence[ServerSettings]:
    """The servers that a configuration and plans over it named when a run was started from them, or when a person used
    them since; of files that are gone, none. Raises ConfigInvalid, ConfigChanged."""
    settings = as_started(sources)
    return settings.mcp.servers if settings else ()


def settings_of(sources: Sequence[str]) -> tuple[Settings | None, Sequence[str]]:
    """What a configuration and plans over it say now, and what they are then as sources of a run; None, and the same
    sources, where one of them is gone. Raises ConfigInvalid, and ConfigChanged where a person has not used one as it
    is."""
    files = [Source.parse(source) for source in sources]
    if not files or not all(file.path.is_file() for file in files):
        return None, sources
    loaded = load(files[0].path)
    found = loaded.sources
    for plan in files[1:]:
        loaded = load_plan(plan.path, loaded.settings)
        found += loaded.sources
    return loaded.settings, found


def _used_here(trust: ConfigTrust, content: Content) -> Content:
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


def _used(
    path: Path,
    confirm: Confirm | None,
    read: Callable[[str], AnyRead],
    workspace: Path | None = None,
    *,
    guessed: bool = False,
) -> tuple[Content, AnyRead]:
    """A file that a person has used as it is, and what ``read`` makes of its text."""
    trust, asked, content = ConfigTrust(state_directory()), _Asked(confirm), look(path)
    change = trust.change(content) or (trust.mistaken(content) if guessed else None)
    if change:
        content = asked.later(change)
    made = read(_text(content))
    named = asked.about_programs(trust, content, None, workspace)
    asked.now()
    trust.use(one for one in (*named, content) if trust.verdict(one) is not Verdict.SAME)
    return content, made


def server_environment() -> dict[str, str]:
    """The environment that clients choose from what a server is given, and take the variables of headers from."""
    return dict(os.environ)


def secret(name: str, environ: Mapping[str, str] | None = None) -> str:
    """The environment variable of that name, else what the system's keyring keeps for service ``ccswarm`` under it,
    where the keyring package is installed; ``""`` where there is none."""
    if value := (os.environ if environ is None else environ).get(name, ""):
        return value
    try:
        keyring = import_module("keyring")
        return keyring.get_password("ccswarm", name) or ""
    except Exception:  # whatever keeps a keyring from opening: there is no secret then
        return ""


def command_of(server: ServerSettings) -> list[str]:
    """The words that start it; none for a server that is reached at an address."""
    return [*shlex.split(server.command), *server.args]


def load_as(
    model: type[AnySection],
    path: Path,
    advice: str,
    problems: Callable[[AnySection], Iterable[str]] = lambda _: (),
    *,
    confirm: Confirm | None = None,
) -> AnySection:
    """What another kind of TOML file says, which a person has to have used as it is. Raises ConfigInvalid, naming every
    problem, with ``advice``; ConfigChanged."""
    return _used(path, confirm, lambda text: parse_as(model, text, str(path), advice, problems))[1]


def text_of(path: Path) -> str:
    """What a file says, for nothing of it to be started. Raises ConfigInvalid where it cannot be read."""
    return _text(look(path))


def _text(content: Content) -> str:
    if content.data is None:
        raise ConfigInvalid(f"{content.named} does not exist", suggestion="ccswarm init writes a configuration")
    try:
        return content.data.decode()
    except UnicodeDecodeError:
        raise ConfigInvalid(f"{content.named} is not text in UTF-8", suggestion="save it again, as UTF-8") from None
