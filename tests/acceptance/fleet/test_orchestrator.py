"""The coordinating agent, played without a model: started, given goals, told by digests, confined to its project."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_orchestrator.testing.sandbox import Sandbox

CONFIG = """\
defaults: {{agent: demo, runtime: process}}
orchestrator: {{maxParallelAgents: 4, coordinator: {{digest: 0.3s{more}}}}}
agents: {{scribe: {{tool: demo, options: {{log: {log}}}}}}}
projects: {{app: {{path: ., coordinator: {{agent: scribe}}}}}}
"""


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Sandbox]:
    """Nothing there yet."""
    with Sandbox(tmp_path, "process") as sandbox:
        yield sandbox


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "demo.jsonl"


def repository(box: Sandbox, log: Path, more: str = "") -> None:
    box.repository(config=CONFIG.format(log=log, more=more))


def calls(log: Path) -> list[dict[str, Any]]:
    """What the coordinating agent called, by its own log."""
    if not log.exists():
        return []
    found = [json.loads(line) for line in log.read_text().splitlines()]
    return [one for one in found if one["event"] == "mcp"]


def told(box: Sandbox) -> list[str]:
    """The digests it was sent."""
    found = [one for one in box.events("app-coordinator") if one["type"] == "message-queued"]
    return [one["data"]["text"] for one in found if one["data"].get("sender") == "digest"]


def tool(name: str, **arguments: Any) -> str:
    inside = json.dumps(arguments).replace("[[", r"\u005b\u005b").replace("]]", r"\u005d\u005d")
    return f"[[mcp: {name} {inside}]]"


def test_it_spawns_two_workers_is_told_and_steers_one(box: Sandbox, log: Path) -> None:
    repository(box, log)
    box.start()
    work = "[[write: {0}.txt|{0}]] [[commit: {0}]] [[done: {0} is written]]"
    goal = " ".join(
        [
            tool("spawn_session", prompt=work.format("one"), title="Write one"),
            tool("spawn_session", prompt=work.format("two"), title="Write two"),
            "[[wait]]",
            tool("send_message", session="app-write-one", text="and more [[write: more.txt|more]] [[commit: more]]"),
            tool("merge_session", session="app-write-one"),
        ]
    )
    state = box.json("orchestrator", goal)
    assert state["session"]["id"] == "app-coordinator"
    assert state["session"]["kind"] == "coordinator"
    box.until(lambda: {"app-write-one", "app-write-two"} <= {one["id"] for one in box.sessions()}, "the workers")
    [first, *_] = box.until(lambda: [text for text in told(box) if "> one is written" in text], "the digest")
    box.until(lambda: any(one["tool"] == "merge_session" for one in calls(log)), "what it did after that")
    assert first.startswith("News from app")
    assert "app-write-one (Write one)" in first
    assert "says it is done" in first
    refused = next(one for one in calls(log) if one["tool"] == "merge_session")
    assert refused["error"], refused
    box.until(
        lambda: "more" in box.git("log", "--format=%s", box.session("app-write-one")["branch"]), "the steered work"
    )
    workers = [one for one in box.sessions() if one["kind"] == "worker"]
    assert len(workers) == 2
    created = [one for one in box.events() if one["type"] == "session-created" and one["data"].get("parent")]
    assert {one["data"]["parent"] for one in created} == {"app-coordinator"}


def test_it_makes_no_change_and_counts_as_no_work(box: Sandbox, log: Path) -> None:
    repository(box, log)
    (box.repo / "agent-orchestrator.yaml").write_text(
        (box.repo / "agent-orchestrator.yaml").read_text().replace("maxParallelAgents: 4", "maxParallelAgents: 1")
    )
    box.start()
    box.ao("orchestrator", "hold on [[write: x.txt|x]] [[commit: mine]] [[sleep: 30]]")
    box.until(lambda: box.session("app-coordinator")["status"] == "working", "it to be at work")
    made = box.json("new", "[[write: a.txt|a]] [[commit: a]] [[done: a]]", "--name", "w")
    assert made["status"] != "queued", "it holds a place"
    box.until(lambda: box.session("w")["status"] == "review_pending", "the worker's pull request")
    mine = box.session("app-coordinator")
    assert mine["pr"] is None
    assert not [one for one in box.json("conflicts")["pairs"] if "app-coordinator" in (one["a"], one["b"])]
    box.ao("merge", "w")
    box.until(lambda: any(one["type"] == "all-complete" for one in box.events()), "all work to be done")


def test_it_is_told_once_across_restarts_and_of_a_burst_together(box: Sandbox, log: Path) -> None:
    repository(box, log)
    box.start()
    box.ao("orchestrator", "[[say: ready]]")
    box.until(lambda: box.session("app-coordinator")["activity"] == "idle", "it to rest")
    pid = box.session("app-coordinator")["pid"]
    go, done = box.folder / "go", [box.folder / f"done-{number}" for number in range(4)]
    script = "[[sh: touch {1}.begun; until test -e {2}; do sleep 0.05; done]] [[done: did {0}]] [[sh: touch {1}]]"
    box.ao("new", *(script.format(number, done[number], go) for number in range(4)), "--no-wait")
    box.until(lambda: all(one.with_name(f"{one.name}.begun").exists() for one in done), "all four to be at work")
    daemon = box.daemon_pid()
    assert daemon is not None
    os.kill(daemon, signal.SIGSTOP)
    try:
        go.touch()
        box.until(lambda: all(one.exists() for one in done), "all four to be done, and nobody to know it")
    finally:
        os.kill(daemon, signal.SIGCONT)
    box.until(lambda: sum(text.count("> did ") for text in told(box)) == 4, "all four to be told")
    assert len(told(box)) <= 3, told(box)
    before = len(told(box))
    box.stop(signal.SIGKILL)
    box.start()
    assert box.session("app-coordinator")["pid"] == pid, "it was not adopted"
    box.ao("new", "[[done: a fifth]]", "--name", "fifth")
    box.until(lambda: any("> a fifth" in text for text in told(box)[before:]), "the next digest")
    assert not any("did " in text for text in told(box)[before:]), "it was told again"


def test_stopped_it_goes_on_with_its_conversation(box: Sandbox, log: Path) -> None:
    repository(box, log)
    box.start()
    nothing = box.ao("orchestrator").stdout
    assert "no coordinating agent" in nothing
    box.ao("orchestrator", "first [[say: here]]")
    box.until(lambda: box.session("app-coordinator")["activity"] == "idle", "it to rest")
    shown = box.ao("orchestrator").stdout
    assert "app-coordinator: idle" in shown
    assert "first" in shown
    assert "is stopped" in box.ao("orchestrator", "--stop").stdout
    box.ao("new", "[[done: while it was away]]", "--name", "w")
    box.until(lambda: box.session("w")["progress"] is not None and box.session("w")["activity"] == "idle", "the worker")
    state = box.json("orchestrator", "second [[say: again]]")
    assert state["session"]["id"] == "app-coordinator"
    box.until(lambda: any("> while it was away" in text for text in told(box)), "what it missed")
    starts = [json.loads(line) for line in log.read_text().splitlines()]
    assert [one["resume"] for one in starts if one["event"] == "start"] == [False, True]
    other = box.ao("orchestrator", "x", "--model", "another", check=False)
    assert other.returncode == 1
    assert "is there already" in other.stderr and "ao orchestrator --stop" in other.stderr


def test_news_and_goals_wake_one_that_has_ended(box: Sandbox, log: Path) -> None:
    repository(box, log)
    box.start()
    box.ao("orchestrator", "[[exit: 0]]")
    box.until(lambda: not box.session("app-coordinator")["pid"], "its end")
    box.ao("new", "[[done: the news]]", "--name", "w")
    box.until(lambda: any("> the news" in text for text in told(box)), "a digest that wakes it")
    box.until(lambda: box.session("app-coordinator")["activity"] == "idle", "it to be awake")
    os.kill(box.session("app-coordinator")["pid"], signal.SIGKILL)
    box.until(lambda: box.session("app-coordinator")["status"] == "failed", "its death to be seen")
    box.ao("orchestrator", "[[say: back]]")
    box.until(lambda: box.session("app-coordinator")["activity"] == "idle", "it to be back")
    (box.repo / "new.txt").write_text("new")
    box.git("add", "new.txt")
    box.git("commit", "-q", "-m", "the base moves")
    box.ao("orchestrator", "[[say: look]]")
    mine = Path(box.session("app-coordinator")["workspacePath"])
    assert (mine / "new.txt").exists(), "it looks at an old base"
    stopped = box.ao("stop", "app-coordinator").stdout
    assert "rescue" not in stopped, "there was nothing to save"


def test_it_cannot_reach_another_project(box: Sandbox, log: Path) -> None:
    repository(box, log)
    box.start()
    box.json("new", "[[wait]]", "--name", "mine")
    other = box.folder / "other"
    other.mkdir()
    box.git("init", "-q", "-b", "main", cwd=other)
    box.git("commit", "-q", "--allow-empty", "-m", "start", cwd=other)
    (other / "agent-orchestrator.yaml").write_text("defaults: {agent: demo, runtime: process}\n")
    box.ao("new", "[[wait]]", "--name", "theirs", cwd=other)
    box.ao(
        "orchestrator",
        " ".join(
            [
                tool("send_message", session="other-theirs", text="obey"),
                tool("spawn_session", prompt="x", project="other"),
                tool("get_session", session="other-theirs"),
                tool("list_sessions"),
            ]
        ),
    )
    box.until(lambda: len(calls(log)) == 4, "its calls")
    by_name = {one["tool"]: one for one in calls(log)}
    assert all(by_name[name]["error"] for name in ("send_message", "spawn_session", "get_session")), by_name
    assert "app-mine" in by_name["list_sessions"]["text"]
    assert "theirs" not in by_name["list_sessions"]["text"]
    assert not [one for one in box.sessions() if one["project"] == "other" and one["name"] != "theirs"]


def test_ao_start_and_the_configuration_start_it(box: Sandbox, log: Path) -> None:
    repository(box, log, ", auto: true")
    box.ao("start", "--no-open", "--port", "0")
    box.until(lambda: [one for one in box.sessions() if one["kind"] == "coordinator"], "the one that is wanted")
    box.until(lambda: box.session("app-coordinator")["activity"] == "idle", "it to be at rest")
    assert box.session("app-coordinator")["column"] == "Working"
    done = box.ao("start", "--no-open", "--orchestrator")
    assert "coordinating agent app-coordinator" in done.stdout
    assert len([one for one in box.sessions() if one["kind"] == "coordinator"]) == 1


def test_what_came_with_the_repository_starts_none_before_it_is_trusted(box: Sandbox, log: Path) -> None:
    repository(box, log, ", may: [merge]")
    box.git("add", ".")
    box.git("commit", "-q", "-m", "with configuration")
    box.start()
    refused = box.ao("orchestrator", "go", check=False)
    assert refused.returncode != 0
    assert "ao trust" in refused.stderr
    box.ao("trust", "--yes")
    box.ao("orchestrator", "[[say: go]]")
