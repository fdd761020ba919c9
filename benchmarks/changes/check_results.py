"""What it costs to read a check's results and compare them with the base's, beside the run itself: 5,000 tests of pytest."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from agent_orchestrator.changes.checks.missing_environment import missing_environment
from agent_orchestrator.changes.checks.outcome import common_failures, compare
from agent_orchestrator.changes.checks.runners import read_outcome
from benchmarks.measure import Figure

FILES, EACH = 50, 100
FAILING = 50
ROUNDS = 5


def results(folder: Path) -> Iterator[Figure]:
    """A run that fails, read by its report and by its output alone."""
    for file in range(FILES):
        tests = [f"def test_{number}():\n    assert {file * EACH + number} % {EACH}\n" for number in range(EACH)]
        (folder / f"test_{file}.py").write_text("\n".join(tests))
    command = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", "-p", "no:xdist", "--junitxml=junit.xml"]
    began = time.perf_counter()
    run = subprocess.run(
        [*command, "-o", "junit_family=xunit1"], cwd=folder, capture_output=True, text=True, check=False
    )
    took = time.perf_counter() - began
    for name, reports in (("JUnit report", [folder / "junit.xml"]), ("output alone", [])):
        costs = [_cost(run.stdout, reports, folder) for _ in range(ROUNDS)]
        note = f"{statistics.median(costs) * 1e3:.0f} ms of {took:.1f} s; {len(run.stdout) / 1e3:.0f} kB of output"
        share = 100 * statistics.median(costs) / took
        yield Figure(f"results of {FILES * EACH:,} tests read and compared, {name}", share, 5, "%", note=note)


def _cost(output: str, reports: list[Path], folder: Path) -> float:
    began = time.perf_counter()
    found = read_outcome(output, reports, exit_code=1, top=folder)
    assert len(found.failures) == FAILING, len(found.failures)
    missing_environment(output, found, exit_code=1)
    assert not compare(common_failures(found, found), found).new
    return time.perf_counter() - began
