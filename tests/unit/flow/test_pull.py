"""What checks say about a change: green, red, or nothing."""

from __future__ import annotations

import pytest

from agent_orchestrator.flow.pull import CheckRun, PullRequest

HEAD = "c1"


@pytest.mark.parametrize(
    ("run", "green", "failing", "red"),
    [
        (CheckRun("t", HEAD, "success"), True, False, False),
        (CheckRun("t", HEAD, "failure"), False, True, True),
        (CheckRun("t", HEAD, "timed_out"), False, True, True),
        (CheckRun("t", HEAD, "failure", on_base=True), True, False, False),
        (CheckRun("t", HEAD, "failure", on_base=True, broken=True), False, False, True),
        (CheckRun("t", HEAD, "queued"), False, False, False),
    ],
)
def test_only_what_is_known_to_be_good_is_green(run: CheckRun, green: bool, failing: bool, red: bool) -> None:
    pr = PullRequest(1, "x", "main", checks={"t": run}, settled=HEAD)
    assert (pr.green(HEAD), bool(pr.failing(HEAD)), bool(pr.red(HEAD))) == (green, failing, red)
    assert not pr.green("c2"), "of another commit nothing is known"
