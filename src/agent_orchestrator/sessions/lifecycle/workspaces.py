"""`Workspaces`: the effects that make a session's workspace and publish its commits.

Look here when a session fails while its workspace is made, or when its commits do not reach the repository.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from agent_orchestrator.core import events as e
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.reactions import Intent
from agent_orchestrator.errors import Denied
from agent_orchestrator.protocols import WorkspaceInfo, WorkspaceSpec
from agent_orchestrator.sessions.followers import Followers
from agent_orchestrator.sessions.lifecycle.conversations import Conversations
from agent_orchestrator.sessions.lifecycle.session_specs import SessionSpecs
from agent_orchestrator.sessions.part import Core, Part


class Workspaces(Part):
    """Makes workspaces, with saved work put back into them."""

    def __init__(self, core: Core, specs: SessionSpecs, followers: Followers, conversations: Conversations) -> None:
        super().__init__(core)
        self.specs = specs
        self.followers = followers
        self.conversations = conversations

    async def prepare(self, intent: Intent, _attempts: int) -> Sequence[Event]:
        """Make the workspace; on a restore, put the saved work back into it."""
        facts = self.flow.sessions[intent.session]
        if untrusted := self.core.projects.untrusted_use(facts):
            raise Denied(
                f"the configuration of {facts.project} is not trusted ({untrusted})", "read it, then trust it: ao trust"
            )
        await self.core.sites.local.login_ready.wait()
        self.home.session(facts.id).mkdir(mode=0o700, parents=True, exist_ok=True)
        site, spec = self.core.sites.for_session(facts), self.specs.workspace(facts)
        workspace = await self.core.plugins.workspace_of(facts).create(
            spec, lambda line: self.followers.add_output(facts.id, line)
        )
        if container := self.specs.container(facts):
            runtime = self.core.plugins.runtime_of(facts)
            await runtime.prepare_image(container, lambda line: self.followers.add_output(facts.id, line))
        notes = workspace.notes
        if facts.rescues or facts.moves:
            restored = await site.restore_work(spec)
            notes = (*notes, restored.waiting) if restored.waiting else notes
        has_lost_conversation = facts.remote and not await self.conversations.restore(facts)
        base = facts.workspace.base_commit if facts.workspace else workspace.base_commit
        body = replace(workspace_created(workspace, spec), base_commit=base, notes=notes, forgot=has_lost_conversation)
        return [self.event(facts, body, f"{intent.key}:done")]

    async def publish(self, intent: Intent, _attempts: int) -> Sequence[Event]:
        """Copy a workspace's commits into the main repository."""
        facts = self.flow.sessions[intent.session]
        head = facts.head or ""
        await self.core.plugins.workspace_of(facts).publish(self.specs.workspace(facts))
        return [self.event(facts, e.WorkPublished(head), f"{intent.key}:done")]


def workspace_created(workspace: WorkspaceInfo, spec: WorkspaceSpec) -> e.WorkspaceCreated:
    """Return the event that records a new workspace."""
    return e.WorkspaceCreated(
        path=str(workspace.path),
        branch=workspace.branch,
        base=workspace.base,
        base_commit=workspace.base_commit,
        head=workspace.head,
        git_dir=str(workspace.git_dir),
        notes=workspace.notes,
        git_env=dict(workspace.git_env),
        shared=workspace.shared,
        copied=spec.copy,
    )
