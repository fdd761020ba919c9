"""Fixtures with both kinds of workspace."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.rescue.world import RescueWorld, make_repository
from tests.integration.workspaces.disks import small_disk

__all__ = ["small_disk", "world"]

from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.plugins.workspaces.clone import CloneWorkspace
from agent_orchestrator.plugins.workspaces.worktree import WorktreeWorkspace
from agent_orchestrator.protocols import WorkspaceSpec


@pytest.fixture(params=[WorktreeWorkspace, CloneWorkspace], ids=["worktree", "clone"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> RescueWorld:
    host = LocalHost()
    spec = WorkspaceSpec(
        session="app-task",
        repo=make_repository(tmp_path / "repo"),
        path=tmp_path / "worktrees" / "task",
        link=None,
        private=tmp_path / "sessions" / "app-task",
        branch="feature/task",
        base="main",
    )
    return RescueWorld(host, request.param({}, host), spec)
