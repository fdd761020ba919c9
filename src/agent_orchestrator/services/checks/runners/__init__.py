"""What test runners, linters and compilers print, read test by test: `read_outcome(output, reports, exit_code=…)`. A module per family of runners."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from agent_orchestrator.services.checks import junit, summary
from agent_orchestrator.services.checks.outcome import Outcome


def read_outcome(output: str, reports: Sequence[Path], *, exit_code: int | None) -> Outcome:
    """Read what a command said from its reports and the end of its output."""
    counts = junit.read_reports(reports) or summary.counted(output)
    failures = {} if exit_code == 0 else {"the command": f"exit code {exit_code}"}
    return Outcome(counts, failures)
