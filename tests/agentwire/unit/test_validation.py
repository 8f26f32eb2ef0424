"""No message shows the words of the library that checks values, whatever is wrong with one."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field, ValidationError, field_validator

from agentwire.validation import requirements


class Inner(BaseModel, extra="forbid"):
    pattern: str = Field(default="a", pattern="^[a-z]+$")


class Values(BaseModel, extra="forbid"):
    name: str
    rows: int = Field(default=2, ge=2, le=9)
    share: float = Field(default=1, gt=0, lt=5, allow_inf_nan=False)
    on: bool = True
    kind: Literal["one", "two"] = "one"
    words: Annotated[list[str], Field(min_length=1, max_length=2)] = Field(default=["a"])
    pair: Annotated[tuple[int, ...], Field(min_length=2)] = (1, 2)
    text: str = Field(default="abc", min_length=3, max_length=4)
    first: str = Field(default="a", min_length=1)
    inner: Inner = Inner()
    facts: dict[str, int] = Field(default={})

    @field_validator("name")
    @classmethod
    def check(cls, name: str) -> str:
        if name == "bad":
            raise ValueError("is a bad name")
        return name


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "name: is missing"),
        ({"name": "bad"}, "name: is a bad name"),
        ({"name": 3}, "name: should be a text"),
        ({"name": "n", "other": 1}, "other: is not known"),
        ({"name": "n", "rows": 1}, "rows: should be at least 2"),
        ({"name": "n", "rows": 10}, "rows: should be at most 9"),
        ({"name": "n", "rows": "x"}, "rows: should be a whole number"),
        ({"name": "n", "rows": 2.5}, "rows: should be a whole number"),
        ({"name": "n", "share": 0}, "share: should be more than 0"),
        ({"name": "n", "share": 5}, "share: should be less than 5"),
        ({"name": "n", "share": float("nan")}, "share: should be a finite number"),
        ({"name": "n", "share": "x"}, "share: should be a number"),
        ({"name": "n", "on": "maybe"}, "on: should be true or false"),
        ({"name": "n", "kind": "three"}, "kind: should be 'one' or 'two'"),
        ({"name": "n", "words": 3}, "words: should be a list"),
        ({"name": "n", "words": []}, "words: is empty"),
        ({"name": "n", "words": ["a"] * 3}, "words: should have at most 2 items"),
        ({"name": "n", "pair": [1]}, "pair: should have at least 2 items"),
        ({"name": "n", "text": "ab"}, "text: should have at least 3 characters"),
        ({"name": "n", "text": "abcde"}, "text: should have at most 4 characters"),
        ({"name": "n", "first": ""}, "first: is empty"),
        ({"name": "n", "inner": 3}, "inner: should be an object"),
        ({"name": "n", "inner": {"pattern": "A"}}, "inner.pattern: should match pattern '^[a-z]+$'"),
        ({"name": "n", "facts": {"a": "x"}, "on": 7}, "on: should be true or false; facts.a: should be a whole number"),
        (3, "all: should be an object"),
    ],
)
def test_what_is_wrong_is_said_in_our_words(given: Any, said: str) -> None:
    with pytest.raises(ValidationError) as refused:
        Values.model_validate(given)
    assert requirements(refused.value.errors(), "all") == said
