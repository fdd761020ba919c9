"""the-name: a Git worktree with a note."""

from __future__ import annotations

from dataclasses import replace

from agent_orchestrator.plugins.workspaces.worktree import WorktreeWorkspace
from agent_orchestrator.protocols import LineCallback, WorkspaceInfo, WorkspaceSpec


class TheClass(WorktreeWorkspace):
    """The `worktree` workspace with a note. Another kind of folder implements all methods of `Workspace` itself."""

    name = "the-name"
    permissions = ("files", "processes")

    async def create(self, spec: WorkspaceSpec, report: LineCallback) -> WorkspaceInfo:
        """Create the workspace, or finish what an earlier attempt began. This must be repeatable after a crash."""
        return _with_note(await super().create(spec, report), spec)

    async def abandon(self, spec: WorkspaceSpec) -> WorkspaceInfo | None:
        """Remove an unfinished workspace; return a finished one as `create` returns it."""
        workspace = await super().abandon(spec)
        return _with_note(workspace, spec) if workspace else None


def _with_note(workspace: WorkspaceInfo, spec: WorkspaceSpec) -> WorkspaceInfo:
    return replace(workspace, notes=(*workspace.notes, f"a workspace of the-name for {spec.session}"))
