"""`python -m benchmarks [CASE…]`: print a table of figures; exit with 1 if a figure misses its bound."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from benchmarks import plots, report
from benchmarks.cases import CASES, EXTRA_CASES
from benchmarks.measure import TABLE_HEAD, Case

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"


def main(
    arguments: Sequence[str] | None = None, cases: Mapping[str, Case] = CASES, more: Mapping[str, Case] = EXTRA_CASES
) -> int:
    """Run the cases, print their figures and write the output files."""
    options = _parser(cases, more).parse_args(arguments)
    all_cases = {**cases, **more}
    if unknown := [name for name in options.case if name not in all_cases]:
        sys.stderr.write(f"no case is named {', '.join(unknown)}; there are {', '.join(all_cases)}\n")
        return 2
    if options.read:
        run = report.from_json(options.read.read_text())
    else:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        run = run_cases({name: all_cases[name] for name in options.case or cases})
    _write_outputs(run, options)
    if run.missed_goals:
        print(f"\nas it must be, short of stretch: {', '.join(run.missed_goals)}")
    if run.missed:
        print(f"\nmissed: {', '.join(run.missed)}")
    return 1 if run.missed else 0


def run_cases(cases: Mapping[str, Case]) -> report.BenchmarkRun:
    """Run each case in a new folder and print its results; a failed case does not stop the others."""
    run = report.BenchmarkRun(datetime.now(UTC).strftime("%Y-%m-%d"), report.machine(), report.versions())
    print(f"{report.machine_line(run)}\n\n{TABLE_HEAD}", flush=True)
    for name, case in cases.items():
        played_case = report.CaseResult(name, round(os.getloadavg()[0], 2))
        run.cases.append(played_case)
        folder = Path(tempfile.mkdtemp(prefix="ao-bench-"))
        started_at = time.monotonic()
        try:
            for result in case(folder):
                played_case.results.append(result)
                print(result.row(), flush=True)
        except Exception as error:
            played_case.failed = f"{type(error).__name__}: {error}".splitlines()[0]
            traceback.print_exc()
        finally:
            played_case.seconds = time.monotonic() - started_at
            shutil.rmtree(folder, ignore_errors=True)
        sys.stderr.write(f"{name}: {played_case.seconds:.0f} s, load {played_case.load:.1f} before\n")
    return run


def _write_outputs(run: report.BenchmarkRun, options: argparse.Namespace) -> None:
    if options.json:
        options.json.write_text(report.to_json(run))
    if options.markdown:
        options.markdown.write_text(report.to_markdown(run))
    pictures = _draw_plots(run, options.plots or (PAGE.parent / "pictures" if options.write_docs else None))
    if options.write_docs:
        report.write_page(PAGE, run, pictures)


def _draw_plots(run: report.BenchmarkRun, folder: Path | None) -> list[Path]:
    if folder is None:
        return []
    if missing := plots.missing_requirement():
        sys.stderr.write(f"plots are left out: {missing}\n")
        return []
    return plots.draw(run, folder)


def _parser(cases: Mapping[str, Case], more: Mapping[str, Case]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="benchmarks")
    case_help = f"which ones: {', '.join(cases)}; none: all these; besides: {', '.join(more)}"
    parser.add_argument("case", nargs="*", help=case_help)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all of it there")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table there")
    parser.add_argument("--plots", type=Path, metavar="FOLDER", help="draw pictures there")
    parser.add_argument("--write-docs", action="store_true", help="put table and pictures into docs/benchmarks.md")
    parser.add_argument(
        "--from", type=Path, metavar="FILE", dest="read", help="measure nothing: read a --json of before"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
