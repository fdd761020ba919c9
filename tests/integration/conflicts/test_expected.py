"""The files that a task is about: those of its plan, globs too, those that its text names, and those that are still to be made."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent_orchestrator.changes.conflicts import Conflicts
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.fold.sessions import reduce
from agent_orchestrator.core.rules import DEFAULT_RULES
from tests.parts import make_core
from tests.unit.core.world import Time, created


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
def conflicts(tmp_path: Path) -> Conflicts:
    return Conflicts(make_core(tmp_path / "home", clock=Time(), rules=DEFAULT_RULES))


def task(name: str, repo: Path, **spec: Any) -> SessionFacts:
    made = reduce(None, created(name, repo=str(repo), base="main", **{"prompt": "do it", "title": name, **spec}))
    assert made is not None
    return replace(made, base="main")


@pytest.mark.anyio
async def test_by_plan_and_by_text(repo: Path, conflicts: Conflicts) -> None:
    sessions = [
        task("globs", repo, files=("src/ui/**", "README.md")),
        task("made", repo, files=("./src/new.py",)),
        task("text", repo, prompt="Mend api.py, please."),
        task("none", repo),
    ]
    wanted = {
        "globs": {"src/ui/a.tsx", "src/ui/deep/b.tsx", "README.md"},
        "made": {"src/new.py"},
        "text": {"src/api.py"},
        "none": frozenset(),
    }
    assert await conflicts.expected(sessions) == wanted
    (repo / "src/ui/c.tsx").write_text("x\n")
    git(repo, "add", ".")
    git(repo, "commit", "-q", "-m", "more")
    after = await conflicts.expected(sessions)
    assert after["globs"] == wanted["globs"] | {"src/ui/c.tsx"}, "the base has moved"


@pytest.mark.anyio
async def test_a_repository_that_is_gone_leaves_what_the_plan_names(tmp_path: Path, conflicts: Conflicts) -> None:
    lost = task("lost", tmp_path / "nowhere", files=("a.py", "src/**"), prompt="see b.py")
    assert await conflicts.expected([lost]) == {"lost": {"a.py"}}


@pytest.mark.anyio
async def test_a_thousand_tasks_read_the_repository_once(
    repo: Path, conflicts: Conflicts, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = 0
    real = conflicts._listing

    async def counted(*argv: Any) -> list[str]:
        nonlocal listed
        listed += 1
        return await real(*argv)

    monkeypatch.setattr(conflicts, "_listing", counted)
    sessions = [task(f"s{number}", repo, prompt="see api.py") for number in range(1000)]
    for _ in range(3):
        found = await conflicts.expected(sessions)
    assert listed == 1 and set(map(frozenset, found.values())) == {frozenset({"src/api.py"})}
