"""What tests of the local forge share: sessions that do as told, and waiting for what becomes of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from agent_orchestrator.errors import NotFound
from agent_orchestrator.testing.sandbox import Sandbox

PLENTY = 60.0

Json = dict[str, Any]


def until(box: Sandbox, session: str, holds: Callable[[Json], object], what: str) -> Json:
    """The session, once this holds of it; one that is made by itself may not be there yet."""

    def so() -> Json:
        try:
            now = box.session(session)
        except NotFound:
            return {}
        return now if holds(now) else {}

    return box.until(so, f"{session}: {what}", PLENTY)


def status(box: Sandbox, session: str, *names: str) -> Json:
    return until(box, session, lambda now: now["status"] in names, " or ".join(names))


def checked(box: Sandbox, session: str) -> Json:
    """The session, once the checks of what its workspace holds have passed and it waits for a review."""

    def so(now: Json) -> bool:
        if now["status"] != "review_pending" or not now["pr"]["checks"]:
            return False
        return bool(now["pr"]["head"] == now["head"] == box.git("rev-parse", "HEAD", cwd=Path(now["workspacePath"])))

    return until(box, session, so, "its checks")


def turned(box: Sandbox, session: str, count: int = 1) -> None:
    """Wait until the agent has taken so many messages up, and its turn on the last of them is over."""

    def so() -> bool:
        events = box.events(session)
        taken = [number for number, one in enumerate(events) if one["type"] == "agent-ack"]
        if len(taken) < count:
            return False
        said = [one["data"]["state"] for one in events[taken[-1] :] if one["type"] == "agent-activity"]
        return "active" in said and said[-1] == "idle"

    box.until(so, f"{session} to have taken up {count} messages", PLENTY)


def messages(box: Sandbox, session: str) -> list[str]:
    """What rules sent to the agent."""
    found = box.request("GET", f"/api/sessions/{session}/messages")["messages"]
    return [one["content"] for one in found if one["sender"].startswith("rule")]


def work(box: Sandbox, name: str, script: str) -> None:
    box.request("POST", "/api/sessions", {"name": name, "title": f"Work on {name}", "prompt": script})
