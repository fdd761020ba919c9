"""Order the ways of all ecosystems: the language of most files first, native runners before tasks."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

from agent_orchestrator.config.detection import ci_files, compiled, node, task_files
from agent_orchestrator.config.detection.commands import ACTIVATE_VENV, DetectedCommands
from agent_orchestrator.config.detection.files import RepositoryFiles
from agent_orchestrator.config.detection.python import candidates as python_projects

_LANGUAGES = {
    "py": "python",
    **dict.fromkeys(("js", "mjs", "cjs", "ts", "mts", "cts", "jsx", "tsx", "vue", "svelte"), "node"),
    **dict.fromkeys(
        (
            "go",
            "rs",
            "c",
            "cc",
            "cpp",
            "cxx",
            "h",
            "hpp",
            "rb",
            "php",
            "java",
            "kt",
            "ex",
            "exs",
            "swift",
            "scala",
            "hs",
            "ml",
        ),
        "compiled",
    ),
}


def rank_candidates(root: Path) -> list[DetectedCommands]:
    """Return the ways to set up a repository and to test it, the most likely first."""
    repo = RepositoryFiles(root)
    jobs = ci_files.read_ci_jobs(repo)
    ways_by_kind = {
        "python": list(python_projects.find_candidates(repo, jobs)),
        "node": list(node.find_candidates(repo, jobs)),
        "compiled": list(compiled.find_candidates(repo, jobs)),
    }
    counts = Counter(_LANGUAGES.get(name.rpartition(".")[2]) for name in repo.tree)
    order = sorted(ways_by_kind, key=lambda kind: (not any(way.test for way in ways_by_kind[kind]), -counts[kind]))
    native = [way for kind in order for way in ways_by_kind[kind]]
    with_tests = [way for way in native if way.test]
    ways = _with_tasks(repo, with_tests, list(task_files.find_candidates(repo)), jobs)
    return list(dict.fromkeys(ways)) or native[:1]


def _with_tasks(
    repo: RepositoryFiles, native: list[DetectedCommands], task_ways: list[DetectedCommands], jobs: list[ci_files.CiJob]
) -> list[DetectedCommands]:
    """Return the tasks after the first native way, or before it if the project documents them and its build tool has no test runner."""
    if not native:
        return task_ways
    first = native[0]
    activated_ways = [
        replace(way, set_up=first.set_up, test=_with_activation(first, way.test), lint=first.lint)
        for way in task_ways
        if way.test
    ]
    documented = [
        way
        for way, task in zip(activated_ways, task_ways, strict=False)
        if task.test and task_files.is_documented(repo, task.test, jobs)
    ]
    if documented and first.ecosystem in ("make", "autotools", "cmake", "meson"):
        return [*documented, *native]
    return [first, *native[1:3], *(way for way in activated_ways if way.test != first.test), *native[3:]]


def _with_activation(first: DetectedCommands, test: str | None) -> str | None:
    return ACTIVATE_VENV + test if test and first.test and first.test.startswith(ACTIVATE_VENV) else test
