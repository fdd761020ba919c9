"""Usage limits with a real daemon: a refusal holds everybody of the account, and nobody is lost by it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from agent_orchestrator.testing.sandbox import Sandbox

PATIENCE = 60.0
CONFIG = """\
defaults: {agent: demo, runtime: process}
agents:
  work: {tool: demo, account: work}
  home: {tool: demo, account: home}
  large: {tool: demo, account: home, model: opus-5}
  small: {tool: demo, account: home, model: sonnet-5}
"""


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Sandbox]:
    with Sandbox(tmp_path, "process", {"AO_DEMO_LOG": str(tmp_path / "demo.jsonl")}) as sandbox:
        sandbox.repository(config=CONFIG)
        sandbox.start()
        yield sandbox


def started(box: Sandbox) -> int:
    """How many agents' processes there ever were."""
    file = box.folder / "demo.jsonl"
    lines = file.read_text().splitlines() if file.exists() else []
    return sum(json.loads(line)["event"] == "start" for line in lines)


def account(box: Sandbox, name: str) -> dict[str, Any]:
    rows = box.json("usage")["accounts"]
    return next(row for row in rows if f"{row['account']} {row['model'] or ''}".strip() == name)


def test_one_refusal_holds_twenty(box: Sandbox) -> None:
    box.ao("new", "[[limit: +3600s]] [[done: went on]]", "--name", "first", "--agent", "work")
    box.until(lambda: box.session("app-first")["status"] == "limited", "the refusal", PATIENCE)
    for number in range(20):
        box.ao("new", "[[usage: input=1 output=1 usd=0.01]] [[done: x]]", "--name", f"n{number}", "--agent", "work")
    box.until(lambda: len(box.sessions()) == 21)
    for session in box.sessions():
        if session["name"] != "first":
            assert session["status"] == "queued" and "the usage limit of work to end" in session["waitingFor"], session
    assert started(box) == 1
    shown = account(box, "work")
    assert (shown["state"], shown["resetKnown"], shown["waiting"]) == ("held", False, 21), "by one session's word"
    [said] = [one["data"] for one in box.events("app-first") if one["type"] == "account-held"]
    assert said["until"] + 2600 < said["waits"], "it waits for an hour, the others for a quarter of that"
    assert "held until" in box.ao("usage").stdout and "limit's reset at" in box.ao("status").stdout
    assert box.request("GET", "/api/overview")["limits"][0]["account"] == "work"

    box.ao("new", "[[done: other account]]", "--name", "elsewhere", "--agent", "home")
    box.until(lambda: box.session("app-elsewhere")["status"] != "queued", "another account's start", PATIENCE)
    box.until(lambda: started(box) == 2, "its agent", PATIENCE)

    box.stop()
    box.start()
    assert account(box, "work")["state"] == "held", "a restart of the daemon keeps it"
    assert started(box) == 2

    refused = box.ao("usage", "--release", "nobody", check=False)
    assert refused.returncode == 3 and "no account nobody is held" in refused.stderr and "work" in refused.stderr
    assert "held no more" in box.ao("usage", "--release", "work").stdout
    box.until(lambda: started(box) >= 6, "some to start", 60.0)
    admitted = [event["time"] for event in box.events() if event["type"] == "session-admitted"]
    moments = [datetime.fromisoformat(time) for time in admitted[-4:]]
    gaps = [(later - earlier).total_seconds() for earlier, later in pairwise(moments)]
    assert min(gaps) > 2.9, "one after the other"


def held(box: Sandbox, name: str) -> bool:
    return "the usage limit of demo to end" in (box.session(f"app-{name}")["waitingFor"] or "")


def test_a_limit_that_ends_lets_them_go_on_by_themselves(box: Sandbox) -> None:
    box.ao("new", "[[limit: +12s]] [[usage: input=1 output=1]] [[done: went on]]", "--name", "first")
    box.until(lambda: box.session("app-first")["status"] == "limited", "the refusal", PATIENCE)
    for name in ("second", "third"):
        wanted = {"prompt": "[[usage: input=1 output=1]] [[done: x]]", "name": name}
        box.request("POST", "/api/sessions", wanted)
        box.until(lambda name=name: held(box, name), "it to wait", PATIENCE)  # type: ignore[misc]
        assert box.session(f"app-{name}")["status"] == "queued"

    def done() -> list[str]:
        return [one["name"] for one in box.sessions() if one["status"] not in ("queued", "limited", "starting")]

    box.until(lambda: len(done()) == 3, "all to go on", PATIENCE)
    admitted = {event["session"]: event["seq"] for event in box.events() if event["type"] == "session-admitted"}
    over = next(event["seq"] for event in box.events("app-first") if event["type"] == "timer-due")
    assert over < admitted["app-second"] < admitted["app-third"]
    assert account(box, "demo")["state"] == "free"


