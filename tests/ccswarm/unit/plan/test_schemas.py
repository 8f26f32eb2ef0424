"""Schemas: every problem is named, no value is, and what a server wrote wrongly or to harm does none."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccswarm.plan.schemas import TEXT, UNKNOWN, Schema

SECRET = "swordfish"
DRAFT_7 = "http://json-schema.org/draft-07/schema#"


def problem(schema: Any, **arguments: Any) -> str:
    compiled = Schema(schema)
    assert compiled.unusable == ""
    return compiled.problem(arguments)


def of(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def test_every_problem_is_named_and_no_value() -> None:
    schema = {
        **of(
            count={"type": "integer", "minimum": 3},
            mode={"enum": ["fast", "slow"]},
            where={"anyOf": [{"type": "string"}, {"type": "null"}]},
            name={"type": "string", "pattern": "^[a-z]{2}$"},
            inner={"type": "array", "items": of(deep={"type": "boolean"})},
            one={"oneOf": [{"minLength": 1}, {"maxLength": 50}]},
            fixed={"const": "this"},
        ),
        "required": ["count", "missing"],
        "additionalProperties": False,
    }
    arguments = {
        "count": 1,
        "mode": SECRET,
        "where": [SECRET],
        "name": SECRET,
        "inner": [{"deep": SECRET}],
        "one": SECRET,
        "fixed": SECRET,
        "extra": SECRET,
    }
    said = problem(schema, **arguments)
    assert SECRET not in said
    assert said.split("; ") == [
        "$.count: must match minimum 3",
        '$.fixed: must be "this"',
        "$.inner[0].deep: must be boolean",
        '$.mode: must be one of ["fast", "slow"]',
        '$.name: must match pattern "^[a-z]{2}$"',
        "$.one: matches more than one of the alternatives",
        "$.where: matches none of these: $.where: must be string | $.where: must be null",
        "$: 'missing' is a required property",
        "$: has no 'extra'",
    ]


STRICT = Schema(
    {
        **of(a={"type": "integer"}, b={"items": {"maxLength": 1}, "uniqueItems": True}, c={"not": {}}),
        "maxProperties": 0,
        "patternProperties": {"^a": {"type": "null"}},
        "propertyNames": {"minLength": 3},
        "unevaluatedProperties": False,
        "dependentRequired": {"a": ["z"]},
    }
)


@given(
    st.recursive(
        st.integers().map(lambda number: f"{number}{SECRET}") | st.none() | st.just([]),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    )
)
def test_no_message_echoes_a_value(value: Any) -> None:
    said = STRICT.problem({"a": value, "b": [value, value], "c": value})
    assert said
    assert SECRET not in said


@pytest.mark.parametrize(
    ("schema", "bad", "good"),
    [
        ({"$schema": DRAFT_7, "dependencies": {"a": ["b"]}}, {"a": 1}, {"a": 1, "b": 1}),
        ({"dependencies": {"a": ["b"]}}, None, {"a": 1}),
        (
            {"$schema": "http://json-schema.org/draft-04/schema#", **of(a={"maximum": 3, "exclusiveMaximum": True})},
            {"a": 3},
            {"a": 2},
        ),
        ({"$schema": "https://nobody.knows/this", **of(a={"type": "string"})}, {"a": 1}, {"a": "x"}),
        ({**of(a={"$ref": "#/$defs/n"}), "$defs": {"n": {"type": "integer"}}}, {"a": "x"}, {"a": 1}),
        ({**of(a={"$ref": DRAFT_7})}, {"a": {"type": 5}}, {"a": {"type": "object"}}),
        ({"patternProperties": {"^x": {"type": "integer"}}, "additionalProperties": False}, {"y": 1}, {"x1": 1}),
        ({"patternProperties": {"^x": {"type": "integer"}}}, {"x": "no"}, {"y": "yes"}),
        ({**of(a={}), "additionalProperties": {"type": "integer"}}, {"b": "x"}, {"a": "x", "b": 1}),
        (of(a={"pattern": r"^\d+$"}), {"a": "12\n"}, {"a": "12"}),
        (of(a={"pattern": "x"}), {"a": "y"}, {"a": 5}),
        (of(a=False), {"a": 1}, {"b": 1}),
    ],
)
def test_drafts_and_keywords(schema: Any, bad: dict[str, Any] | None, good: dict[str, Any]) -> None:
    assert bad is None or problem(schema, **bad)
    assert problem(schema, **good) == ""


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "anything"},
        {"required": True},
        {"$schema": 5},
        {"properties": []},
        5,
        of(a={"$ref": "#/nowhere"}),
        of(a={"$ref": "https://example.com/schema.json"}),
        {"$ref": "#"},
        of(a={"$ref": "#/properties/a"}),
    ],
    ids=str,
)
def test_a_schema_that_cannot_be_used_checks_nothing_and_says_so(schema: Any) -> None:
    compiled = Schema(schema)
    assert compiled.problem({"a": 1}) == ""
    assert "input schema cannot be used" in compiled.unusable
    assert compiled.problem({"a": 1}) == ""


def test_hostile_schemas_take_no_time() -> None:
    evil = "^(a+)+$"
    long = "a" * 40 + "!"
    laughs: dict[str, Any] = {"l0": {"type": "integer"}}
    laughs |= {f"l{n}": {"allOf": [{"$ref": f"#/$defs/l{n - 1}"}] * 2} for n in range(1, 40)}
    assert "must match pattern" in problem(of(a={"pattern": evil}), a=long)
    assert problem({"patternProperties": {evil: False}}, **{long: 1}) == ""
    assert "has no" in problem({"patternProperties": {evil: True}, "additionalProperties": False}, **{long: 1})
    assert problem({"patternProperties": {evil: True}, "unevaluatedProperties": False}, **{long: 1}) == ""
    assert problem({**of(a={"$ref": "#/$defs/l39"}), "$defs": laughs}, a=1) == ""


def test_expressions_only_the_server_knows_are_left_to_it() -> None:
    assert problem(of(a={"pattern": "(?=x)y"}), a="z") == ""
    assert problem({"patternProperties": {"(?=x)": {"type": "null"}}, "additionalProperties": False}, z=1) == ""


def test_numbers_that_json_does_not_have_are_none() -> None:
    for number in (float("nan"), float("inf"), float("-inf")):
        assert problem(of(a={"type": "number"}), a=number) == "$.a: must be number"
    assert problem(of(a={"type": "number"}), a=10**400) == ""


def test_many_problems_are_counted() -> None:
    said = problem({"additionalProperties": {"type": "null"}}, **{f"n{number:03}": 1 for number in range(50)})
    assert said.endswith("$.n019: must be null; and 30 more")


ONE_OF = {"oneOf": [{"properties": {"a": {"type": kind}}, "required": ["a", "b"]} for kind in ("string", "integer")]}


@pytest.mark.parametrize(
    ("schema", "value", "found"),
    [
        ({"type": "integer"}, UNKNOWN, []),
        ({"not": {"properties": {"a": {"type": "string"}}}}, {"a": UNKNOWN}, []),
        ({"if": {"properties": {"a": {"const": 1}}}, "then": False}, {"a": UNKNOWN}, []),
        ({"enum": [{"a": 1}]}, {"a": UNKNOWN}, []),
        ({"uniqueItems": True}, [UNKNOWN, UNKNOWN], []),
        ({"contains": {"type": "string"}, "maxContains": 1}, [UNKNOWN, "x"], []),
        (ONE_OF, {"a": UNKNOWN, "b": 1}, []),
        (ONE_OF, {"a": UNKNOWN}, ["$.x: matches none of these: $.x: 'b' is a required property"]),
        ({"items": {"type": "string"}}, [UNKNOWN, 1], ["$.x[1]: must be string"]),
        ({"type": "integer"}, TEXT, ["$.x: must be integer"]),
        ({"anyOf": [{"type": "null"}, {"type": "string", "minLength": 5, "pattern": "^a"}]}, TEXT, []),
        ({"oneOf": [{"type": "null"}, {"enum": [1]}, {"items": {}}]}, TEXT, []),
        (False, UNKNOWN, ["$: nothing is allowed here"]),
    ],
)
def test_only_what_is_wrong_whatever_the_unknown_values_are_is_a_problem(
    schema: Any, value: Any, found: list[str]
) -> None:
    assert Schema(of(x=schema)).problems({"x": value}, partial=True) == found
