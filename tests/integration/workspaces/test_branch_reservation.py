"""Reserving a branch for a workspace on another machine: created here, from the newest base, once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from agent_orchestrator.base.git.commands import Git
from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.errors import Conflict, NotFound
from agent_orchestrator.plugins.workspaces import start_point
from agent_orchestrator.plugins.workspaces.branch_reservation import release, reserve
from agent_orchestrator.protocols import WorkspaceSpec
from tests.integration.rescue.world import git, make_repository

pytestmark = pytest.mark.anyio


@pytest.fixture
def spec(tmp_path: Path) -> WorkspaceSpec:
    """Return the workspace of a session in a clone that is behind its origin."""
    origin = make_repository(tmp_path / "origin")
    git(tmp_path, "clone", "-q", str(origin), "repo")
    git(origin, "commit", "-q", "--allow-empty", "-m", "newer")
    return WorkspaceSpec("s", tmp_path / "repo", tmp_path / "w", None, tmp_path / "p", "feature/s", "main")


async def test_a_reserved_branch_starts_at_the_newest_base(
    spec: WorkspaceSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start_point, "_fetch_outcomes", {})
    main = Git(LocalHost(), spec.repo)
    start = await reserve(main, spec)
    newest = git(spec.repo.parent / "origin", "rev-parse", "main")
    assert start.commit == start.base_commit == newest != git(spec.repo, "rev-parse", "main")
    assert git(spec.repo, "rev-parse", spec.branch) == newest
    git(spec.repo, "commit", "-q", "--allow-empty", "-m", "main goes on")
    again = await reserve(main, spec)
    assert (again.commit, again.new_branch) == (newest, False), "safe to repeat"
    with pytest.raises(Conflict, match="branch feature/s exists already"):
        await reserve(main, replace(spec, session="other"))
    await release(main, spec, start)
    assert not git(spec.repo, "for-each-ref", "refs/heads/feature", "refs/ao")


async def test_an_existing_branch_is_continued_and_kept(spec: WorkspaceSpec) -> None:
    main = Git(LocalHost(), spec.repo)
    git(spec.repo, "branch", "feature/s", "main")
    start = await reserve(main, replace(spec, existing=True))
    assert not start.new_branch and start.commit == git(spec.repo, "rev-parse", "main")
    await release(main, spec, start)
    assert git(spec.repo, "rev-parse", "feature/s") == start.commit
    with pytest.raises(NotFound):
        await reserve(main, replace(spec, branch="nowhere", existing=True))
