"""Proves a description without our product: set-up and tests succeed, as many pass as it says, and the tests find the bug."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.projects.corpus import Project
from tests.projects.counts import passed
from tests.projects.machine import environment, home, install_packages
from tests.projects.registry import repository
from tests.projects.shell import Done, shell
from tests.projects.state import Result


def verify(project: Project) -> Result:
    """Whether the description holds; with `why` if not."""
    if missing := install_packages(project):
        return {"ok": False, "why": f"Debian packages are missing: {missing}"}
    with tempfile.TemporaryDirectory(prefix=f"ao-{project.name}-") as folder:  # not below our own pyproject.toml
        env = environment(project, Path(folder, "home"))
        home(Path(folder, "home"), env)
        tree = Path(folder, project.name)
        subprocess.run(["git", "clone", "-q", str(repository(project)), str(tree)], check=True)
        return _verified(project, tree, env)


def _verified(project: Project, tree: Path, env: dict[str, str]) -> Result:
    seconds = 0.0
    for command in project.set_up:
        done = shell(command, tree, env)
        seconds += done.seconds
        if done.code:
            return _wrong(f"set-up `{command}` ended with {done.code}", done)
    intact = shell(project.test, tree, env)
    count = passed(project.runner, intact.output)
    if intact.code or count != project.passed:
        return _wrong(f"tests ended with {intact.code}, {count} passed, not {project.passed}", intact)
    project.bug.apply(tree)
    for cached in tree.rglob("__pycache__"):
        shutil.rmtree(cached)  # a file of the same size and second would be taken for unchanged
    broken = shell(project.test, tree, env)
    left = passed(project.runner, broken.output)
    if not broken.code or left >= count:
        return _wrong(f"with the bug, tests ended with {broken.code}, {left} passed of {count}", broken)
    return {
        "ok": True,
        "passed": count,
        "left": left,
        "setUpSeconds": round(seconds, 1),
        "testSeconds": round(intact.seconds, 1),
    }


def _wrong(why: str, done: Done) -> Result:
    return {"ok": False, "why": why, "output": done.output[-4000:]}
