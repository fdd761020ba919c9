"""The budget: people's commands wait only when nothing is left, background reading spreads what remains."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_orchestrator.plugins.forges.shared.rate_limits import MAX_REFUSAL_PAUSE, RequestBudget

NOW = 1_700_000_000.0


class Clock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def budget(clock: Clock) -> RequestBudget:
    return RequestBudget(clock)


def rate_headers(
    remaining: int, reset: float = NOW + 3600, resource: str = "core", limit: int = 5000
) -> dict[str, str]:
    return {
        "x-ratelimit-limit": str(limit),
        "x-ratelimit-remaining": str(remaining),
        "x-ratelimit-reset": str(int(reset)),
        "x-ratelimit-resource": resource,
    }


def test_at_first_no_request_waits(budget: RequestBudget) -> None:
    assert budget.pause_before_next() == 0
    assert budget.blocked_until() is None
    assert budget.rows() == []


def test_with_much_remaining_no_request_waits(budget: RequestBudget) -> None:
    budget.record(rate_headers(4000))
    assert budget.pause_before_next() == 0


def test_background_reading_spreads_what_is_left_above_the_reserve(budget: RequestBudget) -> None:
    budget.record(rate_headers(2000))
    assert budget.pause_before_next() == pytest.approx(3600 / 1000)
    assert budget.blocked_until() is None


def test_the_reserve_is_for_people(budget: RequestBudget) -> None:
    budget.record(rate_headers(900))
    assert budget.pause_before_next() == 3600
    assert budget.blocked_until() is None


def test_without_remaining_requests_all_wait_for_the_reset(budget: RequestBudget, clock: Clock) -> None:
    budget.record(rate_headers(0))
    assert budget.blocked_until() == NOW + 3600
    clock.now += 3600
    assert budget.blocked_until() is None
    assert budget.pause_before_next() == 0


def test_each_resource_is_counted_by_itself(budget: RequestBudget) -> None:
    budget.record(rate_headers(0, resource="graphql"))
    budget.record(rate_headers(4999))
    assert budget.blocked_until("graphql") is not None
    assert budget.blocked_until("core") is None
    assert [(row.resource, row.remaining) for row in budget.rows()] == [("core", 4999), ("graphql", 0)]


def test_a_reset_time_in_the_past_does_not_block(budget: RequestBudget, clock: Clock) -> None:
    budget.record(rate_headers(0, reset=NOW - 100))
    held = budget.blocked_until()
    assert held is not None and held <= NOW + 60
    clock.now = held
    assert budget.blocked_until() is None


def test_a_reset_absurdly_far_away_is_no_reset(budget: RequestBudget) -> None:
    budget.record(rate_headers(0, reset=NOW + 10_000_000))
    held = budget.blocked_until()
    assert held is not None and held <= NOW + 60


def test_an_answer_that_was_overtaken_gives_nothing_back(budget: RequestBudget) -> None:
    budget.record(rate_headers(10))
    budget.record(rate_headers(12))
    assert budget.rows()[0].remaining == 10


def test_a_secondary_limit_is_honoured_to_the_second(budget: RequestBudget, clock: Clock) -> None:
    assert budget.record_refusal({"retry-after": "17"}, secondary=True) == NOW + 17
    assert budget.pause_before_next() == 17
    assert budget.blocked_until("graphql") == NOW + 17
    clock.now += 17
    assert budget.blocked_until() is None


def test_a_date_in_retry_after_is_understood(budget: RequestBudget) -> None:
    date = format_datetime(datetime.fromtimestamp(NOW + 30, UTC))
    assert budget.record_refusal({"retry-after": date}, secondary=True) == NOW + 30


def test_without_a_word_the_pauses_grow_and_stay_bounded(budget: RequestBudget, clock: Clock) -> None:
    pauses = []
    for _ in range(8):
        pauses.append(budget.record_refusal({}, secondary=True) - clock.now)
        clock.now += pauses[-1]
    assert pauses[:3] == [60, 120, 240]
    assert max(pauses) == MAX_REFUSAL_PAUSE
    budget.record({}, 200)
    assert budget.record_refusal({}, secondary=True) - clock.now == 60


def test_a_primary_refusal_lasts_until_the_reset_and_a_past_one_grows(budget: RequestBudget, clock: Clock) -> None:
    assert budget.record_refusal(rate_headers(0, reset=NOW + 90), secondary=False) == NOW + 90
    clock.now += 100
    assert budget.record_refusal(rate_headers(0, reset=NOW), secondary=False) == clock.now + 120


@given(
    st.dictionaries(st.sampled_from([*rate_headers(1), "retry-after", "ratelimit-reset"]), st.text(max_size=20)),
    st.booleans(),
)
def test_no_headers_ever_make_it_crash_or_wait_for_more_than_a_day(headers: dict[str, str], secondary: bool) -> None:
    budget = RequestBudget(lambda: NOW)
    budget.record(headers)
    assert 0 < budget.record_refusal(headers, secondary=secondary) - NOW <= 86_400
    assert 0 <= budget.pause_before_next() <= 86_400


@given(st.integers(0, 5000), st.integers(1, 3600), st.integers(1, 50))
def test_spreading_never_uses_up_the_reserve(remaining: int, left: int, cost: int) -> None:
    clock = Clock()
    budget = RequestBudget(clock)
    budget.record(rate_headers(remaining, reset=NOW + left))
    for _ in range(6000):
        pause = budget.pause_before_next(cost=cost)
        if clock.now + pause >= NOW + left:
            break
        clock.now += pause + 0.5
        remaining -= cost
        budget.record(rate_headers(remaining, reset=NOW + left))
        assert remaining >= 1000 - 1e-6


def test_use_of_the_token_by_others_is_counted(budget: RequestBudget, clock: Clock) -> None:
    """Agents by their own `gh`, or people."""
    for remaining in (4990, 4989, 4988):
        budget.record(rate_headers(remaining))
    budget.record(rate_headers(4988), 304)
    assert budget.rows()[0].used_by_others == 0
    budget.record(rate_headers(4887))
    assert budget.rows()[0].used_by_others == 100
    clock.now += 3600
    budget.record(rate_headers(4999, reset=clock.now + 3600))
    assert budget.rows()[0].used_by_others == 0


def test_the_cost_of_our_queries_is_counted_as_ours(budget: RequestBudget) -> None:
    budget.record(rate_headers(5000, resource="graphql"))
    budget.record(rate_headers(4970, resource="graphql"))
    budget.record_cost("graphql", 20)
    assert budget.rows()[0].used_by_others == 10
