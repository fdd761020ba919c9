"""The checks of a pull request: green, failing, red or undecided."""

from __future__ import annotations

import pytest

from agent_orchestrator.core import events as e
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.pull_request import CheckRun, PullRequest
from agent_orchestrator.core.status import derive_status
from tests.unit.core.test_facts_properties import begun, step

HEAD = "c1"
OPENED = e.PrOpened(1, "x", "main", draft=False)


@pytest.mark.parametrize(
    ("run", "green", "failing", "red"),
    [
        (CheckRun("t", HEAD, "success"), True, False, False),
        (CheckRun("t", HEAD, "failure"), False, True, True),
        (CheckRun("t", HEAD, "timed_out"), False, True, True),
        (CheckRun("t", HEAD, "failure", known=("a",)), True, False, False),
        (CheckRun("t", HEAD, "failure", known=("a",), new={"b": ""}), False, True, True),
        (CheckRun("t", HEAD, "failure", known=("a",), owned=("a",)), False, True, True),
        (CheckRun("t", HEAD, "failure", known=("a",), forbidden=True), False, False, True),
        (CheckRun("t", HEAD, "not_set_up", reason="module x not found"), False, False, True),
        (CheckRun("t", HEAD, "failure", outdated=True), False, False, False),
        (CheckRun("t", HEAD, "success", vanished=("a",)), False, False, False),
        (CheckRun("t", HEAD, "success", fewer=2), False, False, False),
        (CheckRun("t", HEAD, "queued"), False, False, False),
    ],
)
def test_only_checks_without_unexplained_failures_are_green(
    run: CheckRun, green: bool, failing: bool, red: bool
) -> None:
    pr = PullRequest(1, "x", "main", checks={"t": run}, settled_head=HEAD)
    assert (pr.is_green(HEAD), bool(pr.failing_checks(HEAD)), bool(pr.blocking_checks(HEAD))) == (green, failing, red)
    assert not pr.is_green("c2"), "of another commit nothing is known"


@pytest.mark.parametrize(
    ("then", "status"),
    [
        ([], "ci_running"),
        ([e.CheckStarted("t", HEAD)], "ci_running"),
        ([e.ChecksByHand(HEAD)], "review_pending"),
        ([e.ChecksSettled(HEAD, none=True)], "review_pending"),
        ([e.CheckFinished("t", HEAD, "success"), e.ChecksSettled(HEAD)], "review_pending"),
        ([e.CheckFinished("t", "c0", "success"), e.ChecksSettled("c0")], "ci_running"),
    ],
)
def test_a_review_is_requested_only_after_the_checks(then: list[e.Body], status: str) -> None:
    facts = begun()
    for number, body in enumerate([e.AgentActivity("idle"), e.HeadMoved(HEAD), OPENED, *then]):
        facts = step(facts, Event(body, 1001.0, "test", f"t{number}", "app", facts.id, facts.generation))
    assert derive_status(facts, 1002.0).name == status
