"""The sealed state: what was sealed comes back, and nothing else does."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ai_session.errors import InvalidArguments
from ai_session.gate.consent.sealed_state import MAX_CHARS, NONCE_BYTES, Seal, Sealed, new_nonce

IDS = st.from_regex(r"[A-Za-z0-9_-]{1,80}", fullmatch=True)
SEALED = st.builds(
    Sealed,
    question_id=IDS,
    nonce=st.binary(min_size=NONCE_BYTES, max_size=NONCE_BYTES).map(bytes.hex),
    binding=st.binary(min_size=32, max_size=32).map(bytes.hex),
    expires_at=st.floats(100, 1e12),
)
EXAMPLE = Sealed("ap_1", "0f" * NONCE_BYTES, "ab" * 32, 1000.0)


@pytest.fixture(scope="module")
def seal(tmp_path_factory: pytest.TempPathFactory) -> Seal:
    return Seal(tmp_path_factory.mktemp("seal") / "key")


def refused(seal: Seal, state: str, now: float = 0.0) -> bool:
    with pytest.raises(InvalidArguments, match="nothing was run"):
        seal.open(state, now)
    return True


@given(SEALED)
def test_what_is_sealed_comes_back(seal: Seal, sealed: Sealed) -> None:
    state = seal.close(sealed)
    assert seal.open(state, 99.0) == sealed
    assert len(state) <= MAX_CHARS
    assert refused(seal, state, sealed.expires_at)


@given(SEALED, st.data())
def test_one_changed_character_is_refused(seal: Seal, sealed: Sealed, data: st.DataObject) -> None:
    state = seal.close(sealed)
    position = data.draw(st.integers(0, len(state) - 1))
    other = data.draw(st.characters(codec="utf-8").filter(lambda c: c != state[position]))
    assert refused(seal, state[:position] + other + state[position + 1 :])


@given(SEALED, SEALED, st.data())
def test_pieces_of_two_states_make_no_third(seal: Seal, one: Sealed, other: Sealed, data: st.DataObject) -> None:
    first, second = seal.close(one), seal.close(other)
    mixed = first[: data.draw(st.integers(0, len(first)))] + second[data.draw(st.integers(0, len(second))) :]
    if mixed not in (first, second):
        assert refused(seal, mixed)


@given(st.text(max_size=200))
def test_text_is_no_state(seal: Seal, text: str) -> None:
    assert refused(seal, text)
    assert refused(seal, "s1." + text)


def test_another_spelling_of_the_same_bytes_is_refused(seal: Seal) -> None:
    state = seal.close(EXAMPLE)
    prefix, body, tag = state.split(".")
    for spelled in (
        f"{prefix}.{body}.{tag}=",
        f"{prefix}.{body}\n.{tag}",
        f"{prefix}.{body}.{tag}.",
        f"{prefix}.{body}.{base64.b64encode(base64.urlsafe_b64decode(tag + '=')).decode()}",
        state + "A" * MAX_CHARS,
    ):
        assert refused(seal, spelled)


def test_only_the_installation_that_sealed_it_opens_it(tmp_path: Path) -> None:
    state = Seal(tmp_path / "key").close(EXAMPLE)
    assert Seal(tmp_path / "key").open(state, 0.0) == EXAMPLE
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600
    assert refused(Seal(tmp_path / "other"), state)


@pytest.mark.parametrize("how", ["read by others", "short", "long", "a link"])
def test_a_key_that_others_may_know_is_replaced(tmp_path: Path, how: str) -> None:
    path = tmp_path / "key"
    state = Seal(path).close(EXAMPLE)
    if how == "read by others":
        path.chmod(0o640)
    elif how == "a link":
        path.rename(tmp_path / "elsewhere")
        path.symlink_to("elsewhere")
    else:
        path.write_bytes(path.read_bytes()[:31] if how == "short" else path.read_bytes() + b"x")
    assert refused(Seal(path), state)
    assert (path.stat().st_mode & 0o777, path.stat().st_size, path.is_symlink()) == (0o600, 32, False)


def test_nonces_differ() -> None:
    assert len({new_nonce() for _ in range(100)}) == 100
