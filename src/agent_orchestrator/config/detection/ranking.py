"""The ways of all ecosystems in one order: the language of most of the files first, native runners before tasks."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

from agent_orchestrator.config.detection import ci_files, compiled, node, python, tasks
from agent_orchestrator.config.detection.commands import ACTIVATED, Commands
from agent_orchestrator.config.detection.files import Repository

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


def ranked(root: Path) -> list[Commands]:
    """Return the ways to set a repository up and to test it, the most likely first."""
    repo = Repository(root)
    jobs = ci_files.jobs(repo)
    found = {
        "python": list(python.ways(repo, jobs)),
        "node": list(node.ways(repo, jobs)),
        "compiled": list(compiled.ways(repo, jobs)),
    }
    counts = Counter(_LANGUAGES.get(name.rpartition(".")[2]) for name in repo.tree)
    order = sorted(found, key=lambda kind: (not any(way.test for way in found[kind]), -counts[kind]))
    native = [way for kind in order for way in found[kind]]
    with_tests = [way for way in native if way.test]
    ways = _with_tasks(repo, with_tests, list(tasks.ways(repo)), jobs)
    return list(dict.fromkeys(ways)) or native[:1]


def _with_tasks(
    repo: Repository, native: list[Commands], found: list[Commands], jobs: list[ci_files.Job]
) -> list[Commands]:
    """Return the tasks behind the first native way; before it where the project documents them and its build has no runner of its own."""
    if not native:
        return found
    first = native[0]
    same = [
        replace(way, set_up=first.set_up, test=_activated(first, way.test), lint=first.lint)
        for way in found
        if way.test
    ]
    documented = [
        way
        for way, plain in zip(same, found, strict=False)
        if plain.test and tasks.is_documented(repo, plain.test, jobs)
    ]
    if documented and first.ecosystem in ("make", "autotools", "cmake", "meson"):
        return [*documented, *native]
    return [first, *native[1:3], *(way for way in same if way.test != first.test), *native[3:]]


def _activated(first: Commands, test: str | None) -> str | None:
    return ACTIVATED + test if test and first.test and first.test.startswith(ACTIVATED) else test
