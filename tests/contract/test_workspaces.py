"""The built-in workspaces against the contract of workspaces."""

from __future__ import annotations

import pytest

from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.plugins.workspaces.clone import CloneWorkspace
from agent_orchestrator.plugins.workspaces.worktree import WorktreeWorkspace
from agent_orchestrator.protocols import Workspace
from agent_orchestrator.testing.contracts.workspace import WorkspaceContract


class TestWorktree(WorkspaceContract):
    @pytest.fixture
    def workspace(self) -> Workspace:
        return WorktreeWorkspace({}, LocalHost())


class TestClone(WorkspaceContract):
    @pytest.fixture
    def workspace(self) -> Workspace:
        return CloneWorkspace({}, LocalHost())
