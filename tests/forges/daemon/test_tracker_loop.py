"""Issues of Linear and Jira with the demo agent: assigned by their labels, moved with the progress, closed by the merge."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_orchestrator.testing.sandbox import Sandbox
from tests.acceptance.session_states import TIMEOUT, wait_for_status
from tests.forges import fetch
from tests.forges.conftest import published
from tests.forges.plugins.trackers import JiraBench, LinearBench, TrackerBench
from tests.forges.published.linear_types import write_schema

CONFIG = """
defaults: {{agent: demo, runtime: process}}
orchestrator: {{autoAssign: true}}
agents:
  tester: {{tool: demo, filters: {{labels: [needs-tests]}}}}
projects:
  app:
    path: .
    tracker: {{plugin: {kind}, {options}, poll: {poll}, webhook: {{secret: s3cret}}}}
"""
SCRIPT = "[[write: b.txt|one]] [[commit: one]] [[done: made]]"


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


@pytest.fixture(params=["webhooks", "polling"])
def box(tmp_path: Path, bench: TrackerBench[Any], request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    token = bench.server.token("dev")
    if isinstance(bench, LinearBench):
        options = f'team: LIN, apiUrl: "{bench.server.api}", token: {token}'
    else:
        options = f'project: APP, url: "{bench.server.url}", api: 3, email: dev@acme.example, token: {token}'
    poll = "1s" if request.param == "polling" else "600s"
    kind = bench.name.partition(" ")[0]
    with Sandbox(tmp_path, "process") as sandbox:
        sandbox.repository(config=CONFIG.format(kind=kind, options=options, poll=poll))
        sandbox.start()
        sandbox.ao("add-project", str(sandbox.repo))
        if request.param == "webhooks":
            url = json.loads(sandbox.home.daemon_info.read_text())["url"]
            bench.server.hook(f"{url}/api/webhooks/{kind}", "s3cret")
        yield sandbox


def test_an_issue_gets_one_session_and_is_moved_until_it_is_done(box: Sandbox, bench: TrackerBench[Any]) -> None:
    other = bench.issue("Not for us", "[[done: no]]", by="rev")
    deleted_issue = bench.issue("Deleted before it is read")
    issues = bench.team.issues if isinstance(bench, LinearBench) else bench.project.issues  # type: ignore[attr-defined]
    issues.remove(deleted_issue)
    issue = bench.issue("Add a file", SCRIPT, by="rev")
    bench.label(issue, "needs-tests")
    session = box.wait_until(lambda: box.sessions()[:1], "a session", TIMEOUT)[0]
    assert (session["profile"], session["title"]) == ("tester", "Add a file")
    name = session["name"]
    box.wait_until(lambda: issue.assignee is not None, "the issue to be ours", TIMEOUT)
    box.wait_until(lambda: bench.status(issue) != bench.status(other), "work to be told of", TIMEOUT)
    wait_for_status(box, name, "review_pending", "mergeable")
    box.wait_until(lambda: bench.status(issue) == "In Review", "the issue to be in review", TIMEOUT)
    box.stop()
    box.start()
    box.ao("review", name, "--approve", "-m", "good")
    box.ao("merge", name)
    box.wait_until(lambda: bench.status(issue) == "Done", "the issue to be closed", TIMEOUT)
    assert bench.status(other) != "Done"
    assert len(box.sessions()) == 1