def test_a_message_to_a_held_session_waits_and_says_why(box: Sandbox) -> None:
    box.ao("new", "[[done: ready]]", "--name", "idle", "--agent", "home")
    box.until(lambda: box.session("app-idle")["status"] == "idle", "its turn's end", PATIENCE)
    box.ao("new", "[[limit: +3600s]]", "--name", "first", "--agent", "home")
    box.until(lambda: box.session("app-first")["status"] == "limited", "the refusal", PATIENCE)
    box.request("POST", "/api/sessions/app-idle/message", {"content": "[[done: again]]"})

    def held() -> list[dict[str, Any]]:
        messages = box.request("GET", "/api/sessions/app-idle/messages")["messages"]
        return [one for one in messages if one["state"] == "held"]

    box.until(held, "the message to wait", PATIENCE)
    assert "the usage limit of home" in held()[0]["reason"]
    assert "the usage limit of home" in box.ao("why", "app-idle").stdout
    box.ao("usage", "--release", "home")
    box.until(lambda: not held(), "the message to go", PATIENCE)


def test_a_limit_of_one_model_holds_that_model(box: Sandbox) -> None:
    box.ao("new", "[[limit: +3600s model=opus]]", "--name", "first", "--agent", "large")
    box.until(lambda: box.session("app-first")["status"] == "limited", "the refusal", PATIENCE)
    box.ao("new", "[[done: x]]", "--name", "big", "--agent", "large")
    box.ao("new", "[[done: x]]", "--name", "little", "--agent", "small")
    box.until(lambda: box.session("app-little")["status"] not in ("queued", "starting"), "the other model", PATIENCE)
    assert "home opus" in box.session("app-big")["waitingFor"]
    assert account(box, "home opus")["state"] == "held"


def test_an_agent_that_ends_at_the_limit_is_started_again_after_it(box: Sandbox) -> None:
    resets = """$(date -u -d '+8 seconds' +%Y-%m-%dT%H:%M:%SZ)"""
    says = f"""[[sh: echo "{{\\"event\\": \\"limit\\", \\"resets_at\\": \\"{resets}\\"}}" >> "$AO_SPOOL"]]"""
    box.ao("new", f"{says} [[exit: 1]]", "--name", "brief", "--agent", "work")
    box.until(lambda: box.session("app-brief")["exitCode"] == 1, "its end", PATIENCE)
    assert box.session("app-brief")["status"] == "limited", "not failed"
    box.until(lambda: box.session("app-brief")["pid"], "it to be started again", PATIENCE)
    launches = [event for event in box.events("app-brief") if event["type"] == "agent-launched"]
    assert len(launches) == 2 and launches[1]["data"]["resumed"] is True
    assert not [event for event in box.events("app-brief") if event["data"].get("trigger") == "agent-exited"]


def kinds(box: Sandbox, name: str) -> list[str]:
    return [event["type"] for event in box.events(f"app-{name}")]


def test_what_was_let_start_before_the_refusal_gives_its_place_back(tmp_path: Path) -> None:
    go_on = tmp_path / "go-on"
    slow = f"""postCreate: ['case "$AO_SESSION" in *-first) ;; *) until test -e {go_on}; do sleep 0.1; done;; esac']"""
    config = f"defaults: {{agent: demo, runtime: process}}\nprojects: {{app: {{path: ., {slow}}}}}\n"
    with Sandbox(tmp_path, "process", {"AO_DEMO_LOG": str(tmp_path / "demo.jsonl")}) as box:
        box.repository(config=config)
        box.start()
        for name in ("first", "second", "third"):
            task = "[[limit: +3600s]]" if name == "first" else "[[done: x]]"
            box.request("POST", "/api/sessions", {"prompt": task, "name": name})
        box.until(lambda: box.session("app-first")["status"] == "limited", "the refusal", PATIENCE)
        go_on.touch()
        for name in ("second", "third"):
            box.until(lambda name=name: "start-put-off" in kinds(box, name), "its place back", PATIENCE)  # type: ignore[misc]
            assert box.session(f"app-{name}")["status"] == "queued"
            assert "session-admitted" in kinds(box, name) and "agent-launched" not in kinds(box, name)
        assert started(box) == 1
        box.ao("usage", "--release", "demo")
        box.until(lambda: started(box) == 3, "all to start", PATIENCE)
