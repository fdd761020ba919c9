"""`python -m benchmarks [CASE…]`: prints a table; exits with 1 if a figure is not as it must be."""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import sys
import tempfile
from pathlib import Path

from benchmarks.cases import CASES
from benchmarks.measure import Figure


def main() -> int:
    """Run the cases and print their figures."""
    parser = argparse.ArgumentParser(prog="benchmarks")
    parser.add_argument("case", nargs="*", help=f"which ones: {', '.join(CASES)}; none: all")
    chosen = parser.parse_args().case or list(CASES)
    print(
        f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}, load {os.getloadavg()[0]:.1f}\n"
    )
    print("| figure | measured | must be | holds | |\n|---|---|---|---|---|")
    missed: list[Figure] = []
    for name in chosen:
        folder = Path(tempfile.mkdtemp(prefix="ao-bench-"))
        try:
            for figure in CASES[name](folder):
                print(figure.row(), flush=True)
                missed += [] if figure.holds else [figure]
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    if missed:
        print(f"\nmissed: {', '.join(figure.name for figure in missed)}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
