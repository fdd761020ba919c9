"""Long tests begin first on every worker, and every test runs once."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pytest

from tests.order import spread_over_workers


@dataclass(frozen=True)
class Item:
    """What the order depends on."""

    nodeid: str
    is_long: bool = False

    @property
    def path(self) -> Path:
        return Path(self.nodeid.partition("::")[0])

    def get_closest_marker(self, name: str) -> bool:
        return self.is_long and name == "long"


ITEMS = [
    *(Item(f"tests/unit/test_{module}.py::test_{number}") for module in "abcdef" for number in range(40)),
    *(
        Item(f"tests/acceptance/test_{module}.py::test_{number}", is_long=number == 3)
        for module in "ghij"
        for number in range(6)
    ),
]


def parts(workers: int) -> list[list[Item]]:
    """Return the items of each worker, as xdist hands them out."""
    ordered = cast("list[Item]", spread_over_workers(cast("list[pytest.Item]", ITEMS), workers))
    handed_out = []
    for number in range(workers):
        size = len(ordered) // (workers - number)
        handed_out.append(ordered[:size])
        del ordered[:size]
    return handed_out


@pytest.mark.parametrize("workers", [1, 2, 3, 5, 7])
def test_every_test_runs_once(workers: int) -> None:
    handed_out = [item for part in parts(workers) for item in part]
    assert len(handed_out) == len(ITEMS) and set(handed_out) == set(ITEMS)


def test_each_worker_begins_with_a_long_test_and_ends_with_short_ones() -> None:
    for part in parts(4):
        assert [item.is_long for item in part].index(True) == 0 and sum(item.is_long for item in part) == 1
        assert {item.nodeid.split("/")[1] for item in part[-20:]} == {"unit"}


def test_the_tests_of_a_module_stay_together() -> None:
    for part in parts(4):
        modules = [item.path for item in part if "acceptance" in item.nodeid and not item.is_long]
        assert len(set(modules)) == 1 and len(modules) == 5


def test_one_worker_for_more_tests_than_workers() -> None:
    assert [len(part) for part in parts(len(ITEMS) + 2)].count(1) == len(ITEMS)
