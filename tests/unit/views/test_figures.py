"""The fleet's figures: the total limit of agents, and counts per day."""

from __future__ import annotations

import pytest

from agent_orchestrator.config.config_set import ParallelLimit
from agent_orchestrator.core import events as e
from agent_orchestrator.core.events import Event
from agent_orchestrator.views.overview import total_parallel_limit
from agent_orchestrator.views.stats import Tally

DAY = 86400.0


def limit(count: int, *projects: str) -> ParallelLimit:
    return ParallelLimit(frozenset(projects), count, "here")


@pytest.mark.parametrize(
    ("limits", "projects", "count"),
    [
        ((), ["a"], None),
        ((), [], None),
        ((limit(4, "a", "b"),), ["a", "b"], 4),
        ((limit(4, "a", "b"), limit(1, "a"), limit(2, "b")), ["a", "b"], 3),
        ((limit(2, "a"),), ["a", "b"], None),
        ((limit(2, "a"), limit(3, "b")), ["a", "b"], 5),
        ((limit(2, "a", "b"), limit(9, "a")), ["a", "b", "c"], None),
    ],
)
def test_the_total_limit_of_agents_is_computed_from_all_limits(
    limits: tuple[ParallelLimit, ...], projects: list[str], count: int
) -> None:
    assert total_parallel_limit(limits, projects) == count


def test_figures_per_day_are_summed_by_project() -> None:
    tally = Tally()
    events: list[tuple[e.Body, float, str]] = [
        (e.PrOpened(1, "x", "main"), 0.0, "a"),
        (e.PrMerged("c", "b", "h"), DAY + 10.0, "a"),
        (e.PrOpened(2, "y", "main"), DAY, "b"),
        (e.PrMerged("c", "b", "h"), DAY + 30.0, "b"),
        (e.Reacted("ci-failed", "ci-failed", "o", "send-to-agent"), DAY, "a"),
        (e.Reacted("ci-failed", "ci-failed", "o", "send-to-agent", 2), DAY, "a"),
        (e.Reacted("agent-stuck", "agent-stuck", "o", "notify"), DAY, "a"),
    ]
    for body, at, project in events:
        tally.add(Event(body, at, "t", "k", project, f"{project}-x"))
    first, second = tally.counts_of(None, "1970-01-01"), tally.counts_of(None, "1970-01-02")
    assert (first.opened, first.merged, second.opened, second.merged) == (1, 0, 1, 2)
    assert sorted(second.durations) == [30.0, DAY + 10.0]
    assert second.retries == {"ci-failed": 2}, "a notification is no retry"
    assert tally.counts_of("b", "1970-01-02").durations == [30.0]
