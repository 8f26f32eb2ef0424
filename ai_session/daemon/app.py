"""Builds sessions, policy, audit log and gate from settings, and starts and stops them."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, cast

from agentwire import plugins
from ai_session.audit.log import SYSLOG, AuditLog
from ai_session.config.config import Stamp, home_directory
from ai_session.config.settings import Settings
from ai_session.daemon.notices import PersonNotices, make_notifier
from ai_session.errors import ConfigInvalid, LimitReached
from ai_session.gate.consent.ancestry import ProcessAncestry
from ai_session.gate.consent.consent import Consent
from ai_session.gate.consent.person_check import PersonCheck
from ai_session.gate.consent.terminal_origin import Terminals
from ai_session.gate.domains import DomainQuestions
from ai_session.gate.feed import ChangeFeed
from ai_session.gate.gate import Gate
from ai_session.gate.hook import Hooks
from ai_session.gate.idempotency import CallKeys
from ai_session.gate.parts import GateParts
from ai_session.gate.policy.administrator import NOBODY, Administrator
from ai_session.gate.policy.mode import FILE, PolicyInForce
from ai_session.gate.policy.policy import HookProgram, Policy
from ai_session.gate.rate_limits import RateLimiter
from ai_session.gate.redaction.known_secrets import Masking
from ai_session.gate.telemetry.factory import open_telemetry
from ai_session.gate.trace import rate_key
from ai_session.gate.written import FILE as WRITTEN
from ai_session.gate.written import WrittenDirectories
from ai_session.models import Question, SandboxLevel, SandboxProfile
from ai_session.sandbox.boxes import AskDomain, Boxes, BoxSettings
from ai_session.sandbox.limits.cgroup import delegated
from ai_session.sandbox.limits.watch import ResourceWatch
from ai_session.sandbox.network.entry import environment as proxy_environment
from ai_session.sandbox.sandbox import Sandbox
from ai_session.sessions.manager import SessionManager
from ai_session.sessions.ownership import widening
from ai_session.sessions.spec import SessionDefaults
from ai_session.sessions.workspaces import Workspaces
from ai_session.tools.base import Limits, Tool

EXPIRE_SECONDS = 3600.0


class App:
    """One running ai-session. ``start`` adopts an earlier one's sessions; ``stop`` leaves or ends them."""

    def __init__(
        self,
        settings: Settings,
        runtime_directory: Path,
        administrator: Administrator = NOBODY,
        read_from: Mapping[str, Stamp] | None = None,
    ) -> None:
        """``read_from`` maps the files of the settings to their stamps just before they were read."""
        self.read_from = dict(read_from or {})
        settings = administrator.bound(settings)
        self._masking = masking = make_masking(settings, runtime_directory)
        self._audit = audit = make_audit(settings, runtime_directory, masking.masked)
        self._policy = policy = make_policy(settings, runtime_directory, administrator)
        rates = make_rates(settings)
        self._consent = consent = make_consent(settings, runtime_directory, audit.event, rates)
        domains = DomainQuestions(policy, consent, masking.masked)
        boxes = make_boxes(settings, runtime_directory, audit.event, domains.ask)
        self.sessions = SessionManager(runtime_directory, session_defaults(settings), boxes, audit.event)
        self._feed = ChangeFeed(self.sessions, consent, policy, masking, audit)
        policy.changed = self._policy_changed
        self._policy_changed()  # an earlier daemon may have asked under another policy
        workspaces = Workspaces(settings.sandbox.workspaces, str(home_directory()), [str(runtime_directory)])
        self._call_keys = CallKeys(runtime_directory / "calls", settings.calls.key_hours * 3600)
        self._written = WrittenDirectories(
            runtime_directory / WRITTEN, workspaces.configured, str(runtime_directory.resolve() / "sessions")
        )
        notifier = make_notifier(settings.notify, self._written, masking.masked)
        self._notices = PersonNotices(settings.notify, notifier, self.sessions)
        consent.asked = self._notices.notify_question
        tools = installed_tools()
        self._telemetry = open_telemetry(settings.telemetry, [*tools], masking.masked, gauges(self.sessions, consent))
        self.gate = Gate(
            GateParts(
                tools=tools,
                sessions=self.sessions,
                workspaces=workspaces,
                policy=policy,
                rates=rates,
                consent=consent,
                domains=domains,
                masking=masking,
                audit=audit,
                feed=self._feed,
                call_keys=self._call_keys,
                limits=call_limits(settings),
                hooks=Hooks(policy.hooks, self._written),
                written=self._written,
                telemetry=self._telemetry,
            )
        )
        self._expiry: asyncio.TimerHandle | None = None
        self._closing_idle: asyncio.Task[None] | None = None
        self._preparing: asyncio.Task[None] | None = None

    def _policy_changed(self) -> None:
        self._consent.policy_changed(self._policy.digest)
        self.sessions.boxes.forget_answers()
        self.sessions.changes.tools_changed()
        self._feed.record("policy")

    async def start(self) -> None:
        """Adopt the sessions of an earlier daemon."""
        self._telemetry.start()
        await self.sessions.adopt()
        for session in [session for session in self.sessions.all() if session.spec.once]:
            await self.sessions.close(session)
        await self.sessions.boxes.sweep()
        for session in self.sessions.all():
            if session.spec.level is not SandboxLevel.NONE:
                await self._written.add(session.spec.profile)
            with suppress(LimitReached):  # each call on the session reports it
                needed = partial(self._is_open, session.spec.session_id)
                self._masking.learn(session.spec.env, needed, widening(session.spec.owner)[-1], from_call=True)
        self._expire()
        self._notices.start()
        self._preparing = asyncio.create_task(self.sessions.make_ready())

    def _is_open(self, session_id: str) -> bool:
        return self.sessions.find(session_id) is not None

    def _expire(self) -> None:
        self._call_keys.expire()
        self._closing_idle = asyncio.create_task(self.sessions.close_idle(time.time()))
        self._expiry = asyncio.get_running_loop().call_later(EXPIRE_SECONDS, self._expire)

    @property
    def busy(self) -> bool:
        """Whether a live session exists."""
        return self.sessions.live > 0

    def session_names(self) -> dict[str, str]:
        """Return the name of each session by its id."""
        return {session.spec.session_id: session.spec.name for session in self.sessions.all()}

    async def stop(self, *, sessions: bool = False) -> None:
        """Stop: sessions keep running for the next daemon, unless ``sessions`` is true."""
        if self._expiry:
            self._expiry.cancel()
        if self._preparing:
            self._preparing.cancel()
            await asyncio.wait((self._preparing,))
        if self._closing_idle:
            # It takes no longer than the grace of its sessions; no other process would finish a half-closed one.
            await asyncio.wait((self._closing_idle,))
        if sessions:
            await self.sessions.stop()
        await self._feed.close()
        await self._notices.close()
        await self.sessions.aclose()
        self._audit.close()
        await self._telemetry.close()


