"""`make test-projects`: every stage for every project, or those that are named; what is done already is not repeated."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence

from tests.projects.corpus import Project, corpus
from tests.projects.machine import Unavailable
from tests.projects.registry import repository
from tests.projects.state import Result, data_key, stage
from tests.projects.verify import verify

STAGES = ("fetch", "verify")


def main(argv: Sequence[str] | None = None) -> int:
    """1 if anything is not as it should be."""
    parser = argparse.ArgumentParser(prog="python -m tests.projects", description=__doc__)
    parser.add_argument("--only", default="", help="names, separated by commas")
    parser.add_argument("--stage", default="", choices=("", *STAGES), help="stop after this stage")
    parser.add_argument("--minutes", type=float, default=0.0, help="begin nothing new after so many minutes")
    given = parser.parse_args(argv)
    try:
        projects = corpus([one for one in given.only.split(",") if one])
    except ValueError as error:
        parser.error(str(error))
    end = time.monotonic() + given.minutes * 60 if given.minutes else float("inf")
    wrong = 0
    for project in projects:
        if time.monotonic() > end:
            print(f"{project.name}: not begun, {given.minutes:g} minutes are over; run it again to go on")
            wrong += 1
            continue
        wrong += not _stages(project, given.stage or STAGES[-1])
    return min(wrong, 1)


def _stages(project: Project, last: str) -> bool:
    runs: dict[str, Callable[[], Result]] = {
        "fetch": lambda: {"ok": True, "tree": str(repository(project))},
        "verify": lambda: stage(project, "verify", data_key(project), lambda: verify(project)),
    }
    for name in STAGES[: STAGES.index(last) + 1]:
        try:
            result = runs[name]()
        except (Unavailable, ValueError) as error:
            result = {"ok": False, "why": str(error)}
        _print(project, name, result)
        if not result["ok"]:
            return False
    return True


def _print(project: Project, name: str, result: Result) -> None:
    shown = {key: value for key, value in result.items() if key not in ("ok", "key", "output", "why")}
    words = result.get("why") or ", ".join(f"{key} {value}" for key, value in shown.items())
    print(f"{project.name}: {name} {'ok' if result['ok'] else 'WRONG'}: {words}", flush=True)
    if not result["ok"] and result.get("output"):
        print("\n".join(f"    {line}" for line in result["output"].splitlines()[-25:]), flush=True)


if __name__ == "__main__":
    sys.exit(main())
