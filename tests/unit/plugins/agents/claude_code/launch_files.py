"""What tests share about a launch of Claude Code: its settings, its transcript, and the activities that it reports."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from agent_orchestrator.plugins.agents.claude_code.listener import projects_folder
from agent_orchestrator.protocols import Activity, AgentContext
from agent_orchestrator.protocols import reports as r

ACTIVE, IDLE = r.ActivityReport(Activity.ACTIVE), r.ActivityReport(Activity.IDLE)
KEY = "sk-ant-api03-0123456789-0123456789"


def settings(context: AgentContext) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((context.private / "claude-settings.json").read_text())
    return content


def write_transcript(context: AgentContext, session: str) -> Path:
    path = projects_folder(Path(context.env["HOME"]) / ".claude", context.workspace) / f"{session}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{}\n")
    return path
