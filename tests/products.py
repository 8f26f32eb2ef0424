"""What of a product of parameters is tried in the suite; the whole is tried at night."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from zlib import crc32

import pytest
from _pytest.mark import ParameterSet


def first(cases: Iterable[str], *names: str) -> list[ParameterSet]:
    """All ``cases``; those that are not named are torture."""
    every = list(cases)
    assert set(names) <= set(every)
    return [pytest.param(case, marks=() if case in names else pytest.mark.torture) for case in every]


def corners(cells: Sequence[Mapping[str, int]], turn: int) -> set[int]:
    """Cells of a product, as few as can be found, in which each value of each axis is; others for another ``turn``."""
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


def leave_the_rest_to_torture(items: Iterable[pytest.Item]) -> None:
    """Of the tests that are marked ``corners``. Of the marks' names, if there are any, the product is that of these
    parameters, once for each combination of all others."""
    products: dict[tuple[object, ...], list[tuple[pytest.Item, dict[str, int]]]] = defaultdict(list)
    for item in items:
        mark, call = item.get_closest_marker("corners"), getattr(item, "callspec", None)
        if mark and call and not item.get_closest_marker("torture"):
            values = {name: id(value) for name, value in call.params.items()}  # the same one in all cells
            cell = {name: value for name, value in values.items() if not mark.args or name in mark.args}
            others = tuple(sorted(values.items() - cell.items()))
            products[item.nodeid.partition("[")[0], others].append((item, cell))
    for (test, _), product in products.items():
        kept = corners([cell for _, cell in product], crc32(str(test).encode()))
        for number, (item, _) in enumerate(product):
            if number not in kept:
                item.add_marker(pytest.mark.torture)
