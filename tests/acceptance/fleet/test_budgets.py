"""Budgets with a real daemon: paused with the work saved, a person asked, and no more started than the budget bears."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_orchestrator.testing.sandbox import Sandbox

PATIENCE = 60.0
CONFIG = """\
defaults: {agent: demo, runtime: process}
projects:
  app: {path: ., budget: {perDay: 3 USD}}
agents:
  careful: {tool: demo, budget: {perSession: 500 tokens}}
  planned: {tool: demo, budget: {perSession: 1 USD}}
"""


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Sandbox]:
    with Sandbox(tmp_path, "process") as sandbox:
        sandbox.repository(config=CONFIG)
        sandbox.start()
        yield sandbox


def test_a_spent_budget_pauses_asks_and_goes_on(box: Sandbox) -> None:
    task = "[[edit: kept.txt|x]] [[usage: input=400 output=200]] [[sleep: 600]]"
    box.ao("new", task, "--name", "dear", "--agent", "careful")
    box.until(lambda: box.session("app-dear")["status"] == "stopped", "the pause", PATIENCE)
    box.until(lambda: box.session("app-dear")["column"] == "Needs you", "the question", PATIENCE)
    assert "600 tokens spent of 500 tokens a session" in box.session("app-dear")["why"]
    [asked] = box.request("GET", "/api/questions?all=1")["questions"]
    assert asked["kind"] == "offer" and "raise-budget" in asked["text"]
    box.ao("answer", "app-dear", "--allow")
    box.until(lambda: box.session("app-dear")["workspacePath"], "it to be back", PATIENCE)
    box.until(lambda: box.session("app-dear")["pid"], "its agent", PATIENCE)
    assert (Path(box.session("app-dear")["workspacePath"]) / "kept.txt").exists()

    def told() -> list[dict[str, Any]]:
        return list(box.request("GET", "/api/sessions/app-dear/messages")["messages"])

    box.until(lambda: any(one["state"] in ("delivered", "acknowledged") for one in told()), "its word", PATIENCE)
    assert "Your budget was raised" in told()[-1]["content"]
    launches = [event for event in box.events("app-dear") if event["type"] == "agent-launched"]
    assert launches[-1]["data"]["resumed"] is True, "with its conversation"


def test_who_stops_one_that_is_paused_is_not_asked_any_more(box: Sandbox) -> None:
    task = "[[usage: input=400 output=200]] [[sleep: 600]]"
    box.ao("new", task, "--name", "dear", "--agent", "careful")
    box.until(lambda: box.request("GET", "/api/questions?all=1")["questions"], "the question", PATIENCE)
    box.until(lambda: box.session("app-dear")["status"] == "stopped", "the pause", PATIENCE)
    box.ao("stop", "app-dear")
    assert box.request("GET", "/api/questions?all=1")["questions"] == []
    assert box.session("app-dear")["column"] == "Done"


def test_no_more_start_than_the_day_bears_and_what_nobody_knows_is_told(box: Sandbox) -> None:
    for number in range(10):
        box.ao("new", "[[sleep: 600]]", "--name", f"n{number}", "--agent", "planned")
    waiting = [one for one in box.sessions() if one["status"] == "queued"]
    assert len(waiting) == 7, "three at a dollar each"
    assert all("3.00 reserved" in one["waitingFor"] for one in waiting)
    [day] = [row for row in box.json("usage")["budgets"] if row["scope"] == "day"]
    assert (day["budget"], day["spent"], day["reserved"]) == (3.0, 0.0, 3.0)
    assert "the day's budget of app" in box.ao("usage").stdout
    box.ao("stop", "app-n0")
    box.until(lambda: sum(one["status"] == "queued" for one in box.sessions()) == 6, "the next", PATIENCE)


def test_an_agent_that_tells_nothing_is_said_to_be_without_a_budget(box: Sandbox) -> None:
    box.ao("new", "[[done: for free?]]", "--name", "silent", "--agent", "planned")
    box.until(lambda: box.session("app-silent")["status"] not in ("queued", "starting", "working"), "its end", PATIENCE)
    assert "cannot be enforced" in box.ao("usage").stdout
    assert "its budget cannot be enforced" in box.ao("why", "app-silent").stdout
