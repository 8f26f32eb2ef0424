"""References: what they stand for keeps its type, text stays text, what is missing is named, nothing is evaluated."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccswarm.errors import PlanInvalid
from ccswarm.plan.references import as_text, condition, follow, holds, json_equal, parse, path, resolve, tokens

NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_-]{0,8}", fullmatch=True)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
JSON = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4))
PLAIN = st.text().filter(lambda text: "${" not in text and not text.endswith("$"))

KNOWN: dict[str, Any] = {
    "steps": {"list": {"files": ["a", "b c"], "exit_code": 0, "output": "1\n", "io/x:y z": 5}, "each": [{"n": 1}]},
    "needs": {"build": {"steps": {"make": {"ok": True, "nothing": None}}}},
    "run": {"id": "run_1"},
    "task": {"id": "t"},
    "agent": {"name": "ada"},
    "workspace": "/project",
    "item": {"name": "x", "deep": [[7]]},
}


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("${steps.list.files}", ["a", "b c"]),
        ("${steps.list.files[1]}", "b c"),
        ("${steps.list.exit_code}", 0),
        ("${steps.list.io/x:y z}", 5),
        ("${steps.each[0].n}", 1),
        ("${needs.build.steps.make.ok}", True),
        ("${needs.build.steps.make.nothing}", None),
        ("${needs.build}", {"steps": {"make": {"ok": True, "nothing": None}}}),
        ("${item}", {"name": "x", "deep": [[7]]}),
        ("${item.deep[0][0]}", 7),
        ("${run.id}/${task.id}", "run_1/t"),
        ("${workspace}/${agent.name}", "/project/ada"),
        ("n = ${steps.list.exit_code}", "n = 0"),
        ("is ${needs.build.steps.make.ok}, ${needs.build.steps.make.nothing}", "is true, null"),
        ("all: ${steps.list.files}", 'all: ["a", "b c"]'),
        ("$${HOME}", "${HOME}"),
        ("$$${HOME}", "$${HOME}"),
        ("$HOME $(pwd) $$ $ } {", "$HOME $(pwd) $$ $ } {"),
        ("$${item} is ${item.name}", "${item} is x"),
    ],
)
def test_what_references_stand_for(written: str, value: object) -> None:
    assert resolve(written, KNOWN) == value


def test_all_of_a_value_is_resolved_but_its_keys() -> None:
    written = {"${item}": ["${item.name}", {"deep": "${item.deep}"}, 1, None]}
    assert resolve(written, KNOWN) == {"${item}": ["x", {"deep": [[7]]}, 1, None]}


def test_what_was_put_in_is_not_read_again() -> None:
    assert resolve("${item}", {"item": "${run.id}"}) == "${run.id}"
    assert resolve("a ${item}", {"item": "$${run.id}"}) == "a $${run.id}"


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("${steps.lost.output}", "${steps.lost.output} has no value: there is no lost"),
        ("${steps.list.outputs}", "${steps.list.outputs} has no value: there is no outputs in list"),
        ("x ${steps.list.files[2]}", "${steps.list.files[2]} has no value: there is no [2] in list.files"),
        ("${steps.list.output.length}", "there is no length in list.output"),
        ("${steps.list.output[0]}", "there is no [0] in list.output"),
        ("${steps.list.files.0}", "there is no 0 in list.files"),
        ("${needs.test}", "${needs.test} has no value: there is no test"),
    ],
)
def test_what_is_missing_is_named(written: str, said: str) -> None:
    with pytest.raises(PlanInvalid) as caught:
        resolve({"args": [written]}, KNOWN)
    assert said in caught.value.message
    assert caught.value.suggestion.startswith("there is ")


def test_a_missing_field_says_which_there_are() -> None:
    with pytest.raises(PlanInvalid) as caught:
        resolve("${steps.list.exit}", KNOWN)
    assert caught.value.suggestion == "there is exit_code, files, io/x:y z, output"


def test_an_item_is_known_only_where_there_are_items() -> None:
    with pytest.raises(PlanInvalid, match=r"^\$\{item\} has no value here$"):
        resolve("${item}", {"run": {"id": "r"}})


@pytest.mark.parametrize(
    "token",
    [
        *("${HOME}", "${}", "${steps}", "${steps[0]}", "${steps.a", "${steps.a.}", "${steps..a}", "${steps.a[x]}"),
        *("${steps.a[-1]}", "${run}", "${run.ids}", "${run.id.x}", "${workspace.x}", "${ item }", "${x:-y}"),
        *("${__import__('os')}", "${item.__class__()[0]x}", "${steps.a[0]b}"),
    ],
)
def test_what_is_no_reference_is_refused(token: str) -> None:
    with pytest.raises(PlanInvalid) as caught:
        parse(token)
    assert caught.value.message == f"{token} is not a reference"
    assert "$${" in caught.value.suggestion
    with pytest.raises(PlanInvalid):
        resolve(f"a {token}", KNOWN)


def test_attributes_of_python_are_no_fields() -> None:
    with pytest.raises(PlanInvalid, match="there is no __class__"):
        resolve("${steps.list.__class__}", KNOWN)


def test_tokens_are_found_wherever_they_are() -> None:
    value = {"a": ["${item}", {"b": "x ${run.id} $${no} ${steps.a"}], "c": 3}
    assert list(tokens(value)) == ["${item}", "${run.id}", "${steps.a"]


@pytest.mark.parametrize(
    ("text", "so"),
    [
        ("${steps.list.exit_code} == 0", True),
        ("${steps.list.exit_code} != 0", False),
        ("${steps.list.exit_code}", False),
        ("${steps.list.output} == 1", True),
        ("${steps.list.output} == '1'", True),
        ("${steps.list.output}", True),
        ("${needs.build.steps.make.ok}", True),
        ("${needs.build.steps.make.ok} == true", True),
        ("${needs.build.steps.make.ok} == 1", False),
        ("${needs.build.steps.make.nothing}", False),
        ("${needs.build.steps.make.nothing} == null", True),
        ('${steps.list.files} == ["a", "b c"]', True),
        ("${steps.list.files[1]} == b c", True),
        ("  ${agent.name} != bob ", True),
        ("${agent.name} == ${item.name}", False),
        ("${item.deep[0][0]} == 7.0", True),
    ],
)
def test_conditions(text: str, so: bool) -> None:
    assert holds(text, KNOWN) is so


@pytest.mark.parametrize("blank", ["", " \n", [], {}, 0, False, None])
def test_alone_nothing_does_not_hold(blank: object) -> None:
    assert holds("${item}", {"item": blank}) is False


@pytest.mark.parametrize(
    "text",
    [
        "x == 1",
        "${item} = 1",
        "${item} == 1 and 2 == ${x",
        "not ${item}",
        "${item} > 1",
        "${item} === 1",
        "${item} !== 1",
    ],
)
def test_what_is_no_condition_is_refused(text: str) -> None:
    with pytest.raises(PlanInvalid):
        holds(text, KNOWN)


def test_a_condition_is_read_in_parts() -> None:
    assert condition("${item}\n!= a\nb ") == ("${item}", "!=", "a\nb")


def test_paths() -> None:
    assert path("a.b[0][1].c") == ("a", "b", 0, 1, "c")
    assert path("[2]") == (2,)
    for wrong in ("", ".", "a..b", "a[x]", "a]"):
        with pytest.raises(PlanInvalid, match="is not a path"):
            path(wrong)


@given(PLAIN)
def test_text_without_references_stays_as_it_is(text: str) -> None:
    assert resolve(text, {}) == text


@given(JSON)
def test_a_whole_reference_keeps_the_value(value: Any) -> None:
    assert json_equal(resolve("${item}", {"item": value}), value)


@given(PLAIN, JSON, PLAIN)
def test_inside_a_text_it_is_put_in_as_text(before: str, value: Any, after: str) -> None:
    known = {"steps": {"s": {"v": value}}}
    resolved = resolve(f"|{before}${{steps.s.v}}{after}|", known)
    written = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    assert resolved == f"|{before}{written}{after}|"


@given(st.text())
def test_a_literal_is_undone(text: str) -> None:
    """Any text at all can be written, with each ``${`` as ``$${``."""
    assert resolve(text.replace("${", "$${"), {}) == text


@given(JSON, st.data())
def test_every_place_of_a_value_can_be_reached(value: Any, data: st.DataObject) -> None:
    here, written = value, "${item"
    while isinstance(here, (dict, list)) and here and data.draw(st.booleans()):
        if isinstance(here, dict):
            name = data.draw(st.sampled_from(sorted(here)))
            here, written = here[name], f"{written}.{name}"
        else:
            at = data.draw(st.integers(0, len(here) - 1))
            here, written = here[at], f"{written}[{at}]"
    reference = parse(written + "}")
    assert json_equal(follow(value, reference.parts, what="it"), here)
    assert json_equal(resolve(written + "}", {"item": value}), here)


@given(st.text())
def test_any_text_resolves_or_is_refused(text: str) -> None:
    with suppress(PlanInvalid):
        resolve("${" + text, KNOWN)


@given(JSON, JSON)
def test_same_is_equality_of_json(left: Any, right: Any) -> None:
    assert json_equal(left, json.loads(json.dumps(left)))
    assert json_equal(left, right) == json_equal(right, left)
    if as_text(left) == as_text(right) and type(left) is type(right):
        assert json_equal(left, right)


def test_truth_is_no_number() -> None:
    assert not json_equal(True, 1)
    assert not json_equal([0], [False])
    assert json_equal({"a": [1]}, {"a": [1.0]})
