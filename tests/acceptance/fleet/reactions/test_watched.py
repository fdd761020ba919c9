"""`unlessWatched`: a person attached to a session's terminal is notified only after detaching."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_orchestrator.testing.sandbox import Sandbox
from agent_orchestrator.testing.terminals import PersonsTerminal, wait_until_true

CONFIG = """\
defaults: {{agent: demo, runtime: {runtime}}}
reactions:
  agent-needs-input: {{delay: 0s}}
  by-event: {{trigger: agent-ask, action: notify, message: all the same}}
"""
SCRIPT = "[[wait]] [[ask: Which one?]]"


@pytest.fixture
def box(tmp_path: Path, runtime: str) -> Iterator[Sandbox]:
    with Sandbox(tmp_path, runtime) as sandbox:
        sandbox.repository(config=CONFIG.format(runtime=runtime))
        sandbox.start()
        for name in ("seen", "unseen"):
            sandbox.request("POST", "/api/sessions", {"name": name, "title": name, "prompt": SCRIPT})
        sandbox.wait_until(lambda: all(session["activity"] == "idle" for session in sandbox.sessions()), "both to wait")
        yield sandbox


def is_notified(box: Sandbox, name: str, trigger: str = "agent-needs-input") -> bool:
    events = [event["data"] for event in box.events(f"app-{name}") if event["type"] == "notified"]
    return any(data["trigger"] == trigger for data in events)


def test_an_attached_person_is_notified_after_detaching(box: Sandbox) -> None:
    async def watch() -> None:
        environment = [f"{name}={value}" for name, value in box.env.items()]
        ao = ["env", "-i", *environment, "TERM=xterm-256color", sys.executable, "-m", "agent_orchestrator"]
        person = PersonsTerminal([*ao, "attach", "app-seen"])
        try:
            await wait_until_true(lambda: b"demo agent on" in person.output)
            for name in ("seen", "unseen"):
                box.request("POST", f"/api/sessions/app-{name}/message", {"content": "go on"})
            await wait_until_true(lambda: is_notified(box, "unseen"))
            await wait_until_true(lambda: is_notified(box, "seen", "agent-ask"))
            await asyncio.sleep(1.5)  # rechecked meanwhile: the person is still attached
            assert box.session("seen")["status"] == "needs_input" and not is_notified(box, "seen")
        finally:
            await person.close()
        await wait_until_true(lambda: is_notified(box, "seen"))

    asyncio.run(watch())
