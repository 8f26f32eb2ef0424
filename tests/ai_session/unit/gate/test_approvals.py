"""What is kept of questions and grants: whole or not at all, bounded, and the same after a restart."""

from __future__ import annotations

import json
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ai_session.errors import LimitReached
from ai_session.gate.consent.store import (
    MAX_GRANTS,
    MAX_OPEN,
    MAX_OPEN_OF_ONE,
    MAX_OPEN_OF_USER,
    Approval,
    Approvals,
    binding,
    covers,
)
from ai_session.models import Answer, Principal, Question

TEXT = st.text(max_size=30)
UNICODE = st.text(st.characters(), max_size=30)


def question(number: int = 1, **changes: Any) -> Question:
    facts: dict[str, Any] = {
        "question_id": f"ap_{number}",
        "principal": Principal(kind="mcp", uid=1, client="agent"),
        "tool": "t",
        "session": "s",
        "message": "m",
        "rule": "r",
        "arguments_sha256": "a",
        "policy_sha256": "p",
        "asked_at": float(number),
        "expires_at": 1e6,
        **changes,
    }
    return Question(**facts)


def approval(number: int = 1, expires_at: float = 1e6, **changes: Any) -> Approval:
    asked = question(number, **changes)
    return Approval(asked, binding(asked), frozenset({"1:2"}), expires_at)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@given(
    st.builds(
        Approval,
        question=st.builds(
            question,
            st.integers(0, 9),
            message=UNICODE,
            tool=TEXT,
            rule=UNICODE,
            session=TEXT,
            detail=UNICODE,
            principal=st.builds(
                Principal,
                kind=st.just("mcp"),
                uid=st.integers(0, 9),
                client=UNICODE,
                pid=st.none() | st.integers(1, 9),
                working_directory=UNICODE,
            ),
        ),
        binding=TEXT,
        askers=st.frozensets(TEXT),
        expires_at=st.floats(1, 1e9),
        nonce=TEXT,
        nonce_expires_at=st.floats(0, 1e9),
        answer=st.none() | st.builds(Answer, allowed=st.booleans(), reason=UNICODE),
    )
)
def test_what_is_put_is_there_after_a_restart(kept: Approval) -> None:
    folder = Path(tempfile.mkdtemp())
    try:
        Approvals(folder, Clock()).put(kept)
        assert list(Approvals(folder, Clock())) == [kept]
    finally:
        shutil.rmtree(folder)


def test_the_environment_of_a_client_is_never_written(tmp_path: Path) -> None:
    asker = Principal(kind="mcp", uid=1, env={"TOKEN": "s3cret"})
    Approvals(tmp_path, Clock()).put(approval(principal=asker))
    (path,) = (tmp_path / "questions").iterdir()
    assert "s3cret" not in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"null", b"{}", b"\xff\xfe", b'{"question": 5}', b"[" * 100_000, "torn", "renamed", "not yes"],
)
def test_what_cannot_be_read_was_never_asked(tmp_path: Path, content: bytes | str) -> None:
    store = Approvals(tmp_path, Clock())
    store.put(replace(approval(), answer=Answer(True)))
    path = tmp_path / "questions/ap_1.json"
    whole = path.read_bytes()
    if content == "renamed":
        path.rename(path.with_name("ap_2.json"))
    elif content == "not yes":
        path.write_bytes(whole.replace(b'"allowed": true', b'"allowed": "no"'))
    else:
        path.write_bytes(whole[:-9] if content == "torn" else content)  # type: ignore[arg-type]
    (tmp_path / "grants.json").write_bytes(whole[:-9] if isinstance(content, str) else content)
    store = Approvals(tmp_path, Clock())
    assert list(store) == []
    assert store.grants() == []
    assert not list((tmp_path / "questions").iterdir())


def test_a_name_that_is_no_file_name_is_refused(tmp_path: Path) -> None:
    for name in ("../key", "", "a/b", "a" * 81, ".", "a\0"):
        with pytest.raises(ValueError, match="is not a valid file name"):
            Approvals(tmp_path, Clock()).put(approval(question_id=name))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["questions"]


def asking(client: int) -> Principal:
    """One client of many, a few for each user."""
    subject = f"user {client * MAX_OPEN_OF_ONE // MAX_OPEN_OF_USER}"
    return Principal(kind="mcp", uid=1, client=str(client), subject=subject)


def test_one_user_under_many_names_leaves_questions_to_others(tmp_path: Path) -> None:
    store = Approvals(tmp_path, Clock())
    for number in range(MAX_OPEN_OF_USER):
        store.put(approval(number, principal=Principal("mcp", 1, client=f"name {number}", subject="mallory")))
    with pytest.raises(LimitReached, match="of this user"):
        store.put(approval(9999, principal=Principal("mcp", 1, client="another", subject="mallory")))
    store.put(approval(9999, principal=Principal("mcp", 1, client="agent", subject="alice")))


