"""An agent that lives on: it is started with a task, takes messages, says how it is, and cleans up when it is stopped.

This one keeps a diary in the workspace and commits each entry; `done` as a message ends its work.
"""

from __future__ import annotations

import subprocess
from datetime import UTC, datetime
from pathlib import Path

from agent_orchestrator import AgentConfig, AgentPlugin, AgentStatus


class LastingAgent(AgentPlugin):
    """Writes down all that it is told."""

    name = "custom-agent"
    permissions = ("processes",)

    def __init__(self) -> None:
        super().__init__()
        self._status = AgentStatus("idle")
        self._diary = Path("diary.txt")

    async def start(self, config: AgentConfig) -> None:
        """Begin, in the workspace; return when ready for messages."""
        self._diary = Path(config.workspace_path, "diary.txt")
        if not config.resumed:
            self._write(config.task.description)
        self._set_status("idle", "Waiting for the next entry")

    async def send_message(self, session_id: str, message: str) -> None:
        """Take a message; return when it was dealt with."""
        self._set_status("working", f"Writing for {session_id}")
        self._write(message)
        self._set_status("done" if message.strip() == "done" else "idle", "Wrote it down")

    async def get_status(self, session_id: str) -> AgentStatus:
        """Asked once a second, and after each message."""
        del session_id  # there is one for each process
        return self._status

    async def stop(self, session_id: str) -> None:
        """Print the diary's length; the process is about to end."""
        print(f"{session_id}: {len(self._diary.read_text().splitlines())} entries")

    def _set_status(self, state: str, doing: str) -> None:
        self._status = AgentStatus(state, current_task=doing, last_activity=datetime.now(UTC))

    def _write(self, entry: str) -> None:
        with self._diary.open("a", encoding="utf-8") as diary:
            diary.write(" ".join(entry.split()) + "\n")
        subprocess.run(["git", "add", "diary.txt"], cwd=self._diary.parent, check=True)
        subprocess.run(["git", "commit", "-q", "-m", "Write in the diary"], cwd=self._diary.parent, check=True)


plugin = {"agent": LastingAgent()}
