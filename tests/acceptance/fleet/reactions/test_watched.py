"""`unlessWatched`: who looks at a session's terminal is not told what he sees there, and is told when he has gone."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_orchestrator.testing.sandbox import Sandbox
from agent_orchestrator.testing.terminals import PersonsTerminal, eventually

CONFIG = """\
defaults: {{agent: demo, runtime: {runtime}}}
reactions:
  agent-needs-input: {{delay: 0s}}
  by-event: {{trigger: agent-ask, action: notify, message: all the same}}
"""
ASKS = "[[wait]] [[ask: Which one?]]"


@pytest.fixture
def box(tmp_path: Path, runtime: str) -> Iterator[Sandbox]:
    with Sandbox(tmp_path, runtime) as sandbox:
        sandbox.repository(config=CONFIG.format(runtime=runtime))
        sandbox.start()
        for name in ("seen", "unseen"):
            sandbox.request("POST", "/api/sessions", {"name": name, "title": name, "prompt": ASKS})
        sandbox.until(lambda: all(one["activity"] == "idle" for one in sandbox.sessions()), "both to wait")
        yield sandbox


def told(box: Sandbox, name: str, trigger: str = "agent-needs-input") -> bool:
    events = [event["data"] for event in box.events(f"app-{name}") if event["type"] == "notified"]
    return any(data["trigger"] == trigger for data in events)


def test_a_person_who_looks_is_told_when_he_has_gone(box: Sandbox) -> None:
    async def look() -> None:
        environment = [f"{name}={value}" for name, value in box.env.items()]
        ao = ["env", "-i", *environment, "TERM=xterm-256color", sys.executable, "-m", "agent_orchestrator"]
        person = PersonsTerminal([*ao, "attach", "app-seen"])
        try:
            await eventually(lambda: b"demo agent on" in person.output)
            for name in ("seen", "unseen"):
                box.request("POST", f"/api/sessions/app-{name}/message", {"content": "go on"})
            await eventually(lambda: told(box, "unseen"))
            await eventually(lambda: told(box, "seen", "agent-ask"))
            await asyncio.sleep(1.5)  # it is looked again, and the person is still there
            assert box.session("seen")["status"] == "needs_input" and not told(box, "seen")
        finally:
            await person.close()
        await eventually(lambda: told(box, "seen"))

    asyncio.run(look())
