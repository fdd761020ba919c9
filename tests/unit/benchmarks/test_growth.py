"""Fits of costs: they find the law that points were made by, and tell what is worse than it may be."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.growth import bend, exponent, fit, line

NUMBERS = (1, 20, 50, 200)
some = st.floats(0.001, 1000)


@given(base=some, each=some)
def test_a_line_is_found_again(base: float, each: float) -> None:
    found = line([(number, base + each * number) for number in NUMBERS])
    assert found == pytest.approx((base, each), rel=1e-6, abs=1e-6 * (base + each))


@given(scale=some, power=st.floats(0, 3))
def test_a_power_is_found_again(scale: float, power: float) -> None:
    points = [(number, scale * number**power) for number in NUMBERS]
    assert exponent(points) == pytest.approx(power, abs=1e-6)


def test_the_squared_part_of_a_cost_is_found_again() -> None:
    points = [(number, 3 + 0.5 * number + 0.01 * number**2) for number in NUMBERS]
    assert bend(points) == pytest.approx(0.01 * 200**2 / points[-1][1])


@pytest.mark.parametrize(
    ("points", "constant", "linear"),
    [
        pytest.param([(1, 0.1), (20, 0.1), (50, 0.1), (200, 0.1)], True, True, id="the same"),
        pytest.param([(1, 0.10), (20, 0.11), (50, 0.09), (200, 0.12)], True, True, id="the same, with noise"),
        pytest.param([(1, 0.5), (20, 0.2), (50, 0.1), (200, 0.1)], True, True, id="less and less"),
        pytest.param([(0, 0), (20, 0), (50, 0), (200, 0)], True, True, id="nothing"),
        pytest.param([(0, 0), (20, 0), (50, 0), (200, 5)], False, False, id="nothing, then something"),
        pytest.param([(1, 1), (20, 20), (50, 50), (200, 200)], False, True, id="in proportion"),
        pytest.param([(0, 80), (20, 83), (50, 88), (200, 112)], False, True, id="a line from a height"),
        pytest.param([(1, 1.2), (20, 17), (50, 58), (200, 190)], False, True, id="in proportion, with noise"),
        pytest.param([(1, 1), (20, 400), (50, 2500), (200, 40000)], False, False, id="a square"),
        pytest.param([(0, 10), (20, 10.4), (50, 12.5), (200, 50)], False, False, id="a square from a height"),
        pytest.param([(10, 33), (100, 664), (1000, 9966)], False, False, id="n log n, steep"),
    ],
)
def test_what_a_growth_is_at_most(points: list[tuple[float, float]], constant: bool, linear: bool) -> None:
    found = fit(points)
    assert (found.is_at_most("constant"), found.is_at_most("linear")) == (constant, linear), found


def test_what_is_below_the_grain_of_the_meter_does_not_grow() -> None:
    points = [(20, 0.0), (50, 0.01), (200, 0.05)]
    assert not fit(points).is_at_most("constant")
    assert fit(points, floor=0.1).is_at_most("constant")


def test_three_points_do_not_make_a_bend() -> None:
    assert bend([(0, 10), (50, 9), (500, 40)]) == 0


def test_one_number_is_no_growth() -> None:
    with pytest.raises(ValueError, match="two different numbers"):
        fit([(20, 1.0), (20, 2.0)])


def test_a_growth_that_nobody_knows_is_refused() -> None:
    with pytest.raises(ValueError, match="'cubic' is not known; use constant or linear"):
        fit([(1, 1), (2, 2)]).is_at_most("cubic")
