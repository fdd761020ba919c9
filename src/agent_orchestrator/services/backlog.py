"""What would be taken up next, by whom, and why not yet: the tracker's open issues, put to `routing.py`."""

from __future__ import annotations

from typing import Any

from agent_orchestrator.config.effective import ProjectConfig, agent_settings
from agent_orchestrator.config.scope import ConfigSet
from agent_orchestrator.flow.engine import Flow
from agent_orchestrator.flow.fold_pull import issue_key
from agent_orchestrator.services.routing import Entry, Taker, Team, plan


class Backlog:
    """Reads, and changes nothing."""

    def __init__(self, flow: Flow, config: ConfigSet) -> None:
        self.flow = flow
        self.config = config

    def entries(self, project: str | None) -> list[Entry]:
        """The open issues of a project, or of all, in the order that they would be taken."""
        teams = [team_of(one) for one in self.config.projects() if project in (None, one.id)]
        return plan(self.flow.home.issues, list(self.flow.sessions.values()), teams, self.config.limits())

    def list(self, project: str | None) -> list[dict[str, Any]]:
        """The same as JSON."""
        return [self._json(position, entry) for position, entry in enumerate(self.entries(project), 1)]

    def _json(self, position: int, entry: Entry) -> dict[str, Any]:
        issue, project = entry.issue, self.config.project(entry.issue.project)
        return {
            "position": position,
            "issue": issue.number,
            "key": issue.name,
            "id": issue_key(issue.project, issue.number),
            "project": issue.project,
            "title": issue.title,
            "labels": list(issue.labels),
            "profile": entry.taker if entry.profile else None,
            "agent": agent_settings(project, entry.taker).tool if project and entry.taker else None,
            "ready": entry.ready,
            "reasons": list(entry.reasons),
        }


def team_of(project: ProjectConfig) -> Team:
    """Who takes a project's issues, as it is configured."""
    takers = [
        Taker(name, True, profile.filters.labels, profile.filters.exclude_labels, profile.max_parallel_agents)
        for name, profile in project.profiles.items()
    ]
    return Team(
        project.id, tuple(takers) or (Taker(project.agent, False),), project.auto_assign, project.trusted_authors
    )
