"""Budgets: a session over its budget is paused with its work saved, a person is asked, and starts stay within the budget."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_orchestrator.testing.sandbox import Sandbox

TIMEOUT = 60.0
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


def test_a_spent_budget_pauses_the_session_until_a_person_raises_it(box: Sandbox) -> None:
    task = "[[edit: kept.txt|x]] [[usage: input=400 output=200]] [[sleep: 600]]"
    box.ao("new", task, "--name", "dear", "--agent", "careful")
    box.wait_until(lambda: box.session("app-dear")["status"] == "stopped", "the pause", TIMEOUT)
    box.wait_until(lambda: box.session("app-dear")["column"] == "Needs you", "the question", TIMEOUT)
    assert "600 tokens spent of 500 tokens a session" in box.session("app-dear")["why"]
    [question] = box.request("GET", "/api/questions?all=1")["questions"]
    assert question["kind"] == "offer" and "raise-budget" in question["text"]
    box.ao("answer", "app-dear", "--allow")
    box.wait_until(lambda: box.session("app-dear")["workspacePath"], "it to be back", TIMEOUT)
    box.wait_until(lambda: box.session("app-dear")["pid"], "its agent", TIMEOUT)
    assert (Path(box.session("app-dear")["workspacePath"]) / "kept.txt").exists()

    def messages() -> list[dict[str, Any]]:
        return list(box.request("GET", "/api/sessions/app-dear/messages")["messages"])

    box.wait_until(
        lambda: any(message["state"] in ("delivered", "acknowledged") for message in messages()),
        "the message",
        TIMEOUT,
    )
    assert "Your budget was raised" in messages()[-1]["content"]
    launches = [event for event in box.events("app-dear") if event["type"] == "agent-launched"]
    assert launches[-1]["data"]["resumed"] is True, "with its conversation"


def test_stopping_a_paused_session_withdraws_its_question(box: Sandbox) -> None:
    task = "[[usage: input=400 output=200]] [[sleep: 600]]"
    box.ao("new", task, "--name", "dear", "--agent", "careful")
    box.wait_until(lambda: box.request("GET", "/api/questions?all=1")["questions"], "the question", TIMEOUT)
    box.wait_until(lambda: box.session("app-dear")["status"] == "stopped", "the pause", TIMEOUT)
    box.ao("stop", "app-dear")
    assert box.request("GET", "/api/questions?all=1")["questions"] == []
    assert box.session("app-dear")["column"] == "Done"


def test_starts_beyond_the_days_budget_wait(box: Sandbox) -> None:
    for number in range(10):
        box.ao("new", "[[sleep: 600]]", "--name", f"n{number}", "--agent", "planned")
    waiting = [session for session in box.sessions() if session["status"] == "queued"]
    assert len(waiting) == 7, "three at a dollar each"
    assert all("3.00 reserved" in session["waitingFor"] for session in waiting)
    [day] = [row for row in box.json("usage")["budgets"] if row["scope"] == "day"]
    assert (day["budget"], day["spent"], day["reserved"]) == (3.0, 0.0, 3.0)
    assert "the day's budget of app" in box.ao("usage").stdout
    box.ao("stop", "app-n0")
    box.wait_until(lambda: sum(session["status"] == "queued" for session in box.sessions()) == 6, "the next", TIMEOUT)


def test_an_agent_without_usage_reports_is_shown_as_unenforceable(box: Sandbox) -> None:
    box.ao("new", "[[done: for free?]]", "--name", "silent", "--agent", "planned")
    box.wait_until(
        lambda: box.session("app-silent")["status"] not in ("queued", "starting", "working"), "its end", TIMEOUT
    )
    assert "cannot be enforced" in box.ao("usage").stdout
    assert "its budget cannot be enforced" in box.ao("why", "app-silent").stdout
