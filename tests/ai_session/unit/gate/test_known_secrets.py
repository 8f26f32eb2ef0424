"""Values of clients are learned, all or none of a client, and what is told of errors repeats none of them."""

from __future__ import annotations

import base64
import random
import re
import string
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ai_session.errors import LimitReached
from ai_session.gate.hook import call_facts
from ai_session.gate.redaction.known_secrets import MAX_KNOWN, MAX_SEEN, MOST_GIVEN, PIECE_CHARS, Masking
from ai_session.models import Principal
from ai_session.system.shares import share
from ai_session.system.turns import finished
from tests.ai_session.support.example_secrets import NAMED, SECRETS
from tests.support.processor_time import computing_seconds, once_within

NAMES = ("*_TOKEN", "*_KEY", "*_PASSWORD")


def made(home: Path, **more: bool) -> Masking:
    return Masking(home / "redaction.key", NAMES, (), **more)


def arbitrary(seed: int, count: int = 20) -> str:
    """What nobody would take for a secret, if it were not one."""
    return "".join(random.Random(seed).choices(string.ascii_lowercase + "-%é", k=count))


def many(count: int, first: int = 0) -> dict[str, str]:
    return {f"N{number}_TOKEN": arbitrary(first + number) for number in range(count)}


def hides(masking: Masking, text: str) -> bool:
    return text not in masking.masked(f"<{text}>")


def test_values_are_known_by_the_names_of_their_variables(home: Path) -> None:
    masking = made(home)
    masking.learn({"A_TOKEN": arbitrary(1), "b_key": arbitrary(2), "OTHER": arbitrary(3), "C_TOKEN": "short"})
    assert hides(masking, arbitrary(1))
    assert hides(masking, arbitrary(2))
    assert not hides(masking, arbitrary(3))
    assert not hides(masking, "short")
    masking.learn({"D_TOKEN": "x" * 20, "E_TOKEN": "----====----"})
    assert not hides(masking, "x" * 30)
    assert not hides(masking, "----====----")
    assert masking.masked(arbitrary(1)).startswith("[REDACTED:A_TOKEN:")


def test_values_are_known_that_look_like_secrets_whatever_the_name(home: Path) -> None:
    masking = made(home)
    masking.learn({"DATABASE_URL": "postgres://me:wise%owl7x@db/x", "X": SECRETS["github"], "SECRET": "some-Words8"})
    for secret in ("wise%owl7x", "some-Words8", base64.b64encode(SECRETS["github"].encode()).decode()[:-2]):
        assert hides(masking, secret), secret
    assert not hides(masking, "postgres://me")


def learn_given(masking: Masking, text: str, owner: str = "") -> None:
    finished(masking.learn_given(masking.unsure({"command": text}), owner))


@pytest.mark.parametrize("kind", NAMED.keys() - {"variable"})
def test_values_are_known_that_a_call_has_in_a_context(home: Path, kind: str) -> None:
    masking, (before, secret, after) = made(home), NAMED[kind]
    assert not hides(masking, secret)
    learn_given(masking, f"true; {before}{secret}{after}")
    assert hides(masking, secret)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("PASSWORD=a", "a"),
        ("A_TOKEN=production", "production"),
        ("SECRET_NAME=my-service", "my-service"),
        ("SSH_KEY_FILE=/home/ann/.ssh/id_ed25519", "/home/ann/.ssh/id_ed25519"),
        ("API_TOKEN=$(cat token-file-1234)", "token-file-1234"),
        ("git clone https://ann:ab1@host/x", "ab1"),
        (f"echo {SECRETS['github']}", "echo"),
    ],
)
def test_what_a_call_has_in_a_context_is_not_known_if_it_occurs_elsewhere(home: Path, text: str, shown: str) -> None:
    masking = made(home)
    learn_given(masking, text)
    assert not hides(masking, shown)


def test_nobody_hides_from_a_judge_by_calling_something_a_secret(home: Path) -> None:
    masking = made(home)
    masking.learn({"A_TOKEN": "make destroy", "B_TOKEN": arbitrary(1)}, from_call=True)
    learn_given(masking, "C_TOKEN=x9destroy77 true")
    masking.learn({"D_TOKEN": arbitrary(2)})
    masking.learn({"E_TOKEN": arbitrary(1)})
    for text in ("make destroy", "x9destroy77"):
        assert hides(masking, text)
        assert finished(masking.mask_for_judge(f"<{text}>")) == (f"<{text}>", 0)
    for text in (arbitrary(1), arbitrary(2), SECRETS["github"], f"C_TOKEN={arbitrary(3)}"):
        assert finished(masking.mask_for_judge(f"<{text}>"))[1] == 1


def test_a_hook_sees_the_command_and_no_variable(home: Path) -> None:
    masking = made(home)
    env = {"A_TOKEN": "make destroy"}
    given = {"command": "make destroy", "env": env}
    masking.learn(env, from_call=True)
    shown = call_facts(Principal("mcp", 7), "execute_command", None, masking, given)["arguments"]
    assert shown["command"] == "make destroy"
    assert shown["env"]["A_TOKEN"].startswith("[REDACTED:A_TOKEN:")


def test_a_value_in_a_context_ends_with_its_word_unless_that_is_quoted(home: Path) -> None:
    masking = made(home)
    learn_given(masking, "export NEW_SECRET=Ab12Cd34Ef56; true")
    learn_given(masking, "OTHER_SECRET='Gh12;Ij34Kl56'")
    assert masking.masked("<Ab12Cd34Ef56>").startswith("<[REDACTED:variable:")
    assert hides(masking, "Gh12;Ij34Kl56")
    both = masking.masked("NEW_SECRET=Ab12Cd34Ef56; echo Ab12Cd34Ef56")
    assert len(set(re.findall(r"REDACTED:variable:\w+", both))) == 1


