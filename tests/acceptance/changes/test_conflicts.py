"""Predicted conflicts between sessions: recorded, notified once, and shown by commands and routes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_orchestrator.testing.sandbox import Sandbox
from tests.acceptance.session_states import TIMEOUT, create_session, rule_messages

CONFIG = """
defaults: {agent: demo, runtime: process}
reactions:
  conflict-predicted: {message: "{{session.name}} and {{other}} in {{files}}"}
"""


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Sandbox]:
    with Sandbox(tmp_path, "process") as sandbox:
        sandbox.repository(config=CONFIG)
        sandbox.start()
        yield sandbox


def prediction_events(box: Sandbox, session: str) -> list[tuple[str, Any]]:
    """Return the type and data of a session's predicted and cleared conflicts, in order."""
    kinds = ("conflict-predicted", "conflict-cleared")
    return [(event["type"], event["data"]) for event in box.events(session) if event["type"] in kinds]


def create_idle_session(box: Sandbox, name: str, script: str) -> Path:
    """Create a session, wait until its script has run and return its workspace."""
    create_session(box, name, f"{script} [[wait]]")
    box.wait_until(lambda: box.session(name)["status"] in ("idle", "pr_open"), f"{name} to have done it", TIMEOUT)
    return Path(box.session(name)["workspacePath"])


def test_a_conflict_is_predicted_notified_once_and_cleared_when_it_is_over(box: Sandbox) -> None:
    create_idle_session(box, "one", "[[write: a.txt|one]] [[commit: one]]")
    two = create_idle_session(box, "two", "[[write: a.txt|two]]")
    [first] = box.wait_until(lambda: prediction_events(box, "app-two"), "the prediction", TIMEOUT)
    assert first == ("conflict-predicted", {"other": "app-one", "files": ["a.txt"], "kind": "text"})
    assert box.json("conflicts") == {"pairs": [{"a": "app-one", "b": "app-two", "files": ["a.txt"], "kind": "text"}]}
    table = box.ao("conflicts").stdout
    assert all(expected in table for expected in ("app-one", "app-two", "text", "a.txt"))
    assert "collide with app-one (text): a.txt" in box.ao("why", "two").stdout
    assert "collide with app-two (text): a.txt" in box.ao("why", "one").stdout
    for name, other in (("one", "app-two"), ("two", "app-one")):
        assert box.session(name)["collides"] == [{"session": other, "kind": "text", "files": ["a.txt"]}]
        assert f"with {other} in a.txt" in box.ao("status", name).stdout
    listed = {entry["id"]: entry["collides"] for entry in box.json("status")["sessions"]}
    assert [entry["session"] for entry in listed["app-one"]] == ["app-two"], (
        "the elder's too, though only the younger's facts have it"
    )
    assert box.ao("status").stdout.splitlines()[-1] == "app-one and app-two will conflict: ao conflicts"
    [notice] = box.wait_until(
        lambda: [event["data"] for event in box.events("app-two") if event["type"] == "notified"], "the notice", TIMEOUT
    )
    assert (notice["trigger"], notice["message"]) == ("conflict-predicted", "two and app-one in - a.txt")
    assert notice.get("level", "info") == "info"

    (two / "a.txt").write_text("still another\n")
    (two / "made" / "here").mkdir(parents=True)
    (two / "made" / "here" / "b.txt").write_text("b\n")
    assert len(box.json("conflicts")["pairs"]) == 1 and len(prediction_events(box, "app-two")) == 1
    (two / "a.txt").unlink()
    box.wait_until(lambda: len(prediction_events(box, "app-two")) == 2, "its end", TIMEOUT)
    assert prediction_events(box, "app-two")[1] == ("conflict-cleared", {"other": "app-one"})
    assert box.json("conflicts") == {"pairs": []} and "No two sessions" in box.ao("conflicts").stdout
    assert [entry["collides"] for entry in box.json("status")["sessions"]] == [[], []]
    assert "will conflict" not in box.ao("status").stdout
    (two / "a.txt").write_text("back\n")
    box.wait_until(lambda: len(prediction_events(box, "app-two")) == 3, "the second prediction", TIMEOUT)
    box.ao("stop", "one")
    box.wait_until(lambda: len(prediction_events(box, "app-two")) == 4, "its end with the other's", TIMEOUT)
    assert prediction_events(box, "app-one") == []


def test_a_file_in_a_new_folder_is_noticed_and_a_crash_repeats_no_prediction(box: Sandbox) -> None:
    first, second = create_idle_session(box, "one", "[[say: one]]"), create_idle_session(box, "two", "[[say: two]]")
    for path in (first, second):
        (path / "deep" / "er").mkdir(parents=True)
    assert box.json("conflicts") == {"pairs": []}
    for path in (first, second):
        (path / "deep" / "er" / "x.txt").write_text(path.name)
    box.wait_until(lambda: prediction_events(box, "app-two"), "the prediction", TIMEOUT)
    box.stop(9)
    box.start()
    assert box.request("GET", "/api/conflicts?fresh=1")["pairs"][0]["files"] == ["deep/er/x.txt"]
    assert box.request("GET", "/api/conflicts")["pairs"][0]["kind"] == "text"
    assert len(prediction_events(box, "app-two")) == 1


def test_a_rule_can_send_the_predicted_conflict_to_the_agent(tmp_path: Path) -> None:
    config = CONFIG.replace("{message:", "{action: send-to-agent, condition: \"event.kind == 'text'\", message:")
    with Sandbox(tmp_path, "process") as box:
        box.repository(config=config)
        box.start()
        create_idle_session(box, "one", "[[write: a.txt|one]] [[commit: one]]")
        create_idle_session(box, "two", "[[write: a.txt|two]] [[commit: two]]")
        [text] = box.wait_until(lambda: rule_messages(box, "two"), "the message", TIMEOUT)
        assert text == "two and app-one in - a.txt"
        assert rule_messages(box, "one") == []


def test_tasks_that_name_the_same_file_do_not_start_together_while_others_wait(tmp_path: Path) -> None:
    config = "defaults: {agent: demo, runtime: process}\norchestrator: {maxParallelAgents: 1}\n"
    with Sandbox(tmp_path, "process") as box:
        repo = box.repository(config=config)
        (repo / "login.py").write_text("x\n")
        box.git("add", "login.py")
        box.git("commit", "-qm", "a file")
        box.start()
        create_session(box, "one", "Mend login.py [[sleep: 600]]")
        box.wait_until(lambda: box.session("one")["status"] == "working", "one to work", TIMEOUT)
        create_session(box, "two", "Also login.py [[sleep: 600]]")
        create_session(box, "three", "Something else [[sleep: 600]]")
        box.wait_until(lambda: box.session("three")["waitingFor"], "both to wait", TIMEOUT)
        box.ao("config", "set", "orchestrator.maxParallelAgents", "2")
        box.wait_until(lambda: box.session("three")["status"] == "working", "the other to start", TIMEOUT)
        assert box.session("two")["waitingFor"] == "a free place (2 of 2 agents at work); app-one works on login.py too"
        box.ao("stop", "three")
        box.wait_until(
            lambda: box.session("two")["status"] == "working", "it to start once no other session waits", TIMEOUT
        )


def test_commands_and_routes_answer_when_there_are_no_conflicts(box: Sandbox) -> None:
    assert box.request("GET", "/api/conflicts") == {"pairs": []}
    assert json.loads(box.ao("conflicts", "-A", "--json").stdout) == {"pairs": []}
    failed = box.ao("conflicts", "-p", "nowhere", check=False)
    assert failed.returncode == 3 and failed.stderr.count("\n") == 1
