"""A plan whose tasks become issues of a tracker: each is made once, even if the daemon dies or the tracker fails."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_orchestrator.testing.github import GitHubServer
from agent_orchestrator.testing.sandbox import Sandbox
from tests.acceptance.planning import goal, start_crashing_daemon, task
from tests.acceptance.session_states import TIMEOUT
from tests.forges import fetch
from tests.forges.conftest import published
from tests.forges.daemon.test_issues import issue_sandbox
from tests.forges.plugins.trackers import JiraBench, LinearBench, TrackerBench
from tests.forges.published.linear_types import write_schema

CONFIG = """
defaults: {{agent: demo, runtime: process}}
orchestrator: {{autoAssign: {auto}}}
projects:
  app:
    path: .
    tracker: {{plugin: {kind}, {options}, poll: 1s}}
"""


@pytest.fixture(params=["linear", "jira"])
def bench(request: pytest.FixtureRequest) -> Iterator[TrackerBench[Any]]:
    tracker_bench: TrackerBench[Any]
    if request.param == "linear":
        pytest.importorskip("graphql", reason="graphql-core is not installed: make test-forges")
        tracker_bench = LinearBench(write_schema(published(fetch.LINEAR)))
    else:
        tracker_bench = JiraBench(3)
    with tracker_bench.server:
        yield tracker_bench


@pytest.fixture
def box(tmp_path: Path, bench: TrackerBench[Any]) -> Iterator[Sandbox]:
    with Sandbox(tmp_path, "process") as sandbox:
        sandbox.repository(config=config(bench))
        sandbox.start()
        yield sandbox


def config(bench: TrackerBench[Any], auto: str = "false") -> str:
    token = bench.server.token("dev")
    if isinstance(bench, LinearBench):
        options = f'team: LIN, apiUrl: "{bench.server.api}", token: {token}'
    else:
        options = f'project: APP, url: "{bench.server.url}", api: 3, email: dev@acme.example, token: {token}'
    return CONFIG.format(kind=bench.name.partition(" ")[0], options=options, auto=auto)


def issue_titles(bench: TrackerBench[Any]) -> list[str]:
    """Return the sorted titles of the tracker's issues."""
    issues = bench.team.issues if isinstance(bench, LinearBench) else bench.project.issues  # type: ignore[attr-defined]
    return sorted(issue.title for issue in issues)


def test_the_tasks_of_a_plan_become_issues_and_are_assigned_in_order(box: Sandbox, bench: TrackerBench[Any]) -> None:
    plan = box.json("plan", goal(task("a"), task("b", "a")), "--apply")
    assert plan["state"] == "applied" and issue_titles(bench) == ["Make a", "Make b"]
    assert [row["issueKey"] for row in plan["tasks"]] == [f"{bench.prefix}-1", f"{bench.prefix}-2"]
    box.wait_until(
        lambda: [row["issue"] for row in box.sessions()] == [f"{bench.prefix}-1"], "the first to be taken", TIMEOUT
    )
    time.sleep(1.5)
    assert len(box.sessions()) == 1 and box.json("issue", "show", "2")["after"] == [1]


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_kill_right_after_an_issue_was_opened_does_not_open_it_twice(
    box: Sandbox, bench: TrackerBench[Any], number: int
) -> None:
    if isinstance(bench, LinearBench):
        fault_point = "http mutation AoIssueCreate: host.ask < issues.create < apply._bodies < apply.run"
    else:
        fault_point = "http POST /rest/api/*/issue: host.call < issues.create < apply._bodies < apply.run"
    box.ao("plan", goal(task("a"), task("b", "a"), task("c", "b")))
    box.stop()
    # By itself it would take issues as soon as it sees them: those of a half plan must wait all the same.
    (box.repo / "agent-orchestrator.yaml").write_text(config(bench, auto="true"))
    daemon = start_crashing_daemon(box, f"{number}# {fault_point}")
    assert box.request("POST", "/api/plans/P1/apply", {"start": False})["state"] == "applying"
    assert daemon.wait(30) == -signal.SIGKILL
    assert len(issue_titles(bench)) == number
    box.start()
    plan = box.wait_until(lambda: applied_plan(box), "the plan to be applied", TIMEOUT)
    assert issue_titles(bench) == ["Make a", "Make b", "Make c"]
    assert [row["issue"] for row in plan["tasks"]] == [1, 2, 3]
    blockers = [box.json("issue", "show", str(issue_number))["after"] for issue_number in (1, 2, 3)]
    assert blockers == [[], [1], [2]]
    assert {row["issue"] for row in box.sessions()} <= {f"{bench.prefix}-1"}


