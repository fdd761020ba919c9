"""`python -m benchmarks [CASE…]`: prints a table; exits with 1 if a figure is not as it must be."""

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
from benchmarks.cases import CASES, MORE
from benchmarks.measure import HEAD, Case

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"


def main(
    arguments: Sequence[str] | None = None, cases: Mapping[str, Case] = CASES, more: Mapping[str, Case] = MORE
) -> int:
    """Play the cases, print their figures, and put them on paper."""
    given = _parser(cases, more).parse_args(arguments)
    known = {**cases, **more}
    if unknown := [name for name in given.case if name not in known]:
        sys.stderr.write(f"no case is named {', '.join(unknown)}; there are {', '.join(known)}\n")
        return 2
    if given.read:
        run = report.from_json(given.read.read_text())
    else:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        run = played({name: known[name] for name in given.case or cases})
    _written(run, given)
    if run.short:
        print(f"\nas it must be, short of stretch: {', '.join(run.short)}")
    if run.missed:
        print(f"\nmissed: {', '.join(run.missed)}")
    return 1 if run.missed else 0


def played(cases: Mapping[str, Case]) -> report.Run:
    """Each case in a folder of its own; one that fails does not keep the others from being measured."""
    run = report.Run(datetime.now(UTC).strftime("%Y-%m-%d"), report.machine(), report.versions())
    print(f"{report.told(run)}\n\n{HEAD}", flush=True)
    for name, case in cases.items():
        one = report.Played(name, round(os.getloadavg()[0], 2))
        run.cases.append(one)
        folder = Path(tempfile.mkdtemp(prefix="ao-bench-"))
        begun = time.monotonic()
        try:
            for result in case(folder):
                one.results.append(result)
                print(result.row(), flush=True)
        except Exception as error:
            one.failed = f"{type(error).__name__}: {error}".splitlines()[0]
            traceback.print_exc()
        finally:
            one.seconds = time.monotonic() - begun
            shutil.rmtree(folder, ignore_errors=True)
        sys.stderr.write(f"{name}: {one.seconds:.0f} s, load {one.load:.1f} before\n")
    return run


def _written(run: report.Run, given: argparse.Namespace) -> None:
    if given.json:
        given.json.write_text(report.to_json(run))
    if given.markdown:
        given.markdown.write_text(report.to_markdown(run))
    pictures = _drawn(run, given.plots or (PAGE.parent / "pictures" if given.write_docs else None))
    if given.write_docs:
        report.write_page(PAGE, run, pictures)


def _drawn(run: report.Run, folder: Path | None) -> list[Path]:
    if folder is None:
        return []
    if lack := plots.lacking():
        sys.stderr.write(f"plots are left out: {lack}\n")
        return []
    return plots.draw(run, folder)


def _parser(cases: Mapping[str, Case], more: Mapping[str, Case]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="benchmarks")
    known = f"which ones: {', '.join(cases)}; none: all these; besides: {', '.join(more)}"
    parser.add_argument("case", nargs="*", help=known)
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
