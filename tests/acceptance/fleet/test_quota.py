"""Usage limits: a refusal holds all sessions of the account, and they continue afterwards."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from agent_orchestrator.testing.sandbox import Sandbox

TIMEOUT = 60.0
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


def count_agent_starts(box: Sandbox) -> int:
    """Return the number of agent processes that were ever started."""
    file = box.folder / "demo.jsonl"
    lines = file.read_text().splitlines() if file.exists() else []
    return sum(json.loads(line)["event"] == "start" for line in lines)


def account_row(box: Sandbox, name: str) -> dict[str, Any]:
    rows = box.json("usage")["accounts"]
    return next(row for row in rows if f"{row['account']} {row['model'] or ''}".strip() == name)


@pytest.mark.long
def test_one_refusal_holds_twenty_sessions(box: Sandbox) -> None:
    box.ao("new", "[[limit: +3600s]] [[done: went on]]", "--name", "first", "--agent", "work")
    box.wait_until(lambda: box.session("app-first")["status"] == "limited", "the refusal", TIMEOUT)
    for number in range(20):
        box.ao("new", "[[usage: input=1 output=1 usd=0.01]] [[done: x]]", "--name", f"n{number}", "--agent", "work")
    box.wait_until(lambda: len(box.sessions()) == 21)
    for session in box.sessions():
        if session["name"] != "first":
            assert session["status"] == "queued" and "the usage limit of work to end" in session["waitingFor"], session
    assert count_agent_starts(box) == 1
    row = account_row(box, "work")
    assert (row["state"], row["resetKnown"], row["waiting"]) == ("held", False, 21), "as one session reported"
    [hold] = [message["data"] for message in box.events("app-first") if message["type"] == "account-held"]
    assert hold["until"] + 2600 < hold["waits"], "it waits for an hour, the others for a quarter of that"
    assert "held until" in box.ao("usage").stdout and "limit's reset at" in box.ao("status").stdout
    assert box.request("GET", "/api/overview")["limits"][0]["account"] == "work"

    box.ao("new", "[[done: other account]]", "--name", "elsewhere", "--agent", "home")
    box.wait_until(lambda: box.session("app-elsewhere")["status"] != "queued", "another account's start", TIMEOUT)
    box.wait_until(lambda: count_agent_starts(box) == 2, "its agent", TIMEOUT)

    box.stop()
    box.start()
    assert account_row(box, "work")["state"] == "held", "a restart of the daemon keeps it"
    assert count_agent_starts(box) == 2

    unknown = box.ao("usage", "--release", "nobody", check=False)
    assert unknown.returncode == 3 and "no account nobody is held" in unknown.stderr and "work" in unknown.stderr
    assert "held no more" in box.ao("usage", "--release", "work").stdout
    box.wait_until(lambda: count_agent_starts(box) >= 6, "some to start", 60.0)
    admitted = [event["time"] for event in box.events() if event["type"] == "session-admitted"]
    moments = [datetime.fromisoformat(time) for time in admitted[-4:]]
    gaps = [(later - earlier).total_seconds() for earlier, later in pairwise(moments)]
    assert min(gaps) > 2.9, "one after the other"


def is_held(box: Sandbox, name: str) -> bool:
    return "the usage limit of demo to end" in (box.session(f"app-{name}")["waitingFor"] or "")


def test_sessions_continue_one_by_one_when_a_limit_ends(box: Sandbox) -> None:
    box.ao("new", "[[limit: +12s]] [[usage: input=1 output=1]] [[done: went on]]", "--name", "first")
    box.wait_until(lambda: box.session("app-first")["status"] == "limited", "the refusal", TIMEOUT)
    for name in ("second", "third"):
        body = {"prompt": "[[usage: input=1 output=1]] [[done: x]]", "name": name}
        box.request("POST", "/api/sessions", body)
        box.wait_until(lambda name=name: is_held(box, name), "it to wait", TIMEOUT)  # type: ignore[misc]
        assert box.session(f"app-{name}")["status"] == "queued"

    def resumed_names() -> list[str]:
        return [
            session["name"] for session in box.sessions() if session["status"] not in ("queued", "limited", "starting")
        ]

    box.wait_until(lambda: len(resumed_names()) == 3, "all to go on", TIMEOUT)
    admitted = {event["session"]: event["seq"] for event in box.events() if event["type"] == "session-admitted"}
    limit_end = next(event["seq"] for event in box.events("app-first") if event["type"] == "timer-due")
    assert limit_end < admitted["app-second"] < admitted["app-third"]
    assert account_row(box, "demo")["state"] == "free"


def test_a_message_to_a_held_session_waits_with_a_reason(box: Sandbox) -> None:
    box.ao("new", "[[done: ready]]", "--name", "idle", "--agent", "home")
    box.wait_until(lambda: box.session("app-idle")["status"] == "idle", "its turn's end", TIMEOUT)
    box.ao("new", "[[limit: +3600s]]", "--name", "first", "--agent", "home")
    box.wait_until(lambda: box.session("app-first")["status"] == "limited", "the refusal", TIMEOUT)
    box.request("POST", "/api/sessions/app-idle/message", {"content": "[[done: again]]"})

    def held_messages() -> list[dict[str, Any]]:
        messages = box.request("GET", "/api/sessions/app-idle/messages")["messages"]
        return [message for message in messages if message["state"] == "held"]

    box.wait_until(held_messages, "the message to wait", TIMEOUT)
    assert "the usage limit of home" in held_messages()[0]["reason"]
    assert "the usage limit of home" in box.ao("why", "app-idle").stdout
    box.ao("usage", "--release", "home")
    box.wait_until(lambda: not held_messages(), "the message to go", TIMEOUT)


def test_a_limit_of_one_model_holds_only_that_model(box: Sandbox) -> None:
    box.ao("new", "[[limit: +3600s model=opus]]", "--name", "first", "--agent", "large")
    box.wait_until(lambda: box.session("app-first")["status"] == "limited", "the refusal", TIMEOUT)
    box.ao("new", "[[done: x]]", "--name", "big", "--agent", "large")
    box.ao("new", "[[done: x]]", "--name", "little", "--agent", "small")
    box.wait_until(
        lambda: box.session("app-little")["status"] not in ("queued", "starting"), "the other model", TIMEOUT
    )
    assert "home opus" in box.session("app-big")["waitingFor"]
    assert account_row(box, "home opus")["state"] == "held"


def test_an_agent_that_exits_at_the_limit_is_restarted_after_it(box: Sandbox) -> None:
    resets = """$(date -u -d '+8 seconds' +%Y-%m-%dT%H:%M:%SZ)"""
    report_limit = f"""[[sh: echo "{{\\"event\\": \\"limit\\", \\"resets_at\\": \\"{resets}\\"}}" >> "$AO_SPOOL"]]"""
    box.ao("new", f"{report_limit} [[exit: 1]]", "--name", "brief", "--agent", "work")
    box.wait_until(lambda: box.session("app-brief")["exitCode"] == 1, "its end", TIMEOUT)
    assert box.session("app-brief")["status"] == "limited", "not failed"
    box.wait_until(lambda: box.session("app-brief")["pid"], "it to be started again", TIMEOUT)
    launches = [event for event in box.events("app-brief") if event["type"] == "agent-launched"]
    assert len(launches) == 2 and launches[1]["data"]["resumed"] is True
    assert not [event for event in box.events("app-brief") if event["data"].get("trigger") == "agent-exited"]


def event_types(box: Sandbox, name: str) -> list[str]:
    return [event["type"] for event in box.events(f"app-{name}")]


def _is_put_off(box: Sandbox, name: str) -> bool:
    """Return whether the session's start was put off."""
    return "start-put-off" in event_types(box, name)