def applied_plan(box: Sandbox) -> dict[str, Any]:
    plan: dict[str, Any] = box.request("GET", "/api/plans/P1")
    return plan if plan["state"] == "applied" else {}


def test_applying_a_plan_continues_once_the_tracker_is_up_again(box: Sandbox, bench: TrackerBench[Any]) -> None:
    box.ao("plan", goal(task("a"), task("b", "a")))
    bench.server.down()
    assert box.request("POST", "/api/plans/P1/apply", {})["state"] == "applying"
    progress = box.wait_until(lambda: box.request("GET", "/api/plans/P1")["progress"], "what hinders it", TIMEOUT)
    assert "it is tried again by itself" in progress
    discard = box.ao("plan", "P1", "--discard", check=False)
    assert discard.returncode == 1 and "P1 is applying" in discard.stderr
    bench.server.up()
    box.wait_until(lambda: applied_plan(box), "the plan to be applied", TIMEOUT)
    assert issue_titles(bench) == ["Make a", "Make b"]


def test_a_plan_refused_by_the_tracker_shows_the_reason_and_can_be_corrected(
    box: Sandbox, bench: TrackerBench[Any]
) -> None:
    if not isinstance(bench, LinearBench):
        pytest.skip("Jira takes any label")
    bench.server.label("area").is_group = True
    plan = box.json("plan", goal(task("a"), task("b", "a", labels=["area"])))
    output = box.ao("plan", "P1", "--apply", "--no-start", check=False)
    assert (
        output.returncode == 1 and "P1 was not applied: " in output.stderr and "duplicate label name" in output.stderr
    )
    draft = box.json("plan", "P1")
    assert draft["state"] == "draft" and "duplicate label name" in draft["error"] and issue_titles(bench) == ["Make a"]
    box.request("PUT", "/api/plans/P1", {"tasks": [plan["tasks"][0], {**plan["tasks"][1], "labels": []}]})
    box.ao("plan", "P1", "--apply", "--no-start")
    assert issue_titles(bench) == ["Make a", "Make b"] and [row["issue"] for row in applied_plan(box)["tasks"]] == [
        1,
        2,
    ]


def test_a_lost_response_does_not_open_an_issue_twice(box: Sandbox, bench: TrackerBench[Any]) -> None:
    box.ao("plan", goal(task("a"), task("b", "a")))
    path = "issueCreate" if isinstance(bench, LinearBench) else "/issue "
    bench.server.fail("lost", path=path, method="POST")
    box.ao("plan", "P1", "--apply", "--no-start")
    assert issue_titles(bench) == ["Make a", "Make b"] and [row["issue"] for row in applied_plan(box)["tasks"]] == [
        1,
        2,
    ]


def test_github_issues_of_a_plan_carry_a_hidden_mark_and_are_found_after_a_kill(
    tmp_path: Path, forge: GitHubServer
) -> None:
    fault_point = "http POST /api/*/repos/acme/app/issues: issues.create < apply._bodies < apply.run"
    with issue_sandbox(tmp_path, forge, "polling") as box:
        box.ao("plan", goal(task("a", labels=["ui"]), task("b", "a")))
        box.stop()
        daemon = start_crashing_daemon(box, f"1# {fault_point}")
        box.request("POST", "/api/plans/P1/apply", {"start": False})
        assert daemon.wait(30) == -signal.SIGKILL
        box.start()
        plan = box.wait_until(lambda: applied_plan(box), "the plan to be applied", TIMEOUT)
        assert [row["issueKey"] for row in plan["tasks"]] == ["1", "2"]
        bodies = [box.json("issue", "show", number)["body"] for number in ("1", "2")]
        assert all(body.splitlines()[-1].startswith("<!-- ao plan P1 task ") for body in bodies)
        assert box.json("issue", "show", "2")["after"] == [1] and box.json("issue", "show", "1")["labels"] == ["ui"]
        assert len(box.json("issues")["issues"]) == 2
