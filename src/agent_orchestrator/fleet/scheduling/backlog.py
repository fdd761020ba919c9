"""What would be taken up next, by whom, and why not yet: the tracker's open issues, put to `assignment.py`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from agent_orchestrator.config.effective import ProjectConfig, agent_settings
from agent_orchestrator.config.scope import ConfigSet
from agent_orchestrator.core.engine import Flow
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.fold.pull_requests import issue_key
from agent_orchestrator.core.issue_work import made_by
from agent_orchestrator.core.pull_request import Issue
from agent_orchestrator.core.reactions import COORDINATOR
from agent_orchestrator.fleet.scheduling.assignment import NOBODYS, Entry, Team, Wanted, plan
from agent_orchestrator.fleet.scheduling.profile_match import Taker, choose, work_of
from agent_orchestrator.fleet.usage.account_limits import is_held


class Backlog:
    """Reads, and changes nothing."""

    def __init__(self, flow: Flow, config: ConfigSet) -> None:
        self.flow = flow
        self.config = config
        self.refused: Callable[[], Mapping[str, str]] = dict
        """Issue → why it could not be taken when that was tried last."""

    def entries(self, project: str | None) -> list[Entry]:
        """The open issues of a project, or of all, in the order that they would be taken."""
        teams = [self._team(one) for one in self.config.projects() if project in (None, one.id)]
        home, sessions = self.flow.home, list(self.flow.sessions.values())
        group_limits = {one.id: one.group_limit for one in home.plans.values()}
        wanted = self._wanted(project)
        return plan(home.issues, sessions, teams, self.config.limits(), self.refused(), group_limits, wanted)

    def _wanted(self, project: str | None) -> Wanted:
        """Which open issues are coordinating sessions' doing."""
        makers = {
            f"session {facts.id}": facts
            for facts in self.flow.sessions.values()
            if facts.spec.kind == COORDINATOR and project in (None, facts.project)
        }
        if not makers:
            return NOBODYS
        plans, by = self.flow.home.plans, dict[str, str]()
        for key, issue in self.flow.home.issues.items():
            applied = plans.get(issue.planned.plan) if issue.planned else None
            if issue.state == "open" and (maker := makers.get(applied.applied_by if applied else issue.author)):
                by[key] = maker.id
        return Wanted(by, {facts.id: self._room(facts) for facts in makers.values()})

    def _room(self, maker: SessionFacts) -> int:
        """How many more sessions a coordinating one may have."""
        settings = self.config.project(maker.project)
        return settings.coordinator.max_sessions - made_by(maker, self.flow.sessions.values()) if settings else 0

    def _team(self, project: ProjectConfig) -> Team:
        """Who takes its issues, with those marked whose account met a usage limit."""
        team, holds, now = team_of(project), self.flow.home.accounts, self.flow.clock()
        if not holds:
            return team

        def held(taker: Taker) -> bool:
            settings = agent_settings(project, taker.name)
            return is_held(holds, settings.account, settings.model or "", now) is not None

        return replace(team, takers=tuple(replace(one, held=held(one)) for one in team.takers))

    def list(self, project: str | None) -> list[dict[str, Any]]:
        """The same as JSON."""
        entries = self.entries(project)
        tools = {place: self._tool(*place) for place in {(entry.issue.project, entry.taker) for entry in entries}}
        return [
            _json(position, entry, tools[entry.issue.project, entry.taker]) for position, entry in enumerate(entries, 1)
        ]

    def _tool(self, project_id: str, taker: str | None) -> str | None:
        """The agent that a profile is."""
        project = self.config.project(project_id)
        return agent_settings(project, taker).tool if project and taker else None


def _json(position: int, entry: Entry, tool: str | None) -> dict[str, Any]:
    issue = entry.issue
    return {
        "position": position,
        "issue": issue.number,
        "key": issue.name,
        "id": issue_key(issue.project, issue.number),
        "project": issue.project,
        "title": issue.title,
        "labels": list(issue.labels),
        "profile": entry.taker if entry.profile else None,
        "agent": tool,
        "matchedBy": entry.matched or None,
        "priority": issue.planned.priority if issue.planned else 0,
        "plan": issue.planned.plan if issue.planned else None,
        "session": entry.session,
        "auto": entry.auto,
        "needsYou": entry.needs_you,
        "ready": entry.ready,
        "reasons": list(entry.reasons),
    }


def team_of(project: ProjectConfig) -> Team:
    """Who takes a project's issues, as it is configured: its profiles but those that review; without any, its agent."""
    takers = [
        Taker(
            name,
            True,
            labels=profile.filters.labels,
            excluded=profile.filters.exclude_labels,
            languages=profile.filters.languages,
            paths=profile.filters.paths,
            skills=profile.skills,
        )
        for name, profile in project.profiles.items()
        if profile.role == "worker"
    ]
    own = Taker(project.agent, project.agent in project.profiles)
    return Team(project.id, tuple(takers) or (own,), project.auto_assign, project.trusted_authors)


def profile_for(project: ProjectConfig, issue: Issue, load: Mapping[str, int]) -> str | None:
    """The profile that an issue is for, by something that it names; none: the project's agent is as good."""
    found = choose(team_of(project).takers, work_of(issue), load)
    return found[0].name if found and found[0].profile and found[1].named else None
