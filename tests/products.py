"""Parameters of products, of which the whole is tried at night."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product

import pytest
from _pytest.mark import ParameterSet


def corners(*axes: Iterable[object]) -> list[ParameterSet]:
    """The product of ``axes``. In the suite each value of each axis is there at least once; the rest is torture."""
    values = [list(axis) for axis in axes]
    there = {tuple(number % len(axis) for axis in values) for number in range(max(map(len, values)))}
    return [
        pytest.param(
            *(axis[index] for axis, index in zip(values, place, strict=True)),
            marks=() if place in there else pytest.mark.torture,
        )
        for place in product(*(range(len(axis)) for axis in values))
    ]


def first(cases: Iterable[str], *names: str) -> list[ParameterSet]:
    """All ``cases``; those that are not named are torture."""
    every = list(cases)
    assert set(names) <= set(every)
    return [pytest.param(case, marks=() if case in names else pytest.mark.torture) for case in every]
