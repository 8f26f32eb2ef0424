"""What people do that is not a tool call: attaching, answering, stopping and so on."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ai_session.config.config import default_path
from ai_session.errors import Denied, InvalidArguments, StorageFull
from ai_session.gate.consent.consent import Watch
from ai_session.gate.consent.person_check import Signature, Way
from ai_session.gate.feed import Reader
from ai_session.gate.hook import call_facts
from ai_session.gate.parts import CONFIGURED, STOP, WATCH, GateParts
from ai_session.gate.policy.explain import decisions, defaults, reading
from ai_session.gate.policy.policy import Action, Decision
from ai_session.gate.trace import LOST, Program
from ai_session.models import Answer, Effect, Principal, Question
from ai_session.sessions.cursor import Cursor
from ai_session.sessions.lease import Lease
from ai_session.sessions.names import checked_name
from ai_session.sessions.ownership import APPROVE, shared_with, visibility_of
from ai_session.sessions.report import recording_source
from ai_session.sessions.session import Session
from ai_session.sessions.viewer import Viewer
from ai_session.sessions.visible import VisibleSessions
from ai_session.terminal.recording import write_recording

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from ai_session.gate.consent.person_signature import PublicKey
    from ai_session.gate.consent.store import Grant
    from ai_session.terminal.recording import Source

BOXED = "sandbox"


class PersonActions:
    """Actions that are judged and recorded as calls are, under call ids of their own, and refused to clients."""

    def __init__(self, parts: GateParts) -> None:
        self.parts = parts

    def _visible(self, principal: Principal) -> VisibleSessions:
        return VisibleSessions(self.parts.sessions, visibility_of(principal))

    async def attach(self, principal: Principal, reference: str, *, rows: int, cols: int, read_only: bool) -> Viewer:
        """Return a person's live view of a session. Raises SessionNotFound, SessionExited, Denied."""
        async with self._attached(principal, reference, read_only=read_only) as session:
            viewer = Viewer(session, read_only=read_only, closed=self._end_event(principal, session, "session.detach"))
            await viewer.resize(rows, cols)
            self.parts.sessions.changes.look(session)
            return viewer

    async def look(
        self,
        principal: Principal,
        reference: str,
        offset: int | None,
        *,
        exact: bool,
        window_bytes: int,
        wake: Callable[[], None],
    ) -> Cursor:
        """Return a cursor of a person's own in a session's output; nothing else changes.

        Raises SessionNotFound, InvalidArguments, Denied.
        """
        async with self._attached(principal, reference, read_only=True) as session:
            closed = self._end_event(principal, session, "session.detach")
            return Cursor(session, offset, exact=exact, window_bytes=window_bytes, wake=wake, closed=closed)

    async def take_over(
        self, principal: Principal, reference: str, who: str, *, force: bool, lost: Callable[[str, str], None]
    ) -> Lease:
        """Make a person the only one to type in a session until the lease is released. ``lost`` is called with the
        session and the new typist if another person takes over. Raises SessionTakenOver, SessionExited,
        SessionNotFound, Denied."""
        async with self._attached(principal, reference, read_only=False) as session:
            session_id = session.spec.session_id
            released = self._end_event(principal, session, "session.release")
            name = self.parts.masking.masked(who)
            lease = Lease.take(session, name, force=force, lost=partial(lost, session_id), released=released)
            self.parts.audit.event("session.take_over", principal, session=session_id, who=name)
            return lease

    @asynccontextmanager
    async def _attached(self, principal: Principal, reference: str, *, read_only: bool) -> AsyncGenerator[Session]:
        effect = Effect.READ if read_only else Effect.EXECUTE
        action = Action(principal, "attach", effect)
        if found := self._visible(principal).find(reference):
            spec = found.spec
            action = replace(action, session=spec.name, profile=spec.profile.name, level=spec.level)
        given = {"session_id": reference, "read_only": read_only}
        async with self.parts.recorded(principal, "attach", effect, given, action):
            session = self._visible(principal).get(reference)
            await session.reader.up_to_date()
            yield session

    def _end_event(self, principal: Principal, session: Session, event: str) -> Callable[[], None]:
        return partial(self.parts.audit.event, event, principal, session=session.spec.session_id)

    async def follow_changes(self, principal: Principal, cursor: str = "") -> Reader:
        """Return a reader of changes, from now on or since ``cursor``. Raises CursorExpired, InvalidArguments,
        Denied."""
        async with self.parts.recorded(principal, WATCH, Effect.READ, {}):
            return self.parts.feed.reader(cursor)

    async def rename(self, principal: Principal, reference: str, name: str) -> None:
        """Rename a session. Raises SessionNotFound, SessionExists, InvalidArguments, Denied."""
        async with self.parts.recorded(principal, "rename", Effect.WRITE, {"session_id": reference, "name": name}):
            session = self._visible(principal).get(reference)
            try:
                self.parts.sessions.rename(session, checked_name(name))
            except ValueError as error:
                raise InvalidArguments(f"name: {error}", fields={"name": str(error)}) from None

    async def share(self, principal: Principal, reference: str, names: list[str]) -> None:
        """Let others see and use a session as its owner does: agents, users, runs, or ``everyone``; an empty list ends
        it.

        Raises SessionNotFound, InvalidArguments, Denied.
        """
        given = {"session_id": reference, "with": names}
        async with self.parts.recorded(principal, "share", Effect.WRITE, given) as trace:
            session = self._visible(principal).get(reference)
            trace.facts["session"] = session.spec.session_id
            self.parts.sessions.change(session, shared_with=shared_with(names))

    async def recording(self, principal: Principal, reference: str) -> tuple[Path, Source]:
        """Write the session to a new asciicast file, which the caller must remove, and return it and its source.

        Raises SessionNotFound, Denied.
        """
        async with self.parts.recorded(principal, "record", Effect.READ, {"session_id": reference}):
            session = self._visible(principal).get(reference)
            source = await session.work(recording_source(session))
            folder = self.parts.sessions.runtime_directory / "recordings"
            path = await asyncio.to_thread(write_recording, source, self.parts.masking.spans, folder)
            return path, source

    async def approvals(self, principal: Principal) -> tuple[list[tuple[Question, Way]], list[Grant]]:
        """Return the open questions, each with how this person's yes would be accepted, and the approvals for more than
        one call. Raises Denied."""
        async with self.parts.recorded(principal, "approvals", Effect.READ, {}):
            if not self.parts.consent.pending():
                return [], self.parts.consent.grants()
            standing = await self.parts.consent.person.standing(principal)
            pending = self.parts.consent.pending()
            open_questions: list[tuple[Question, Way]] = [
                (question, self.parts.consent.way(question, principal, standing)) for question in pending
            ]
            return open_questions, self.parts.consent.grants()

    async def facts(self, principal: Principal) -> dict[str, Any]:
        """Return whether the caller is known to be a person, the enrolled key, and what to sign next. Raises Denied."""
        async with self.parts.recorded(principal, "person", Effect.READ, {}):
            return await self.parts.consent.person.facts(principal)

    async def enrol(self, principal: Principal, line: str, signature: Signature | None) -> PublicKey:
        """Enrol a person's key. Raises InvalidArguments, SignatureNeeded, SignatureRefused, Denied."""
        async with self.parts.recorded(principal, "enrol", Effect.READ, {"key": line}, scope=APPROVE):
            return await self.parts.consent.person.enrol(principal, line, signature)

    async def unenrol(self, principal: Principal, signature: Signature | None) -> PublicKey:
        """Remove the enrolled key. Raises as ``enrol``."""
        async with self.parts.recorded(principal, "unenrol", Effect.READ, {}, scope=APPROVE):
            return await self.parts.consent.person.remove(principal, signature)

    async def answer(
        self, principal: Principal, question_id: str, answer: Answer, signature: Signature | None = None
    ) -> str:
        """Accept a person's answer to a question, or a denial that ends a grant; return what it was about.

        Raises InvalidArguments for an unknown id, SignatureNeeded without evidence of a person, SignatureRefused.
        """
        given = {"name": question_id, "allowed": answer.allowed, "reason": answer.reason}
        async with self.parts.recorded(principal, "answer", Effect.READ, given, scope=APPROVE):
            if question_id.startswith("gr_") and not answer.allowed:
                self.parts.sessions.boxes.forget_answers()
                return self.parts.consent.revoke(question_id, principal).what
            return (await self.parts.consent.answer(question_id, answer, principal, signature)).message

    async def watch(self, principal: Principal) -> Watch:
        """Return a watch of the questions this person may answer, as they open and close. Raises Denied."""
        async with self.parts.recorded(principal, "watch", Effect.READ, {}, scope=APPROVE):
            return await self.parts.consent.watch(principal)

    async def stop(self, principal: Principal, leave: Callable[[], None], *, sessions: bool) -> str:
        """End the daemon, which ``leave`` begins, with or without all sessions. Raises Denied.

        An audit log that cannot be written does not prevent it; returns what is wrong with it, or ``""``.
        """
        problem = ""
        async with self.parts.recorded(principal, STOP, Effect.DESTRUCTIVE, {"sessions": sessions}):
            try:
                self.parts.audit.require_room(None)
            except StorageFull as error:
                problem = error.message
            leave()
        return problem

    @asynccontextmanager
    async def sandboxed(
        self, principal: Principal, argv: Sequence[str], *, profile: str, workspace: str, domains: Sequence[str] | None
    ) -> AsyncGenerator[Program]:
        """Surround a program that a person runs in a box on their own terminal. Raises Denied, RateLimited,
        StorageFull.

        ``profile`` and ``domains`` default to the configured ones; raises InvalidArguments if that is no box. The
        outcome is ``lost`` until the caller sets it and the facts ``level`` and ``exit_code``.
        """
        template = self.parts.sessions.boxes.template
        profile = profile or template.name
        domains = template.domains if domains is None else domains
        if profile == "trusted" == template.name:
            raise InvalidArguments(f"no box is called {profile!r}", suggestion="--profile read-only or workspace")
        command = shlex.join(argv)
        given = {"command": command, "profile": profile, "working_directory": workspace, "domains": list(domains)}
        run = Action(principal, BOXED, Effect.EXECUTE, profile=profile, command=command, paths=(workspace,))
        reached = (Action(principal, BOXED, Effect.NETWORK, profile=profile, domain=name) for name in domains)
        async with self.parts.recorded(principal, BOXED, Effect.EXECUTE, given, run, *reached) as trace:
            facts = {
                **call_facts(principal, BOXED, Effect.EXECUTE, self.parts.masking, given),
                "agent": "",
                "mode": self.parts.policy.mode,
                "session": None,
                "directory": workspace,
                "box": {"profile": profile, "level": "", "workspace": workspace},
            }
            decision = await self.parts.hooks.judge(principal, Decision("allow", trace.rule), lambda: facts)
            if decision.verdict == "deny":
                trace.rule = decision.rule
                raise Denied(f"{BOXED} is denied by {decision.rule}: {decision.reason}", suggestion=CONFIGURED)
            await self.parts.written.add(self.parts.sessions.boxes.profile(profile), workspace)
            trace.outcome = LOST
            trace.facts |= {"profile": profile, "cwd": workspace, "domains": list(domains) or None}
            try:
                event = partial(self.parts.audit.event, principal=principal, call=trace.call_id)
                yield Program(trace, event, await self.parts.sessions.boxes.facts())
            finally:
                # It may have been killed along with its box.
                await self.parts.sessions.boxes.sweep()

    async def policy(self, principal: Principal, mode: str = "", signature: Signature | None = None) -> dict[str, Any]:
        """Return the policy's facts, after setting ``mode`` if it is given. Anyone may set a tighter one.

        Raises InvalidArguments, and SignatureNeeded for a looser one without evidence of a person.
        """
        given = {"name": mode} if mode else {}
        async with self.parts.recorded(principal, "policy", Effect.READ, given, scope=APPROVE if mode else "") as trace:
            if mode:
                by_person = self.parts.policy.loosens(mode)
                if by_person:
                    trace.facts["by"] = await self.parts.consent.person.require(
                        principal,
                        "mode",
                        {"mode": mode, "policy_sha256": self.parts.policy.digest},
                        signature,
                        refused=f"mode {mode} is looser than {self.parts.policy.mode}, and only a person may loosen",
                        again=f"ai-session policy mode {mode}",
                    )
                self.parts.policy.set_mode(mode, by_person=by_person)
                trace.facts["mode"] = mode
            return self.parts.policy.facts() | {"box_writable": [*self.parts.written]}

    async def explain(self, principal: Principal, command: str, client: str, agent: str) -> dict[str, Any]:
        """Return the policy with where each rule is written, what the mode decides without one, the box of new
        sessions, and what would be decided about ``command`` if one is given. Raises Denied."""
        given = {name: value for name, value in (("command", command), ("client", client), ("agent", agent)) if value}
        async with self.parts.recorded(principal, "explain", Effect.READ, given):
            policy, box = self.parts.policy, self.parts.sessions.boxes.template
            rules = await asyncio.to_thread(policy.located_rules, default_path())
            uid = principal.uid
            record_decision = {
                "command": command,
                **reading(command),
                "decisions": decisions(policy.decide, uid, command, client, agent),
            }
            return {
                **policy.facts(),
                "rules": rules,
                "defaults": defaults(uid, policy.mode),
                "box": {**asdict(box), "minimum_level": self.parts.sessions.boxes.minimum_level.value},
                "workspaces": list(self.parts.workspaces.configured),
                "box_writable": [*self.parts.written],
                **({"judged": record_decision} if command else {}),
            }
