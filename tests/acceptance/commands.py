"""Helpers for commands: check a refusal (one line with the problem and the remedy, no traceback) and send a message to an agent."""

from __future__ import annotations

import subprocess

from agent_orchestrator.testing.sandbox import Sandbox


def assert_refused(result: subprocess.CompletedProcess[str], code: int, *expected_parts: str) -> str:
    """Check that a command failed with this exit code and one line that contains these words, and return that line."""
    output = f"exit {result.returncode}\n{result.stdout}\n{result.stderr}"
    assert result.returncode == code, output
    lines = [line for line in result.stderr.splitlines() if line.strip()]
    assert len(lines) == 1 and lines[0].startswith("ao: "), output
    assert "Traceback" not in output
    for expected in expected_parts:
        assert expected in lines[0], f"{expected!r} is not in: {lines[0]}"
    return lines[0]


def send_and_wait(box: Sandbox, session: str, *argv: str) -> None:
    """Send a message and wait until the agent has acknowledged it: for its first one, `ao send --wait` waits only briefly."""
    sent = box.json("send", session, *argv, "--wait")
    assert sent["state"] in ("delivered", "acknowledged"), sent
    path = f"/api/sessions/{session}/messages/{sent['messageId']}"
    box.wait_until(lambda: box.request("GET", path)["state"] == "acknowledged", f"{session} to acknowledge the message")