def installed_tools() -> dict[str, Tool]:
    """Return every tool by its name, in alphabetical order. Raises ConfigInvalid for files that export none, or one of
    another file."""
    return by_name({name: plugins.load("ai_session.tools", name) for name in plugins.names("ai_session.tools")})


def by_name(exported: Mapping[str, Any]) -> dict[str, Tool]:
    """Return the tools that the plug-ins named by ``exported`` export, by name. Raises ConfigInvalid."""
    found: dict[str, Tool] = {}
    for plugin, tools in exported.items():
        if not isinstance(tools, (tuple, list)):
            raise ConfigInvalid(
                f"PLUGIN of the tools plug-in {plugin!r} is not a tuple",
                suggestion="write PLUGIN = (Tool(…),), with the comma",
            )
        for tool in cast("Sequence[Tool]", tools):
            if tool.name in found:
                raise ConfigInvalid(
                    f"the tools plug-in {plugin!r} exports {tool.name}, which another plug-in already exports",
                    suggestion="give the tool another name",
                )
            found[tool.name] = tool
    return dict(sorted(found.items()))


def call_limits(settings: Settings) -> Limits:
    """Return the configured limits of calls."""
    return Limits(
        max_output_chars=settings.output.max_chars,
        execute_seconds=settings.timeouts.execute_seconds,
        wait_seconds=settings.timeouts.wait_seconds,
        interrupt_step_seconds=settings.timeouts.interrupt_step_seconds,
    )


def make_masking(settings: Settings, runtime_directory: Path) -> Masking:
    """Return what finds and masks secrets."""
    masks = settings.redaction
    return Masking(runtime_directory / "redaction.key", masks.environment, masks.patterns, enabled=masks.enabled)


