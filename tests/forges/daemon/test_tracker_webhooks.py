"""Webhooks of Linear and Jira to a real daemon: accepted if signed and recent, refused otherwise."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_orchestrator.testing.forge.hooks import post_delivery
from agent_orchestrator.testing.jira import JiraServer
from agent_orchestrator.testing.linear import LinearServer
from agent_orchestrator.testing.sandbox import Sandbox

CONFIG = """
defaults: {{agent: demo, runtime: process}}
projects:
  app:
    path: .
    tracker: {{plugin: {kind}, {options}, token: t, webhook: {{secret: s3cret}}}}
"""


class ShiftedClock:
    """A clock with an offset in seconds."""

    def __init__(self) -> None:
        self.offset = 0.0

    def __call__(self) -> float:
        return time.time() + self.offset


@pytest.fixture
def clock() -> ShiftedClock:
    return ShiftedClock()


@pytest.fixture(params=["linear", "jira"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def tracker(kind: str, clock: ShiftedClock) -> Iterator[Any]:
    with LinearServer(clock=clock) if kind == "linear" else JiraServer(clock=clock) as server:
        yield server


@pytest.fixture
def box(tmp_path: Path, tracker: Any, kind: str) -> Iterator[Sandbox]:
    linear = f'team: LIN, apiUrl: "{tracker.url}/graphql"'
    options = linear if kind == "linear" else f'project: LIN, url: "{tracker.url}", api: 3'
    with Sandbox(tmp_path, "process") as sandbox:
        sandbox.repository(config=CONFIG.format(kind=kind, options=options))
        sandbox.start()
        sandbox.ao("add-project", str(sandbox.repo))
        yield sandbox


def address(box: Sandbox, kind: str) -> str:
    return f"{json.loads(box.home.daemon_info.read_text())['url']}/api/webhooks/{kind}"


def test_recent_signed_webhooks_are_accepted_and_others_refused(
    box: Sandbox, tracker: Any, kind: str, clock: ShiftedClock
) -> None:
    url = address(box, kind)
    tracker.hook(url, "s3cret")
    project = tracker.team("LIN") if kind == "linear" else tracker.project("LIN")
    issue = tracker.issue(project, "x")
    tracker.comment(issue, "hello")
    tracker.hooks.wait()
    assert [sent.status_code for sent in tracker.hooks.sent] == [202, 202]
    body, headers = tracker.signed(tracker.hooks.sent[-1])
    assert post_delivery(url, body + b" ", headers) == 401
    assert post_delivery(url, b"x", {}) == 401
    tracker.targets.clear()
    tracker.hook(url, "another secret")
    tracker.comment(issue, "forged")
    tracker.hooks.wait()
    assert tracker.hooks.sent[-1].status_code == 401
    for offset in (-400.0, 400.0):
        clock.offset = offset
        tracker.targets.clear()
        tracker.hook(url, "s3cret")
        tracker.comment(issue, "too late, or too early")
        tracker.hooks.wait()
        assert tracker.hooks.sent[-1].status_code == 401
