"""The built-in workspaces against the contract of workspaces."""

from __future__ import annotations

import pytest

from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.plugins.workspaces.clone import Clone
from agent_orchestrator.plugins.workspaces.worktree import Worktree
from agent_orchestrator.protocols import Workspace
from agent_orchestrator.testing.contracts.workspace import WorkspaceContract


class TestWorktree(WorkspaceContract):
    @pytest.fixture
    def workspace(self) -> Workspace:
        return Worktree({}, LocalHost())


class TestClone(WorkspaceContract):
    @pytest.fixture
    def workspace(self) -> Workspace:
        return Clone({}, LocalHost())
