"""The coordinator, scripted without a model: its start, goals, digests, and confinement to its project."""

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
    """Yield a sandbox without a repository or daemon."""
    with Sandbox(tmp_path, "process") as sandbox:
        yield sandbox


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "demo.jsonl"


def repository(box: Sandbox, log: Path, more: str = "") -> None:
    box.repository(config=CONFIG.format(log=log, more=more))


def calls(log: Path) -> list[dict[str, Any]]:
    """Return the MCP calls of the coordinator, from its own log."""
    if not log.exists():
        return []
    entries = [json.loads(line) for line in log.read_text().splitlines()]
    return [entry for entry in entries if entry["event"] == "mcp"]


def digests(box: Sandbox) -> list[str]:
    """Return the digests that the coordinator was sent."""
    events = [event for event in box.events("app-coordinator") if event["type"] == "message-queued"]
    return [event["data"]["text"] for event in events if event["data"].get("sender") == "digest"]


def mcp_call(name: str, **arguments: Any) -> str:
    escaped = json.dumps(arguments).replace("[[", r"\u005b\u005b").replace("]]", r"\u005d\u005d")
    return f"[[mcp: {name} {escaped}]]"


def test_a_coordinator_spawns_two_workers_gets_digests_and_steers_one(box: Sandbox, log: Path) -> None:
    repository(box, log)
    box.start()
    script = "[[write: {0}.txt|{0}]] [[commit: {0}]] [[done: {0} is written]]"
    goal = " ".join(
        [
            mcp_call("spawn_session", prompt=script.format("one"), title="Write one"),
            mcp_call("spawn_session", prompt=script.format("two"), title="Write two"),
            "[[wait]]",
            mcp_call(
                "send_message", session="app-write-one", text="and more [[write: more.txt|more]] [[commit: more]]"
            ),
            mcp_call("merge_session", session="app-write-one"),
        ]
    )
    state = box.json("orchestrator", goal)
    assert state["session"]["id"] == "app-coordinator"
    assert state["session"]["kind"] == "coordinator"
    box.wait_until(lambda: {"app-write-one", "app-write-two"} <= {item["id"] for item in box.sessions()}, "the workers")
    [first, *_] = box.wait_until(lambda: [text for text in digests(box) if "> one is written" in text], "the digest")
    box.wait_until(lambda: any(item["tool"] == "merge_session" for item in calls(log)), "what it did after that")
    assert first.startswith("News from app")
    assert "app-write-one (Write one)" in first
    assert "says it is done" in first
    merge_call = next(item for item in calls(log) if item["tool"] == "merge_session")
    assert merge_call["error"], merge_call
    box.wait_until(
        lambda: "more" in box.git("log", "--format=%s", box.session("app-write-one")["branch"]), "the steered work"
    )
    workers = [item for item in box.sessions() if item["kind"] == "worker"]
    assert len(workers) == 2
    created = [item for item in box.events() if item["type"] == "session-created" and item["data"].get("parent")]
    assert {item["data"]["parent"] for item in created} == {"app-coordinator"}


def test_a_coordinator_makes_no_change_and_occupies_no_slot(box: Sandbox, log: Path) -> None:
    repository(box, log)
    (box.repo / "agent-orchestrator.yaml").write_text(
        (box.repo / "agent-orchestrator.yaml").read_text().replace("maxParallelAgents: 4", "maxParallelAgents: 1")
    )
    box.start()
    box.ao("orchestrator", "hold on [[write: x.txt|x]] [[commit: mine]] [[sleep: 30]]")
    box.wait_until(lambda: box.session("app-coordinator")["status"] == "working", "it to be at work")
    worker = box.json("new", "[[write: a.txt|a]] [[commit: a]] [[done: a]]", "--name", "w")
    assert worker["status"] != "queued", "it occupies a slot"
    box.wait_until(lambda: box.session("w")["status"] == "review_pending", "the worker's pull request")
    coordinator = box.session("app-coordinator")
    assert coordinator["pr"] is None
    assert not [item for item in box.json("conflicts")["pairs"] if "app-coordinator" in (item["a"], item["b"])]
    box.ao("merge", "w")
    box.wait_until(lambda: any(item["type"] == "all-complete" for item in box.events()), "all work to be done")


def test_digests_combine_bursts_and_are_not_repeated_after_a_restart(box: Sandbox, log: Path) -> None:
    repository(box, log)
    box.start()
    box.ao("orchestrator", "[[say: ready]]")
    box.wait_until(lambda: box.session("app-coordinator")["activity"] == "idle", "it to rest")
    pid = box.session("app-coordinator")["pid"]
    go_file, done_files = box.folder / "go", [box.folder / f"done-{number}" for number in range(4)]
    script = "[[sh: touch {1}.begun; until test -e {2}; do sleep 0.05; done]] [[done: did {0}]] [[sh: touch {1}]]"
    box.ao("new", *(script.format(number, done_files[number], go_file) for number in range(4)), "--no-wait")
    box.wait_until(
        lambda: all(path.with_name(f"{path.name}.begun").exists() for path in done_files), "all four to be at work"
    )
    daemon = box.daemon_pid()
    assert daemon is not None
    os.kill(daemon, signal.SIGSTOP)
    try:
        go_file.touch()
        box.wait_until(lambda: all(path.exists() for path in done_files), "all four to be done unnoticed")
    finally:
        os.kill(daemon, signal.SIGCONT)
    box.wait_until(lambda: sum(text.count("> did ") for text in digests(box)) == 4, "all four in the digests")
    assert len(digests(box)) <= 3, digests(box)
    before = len(digests(box))
    box.stop(signal.SIGKILL)
    box.start()
    assert box.session("app-coordinator")["pid"] == pid, "it was not adopted"
    box.ao("new", "[[done: a fifth]]", "--name", "fifth")
    box.wait_until(lambda: any("> a fifth" in text for text in digests(box)[before:]), "the next digest")
    assert not any("did " in text for text in digests(box)[before:]), "it was reported again"


