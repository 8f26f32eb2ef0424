"""Names a session wants to reach: asked on behalf of the client that acted there, whose processes cannot answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from ai_session.errors import ConsentNeeded, Denied
from ai_session.gate.domains import MAX_SESSIONS, UNKNOWN, DomainQuestions
from ai_session.gate.policy.mode import PolicyInForce
from ai_session.gate.policy.policy import Policy
from ai_session.models import Answer, Principal, SandboxLevel, SandboxProfile, SessionSpec
from tests.ai_session.support.questions import NO, PERSON, UID, YES, Asking

pytestmark = pytest.mark.anyio

AGENT = Principal(kind="mcp", uid=UID, pid=10, client="agent")
OTHER = Principal(kind="mcp", uid=UID, pid=20, client="other")
SPEC = SessionSpec(
    session_id="ses_1",
    name="main",
    shell="bash",
    backend="pty",
    working_directory="/",
    env={},
    rows=1,
    cols=1,
    created_at=0.0,
    nonce="",
    cookie="",
    profile=SandboxProfile("workspace"),
    level=SandboxLevel.BWRAP,
)


class DomainSetup:
    """Consent with a process table of the test's, and a policy that asks about names."""

    def __init__(self, directory: Path, mode: str = "workspace") -> None:
        directory.mkdir(exist_ok=True)
        self.asking = Asking(directory / "consent")
        policy = Policy(UID, mode, [{"id": "packages", "decision": "allow", "domains": ["pypi.org"]}])
        self.domains = DomainQuestions(
            PolicyInForce(policy, directory / "mode.json"),
            self.asking.consent,
            lambda text: text.replace("hunter2", "***"),
        )

    async def asked(self, domain: str = "evil.org") -> tuple[str, str]:
        """Client and id of the question that a refused name left."""
        before = {q.question_id for q in self.asking.consent.pending()}
        with pytest.raises(ConsentNeeded):
            await self.domains.ask(SPEC, domain)
        (new,) = [q for q in self.asking.consent.pending() if q.question_id not in before]
        assert (new.tool, new.session, new.message.split("\n")[:2]) == (
            "network",
            "ses_1",
            [f"{new.principal.client} wants network in session main:", f"    {domain}"],
        )
        return new.principal.client, new.question_id

    async def answered_by(self, pid: int | None, question_id: str, answer: Answer = YES) -> None:
        person = Principal(kind="person", uid=UID, pid=pid)
        await self.asking.consent.answer(question_id, answer, person)


@pytest.fixture
def setup(tmp_path: Path) -> DomainSetup:
    return DomainSetup(tmp_path)


async def test_the_client_that_acted_last_asks_and_cannot_answer(setup: DomainSetup) -> None:
    setup.domains.record_caller("ses_1", AGENT)
    setup.domains.record_caller("ses_2", OTHER)
    client, question_id = await setup.asked()
    assert client == "agent"
    for pid in (10, 11, 12):
        with pytest.raises(Denied, match="cannot answer itself"):
            await setup.answered_by(pid, question_id)
    await setup.answered_by(900, question_id, Answer(True, scope="always"))
    assert await setup.domains.ask(SPEC, "evil.org")
    setup.domains.record_caller("ses_1", OTHER)
    assert (await setup.asked())[0] == "other"


async def test_a_secret_in_a_name_is_in_no_question_nor_grant(setup: DomainSetup) -> None:
    setup.domains.record_caller("ses_1", AGENT)
    with pytest.raises(ConsentNeeded):
        await setup.domains.ask(SPEC, "hunter2.evil.org")
    (question,) = setup.asking.consent.pending()
    assert "***.evil.org" in question.message
    assert "hunter2" not in repr(question)
    await setup.answered_by(900, question.question_id, Answer(True, scope="always"))
    assert "hunter2" not in repr(setup.asking.consent.grants())
    assert await setup.domains.ask(SPEC, "hunter2.evil.org")
    with pytest.raises(ConsentNeeded):
        await setup.domains.ask(SPEC, "***.evil.org")


async def test_a_persons_own_command_gives_what_a_client_left_no_leave(setup: DomainSetup) -> None:
    setup.domains.record_caller("ses_1", PERSON)
    assert (await setup.asked("a.org"))[0] == UNKNOWN.client
    setup.domains.record_caller("ses_1", AGENT)
    setup.domains.record_caller("ses_1", PERSON)
    assert (await setup.asked("b.org"))[0] == "agent"


async def test_where_nobody_is_known_to_have_acted_no_client_answers(setup: DomainSetup) -> None:
    _, question_id = await setup.asked()
    for pid in (11, 12):
        with pytest.raises(Denied, match="cannot answer itself"):
            await setup.answered_by(pid, question_id)
    await setup.answered_by(900, question_id)
    assert await setup.domains.ask(SPEC, "evil.org")


async def test_a_rejection_is_distinguished_from_no_answer(setup: DomainSetup) -> None:
    setup.domains.record_caller("ses_1", AGENT)
    _, question_id = await setup.asked()
    await setup.answered_by(900, question_id, NO)
    assert not await setup.domains.ask(SPEC, "evil.org")


async def test_what_the_policy_decides_asks_nobody(tmp_path: Path) -> None:
    for mode, domain in (("trusted", "evil.org"), ("workspace", "pypi.org")):
        setup = DomainSetup(tmp_path / mode, mode)
        assert await setup.domains.ask(SPEC, domain)
    setup = DomainSetup(tmp_path / "shut", "read-only")
    with pytest.raises(Denied, match="default:read-only"):
        await setup.domains.ask(SPEC, "evil.org")
    assert setup.asking.consent.pending() == []


async def test_no_more_is_remembered_than_there_may_be_sessions(setup: DomainSetup) -> None:
    setup.domains.record_caller("ses_1", AGENT)
    for number in range(MAX_SESSIONS):
        setup.domains.record_caller(f"later_{number}", OTHER)
    assert (await setup.asked())[0] == UNKNOWN.client
