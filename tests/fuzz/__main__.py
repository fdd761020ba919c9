"""`make fuzz`: half of the time for mutations of the stored inputs, half for Schemathesis on the API (`--only api`: just that)."""

from __future__ import annotations

import argparse
import subprocess
import sys


def main() -> int:
    """Run both and return 1 if either found a failure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--only", default="")
    parser.add_argument("--seed", default="")
    options = parser.parse_args()
    parts = ["tests.fuzz.api"] if options.only == "api" else ["tests.fuzz.run"] if options.only else []
    parts = parts or ["tests.fuzz.run", "tests.fuzz.api"]
    failed = 0
    for part in parts:
        argv = [sys.executable, "-m", part, "--minutes", f"{options.minutes / len(parts):g}"]
        argv += ["--only", options.only] if options.only not in ("", "api") else []
        failed |= subprocess.run([*argv, *(["--seed", options.seed] if options.seed else [])]).returncode
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
