"""Checks a description without our product: set-up and tests succeed, the count is as described, and the tests find the bug."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.projects.corpus import CorpusProject
from tests.projects.counts import count_passed
from tests.projects.machine import install_packages, login_environment, make_home
from tests.projects.registry import fetch_repository
from tests.projects.shell import ShellResult, run_command
from tests.projects.state import Result


def verify(project: CorpusProject) -> Result:
    """Return whether the description is correct, with the reason as `why` if not."""
    if missing := install_packages(project):
        return {"ok": False, "why": f"Debian packages are missing: {missing}"}
    with tempfile.TemporaryDirectory(prefix=f"ao-{project.name}-") as folder:  # not below our own pyproject.toml
        env = login_environment(project, Path(folder, "home"))
        make_home(Path(folder, "home"), env)
        tree = Path(folder, project.name)
        subprocess.run(["git", "clone", "-q", str(fetch_repository(project)), str(tree)], check=True)
        return _verify_tree(project, tree, env)


def _verify_tree(project: CorpusProject, tree: Path, env: dict[str, str]) -> Result:
    seconds = 0.0
    for command in project.set_up:
        result = run_command(command, tree, env)
        seconds += result.seconds
        if result.code:
            return _failure(f"set-up `{command}` ended with {result.code}", result)
    intact_result = run_command(project.test, tree, env)
    count = count_passed(project.runner, intact_result.output)
    if intact_result.code or count != project.passed:
        return _failure(f"tests ended with {intact_result.code}, {count} passed, not {project.passed}", intact_result)
    project.bug.apply(tree)
    for cached in tree.rglob("__pycache__"):
        shutil.rmtree(cached)  # a file of the same size and second would be taken for unchanged
    broken_result = run_command(project.test, tree, env)
    remaining = count_passed(project.runner, broken_result.output)
    if not broken_result.code or remaining >= count:
        return _failure(
            f"with the bug, tests ended with {broken_result.code}, {remaining} passed of {count}", broken_result
        )
    return {
        "ok": True,
        "passed": count,
        "left": remaining,
        "setUpSeconds": round(seconds, 1),
        "testSeconds": round(intact_result.seconds, 1),
    }


def _failure(reason: str, result: ShellResult) -> Result:
    return {"ok": False, "why": reason, "output": result.output[-4000:]}
