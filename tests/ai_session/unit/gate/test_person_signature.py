"""A passphrase makes one key on one machine; what it signs is one act, word for word."""

from __future__ import annotations

import pytest

from ai_session.errors import InvalidArguments
from ai_session.gate.consent.person_signature import PrivateKey, about_answer, is_signed, public_key, statement

CHEAP = 1 << 4
ABOUT = about_answer("ap_1", "b" * 64, "rm -rf build", allowed=True, scope="once", reason="")
SIGNED = {"do": "answer", "about": ABOUT, "host": "h", "nonce": "n"}


def message(**changed: object) -> bytes:
    facts = SIGNED | changed
    return statement(str(facts["do"]), facts["about"], host=str(facts["host"]), nonce=str(facts["nonce"]))  # pyright: ignore[reportArgumentType]


def test_the_same_passphrase_and_salt_make_the_same_key_and_nothing_else_does() -> None:
    key = PrivateKey("correct horse", cost=CHEAP)
    assert PrivateKey("correct horse", key.public.salt, cost=CHEAP).public == key.public
    others = [PrivateKey("correct horse", cost=CHEAP), PrivateKey("correct horsf", key.public.salt, cost=CHEAP)]
    assert key.public.public not in [other.public.public for other in others]
    assert public_key(key.public.line) == key.public


@pytest.mark.parametrize(
    "changed",
    [
        {"do": "mode"},
        {"host": "other"},
        {"nonce": "m"},
        {"about": ABOUT | {"question_id": "ap_2"}},
        {"about": ABOUT | {"binding": "c" * 64}},
        {"about": ABOUT | {"allowed": False}},
        {"about": ABOUT | {"scope": "always"}},
        {"about": ABOUT | {"reason": "because"}},
        {"about": about_answer("ap_1", "b" * 64, "rm -rf /", allowed=True, scope="once", reason="")},
    ],
)
def test_a_signature_is_good_for_nothing_else(changed: dict[str, object]) -> None:
    key = PrivateKey("correct horse", cost=CHEAP)
    signature = key.sign(message())
    assert is_signed(key.public, message(), signature)
    assert not is_signed(key.public, message(**changed), signature)
    assert not is_signed(PrivateKey("other horse", cost=CHEAP).public, message(), signature)


@pytest.mark.parametrize("value", ["", "no base64", "AAAA", "é" * 10])
def test_what_is_no_signature_signs_nothing(value: str) -> None:
    assert not is_signed(PrivateKey("correct horse", cost=CHEAP).public, message(), value)


@pytest.mark.parametrize(
    "line", ["", "scrypt-ed25519", "ed25519 00 00", f"scrypt-ed25519 {'0' * 32} {'0' * 62}", "x y z"]
)
def test_what_is_no_key_is_refused(line: str) -> None:
    with pytest.raises(InvalidArguments, match="not a public key"):
        public_key(line)
