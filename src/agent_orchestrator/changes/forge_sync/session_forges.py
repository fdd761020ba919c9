"""`SessionForges`: what the creation of a session needs from the project's forge and tracker."""

from __future__ import annotations

from agent_orchestrator.changes.forge_sync.connections import ForgeConnections
from agent_orchestrator.changes.forge_sync.issue_sync import IssueSync
from agent_orchestrator.changes.forge_sync.pull_requests import ForgePullRequests
from agent_orchestrator.config.effective import ProjectConfig
from agent_orchestrator.core.facts import LOCAL_FORGE
from agent_orchestrator.sessions.creation.new_session import Claim, NewSession


class SessionForges:
    """Answers for all projects; implements `Forges` of `sessions/creation/new_session.py`."""

    def __init__(self, connections: ForgeConnections, pull_requests: ForgePullRequests, issues: IssueSync) -> None:
        self._connections = connections
        self._pull_requests = pull_requests
        self._issues = issues

    async def name(self, project: ProjectConfig) -> str:
        """Return the name of the forge that has the project's pull requests."""
        return await self._connections.name(project)

    async def claim(self, project: ProjectConfig, forge: str, request: NewSession) -> Claim | None:
        """Return the pull request that a request names, or None if the forge keeps it in the facts. Raises `Conflict`."""
        return None if forge == LOCAL_FORGE else await self._pull_requests.claim(project, forge, request)

    async def learn_issue(self, project: ProjectConfig, issue: str) -> None:
        """Read an issue from the project's tracker into the facts, if it is kept elsewhere."""
        await self._issues.learn(project, issue)