def test_sessions_admitted_before_the_refusal_release_their_slots(tmp_path: Path) -> None:
    go_on = tmp_path / "go-on"
    slow = f"""postCreate: ['case "$AO_SESSION" in *-first) ;; *) until test -e {go_on}; do sleep 0.1; done;; esac']"""
    config = f"defaults: {{agent: demo, runtime: process}}\nprojects: {{app: {{path: ., {slow}}}}}\n"
    with Sandbox(tmp_path, "process", {"AO_DEMO_LOG": str(tmp_path / "demo.jsonl")}) as box:
        box.repository(config=config)
        box.start()
        for name in ("first", "second", "third"):
            task = "[[limit: +3600s]]" if name == "first" else "[[done: x]]"
            box.request("POST", "/api/sessions", {"prompt": task, "name": name})
        box.wait_until(lambda: box.session("app-first")["status"] == "limited", "the refusal", TIMEOUT)
        go_on.touch()
        for name in ("second", "third"):
            box.wait_until(partial(_is_put_off, box, name), "its slot to be released", TIMEOUT)
            assert box.session(f"app-{name}")["status"] == "queued"
            assert "session-admitted" in event_types(box, name) and "agent-launched" not in event_types(box, name)
        assert count_agent_starts(box) == 1
        box.ao("usage", "--release", "demo")
        box.wait_until(lambda: count_agent_starts(box) == 3, "all to start", TIMEOUT)
