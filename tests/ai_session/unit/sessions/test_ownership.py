"""Whose a session is: paths of owners, who sees what, and what a token reaches."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ai_session.errors import InsufficientScope, InvalidArguments
from ai_session.models import Effect, Principal, SessionSpec
from ai_session.sessions.ownership import EVERYONE, Visibility, require_scope, shared_with, visibility_of, widening

LOCAL = Principal("mcp", uid=1)
ALICE = replace(LOCAL, subject="alice", scopes=frozenset({"sessions:read"}))
ADMIN = replace(LOCAL, subject="root", scopes=frozenset({"admin"}))
PERSON = Principal("person", uid=1)
NAMES = st.text(min_size=1, max_size=12)


def spec(owner: str = "", shared: tuple[str, ...] = ()) -> SessionSpec:
    return SessionSpec("i", "n", "bash", "pty", "/", {}, 1, 1, 0.0, "x", "y", owner=owner, shared_with=shared)


@pytest.mark.parametrize(
    ("principal", "run", "agent", "owner"),
    [
        (LOCAL, "", "", ""),
        (LOCAL, "", "scout", "agent:scout"),
        (LOCAL, "r1", "scout", "run:r1/agent:scout"),
        (ALICE, "", "", "user:alice"),
        (ALICE, "r1", "scout", "user:alice/run:r1/agent:scout"),
        (LOCAL, "", "a/agent:b", "agent:a%2Fagent:b"),
        (PERSON, "r1", "scout", ""),
    ],
)
def test_the_path_of_a_caller(principal: Principal, run: str, agent: str, owner: str) -> None:
    assert visibility_of(principal, run, agent).owner == owner


@given(NAMES, NAMES)
@example("al", "alice")
def test_no_name_stands_for_another(one: str, other: str) -> None:
    mine, theirs = visibility_of(LOCAL, "r", one), spec(visibility_of(LOCAL, "r", other).owner)
    assert mine.covers(theirs) is (one == other)
    assert not visibility_of(replace(ALICE, subject=one)).covers(theirs)


@given(NAMES, NAMES)
def test_the_wider_path_sees_the_narrower_and_never_the_other_way(run: str, agent: str) -> None:
    user, within, narrow = visibility_of(ALICE), visibility_of(ALICE, run), visibility_of(ALICE, run, agent)
    for wide, low in ((user, within), (user, narrow), (within, narrow)):
        assert wide.covers(spec(low.owner))
        assert not low.covers(spec(wide.owner))


def test_the_user_a_person_and_an_administrator_see_all() -> None:
    for reach in (visibility_of(LOCAL), visibility_of(PERSON), visibility_of(ADMIN)):
        assert reach.covers(spec())
        assert reach.covers(spec("user:alice/run:r/agent:a"))


@pytest.mark.parametrize("name", ["agent:scout", "run:r1", "run:r1/agent:scout", "agent:sc*", EVERYONE])
def test_a_shared_session_is_seen_by_whom_it_is_shared_with(name: str) -> None:
    shared = spec("", shared_with([name]))
    assert visibility_of(LOCAL, "r1", "scout").covers(shared)
    assert visibility_of(LOCAL, "r2", "other").covers(shared) is (name == EVERYONE)
    assert not Visibility("agent:scout").covers(spec())
    only = spec("", shared_with(["agent:scout", "user:al"]))
    assert not any(visibility_of(ALICE, "r1", agent).covers(only) for agent in ("scouts", "boyscout", ""))


@pytest.mark.parametrize("name", ["scout", "agent:", ":", "", "everybody", "session:x"])
def test_with_what_is_nobody_nothing_is_shared(name: str) -> None:
    with pytest.raises(InvalidArguments, match="cannot be shared"):
        shared_with([name])


@pytest.mark.parametrize("effect", Effect)
def test_a_token_reaches_as_far_as_its_scopes(effect: Effect) -> None:
    require_scope(LOCAL, "t", effect)
    require_scope(ADMIN, "t", effect)
    with pytest.raises(InsufficientScope) as problem:
        require_scope(replace(ALICE, scopes=frozenset()), "t", effect)
    require_scope(replace(ALICE, scopes=frozenset({problem.value.required_scope})), "t", effect)


@pytest.mark.parametrize(
    ("owner", "paths"),
    [
        ("", ("",)),
        ("agent:a", ("agent:a", "")),
        ("run:r/agent:a", ("run:r/agent:a", "run:r", "")),
        ("user:u/run:r", ("user:u/run:r", "user:u")),
    ],
)
def test_an_owner_is_part_of_a_run_and_of_a_user(owner: str, paths: tuple[str, ...]) -> None:
    assert widening(owner) == paths
