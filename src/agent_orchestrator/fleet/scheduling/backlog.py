"""The backlog: which open issues would be taken next, by which agent, and why not yet. Collects what `issue_assignment.py` decides on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from agent_orchestrator.config.effective import ProjectConfig, resolve_agent
from agent_orchestrator.core.dependencies import count_unfinished_children
from agent_orchestrator.core.events import rfc3339
from agent_orchestrator.core.facts import COORDINATOR_KIND, SessionFacts
from agent_orchestrator.core.fold.issues import issue_key
from agent_orchestrator.core.issues import Issue
from agent_orchestrator.fleet.scheduling.issue_assignment import (
    NO_DEMAND,
    AssignmentEntry,
    CoordinatorDemand,
    ProjectTeam,
    plan_assignments,
)
from agent_orchestrator.fleet.scheduling.profile_match import IssueTaker, choose_taker, task_traits
from agent_orchestrator.fleet.usage.account_limits import active_hold
from agent_orchestrator.sessions.part import Core


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why an issue could not be taken, and until when it is not retried."""

    reason: str
    until: float
    attempts: int


class Backlog:
    """Reads the backlog, and changes nothing."""

    def __init__(self, core: Core) -> None:
        self.flow = core.flow
        self.config = core.config
        self.refusals: dict[str, Refusal] = {}
        """Issue key → why the last attempt to take the issue failed."""

    def _current_refusals(self) -> Mapping[str, str]:
        """Return issue key → why the issue could not be taken, until it is retried."""
        now = self.flow.clock()
        return {
            key: f"it could not be taken: {refusal.reason}; tried again at {rfc3339(refusal.until)}"
            for key, refusal in self.refusals.items()
            if refusal.until > now
        }

    def entries(self, project: str | None) -> list[AssignmentEntry]:
        """Return the open issues of a project, or of all, in the order in which they would be taken."""
        teams = [self._team(item) for item in self.config.projects() if project in (None, item.id)]
        home, sessions = self.flow.home, list(self.flow.sessions.values())
        group_limits = {item.id: item.group_limit for item in home.plans.values()}
        coordinated_issues = self._coordinator_demand(project)
        return plan_assignments(
            home.issues,
            sessions,
            teams,
            self.config.parallel_limits(),
            self._current_refusals(),
            group_limits,
            coordinated_issues,
        )

    def _coordinator_demand(self, project: str | None) -> CoordinatorDemand:
        """Return which open issues coordinating sessions want."""
        coordinators = {
            f"session {facts.id}": facts
            for facts in self.flow.sessions.values()
            if facts.spec.kind == COORDINATOR_KIND and project in (None, facts.project)
        }
        if not coordinators:
            return NO_DEMAND
        plans, opened_by = self.flow.home.plans, dict[str, str]()
        for key, issue in self.flow.home.issues.items():
            applied_plan = plans.get(issue.plan_entry.plan) if issue.plan_entry else None
            if issue.state == "open" and (
                coordinator := coordinators.get(applied_plan.applied_by if applied_plan else issue.author)
            ):
                opened_by[key] = coordinator.id
        return CoordinatorDemand(
            opened_by, {facts.id: self._remaining_sessions(facts) for facts in coordinators.values()}
        )

    def _remaining_sessions(self, coordinator: SessionFacts) -> int:
        """Return how many more sessions a coordinating session may have."""
        settings = self.config.project(coordinator.project)
        return (
            settings.coordinator.max_sessions - count_unfinished_children(coordinator, self.flow.sessions.values())
            if settings
            else 0
        )

    def _team(self, project: ProjectConfig) -> ProjectTeam:
        """Return the agents that take a project's issues; those whose account has reached a usage limit are marked."""
        team, holds, now = project_team(project), self.flow.home.account_holds, self.flow.clock()
        if not holds:
            return team

        def has_held_account(taker: IssueTaker) -> bool:
            """Return whether the account of an agent has reached a usage limit."""
            settings = resolve_agent(project, taker.name)
            return active_hold(holds, settings.account, settings.model or "", now) is not None

        return replace(
            team,
            takers=tuple(
                replace(each_taker, has_held_account=has_held_account(each_taker)) for each_taker in team.takers
            ),
        )

    def list(self, project: str | None) -> list[dict[str, Any]]:
        """Return the backlog as JSON."""
        entries = self.entries(project)
        tools = {
            project_and_taker: self._agent_of(*project_and_taker)
            for project_and_taker in {(entry.issue.project, entry.taker) for entry in entries}
        }
        return [
            _entry_json(position, entry, tools[entry.issue.project, entry.taker])
            for position, entry in enumerate(entries, 1)
        ]

    def _agent_of(self, project_id: str, taker: str | None) -> str | None:
        """Return the agent that a profile uses, or None if there is no profile."""
        project = self.config.project(project_id)
        return resolve_agent(project, taker).tool if project and taker else None


def _entry_json(position: int, entry: AssignmentEntry, tool: str | None) -> dict[str, Any]:
    """Return one entry as JSON."""
    issue = entry.issue
    return {
        "position": position,
        "issue": issue.number,
        "key": issue.name,
        "id": issue_key(issue.project, issue.number),
        "project": issue.project,
        "title": issue.title,
        "labels": list(issue.labels),
        "profile": entry.taker if entry.is_profile else None,
        "agent": tool,
        "matchedBy": entry.match_reason or None,
        "priority": issue.plan_entry.priority if issue.plan_entry else 0,
        "plan": issue.plan_entry.plan if issue.plan_entry else None,
        "session": entry.session,
        "auto": entry.is_automatic,
        "needsYou": entry.needs_person,
        "ready": entry.is_ready,
        "reasons": list(entry.reasons),
    }


def project_team(project: ProjectConfig) -> ProjectTeam:
    """Return the agents that take a project's issues by its configuration: its profiles except reviewers; without profiles, its agent."""
    takers = [
        IssueTaker(
            name,
            True,
            labels=profile.filters.labels,
            excluded_labels=profile.filters.exclude_labels,
            languages=profile.filters.languages,
            paths=profile.filters.paths,
            skills=profile.skills,
        )
        for name, profile in project.profiles.items()
        if profile.role == "worker"
    ]
    default_agent = IssueTaker(project.agent, project.agent in project.profiles)
    return ProjectTeam(project.id, tuple(takers) or (default_agent,), project.auto_assign, project.trusted_authors)


def profile_for(project: ProjectConfig, issue: Issue, load: Mapping[str, int]) -> str | None:
    """Return the profile that explicitly matches an issue, or None if the project's agent is just as suitable."""
    choice = choose_taker(project_team(project).takers, task_traits(issue), load)
    return choice[0].name if choice and choice[0].is_profile and choice[1].is_explicit else None
