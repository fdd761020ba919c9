"""Conflicts seen before they happen, through the public surface: noticed by themselves, told once, and asked for."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_orchestrator.testing.sandbox import Sandbox
from tests.acceptance.session_states import PLENTY, messages, work

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


def told(box: Sandbox, session: str) -> list[tuple[str, Any]]:
    """What was predicted of a session, and what was over again, in order."""
    kinds = ("conflict-predicted", "conflict-cleared")
    return [(one["type"], one["data"]) for one in box.events(session) if one["type"] in kinds]


def waiting(box: Sandbox, name: str, script: str) -> Path:
    """A session that did something and waits."""
    work(box, name, f"{script} [[wait]]")
    box.until(lambda: box.session(name)["status"] in ("idle", "pr_open"), f"{name} to have done it", PLENTY)
    return Path(box.session(name)["workspacePath"])


def test_it_is_noticed_told_once_and_told_when_it_is_over(box: Sandbox) -> None:
    waiting(box, "one", "[[write: a.txt|one]] [[commit: one]]")
    two = waiting(box, "two", "[[write: a.txt|two]]")
    [first] = box.until(lambda: told(box, "app-two"), "the prediction", PLENTY)
    assert first == ("conflict-predicted", {"other": "app-one", "files": ["a.txt"], "kind": "text"})
    assert box.json("conflicts") == {"pairs": [{"a": "app-one", "b": "app-two", "files": ["a.txt"], "kind": "text"}]}
    shown = box.ao("conflicts").stdout
    assert all(word in shown for word in ("app-one", "app-two", "text", "a.txt"))
    assert "collide with app-one (text): a.txt" in box.ao("why", "two").stdout
    assert "collide with app-two (text): a.txt" in box.ao("why", "one").stdout
    for name, other in (("one", "app-two"), ("two", "app-one")):
        assert box.session(name)["collides"] == [{"session": other, "kind": "text", "files": ["a.txt"]}]
        assert f"with {other} in a.txt" in box.ao("status", name).stdout
    listed = {each["id"]: each["collides"] for each in box.json("status")["sessions"]}
    assert [each["session"] for each in listed["app-one"]] == ["app-two"], (
        "the elder's too, though only the younger's facts have it"
    )
    assert box.ao("status").stdout.splitlines()[-1] == "app-one and app-two will conflict: ao conflicts"
    [notice] = box.until(
        lambda: [one["data"] for one in box.events("app-two") if one["type"] == "notified"], "the notice", PLENTY
    )
    assert (notice["trigger"], notice["message"]) == ("conflict-predicted", "two and app-one in - a.txt")
    assert notice.get("level", "info") == "info"

    (two / "a.txt").write_text("still another\n")
    (two / "made" / "here").mkdir(parents=True)
    (two / "made" / "here" / "b.txt").write_text("b\n")
    assert len(box.json("conflicts")["pairs"]) == 1 and len(told(box, "app-two")) == 1
    (two / "a.txt").unlink()
    box.until(lambda: len(told(box, "app-two")) == 2, "its end", PLENTY)
    assert told(box, "app-two")[1] == ("conflict-cleared", {"other": "app-one"})
    assert box.json("conflicts") == {"pairs": []} and "No two sessions" in box.ao("conflicts").stdout
    assert [each["collides"] for each in box.json("status")["sessions"]] == [[], []]
    assert "will conflict" not in box.ao("status").stdout
    (two / "a.txt").write_text("back\n")
    box.until(lambda: len(told(box, "app-two")) == 3, "it to be told again", PLENTY)
    box.ao("stop", "one")
    box.until(lambda: len(told(box, "app-two")) == 4, "its end with the other's", PLENTY)
    assert told(box, "app-one") == []


def test_a_file_in_a_new_folder_is_noticed_and_nothing_is_told_twice_after_a_crash(box: Sandbox) -> None:
    one, two = waiting(box, "one", "[[say: one]]"), waiting(box, "two", "[[say: two]]")
    for path in (one, two):
        (path / "deep" / "er").mkdir(parents=True)
    assert box.json("conflicts") == {"pairs": []}
    for path in (one, two):
        (path / "deep" / "er" / "x.txt").write_text(path.name)
    box.until(lambda: told(box, "app-two"), "the prediction", PLENTY)
    box.stop(9)
    box.start()
    assert box.request("GET", "/api/conflicts?fresh=1")["pairs"][0]["files"] == ["deep/er/x.txt"]
    assert box.request("GET", "/api/conflicts")["pairs"][0]["kind"] == "text"
    assert len(told(box, "app-two")) == 1


def test_the_agent_can_be_told(tmp_path: Path) -> None:
    config = CONFIG.replace("{message:", "{action: send-to-agent, condition: \"event.kind == 'text'\", message:")
    with Sandbox(tmp_path, "process") as box:
        box.repository(config=config)
        box.start()
        waiting(box, "one", "[[write: a.txt|one]] [[commit: one]]")
        waiting(box, "two", "[[write: a.txt|two]] [[commit: two]]")
        [text] = box.until(lambda: messages(box, "two"), "the message", PLENTY)
        assert text == "two and app-one in - a.txt"
        assert messages(box, "one") == []


def test_tasks_about_one_file_do_not_start_together_while_others_wait(tmp_path: Path) -> None:
    config = "defaults: {agent: demo, runtime: process}\norchestrator: {maxParallelAgents: 1}\n"
    with Sandbox(tmp_path, "process") as box:
        repo = box.repository(config=config)
        (repo / "login.py").write_text("x\n")
        box.git("add", "login.py")
        box.git("commit", "-qm", "a file")
        box.start()
        work(box, "one", "Mend login.py [[sleep: 600]]")
        box.until(lambda: box.session("one")["status"] == "working", "one to work", PLENTY)
        work(box, "two", "Also login.py [[sleep: 600]]")
        work(box, "three", "Something else [[sleep: 600]]")
        box.until(lambda: box.session("three")["waitingFor"], "both to wait", PLENTY)
        box.ao("config", "set", "orchestrator.maxParallelAgents", "2")
        box.until(lambda: box.session("three")["status"] == "working", "the other to start", PLENTY)
        assert box.session("two")["waitingFor"] == "a free place (2 of 2 agents at work); app-one works on login.py too"
        box.ao("stop", "three")
        box.until(lambda: box.session("two")["status"] == "working", "it to start, for nobody else waits", PLENTY)


def test_commands_and_routes_answer_without_anything_to_say(box: Sandbox) -> None:
    assert box.request("GET", "/api/conflicts") == {"pairs": []}
    assert json.loads(box.ao("conflicts", "-A", "--json").stdout) == {"pairs": []}
    wrong = box.ao("conflicts", "-p", "nowhere", check=False)
    assert wrong.returncode == 3 and wrong.stderr.count("\n") == 1