def test_the_latest_values_of_a_user_are_known_and_those_of_others_stay(home: Path) -> None:
    masking = made(home)
    values = [f"Value{number}x{number}y" for number in range(MOST_GIVEN + 1)]
    learn_given(masking, f"A_TOKEN={values[0]}", "user:ann")
    for value in (*values[:-1], values[1], values[0], values[-1]):
        learn_given(masking, f"A_TOKEN={value}", "user:bob")
    assert [value for value in values if not hides(masking, value)] == [values[2]]


def test_long_values_and_the_lines_of_keys_are_known_in_parts(home: Path) -> None:
    masking = made(home)
    long, key = arbitrary(5, 3 * PIECE_CHARS), SECRETS["openssh"]
    masking.learn({"LONG_TOKEN": long, "SSH_KEY": key})
    assert masking.masked(long).count("[REDACTED:LONG_TOKEN:") == 3
    line = key.split("\n")[4]
    assert hides(masking, f"   | {line}"[5:])


def test_more_values_than_can_be_masked_are_refused_and_none_of_them_half_known(home: Path) -> None:
    masking = made(home)
    masking.learn(many(MAX_KNOWN // 2))
    with pytest.raises(LimitReached):
        masking.learn(many(MAX_KNOWN, 10_000))
    with pytest.raises(LimitReached):
        masking.learn(many(MAX_KNOWN, 10_000))
    assert hides(masking, arbitrary(0))
    masking.learn(many(MAX_KNOWN // 2, 20_000))
    assert hides(masking, arbitrary(20_000))
    assert hides(masking, arbitrary(0))
    with pytest.raises(LimitReached):
        masking.learn({"ONE_TOKEN": arbitrary(30_000)})


def test_one_user_leaves_room_for_the_secrets_of_others(home: Path) -> None:
    masking = made(home)
    most = share(MAX_KNOWN, MAX_KNOWN)
    masking.learn(many(most // 2), owner="user:mallory")
    masking.learn(many(most // 2, 10_000), owner="user:mallory")
    with pytest.raises(LimitReached, match=f"{most + 1} secret values"):
        masking.learn({"ONE_TOKEN": arbitrary(20_000)}, owner="user:mallory")
    masking.learn(many(MAX_KNOWN - most, 30_000), owner="")
    assert hides(masking, arbitrary(30_000))
    with pytest.raises(LimitReached, match=f"{MAX_KNOWN + 1} secret values"):
        masking.learn({"ONE_TOKEN": arbitrary(40_000)}, owner="user:alice")


def test_only_values_of_who_has_gone_make_room(home: Path) -> None:
    masking = made(home)
    here = {"first": True, "second": True}
    masking.learn(many(MAX_KNOWN // 2), lambda: here["first"])
    masking.learn(many(MAX_KNOWN // 2, 10_000), lambda: here["second"])
    masking.learn(dict(many(MAX_KNOWN // 2)), lambda: True)
    here["second"] = False
    assert hides(masking, arbitrary(10_000))
    masking.learn(many(9, 20_000))
    assert hides(masking, arbitrary(20_000))
    assert hides(masking, arbitrary(0))
    assert not hides(masking, arbitrary(10_000))
    here["first"] = False
    with pytest.raises(LimitReached):
        masking.learn(many(MAX_KNOWN // 2, 40_000))


def test_clients_with_the_same_environment_come_and_go_without_end(home: Path) -> None:
    masking = made(home)
    for number in range(3 * MAX_SEEN):
        masking.learn({"A_TOKEN": arbitrary(1), "N": str(number)}, lambda number=number: number > 2 * MAX_SEEN)
    assert hides(masking, arbitrary(1))


def test_the_most_values_cost_no_time(home: Path) -> None:
    masking = made(home)
    masking.learn(many(MAX_KNOWN))
    text = "an ordinary line of output, number 12345\n" * 50_000
    once_within(len(text) / 20e6, lambda: computing_seconds(lambda: masking.masked(text)))


def test_far_too_many_values_are_refused_at_once(home: Path) -> None:
    masking = made(home)

    def refused() -> None:
        with pytest.raises(LimitReached):
            masking.learn(many(20_000))

    once_within(1, lambda: computing_seconds(refused))


def test_nothing_is_masked_where_it_is_switched_off(home: Path) -> None:
    masking = made(home, enabled=False)
    masking.learn(many(2 * MAX_KNOWN))
    assert finished(masking.mask(arbitrary(0) + SECRETS["github"])) == (arbitrary(0) + SECRETS["github"], 0)
    assert finished(masking.spans(SECRETS["github"].encode())) == []
    assert finished(masking.echo(SECRETS["github"], SECRETS["github"])) == SECRETS["github"]


@settings(max_examples=35, deadline=None)
@given(
    secret=st.sampled_from([*SECRETS.values(), "a \"quoted' and \\spelt välue\tof mine", arbitrary(7)]),
    before=st.text(alphabet="ab/ ", max_size=30),
    cut=st.integers(1, 90),
    spell=st.sampled_from([str, repr, ascii]),
)
def test_what_repeats_a_secret_in_part_tells_none_of_it(
    tmp_path_factory: pytest.TempPathFactory, secret: str, before: str, cut: int, spell: type
) -> None:
    masking = made(tmp_path_factory.getbasetemp())
    masking.learn({"A_TOKEN": secret})
    given = before + " " + secret
    reported = finished(masking.echo(f"no such thing: {spell(given[:cut])}; try another", [{"name": given}, 7]))
    assert "no such thing" in reported
    left = spell(secret[:cut])
    assert not any(left[at : at + 12] in reported for at in range(1, len(left) - 12)), reported
