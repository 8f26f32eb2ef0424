"""The part of a product of parameters that the suite tests; the nightly run tests all of it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from zlib import crc32

import pytest
from _pytest.mark import ParameterSet


def first(cases: Iterable[str], *names: str) -> list[ParameterSet]:
    """Return all ``cases`` as parameters; those that are not named are marked torture."""
    every = list(cases)
    assert set(names) <= set(every)
    return [pytest.param(case, marks=() if case in names else pytest.mark.torture) for case in every]


def corners(cells: Sequence[Mapping[str, int]], turn: int) -> set[int]:
    """Return few cells of a product that together have each value of each axis. ``turn`` selects among such sets."""
    values = [frozenset(cell.items()) for cell in cells]
    order = [(number + turn) % len(cells) for number in range(len(cells))]
    missing, used = set[tuple[str, int]]().union(*values), Counter[tuple[str, int]]()
    found: set[int] = set()
    while missing:
        best = max(order, key=lambda number: (len(values[number] & missing), -sum(used[one] for one in values[number])))
        found.add(best)
        missing -= values[best]
        used.update(values[best])
    return found


def leave_the_rest_to_torture(items: Sequence[pytest.Item]) -> None:
    """Mark as torture the omitted cells of tests marked ``either`` or ``corners``, see pyproject.toml."""
    _of_either(items)
    _of_corners(items)


def _of_either(items: Iterable[pytest.Item]) -> None:
    values: dict[tuple[str, str], list[int]] = defaultdict(list)
    marked = [(item, mark.args[0]) for item in items for mark in item.iter_markers("either")]
    several = [(item, name) for item, name in marked if name in _values(item)]
    for item, name in several:
        if (value := _values(item)[name]) not in (known := values[_test(item), name]):
            known.append(value)
    for item, name in several:
        known = values[_test(item), name]
        if known.index(_values(item)[name]) != crc32(_test(item).encode()) % len(known):
            item.add_marker(pytest.mark.torture)


def _of_corners(items: Iterable[pytest.Item]) -> None:
    """Mark all but the corners. If the mark names parameters, the product is theirs, for each combination of others."""
    products: dict[tuple[str, tuple[object, ...]], list[tuple[pytest.Item, dict[str, int]]]] = defaultdict(list)
    for item in items:
        mark, values = item.get_closest_marker("corners"), _values(item)
        if mark and values and not item.get_closest_marker("torture"):
            cell = {name: value for name, value in values.items() if not mark.args or name in mark.args}
            others = tuple(sorted(values.items() - cell.items()))
            products[_test(item), others].append((item, cell))
    for (test, _), product in products.items():
        kept = corners([cell for _, cell in product], crc32(test.encode()))
        for number, (item, _) in enumerate(product):
            if number not in kept:
                item.add_marker(pytest.mark.torture)


def _test(item: pytest.Item) -> str:
    """Return the test's id without its parameters."""
    return item.nodeid.partition("[")[0]


def _values(item: pytest.Item) -> dict[str, int]:
    """Return the identity of each parameter's value, which is the same object in all cells of a product."""
    call = getattr(item, "callspec", None)
    return {name: id(value) for name, value in call.params.items()} if call else {}
