"""The folder in which plans are made."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.fleet.plans.scratch_copy import ScratchCopies
from agent_orchestrator.testing.contracts.workspace import git_in

pytestmark = pytest.mark.anyio


async def test_the_planning_folder_stays_the_same_when_the_base_moves(tmp_path: Path) -> None:
    """Agents store their data per folder, so each new folder would leave another one in the user's home."""
    repo = tmp_path / "repo"
    repo.mkdir()
    git_in(repo, "init", "-q", "-b", "main")
    project: Any = SimpleNamespace(id="app", path=repo, default_branch="main")
    scratches, places = ScratchCopies(tmp_path / "planning", LocalHost()), []
    for number in range(2):
        (repo / "a.txt").write_text(f"{number}\n")
        git_in(repo, "add", ".")
        git_in(repo, "commit", "-q", "-m", "a")
        async with scratches.open(project) as scratch:
            assert (scratch.tree / "a.txt").read_text() == f"{number}\n"
            places.append(scratch.tree)
    assert places[0] == places[1]
