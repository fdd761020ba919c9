"""Read the output of test runners, linters and compilers, test by test: `read_outcome(output, reports, exit_code=…)`.

There is one module per family of runners.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from agent_orchestrator.changes.checks.outcome import Outcome

MAX_READ_BYTES = 4 << 20
"""Number of bytes at the end of the output that are read."""


def read_outcome(output: str, reports: Sequence[Path], *, exit_code: int | None, top: Path | None = None) -> Outcome:
    """Read a command's outcome from its reports and the end of its output; `top` is the folder that it ran in.

    A command that ended with 0 has no failures; any other command has at least one.
    """
    from agent_orchestrator.changes.checks.runners import combined  # loads a dozen modules; needed only after a run

    return combined.combine_readings(output, reports, exit_code=exit_code, top=top)
