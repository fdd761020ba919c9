"""A plan whose tasks become issues of a tracker: each once, whenever the daemon dies, and whatever the tracker does meanwhile."""

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
from tests.forges.daemon.test_issues import boxed
from tests.forges.plugins.trackers import Bench, JiraBench, LinearBench
from tests.forges.published.linear_types import written

CONFIG = """
defaults: {{agent: demo, runtime: process}}
orchestrator: {{autoAssign: {auto}}}
projects:
  app:
    path: .
    tracker: {{plugin: {kind}, {options}, poll: 1s}}
"""


@pytest.fixture(params=["linear", "jira"])
def bench(request: pytest.FixtureRequest) -> Iterator[Bench[Any]]:
    made: Bench[Any]
    if request.param == "linear":
        pytest.importorskip("graphql", reason="graphql-core is not installed: make test-forges")
        made = LinearBench(written(published(fetch.LINEAR)))
    else:
        made = JiraBench(3)
    with made.server:
        yield made


@pytest.fixture
def box(tmp_path: Path, bench: Bench[Any]) -> Iterator[Sandbox]:
    with Sandbox(tmp_path, "process") as sandbox:
        sandbox.repository(config=config(bench))
        sandbox.start()
        yield sandbox


def config(bench: Bench[Any], auto: str = "false") -> str:
    token = bench.server.token("dev")
    if isinstance(bench, LinearBench):
        options = f'team: LIN, apiUrl: "{bench.server.api}", token: {token}'
    else:
        options = f'project: APP, url: "{bench.server.url}", api: 3, email: dev@acme.example, token: {token}'
    return CONFIG.format(kind=bench.name.partition(" ")[0], options=options, auto=auto)


def there(bench: Bench[Any]) -> list[str]:
    """The titles of the tracker's issues."""
    listed = bench.team.issues if isinstance(bench, LinearBench) else bench.project.issues  # type: ignore[attr-defined]
    return sorted(one.title for one in listed)


def test_the_tasks_become_issues_there_and_are_taken_in_order(box: Sandbox, bench: Bench[Any]) -> None:
    made = box.json("plan", goal(task("a"), task("b", "a")), "--apply")
    assert made["state"] == "applied" and there(bench) == ["Make a", "Make b"]
    assert [row["issueKey"] for row in made["tasks"]] == [f"{bench.prefix}-1", f"{bench.prefix}-2"]
    box.until(
        lambda: [row["issue"] for row in box.sessions()] == [f"{bench.prefix}-1"], "the first to be taken", TIMEOUT
    )
    time.sleep(1.5)
    assert len(box.sessions()) == 1 and box.json("issue", "show", "2")["after"] == [1]


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_death_right_after_an_issue_was_made_makes_it_not_again(box: Sandbox, bench: Bench[Any], number: int) -> None:
    if isinstance(bench, LinearBench):
        place = "http mutation AoIssueCreate: host.ask < issues.create < apply._bodies < apply.run"
    else:
        place = "http POST /rest/api/*/issue: host.call < issues.create < apply._bodies < apply.run"
    box.ao("plan", goal(task("a"), task("b", "a"), task("c", "b")))
    box.stop()
    # By itself it would take issues as soon as it sees them: those of a half plan must wait all the same.
    (box.repo / "agent-orchestrator.yaml").write_text(config(bench, auto="true"))
    daemon = start_crashing_daemon(box, f"{number}# {place}")
    assert box.request("POST", "/api/plans/P1/apply", {"start": False})["state"] == "applying"
    assert daemon.wait(30) == -signal.SIGKILL
    assert len(there(bench)) == number
    box.start()
    done = box.until(lambda: applied(box), "the plan to be applied", TIMEOUT)
    assert there(bench) == ["Make a", "Make b", "Make c"]
    assert [row["issue"] for row in done["tasks"]] == [1, 2, 3]
    waits = [box.json("issue", "show", str(one))["after"] for one in (1, 2, 3)]
    assert waits == [[], [1], [2]]
    assert {row["issue"] for row in box.sessions()} <= {f"{bench.prefix}-1"}