def test_a_stopped_coordinator_continues_its_conversation(box: Sandbox, log: Path) -> None:
    repository(box, log)
    box.start()
    output = box.ao("orchestrator").stdout
    assert "no coordinating agent" in output
    box.ao("orchestrator", "first [[say: here]]")
    box.wait_until(lambda: box.session("app-coordinator")["activity"] == "idle", "it to rest")
    details = box.ao("orchestrator").stdout
    assert "app-coordinator: idle" in details
    assert "first" in details
    assert "is stopped" in box.ao("orchestrator", "--stop").stdout
    box.ao("new", "[[done: while it was away]]", "--name", "w")
    box.wait_until(
        lambda: box.session("w")["progress"] is not None and box.session("w")["activity"] == "idle", "the worker"
    )
    state = box.json("orchestrator", "second [[say: again]]")
    assert state["session"]["id"] == "app-coordinator"
    box.wait_until(lambda: any("> while it was away" in text for text in digests(box)), "what it missed")
    starts = [json.loads(line) for line in log.read_text().splitlines()]
    assert [entry["resume"] for entry in starts if entry["event"] == "start"] == [False, True]
    other = box.ao("orchestrator", "x", "--model", "another", check=False)
    assert other.returncode == 1
    assert "is there already" in other.stderr and "ao orchestrator --stop" in other.stderr


def test_news_and_goals_restart_an_ended_coordinator(box: Sandbox, log: Path) -> None:
    repository(box, log)
    box.start()
    box.ao("orchestrator", "[[exit: 0]]")
    box.wait_until(lambda: not box.session("app-coordinator")["pid"], "its end")
    box.ao("new", "[[done: the news]]", "--name", "w")
    box.wait_until(lambda: any("> the news" in text for text in digests(box)), "a digest that wakes it")
    box.wait_until(lambda: box.session("app-coordinator")["activity"] == "idle", "it to be awake")
    os.kill(box.session("app-coordinator")["pid"], signal.SIGKILL)
    box.wait_until(lambda: box.session("app-coordinator")["status"] == "failed", "its death to be seen")
    box.ao("orchestrator", "[[say: back]]")
    box.wait_until(lambda: box.session("app-coordinator")["activity"] == "idle", "it to be back")
    (box.repo / "new.txt").write_text("new")
    box.git("add", "new.txt")
    box.git("commit", "-q", "-m", "the base moves")
    box.ao("orchestrator", "[[say: look]]")
    workspace = Path(box.session("app-coordinator")["workspacePath"])
    assert (workspace / "new.txt").exists(), "its workspace is at an old base"
    stopped = box.ao("stop", "app-coordinator").stdout
    assert "rescue" not in stopped, "there was nothing to save"


def test_a_coordinator_cannot_reach_another_project(box: Sandbox, log: Path) -> None:
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
                mcp_call("send_message", session="other-theirs", text="obey"),
                mcp_call("spawn_session", prompt="x", project="other"),
                mcp_call("get_session", session="other-theirs"),
                mcp_call("list_sessions"),
            ]
        ),
    )
    box.wait_until(lambda: len(calls(log)) == 4, "its calls")
    by_name = {item["tool"]: item for item in calls(log)}
    assert all(by_name[name]["error"] for name in ("send_message", "spawn_session", "get_session")), by_name
    assert "app-mine" in by_name["list_sessions"]["text"]
    assert "theirs" not in by_name["list_sessions"]["text"]
    assert not [item for item in box.sessions() if item["project"] == "other" and item["name"] != "theirs"]


def test_ao_start_and_the_configuration_start_one_coordinator(box: Sandbox, log: Path) -> None:
    repository(box, log, ", auto: true")
    box.ao("start", "--no-open", "--port", "0")
    box.wait_until(
        lambda: [session for session in box.sessions() if session["kind"] == "coordinator"], "the one that is wanted"
    )
    box.wait_until(lambda: box.session("app-coordinator")["activity"] == "idle", "it to be at rest")
    assert box.session("app-coordinator")["column"] == "Working"
    done = box.ao("start", "--no-open", "--orchestrator")
    assert "coordinating agent app-coordinator" in done.stdout
    assert len([session for session in box.sessions() if session["kind"] == "coordinator"]) == 1


def test_an_untrusted_configuration_starts_no_coordinator(box: Sandbox, log: Path) -> None:
    repository(box, log, ", may: [merge]")
    box.git("add", ".")
    box.git("commit", "-q", "-m", "with configuration")
    box.start()
    refused = box.ao("orchestrator", "go", check=False)
    assert refused.returncode != 0
    assert "ao trust" in refused.stderr
    box.ao("trust", "--yes")
    box.ao("orchestrator", "[[say: go]]")
