"""The earlier names that plugins may still use: the error names the current one."""

from __future__ import annotations

from collections.abc import Mapping

CLASSES: Mapping[str, str] = {
    "AgentRun": "RunningLaunch",
    "Answers": "Agent",
    "Checked": "Notifier",
    "Delivers": "Agent",
    "Found": "InstalledAgent",
    "Furnishes": "Runtime",
    "Headless": "Agent",
    "Heard": "ReportBatch",
    "Held": "NotReady",
    "Keeps": "Agent",
    "Kept": "AgentState",
    "Known": "KnownPull",
    "KnowsBases": "SCM",
    "Listens": "Agent",
    "Metered": "SCM or Tracker",
    "NeedsWorkspace": "Agent",
    "Portable": "Agent",
    "SignedIn": "SCM or Tracker",
    "Submits": "Agent",
    "Typable": "ReadyToType",
    "Types": "Agent",
    "Unseen": "ProbeFailed",
    "Watchable": "Runtime",
}
"""Earlier class of `agent_orchestrator.protocols` → the class to use now."""

METHODS: Mapping[str, Mapping[str, str]] = {
    "agent": {"typed": "escape_input", "unsent": "has_unsent_text"},
    "runtime": {"furnish": "prepare_image", "leftovers": "orphaned_terminals"},
}
"""Slot → earlier name of a plugin's method → its name now."""
