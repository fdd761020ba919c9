"""What kept a check from a verdict on the content: `missing_environment(output, outcome, exit_code=…)`. Pure."""

from __future__ import annotations

from agent_orchestrator.services.checks.outcome import Outcome


def missing_environment(output: str, outcome: Outcome, *, exit_code: int | None) -> str:
    """Return what the environment lacks, in a few words, or an empty string if the output shows a verdict on the content."""
    return "command not found" if exit_code == 127 else ""