def make_audit(settings: Settings, runtime_directory: Path, redact: Callable[[str], str]) -> AuditLog:
    """Return the audit log, whose texts pass ``redact``."""
    return AuditLog(
        runtime_directory / "audit",
        segment_bytes=settings.audit.segment_bytes,
        retain_days=settings.audit.retain_days,
        redact=redact,
        syslog=SYSLOG,
    )


def make_policy(settings: Settings, runtime_directory: Path, administrator: Administrator) -> PolicyInForce:
    """Return the user's policy below the administrator's, in the mode that was set last."""
    own = settings.policy
    hook = HookProgram.of(own.hook, own.hook_seconds, "the configuration")
    configured = Policy(os.getuid(), own.mode, own.rules, hook=hook)
    return PolicyInForce(configured, runtime_directory / FILE, administrator.policy(os.getuid()), administrator.path)


def make_rates(settings: Settings) -> RateLimiter:
    """Return the limits per caller and minute."""
    return RateLimiter(
        {kind.removesuffix("_per_minute"): amount for kind, amount in settings.rates.model_dump().items()}
    )


def make_consent(
    settings: Settings, runtime_directory: Path, event: Callable[..., None], rates: RateLimiter
) -> Consent:
    """Return what asks people; ``rates`` limits how often each client may cause a question."""
    process_ancestry = ProcessAncestry(home_directory())

    def admit(question: Question) -> None:
        who = question.principal
        claimed = f"{who.subject or who.kind}:{who.client}"
        for key in (claimed, rate_key(who)):  # a name is only a claim
            rates.acquire(key, "questions")

    return Consent(
        runtime_directory / "approvals",
        event=event,
        process_ancestry=process_ancestry,
        person=PersonCheck(
            runtime_directory / "person",
            event=event,
            terminals=Terminals(process_ancestry, settings.consent.terminals),
            from_remote=settings.consent.from_remote,
        ),
        ask_seconds=settings.policy.ask_seconds,
        admit=admit,
    )


def gauges(sessions: SessionManager, consent: Consent) -> dict[str, Callable[[], int]]:
    """Return what is measured at any time, by the name of its metric."""
    return {
        "ai_session.sessions.open": lambda: sessions.live,
        "ai_session.commands.running": lambda: sum(one.running is not None for one in sessions.all()),
        "ai_session.questions.waiting": lambda: len(consent.pending()),
    }


def session_defaults(settings: Settings) -> SessionDefaults:
    """Return the properties of a session that the caller does not set."""
    session = settings.session
    return SessionDefaults(
        backend=session.backend,
        shell=session.shell,
        user_rc=session.user_rc,
        rows=session.rows,
        cols=session.cols,
        max_sessions=session.max_sessions,
        max_sessions_per_owner=session.max_sessions_per_owner,
        retain_bytes=session.retain_bytes,
        owned_idle_days=session.owned_idle_days,
        close_grace_seconds=session.close_grace_seconds,
        env=dict(session.env),
        env_allow=tuple(session.env_allow),
    )


def box_template(settings: Settings) -> SandboxProfile:
    """Return the limits and lists of every box, without a workspace and a home."""
    box, network = settings.sandbox, settings.network
    return SandboxProfile(
        name=box.profile,
        readable=box.readable,
        writable=box.writable,
        home_readable=box.home_readable,
        masked=box.masked,
        protected=box.protected,
        network="proxy" if network.allow_domains or network.ask else "off",
        domains=network.allow_domains,
        ports=network.ports,
        memory_bytes=box.memory_bytes,
        processes=box.processes,
        file_bytes=box.file_bytes,
        tmp_bytes=box.tmp_bytes,
    )


def make_boxes(settings: Settings, runtime_directory: Path, event: Callable[..., None], ask_domain: AskDomain) -> Boxes:
    """Return what contains the shells of new sessions."""
    minimum = SandboxLevel(settings.sandbox.minimum_level)
    return Boxes(
        BoxSettings(
            box_template(settings),
            minimum,
            settings.sandbox.env_allow,
            settings.network.ask,
            dict(settings.session.env),
        ),
        Sandbox(runtime_directory=runtime_directory, minimum_level=minimum, proxy_env=proxy_environment()),
        ResourceWatch(delegated()),
        event,
        ask_domain,
    )
