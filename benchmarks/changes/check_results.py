"""The cost of reading a check's results and comparing them with the base, relative to the run: 5,000 tests of pytest."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from agent_orchestrator.changes.checks.missing_environment import missing_environment
from agent_orchestrator.changes.checks.outcome import common_failures, compare_outcomes
from agent_orchestrator.changes.checks.runners import read_outcome
from benchmarks.measure import Figure

FILES, TESTS_PER_FILE = 50, 100
FAILING = 50
ROUNDS = 5


def measure_check_results(folder: Path) -> Iterator[Figure]:
    """Measure a failed run, read from its report and from its output alone."""
    for file in range(FILES):
        tests = [
            f"def test_{number}():\n    assert {file * TESTS_PER_FILE + number} % {TESTS_PER_FILE}\n"
            for number in range(TESTS_PER_FILE)
        ]
        (folder / f"test_{file}.py").write_text("\n".join(tests))
    command = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", "-p", "no:xdist", "--junitxml=junit.xml"]
    began = time.perf_counter()
    run = subprocess.run(
        [*command, "-o", "junit_family=xunit1"], cwd=folder, capture_output=True, text=True, check=False
    )
    run_seconds = time.perf_counter() - began
    for name, reports in (("JUnit report", [folder / "junit.xml"]), ("output alone", [])):
        costs = [_cost(run.stdout, reports, folder) for _ in range(ROUNDS)]
        note = (
            f"{statistics.median(costs) * 1e3:.0f} ms of {run_seconds:.1f} s; {len(run.stdout) / 1e3:.0f} kB of output"
        )
        share = 100 * statistics.median(costs) / run_seconds
        yield Figure(f"results of {FILES * TESTS_PER_FILE:,} tests read and compared, {name}", share, 5, "%", note=note)


def _cost(output: str, reports: list[Path], folder: Path) -> float:
    began = time.perf_counter()
    outcome = read_outcome(output, reports, exit_code=1, top=folder)
    assert len(outcome.failures) == FAILING, len(outcome.failures)
    missing_environment(output, outcome, exit_code=1)
    assert not compare_outcomes(common_failures(outcome, outcome), outcome).new
    return time.perf_counter() - began
