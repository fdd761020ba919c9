"""Helpers that create scripted sessions and wait for their states."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from agent_orchestrator.errors import NotFound
from agent_orchestrator.testing.sandbox import Sandbox

TIMEOUT = 60.0

Json = dict[str, Any]


def wait_for_session(box: Sandbox, session: str, condition: Callable[[Json], object], description: str) -> Json:
    """Wait until the session matches the condition, and return it; a session that a rule creates may not exist yet."""

    def matching_session() -> Json:
        try:
            now = box.session(session)
        except NotFound:
            return {}
        return now if condition(now) else {}

    return box.wait_until(matching_session, f"{session}: {description}", TIMEOUT)


def wait_for_status(box: Sandbox, session: str, *names: str) -> Json:
    return wait_for_session(box, session, lambda now: now["status"] in names, " or ".join(names))


def wait_for_checks(box: Sandbox, session: str) -> Json:
    """Wait until the checks of the workspace's commit have passed and the session waits for a review, and return it."""

    def has_passed(now: Json) -> bool:
        if now["status"] != "review_pending" or not now["pr"]["checks"]:
            return False
        return bool(now["pr"]["head"] == now["head"] == box.git("rev-parse", "HEAD", cwd=Path(now["workspacePath"])))

    return wait_for_session(box, session, has_passed, "its checks")


def wait_for_turns(box: Sandbox, session: str, count: int = 1) -> None:
    """Wait until the agent has acknowledged this many messages and has ended its turn on the last of them."""
    box.wait_until(
        lambda: has_finished_turns(box, session, count), f"{session} to have acknowledged {count} messages", TIMEOUT
    )


def has_finished_turns(box: Sandbox, session: str, count: int) -> bool:
    """Return whether the agent has acknowledged this many messages and has ended its turn on the last of them.

    It acknowledges a message before it says that it is at work on it.
    """
    events = box.events(session)
    acknowledged = [number for number, event in enumerate(events) if event["type"] == "agent-ack"]
    if len(acknowledged) < count or not acknowledged:
        return not count and not acknowledged
    states = [event["data"]["state"] for event in events[acknowledged[-1] :] if event["type"] == "agent-activity"]
    return "active" in states and states[-1] == "idle"


def rule_messages(box: Sandbox, session: str) -> list[str]:
    """Return the texts that rules sent to the agent."""
    messages = box.request("GET", f"/api/sessions/{session}/messages")["messages"]
    return [message["content"] for message in messages if message["sender"].startswith("rule")]


def create_session(box: Sandbox, name: str, script: str) -> None:
    box.request("POST", "/api/sessions", {"name": name, "title": f"Work on {name}", "prompt": script})
