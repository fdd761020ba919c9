"""`make test-projects`: every stage for every project, or those that are named; what is done already is not repeated."""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from agent_orchestrator.errors import AoError
from tests.projects import report
from tests.projects.corpus import Project, corpus
from tests.projects.machine import Unavailable
from tests.projects.product import STAGES as PRODUCT
from tests.projects.registry import repository
from tests.projects.state import Result, data_key, known, product_key, stage
from tests.projects.trial import Trial
from tests.projects.verify import verify

STAGES = ("fetch", "verify", *PRODUCT)


def main(argv: Sequence[str] | None = None) -> int:
    """1 if anything is not as it should be."""
    parser = argparse.ArgumentParser(prog="python -m tests.projects", description=__doc__)
    parser.add_argument("--only", default="", help="names, separated by commas")
    parser.add_argument("--stage", default="", choices=("", *STAGES), help="stop after this stage")
    parser.add_argument("--minutes", type=float, default=0.0, help="begin nothing new after so many minutes")
    parser.add_argument("--jobs", type=int, default=2, help="projects at the same time")
    given = parser.parse_args(argv)
    try:
        projects = corpus([one for one in given.only.split(",") if one])
    except ValueError as error:
        parser.error(str(error))
    end = time.monotonic() + given.minutes * 60 if given.minutes else float("inf")
    last = given.stage or STAGES[-1]

    def run(project: Project) -> bool:
        if time.monotonic() > end:
            print(f"{project.name}: not begun, {given.minutes:g} minutes are over; run it again to go on", flush=True)
            return False
        return _Run(project).to(last)

    with ThreadPoolExecutor(given.jobs) as pool:
        right = all(list(pool.map(run, projects)))
    if last != STAGES[-1]:
        return 0 if right else 1
    return 0 if report.write(projects, {one.name: known(one) for one in projects}) else 1


class _Run:
    """One project's stages, one after the other, on one daemon where they can share it."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.trial: Trial | None = None

    def to(self, last: str) -> bool:
        """Run the stages up to this one; whether all went right."""
        right = True
        try:
            for name in STAGES[: STAGES.index(last) + 1]:
                began = time.monotonic()
                result = self._stage(name)
                _print(self.project, name, result, time.monotonic() - began)
                right = right and bool(result["ok"])
                if not result["ok"] and (name not in PRODUCT or (name == "init" and not result.get("config"))):
                    return False
        finally:
            self._end()
        return right

    def _stage(self, name: str) -> Result:
        runs: dict[str, Callable[[], Result]] = {
            "fetch": lambda: {"ok": True, "tree": repository(self.project).name},
            "verify": lambda: stage(self.project, "verify", data_key(self.project), lambda: verify(self.project)),
        }
        key = product_key(self.project)
        run = runs.get(name) or (lambda: stage(self.project, name, key, lambda: self._product(name)))
        try:
            return run()
        except (Unavailable, ValueError) as error:
            return {"ok": False, "why": str(error)}

    def _product(self, name: str) -> Result:
        config = known(self.project).get("init", {}).get("config", "")
        if name in ("init", "bare"):
            self._end()
        try:
            fresh = self.trial is None
            self.trial = self.trial or Trial(self.project).__enter__()
            if name == "intact" or (fresh and name != "init"):
                self.trial.configure(config, set_up=name != "bare")
            return PRODUCT[name](self.project, self.trial)
        except (AoError, OSError, TimeoutError, subprocess.SubprocessError) as error:
            notes = "\n".join(getattr(error, "__notes__", ()))
            self._end()
            return {"ok": False, "wrong": [f"{name}: {error}"], "why": str(error)[:600], "output": notes[-3000:]}

    def _end(self) -> None:
        if self.trial is not None:
            self.trial.__exit__(None, None, None)
            self.trial = None


def _print(project: Project, name: str, result: Result, seconds: float) -> None:
    hidden = ("ok", "key", "output", "why", "wrong", "config")
    shown = {key: value for key, value in result.items() if key not in hidden}
    words = result.get("why") or ", ".join(f"{key} {value}" for key, value in shown.items())
    print(f"{project.name}: {name} {'ok' if result['ok'] else 'WRONG'} ({seconds:.0f} s): {words}", flush=True)
    if not result["ok"] and result.get("output"):
        print("\n".join(f"    {line}" for line in result["output"].splitlines()[-25:]), flush=True)


if __name__ == "__main__":
    sys.exit(main())
