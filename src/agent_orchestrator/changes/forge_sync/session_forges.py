"""`SessionForges`: what the creation of a session needs from the project's forge and tracker."""

from __future__ import annotations

from agent_orchestrator.changes.forge_sync.connections import ForgeConnections
from agent_orchestrator.changes.forge_sync.issue_sync import IssueSync
from agent_orchestrator.changes.forge_sync.pull_request_actions import PullRequestActions
from agent_orchestrator.config.effective import ProjectConfig
from agent_orchestrator.sessions.creation.new_session import ForgeChoice, NewSession, PullRequestClaim


class SessionForges:
    """Answers for all projects; implements `Forges` of `sessions/creation/new_session.py`."""

    def __init__(self, connections: ForgeConnections, pull_requests: PullRequestActions, issues: IssueSync) -> None:
        self._connections = connections
        self._pull_requests = pull_requests
        self._issues = issues

    async def choose(self, project: ProjectConfig) -> ForgeChoice:
        """Return the forge for the pull requests of new sessions."""
        name = await self._connections.forge_name(project)
        return ForgeChoice(name, self._connections.is_hosted("scm", project, name))

    async def claim(self, project: ProjectConfig, forge: ForgeChoice, request: NewSession) -> PullRequestClaim | None:
        """Return the pull request that a request names, or None if it is not at a service. Raises `Conflict`."""
        return await self._pull_requests.claim(project, forge.name, request) if forge.hosted else None

    async def read_issue(self, project: ProjectConfig, issue: str) -> None:
        """Read an issue from the project's tracker into the facts, if it is kept elsewhere."""
        await self._issues.read_issue(project, issue)
