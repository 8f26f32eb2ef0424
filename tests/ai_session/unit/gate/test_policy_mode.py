"""The mode in force: tightened by anyone and for good, loosened by a person and until the daemon ends."""

from __future__ import annotations

import contextlib
import itertools
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ai_session.errors import Denied, InvalidArguments, StorageFull
from ai_session.gate.policy.mode import PolicyInForce
from ai_session.gate.policy.policy import MODES, Action, Policy
from ai_session.models import Effect, Principal, SandboxLevel

UID = os.getuid()
RULE = {"id": "no-force", "decision": "deny", "commands": ["git push --force"], "reason": "Shared."}


def policy(path: Path, mode: str = "workspace") -> PolicyInForce:
    """As a daemon that starts now has it."""
    return PolicyInForce(Policy(UID, mode, [RULE]), path)


def runs(held: PolicyInForce) -> str:
    """What is decided about a command in a box."""
    action = Action(Principal("mcp", UID), "execute_command", Effect.EXECUTE, level=SandboxLevel.BWRAP, command="make")
    return held.decide(action).verdict


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "mode.json"


@pytest.mark.parametrize(("configured", "wanted"), list(itertools.product(MODES, MODES)))
def test_a_restart_keeps_what_is_tighter_than_configured_and_nothing_else(
    path: Path, configured: str, wanted: str
) -> None:
    held = policy(path, configured)
    held.set_mode(wanted, by_person=True)
    assert held.mode == wanted
    tighter = MODES.index(wanted) < MODES.index(configured)
    assert policy(path, configured).mode == (wanted if tighter else configured)
    assert path.exists() == tighter
    if tighter:
        assert path.stat().st_mode & 0o777 == 0o600


def test_a_mode_decides_at_once_and_has_a_digest_of_its_own(path: Path) -> None:
    held = policy(path)
    assert runs(held) == "allow"
    before = held.digest
    held.set_mode("read-only", by_person=False)
    assert runs(held) == "deny"
    assert held.digest != before
    held.set_mode("workspace", by_person=True)
    assert (runs(held), held.digest) == ("allow", before)


def test_nobody_but_a_person_loosens_nor_by_a_detour(path: Path) -> None:
    held = policy(path)
    for mode in ("trusted", "yolo"):
        with pytest.raises((Denied, InvalidArguments)):
            held.set_mode(mode, by_person=False)
    held.set_mode("read-only", by_person=False)
    for mode in ("ask-all", "workspace", "trusted"):
        with pytest.raises(Denied, match="only a person may loosen"):
            held.set_mode(mode, by_person=False)
        with pytest.raises(Denied):
            policy(path).set_mode(mode, by_person=False)
    assert (held.mode, policy(path).mode) == ("read-only", "read-only")


@given(
    st.sampled_from(MODES),
    st.lists(st.tuples(st.sampled_from([*MODES, "restart"]), st.booleans()), max_size=12),
)
def test_without_a_person_it_only_ever_becomes_tighter(configured: str, steps: list[tuple[str, bool]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "mode.json")
        held = policy(path, configured)
        for word, by_person in steps:
            before = MODES.index(held.mode)
            if word == "restart":
                held = policy(path, configured)
                assert MODES.index(held.mode) == min(before, MODES.index(configured))
                continue
            with contextlib.suppress(Denied):
                held.set_mode(word, by_person=by_person)
            after = MODES.index(held.mode)
            assert after == MODES.index(word) if by_person or MODES.index(word) <= before else after == before


def test_another_configured_mode_is_a_persons_newer_word(path: Path) -> None:
    policy(path).set_mode("read-only", by_person=False)
    assert policy(path, "trusted").mode == "trusted"
    assert policy(path, "workspace").mode == "read-only"


@pytest.mark.parametrize("text", ["", "7", "{}", '{"mode": "yolo", "configured": "workspace"}', "\xff", "[" * 100_000])
def test_a_file_that_cannot_be_read_keeps_everything_shut(path: Path, text: str) -> None:
    path.write_bytes(text.encode("latin-1"))
    held = policy(path)
    assert held.mode == "read-only"
    held.set_mode("workspace", by_person=True)
    assert policy(path).mode == "workspace"


def test_a_mode_that_cannot_be_kept_holds_all_the_same_and_says_so(path: Path) -> None:
    held = policy(path)
    path.mkdir()
    with pytest.raises(StorageFull, match="mode read-only holds until the daemon ends; it could not be stored"):
        held.set_mode("read-only", by_person=False)
    assert (held.mode, runs(held)) == ("read-only", "deny")


def test_tools_are_ruled_out_only_where_neither_mode_allows_them(path: Path) -> None:
    action = Action(Principal("mcp", UID), "execute_command", Effect.EXECUTE)
    held = policy(path)
    held.set_mode("read-only", by_person=False)
    assert not held.rules_out(action)
    held = policy(path.with_name("other"), "read-only")
    assert held.rules_out(action)
    held.set_mode("workspace", by_person=True)
    assert not held.rules_out(action)


def test_the_facts_are_reported(path: Path) -> None:
    held = policy(path)
    configured = held.digest
    held.set_mode("ask-all", by_person=False)
    assert held.facts() == {
        "mode": "ask-all",
        "configured_mode": "workspace",
        "policy_sha256": held.digest,
        "configured_sha256": configured,
        "rules": [
            {"id": "no-force", "decision": "deny", "reason": "Shared.", "commands": [["git", "push", "--force"]]}
        ],
        "hooks": [],
        "administrator": None,
    }
