"""What a command says when it refuses: one line, what is wrong and what to do next, and no traceback; and saying something to an agent."""

from __future__ import annotations

import subprocess

from agent_orchestrator.testing.sandbox import Sandbox


def refused(done: subprocess.CompletedProcess[str], code: int, *words: str) -> str:
    """The one line of a refusal, which must have this exit code and these words in it."""
    said = f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    assert done.returncode == code, said
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    assert len(lines) == 1 and lines[0].startswith("ao: "), said
    assert "Traceback" not in said
    for word in words:
        assert word in lines[0], f"{word!r} is not in: {lines[0]}"
    return lines[0]


def acknowledged(box: Sandbox, session: str, *argv: str) -> None:
    """Send a message and wait until the agent has taken it up: for its first one, `ao send --wait` does so for a moment only."""
    sent = box.json("send", session, *argv, "--wait")
    assert sent["state"] in ("delivered", "acknowledged"), sent
    path = f"/api/sessions/{session}/messages/{sent['messageId']}"
    box.until(lambda: box.request("GET", path)["state"] == "acknowledged", f"{session} to take up what it was sent")
