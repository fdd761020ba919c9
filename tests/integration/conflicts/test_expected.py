"""The files that a task is expected to change: from its plan (globs too) and from its text, also files that do not exist yet."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent_orchestrator.changes.conflicts import ConflictPredictor
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.fold.sessions import reduce
from agent_orchestrator.core.rules.default_rules import DEFAULT_RULES
from tests.parts import make_core
from tests.unit.core.world import ManualClock, created


def git(repo: Path, *argv: str) -> None:
    subprocess.run(["git", "-c", "user.name=P", "-c", "user.email=p@x", *argv], cwd=repo, check=True)


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    repo = tmp_path / "app"
    for path in ("src/ui/a.tsx", "src/ui/deep/b.tsx", "src/api.py", "README.md"):
        (repo / path).parent.mkdir(parents=True, exist_ok=True)
        (repo / path).write_text("x\n")
    git(repo, "init", "-q", "-b", "main")
    git(repo, "add", ".")
    git(repo, "commit", "-q", "-m", "start")
    return repo


@pytest.fixture
def conflicts(tmp_path: Path) -> ConflictPredictor:
    return ConflictPredictor(make_core(tmp_path / "home", clock=ManualClock(), rules=DEFAULT_RULES))


def task(name: str, repo: Path, **spec: Any) -> SessionFacts:
    facts = reduce(None, created(name, repo=str(repo), base="main", **{"prompt": "do it", "title": name, **spec}))
    assert facts is not None
    return replace(facts, base="main")


@pytest.mark.anyio
async def test_expected_files_come_from_the_plan_and_the_text(repo: Path, conflicts: ConflictPredictor) -> None:
    sessions = [
        task("globs", repo, files=("src/ui/**", "README.md")),
        task("made", repo, files=("./src/new.py",)),
        task("text", repo, prompt="Mend api.py, please."),
        task("none", repo),
    ]
    expected = {
        "globs": {"src/ui/a.tsx", "src/ui/deep/b.tsx", "README.md"},
        "made": {"src/new.py"},
        "text": {"src/api.py"},
        "none": frozenset(),
    }
    assert await conflicts.expected_files(sessions) == expected
    (repo / "src/ui/c.tsx").write_text("x\n")
    git(repo, "add", ".")
    git(repo, "commit", "-q", "-m", "more")
    after = await conflicts.expected_files(sessions)
    assert after["globs"] == expected["globs"] | {"src/ui/c.tsx"}, "the base has moved"


@pytest.mark.anyio
async def test_without_its_repository_only_files_named_by_the_plan_are_expected(
    tmp_path: Path, conflicts: ConflictPredictor
) -> None:
    lost = task("lost", tmp_path / "nowhere", files=("a.py", "src/**"), prompt="see b.py")
    assert await conflicts.expected_files([lost]) == {"lost": {"a.py"}}


@pytest.mark.anyio
async def test_a_thousand_tasks_read_the_repository_once(
    repo: Path, conflicts: ConflictPredictor, monkeypatch: pytest.MonkeyPatch
) -> None:
    listing_count = 0
    real = conflicts._list_tree

    async def counting_listing(*argv: Any) -> list[str]:
        nonlocal listing_count
        listing_count += 1
        return await real(*argv)

    monkeypatch.setattr(conflicts, "_list_tree", counting_listing)
    sessions = [task(f"s{number}", repo, prompt="see api.py") for number in range(1000)]
    for _ in range(3):
        files_of_tasks = await conflicts.expected_files(sessions)
    assert listing_count == 1 and set(map(frozenset, files_of_tasks.values())) == {frozenset({"src/api.py"})}
