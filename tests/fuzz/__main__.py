"""`make fuzz`: half of the time for inputs near to those that are kept, half for Schemathesis on the API (`--only api`: that alone)."""

from __future__ import annotations

import argparse
import subprocess
import sys


def main() -> int:
    """One after the other; 1 if either found something."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--only", default="")
    parser.add_argument("--seed", default="")
    given = parser.parse_args()
    parts = ["tests.fuzz.api"] if given.only == "api" else ["tests.fuzz.run"] if given.only else []
    parts = parts or ["tests.fuzz.run", "tests.fuzz.api"]
    failed = 0
    for part in parts:
        argv = [sys.executable, "-m", part, "--minutes", f"{given.minutes / len(parts):g}"]
        argv += ["--only", given.only] if given.only not in ("", "api") else []
        failed |= subprocess.run([*argv, *(["--seed", given.seed] if given.seed else [])]).returncode
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
