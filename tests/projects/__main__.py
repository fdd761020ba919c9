"""`make test-projects`: run every stage for every project, or for the named ones; stages that succeeded are not repeated."""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from agent_orchestrator.errors import AoError
from tests.projects import report
from tests.projects.corpus import CorpusProject, load_corpus
from tests.projects.machine import ToolUnavailable
from tests.projects.product import STAGES as PRODUCT_STAGES
from tests.projects.registry import fetch_repository
from tests.projects.state import Result, data_key, product_key, run_stage, stored_results
from tests.projects.trial import Trial
from tests.projects.verify import verify

STAGES = ("fetch", "verify", *PRODUCT_STAGES)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the stages; return 1 if anything is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.projects", description=__doc__)
    parser.add_argument("--only", default="", help="names, separated by commas")
    parser.add_argument("--stage", default="", choices=("", *STAGES), help="stop after this stage")
    parser.add_argument("--minutes", type=float, default=0.0, help="begin nothing new after so many minutes")
    parser.add_argument("--jobs", type=int, default=2, help="projects at the same time")
    options = parser.parse_args(argv)
    try:
        projects = load_corpus([name for name in options.only.split(",") if name])
    except ValueError as error:
        parser.error(str(error))
    end = time.monotonic() + options.minutes * 60 if options.minutes else float("inf")
    last_stage = options.stage or STAGES[-1]

    def run(project: CorpusProject) -> bool:
        if time.monotonic() > end:
            print(f"{project.name}: not begun, {options.minutes:g} minutes are over; run it again to go on", flush=True)
            return False
        return _ProjectRun(project).run_stages_until(last_stage)

    with ThreadPoolExecutor(options.jobs) as pool:
        all_right = all(list(pool.map(run, projects)))
    if last_stage != STAGES[-1]:
        return 0 if all_right else 1
    return 0 if report.write_report(projects, {project.name: stored_results(project) for project in projects}) else 1


class _ProjectRun:
    """Runs the stages of one project in order, on one daemon where they can share it."""

    def __init__(self, project: CorpusProject) -> None:
        self.project = project
        self.trial: Trial | None = None

    def run_stages_until(self, last_stage: str) -> bool:
        """Run the stages up to this one; return whether all succeeded."""
        all_right = True
        try:
            for name in STAGES[: STAGES.index(last_stage) + 1]:
                began = time.monotonic()
                result = self._stage(name)
                _print(self.project, name, result, time.monotonic() - began)
                all_right = all_right and bool(result["ok"])
                if not result["ok"] and (name not in PRODUCT_STAGES or (name == "init" and not result.get("config"))):
                    return False
        finally:
            self._end()
        return all_right

    def _stage(self, name: str) -> Result:
        runs: dict[str, Callable[[], Result]] = {
            "fetch": lambda: {"ok": True, "tree": fetch_repository(self.project).name},
            "verify": lambda: run_stage(self.project, "verify", data_key(self.project), lambda: verify(self.project)),
        }
        key = product_key(self.project)
        run = runs.get(name) or (lambda: run_stage(self.project, name, key, lambda: self._product(name)))
        try:
            return run()
        except (ToolUnavailable, ValueError) as error:
            return {"ok": False, "why": str(error)}

    def _product(self, name: str) -> Result:
        config = stored_results(self.project).get("init", {}).get("config", "")
        if name in ("init", "bare"):
            self._end()
        try:
            fresh = self.trial is None
            self.trial = self.trial or Trial(self.project).__enter__()
            if name == "intact" or (fresh and name != "init"):
                self.trial.configure(config, set_up=name != "bare")
            return PRODUCT_STAGES[name](self.project, self.trial)
        except (AoError, OSError, TimeoutError, subprocess.SubprocessError) as error:
            notes = "\n".join(getattr(error, "__notes__", ()))
            self._end()
            return {"ok": False, "wrong": [f"{name}: {error}"], "why": str(error)[:600], "output": notes[-3000:]}

    def _end(self) -> None:
        if self.trial is not None:
            self.trial.__exit__(None, None, None)
            self.trial = None


def _print(project: CorpusProject, name: str, result: Result, seconds: float) -> None:
    hidden = ("ok", "key", "output", "why", "wrong", "config")
    values = {key: value for key, value in result.items() if key not in hidden}
    summary = result.get("why") or ", ".join(f"{key} {value}" for key, value in values.items())
    print(f"{project.name}: {name} {'ok' if result['ok'] else 'WRONG'} ({seconds:.0f} s): {summary}", flush=True)
    if not result["ok"] and result.get("output"):
        print("\n".join(f"    {line}" for line in result["output"].splitlines()[-25:]), flush=True)


if __name__ == "__main__":
    sys.exit(main())