def test_open_questions_are_bounded_for_one_client_and_for_all(tmp_path: Path) -> None:
    clock = Clock()
    store = Approvals(tmp_path, clock)
    number = 0
    for client in range(MAX_OPEN // MAX_OPEN_OF_ONE):
        for _ in range(MAX_OPEN_OF_ONE):
            store.put(approval(number := number + 1, 10.0, principal=asking(client)))
        if client == 0:
            with pytest.raises(LimitReached):
                store.put(approval(9999, principal=asking(0)))
    with pytest.raises(LimitReached):
        store.put(approval(9999))
    store.put(replace(approval(1), nonce="changed"))
    clock.now = 10.0
    store.put(approval(9999))
    assert [a.question.question_id for a in store] == ["ap_9999"] or len(list(store)) == 2


def test_grants_are_bounded_and_the_newest_stay(tmp_path: Path) -> None:
    path = tmp_path / "grants.json"
    Approvals(tmp_path, Clock()).grant(question(detail="0"), Answer(True, scope="always"))
    (one,) = json.loads(path.read_text())
    others = (
        {"grant_id": f"gr_{n}", "covers": covers(question(detail=str(n)), "always")} for n in range(MAX_GRANTS - 5)
    )
    path.write_text(json.dumps([one | other for other in others]))
    store = Approvals(tmp_path, Clock())
    assert len(store.grants()) == MAX_GRANTS - 5
    assert store.granted(question(detail="0"))
    for number in range(MAX_GRANTS - 5, MAX_GRANTS + 5):
        store.grant(question(detail=str(number)), Answer(True, scope="always"))
    assert len(store.grants()) == MAX_GRANTS
    assert store.granted(question(detail="4")) is None
    assert store.granted(question(detail="5"))
    assert store.granted(question(detail=str(MAX_GRANTS + 4)))
    assert len(json.loads(path.read_text())) == MAX_GRANTS


def test_an_answer_for_a_session_holds_for_seven_days_and_one_for_always_longer(tmp_path: Path) -> None:
    clock = Clock()
    store = Approvals(tmp_path, clock)
    store.grant(question(), Answer(True, scope="session"))
    store.grant(question(detail="other"), Answer(True, scope="always"))
    clock.now = 7 * 86400 - 1
    assert store.granted(question())
    clock.now += 1
    assert store.granted(question()) is None
    assert store.granted(question(detail="other"))


@pytest.mark.parametrize(
    "changes",
    [
        {"tool": "x"},
        {"session": "x"},
        {"arguments_sha256": "x"},
        {"policy_sha256": "x"},
        {"rule": "x"},
        {"principal": Principal(kind="mcp", uid=2, client="agent")},
        {"principal": Principal(kind="person", uid=1, client="agent")},
        {"principal": Principal(kind="mcp", uid=1, client="x")},
        {"principal": Principal(kind="mcp", uid=1, client="agent", working_directory="/x")},
        {"principal": Principal(kind="mcp", uid=1, client="agent", subject="alice", scopes=frozenset({"admin"}))},
    ],
)
def test_a_binding_is_of_one_call_only_and_survives_a_new_relay(changes: dict[str, Any]) -> None:
    assert binding(question(**changes)) != binding(question())
    again = Principal(kind="mcp", uid=1, client="agent", pid=77, env={"X": "y"})
    assert binding(question(2, principal=again, message="later")) == binding(question())


def test_what_one_user_of_a_front_was_allowed_for_good_is_no_other_users() -> None:
    alice, bob = (question(principal=Principal("mcp", 1, client="agent", subject=who)) for who in ("alice", "bob"))
    assert covers(alice, "always") != covers(bob, "always")


def test_parts_of_a_binding_do_not_run_into_each_other() -> None:
    assert binding(question(tool="ab", rule="c")) != binding(question(tool="a", rule="bc"))
    assert covers(question(rule='a", "b'), "always") != covers(question(rule="a", detail="b"), "always")


class Store(RuleBasedStateMachine):
    """Any sequence of what consent does, with restarts in between: the store is what a dictionary would be."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.clock = Clock()
        self.store = Approvals(self.folder, self.clock)
        self.model: dict[str, Approval] = {}

    @rule(number=st.integers(1, 5), left=st.floats(1, 100), nonce=TEXT)
    def put(self, number: int, left: float, nonce: str) -> None:
        kept = replace(approval(number, self.clock.now + left), nonce=nonce)
        self.store.put(kept)
        self.model[f"ap_{number}"] = kept

    @rule(number=st.integers(1, 5))
    def remove(self, number: int) -> None:
        self.store.remove(f"ap_{number}")
        self.model.pop(f"ap_{number}", None)

    @rule(seconds=st.floats(0, 60))
    def wait(self, seconds: float) -> None:
        self.clock.now += seconds
        self.model = {k: v for k, v in self.model.items() if self.clock.now < v.expires_at}

    @rule()
    def restart(self) -> None:
        self.store = Approvals(self.folder, self.clock)

    @invariant()
    def same(self) -> None:
        assert {a.question.question_id: a for a in self.store} == self.model
        assert {path.stem for path in (self.folder / "questions").glob("*.json")} == set(self.model)

    def teardown(self) -> None:
        shutil.rmtree(self.folder)


TestStore = Store.TestCase
