"""The order in which tests run: long ones begin first, on all workers, so that none of them is alone at the end."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, groupby

import pytest

SLOWEST_FOLDERS = ("faults", "guards", "acceptance", "upgrade", "docs", "integration", "fuzz")
"""Folders of `tests` by the time of a test in them; the tests of all others take milliseconds."""


def spread_over_workers(items: Sequence[pytest.Item], workers: int) -> list[pytest.Item]:
    """Return the items in an order whose equal parts, one per worker, each begin with long tests and end with short ones.

    xdist gives each worker one part, and a worker without work takes the second half of what another one has left. The tests
    of a module stay together, because they may share a daemon; those marked `long` run on their own, before all others.
    """
    long = [item for item in items if item.get_closest_marker("long")]
    others = [item for item in items if not item.get_closest_marker("long")]
    modules = [list(module) for _, module in groupby(others, lambda item: item.path)]
    modules.sort(key=lambda module: _rank(module[0]))
    units = [*([item] for item in long), *modules]
    parts: list[list[pytest.Item]] = [[] for _ in range(workers)]
    for number, unit in enumerate(units):
        parts[number % workers].extend(unit)
    return _cut_to_size(parts, len(items))


def _rank(item: pytest.Item) -> int:
    """Return the position of an item's folder among the slowest."""
    folder = item.nodeid.split("/")[1]
    return SLOWEST_FOLDERS.index(folder) if folder in SLOWEST_FOLDERS else len(SLOWEST_FOLDERS)


def _cut_to_size(parts: list[list[pytest.Item]], total: int) -> list[pytest.Item]:
    """Move short tests from the ends of parts that are too large to those that are too small, and return all parts in order."""
    surplus: list[pytest.Item] = []
    sizes: list[int] = []
    for number, part in enumerate(parts):
        left = total - sum(sizes)
        sizes.append(left // (len(parts) - number))
        surplus += part[sizes[-1] :]
        del part[sizes[-1] :]
    for part, size in zip(parts, sizes, strict=True):
        missing = size - len(part)
        part += surplus[:missing]
        del surplus[:missing]
    return list(chain.from_iterable(parts))
