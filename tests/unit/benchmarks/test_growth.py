"""Fits of costs: they recover the law behind the points and recognize growth that exceeds its limit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.growth import fit_bend, fit_exponent, fit_growth, fit_line

NUMBERS = (1, 20, 50, 200)
some = st.floats(0.001, 1000)


@given(base=some, each=some)
def test_fitting_a_line_recovers_its_constant_and_its_slope(base: float, each: float) -> None:
    fitted = fit_line([(number, base + each * number) for number in NUMBERS])
    assert fitted == pytest.approx((base, each), rel=1e-6, abs=1e-6 * (base + each))


@given(scale=some, power=st.floats(0, 3))
def test_fitting_a_power_recovers_its_exponent(scale: float, power: float) -> None:
    points = [(number, scale * number**power) for number in NUMBERS]
    assert fit_exponent(points) == pytest.approx(power, abs=1e-6)


def test_the_squared_part_of_a_cost_is_measured() -> None:
    points = [(number, 3 + 0.5 * number + 0.01 * number**2) for number in NUMBERS]
    assert fit_bend(points) == pytest.approx(0.01 * 200**2 / points[-1][1])


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
def test_a_fit_says_whether_growth_is_constant_or_linear_at_most(
    points: list[tuple[float, float]], constant: bool, linear: bool
) -> None:
    fitted = fit_growth(points)
    assert (fitted.is_at_most("constant"), fitted.is_at_most("linear")) == (constant, linear), fitted


def test_differences_below_the_measurable_minimum_are_no_growth() -> None:
    points = [(20, 0.0), (50, 0.01), (200, 0.05)]
    assert not fit_growth(points).is_at_most("constant")
    assert fit_growth(points, floor=0.1).is_at_most("constant")


def test_three_points_are_too_few_to_measure_a_squared_part() -> None:
    assert fit_bend([(0, 10), (50, 9), (500, 40)]) == 0


def test_a_fit_needs_two_different_numbers() -> None:
    with pytest.raises(ValueError, match="two different numbers"):
        fit_growth([(20, 1.0), (20, 2.0)])


def test_an_unknown_kind_of_growth_is_refused() -> None:
    with pytest.raises(ValueError, match="'cubic' is not known; use constant or linear"):
        fit_growth([(1, 1), (2, 2)]).is_at_most("cubic")