def applied(box: Sandbox) -> dict[str, Any]:
    found: dict[str, Any] = box.request("GET", "/api/plans/P1")
    return found if found["state"] == "applied" else {}


def test_a_tracker_that_is_down_is_waited_for(box: Sandbox, bench: Bench[Any]) -> None:
    box.ao("plan", goal(task("a"), task("b", "a")))
    bench.server.down()
    assert box.request("POST", "/api/plans/P1/apply", {})["state"] == "applying"
    said = box.until(lambda: box.request("GET", "/api/plans/P1")["progress"], "what hinders it", TIMEOUT)
    assert "it is tried again by itself" in said
    refused = box.ao("plan", "P1", "--discard", check=False)
    assert refused.returncode == 1 and "P1 is applying" in refused.stderr
    bench.server.up()
    box.until(lambda: applied(box), "the plan to be applied", TIMEOUT)
    assert there(bench) == ["Make a", "Make b"]


def test_what_the_tracker_does_not_take_is_said_and_may_be_corrected(box: Sandbox, bench: Bench[Any]) -> None:
    if not isinstance(bench, LinearBench):
        pytest.skip("Jira takes any label")
    bench.server.label("area").is_group = True
    made = box.json("plan", goal(task("a"), task("b", "a", labels=["area"])))
    refused = box.ao("plan", "P1", "--apply", "--no-start", check=False)
    assert (
        refused.returncode == 1
        and "P1 was not applied: " in refused.stderr
        and "duplicate label name" in refused.stderr
    )
    draft = box.json("plan", "P1")
    assert draft["state"] == "draft" and "duplicate label name" in draft["error"] and there(bench) == ["Make a"]
    box.request("PUT", "/api/plans/P1", {"tasks": [made["tasks"][0], {**made["tasks"][1], "labels": []}]})
    box.ao("plan", "P1", "--apply", "--no-start")
    assert there(bench) == ["Make a", "Make b"] and [row["issue"] for row in applied(box)["tasks"]] == [1, 2]


def test_an_answer_that_is_lost_makes_nothing_twice(box: Sandbox, bench: Bench[Any]) -> None:
    box.ao("plan", goal(task("a"), task("b", "a")))
    path = "issueCreate" if isinstance(bench, LinearBench) else "/issue "
    bench.server.fail("lost", path=path, method="POST")
    box.ao("plan", "P1", "--apply", "--no-start")
    assert there(bench) == ["Make a", "Make b"] and [row["issue"] for row in applied(box)["tasks"]] == [1, 2]


def test_at_github_the_mark_is_hidden_and_an_issue_that_was_made_is_found(tmp_path: Path, forge: GitHubServer) -> None:
    place = "http POST /api/*/repos/acme/app/issues: issues.create < apply._bodies < apply.run"
    with boxed(tmp_path, forge, "polling") as box:
        box.ao("plan", goal(task("a", labels=["ui"]), task("b", "a")))
        box.stop()
        daemon = start_crashing_daemon(box, f"1# {place}")
        box.request("POST", "/api/plans/P1/apply", {"start": False})
        assert daemon.wait(30) == -signal.SIGKILL
        box.start()
        done = box.until(lambda: applied(box), "the plan to be applied", TIMEOUT)
        assert [row["issueKey"] for row in done["tasks"]] == ["1", "2"]
        bodies = [box.json("issue", "show", number)["body"] for number in ("1", "2")]
        assert all(body.splitlines()[-1].startswith("<!-- ao plan P1 task ") for body in bodies)
        assert box.json("issue", "show", "2")["after"] == [1] and box.json("issue", "show", "1")["labels"] == ["ui"]
        assert len(box.json("issues")["issues"]) == 2
