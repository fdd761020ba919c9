"""the-name: a Git worktree that says what it is for."""

from __future__ import annotations

from dataclasses import replace

from agent_orchestrator.plugins.workspaces.worktree import Worktree
from agent_orchestrator.protocols import Report, WorkspaceInfo, WorkspaceSpec


class TheClass(Worktree):
    """The `worktree` workspace with a note. A folder of another kind gives all methods of `Workspace` itself."""

    name = "the-name"
    permissions = ("files", "processes")

    async def create(self, spec: WorkspaceSpec, report: Report) -> WorkspaceInfo:
        """Make it, or finish what an earlier try began. What is done here is done again when a crash comes between."""
        return _noted(await super().create(spec, report), spec)

    async def abandon(self, spec: WorkspaceSpec) -> WorkspaceInfo | None:
        """Take away what is unfinished; a finished one is told as `create` tells it."""
        made = await super().abandon(spec)
        return _noted(made, spec) if made else None


def _noted(made: WorkspaceInfo, spec: WorkspaceSpec) -> WorkspaceInfo:
    return replace(made, notes=(*made.notes, f"a workspace of the-name for {spec.session}"))
