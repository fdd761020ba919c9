"""`Caller`: who makes a request, over HTTP or by an MCP tool, and what that may see and do.

A worker's token acts for its own session and sees nothing else. A coordinator's is limited to its project. A viewer reads; an
operator, and a caller on the Unix socket, may do everything.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from pydantic.alias_generators import to_camel

from agent_orchestrator.base.api_tokens import Identity
from agent_orchestrator.config.projects.projects import NO_CONTEXT, CommandContext
from agent_orchestrator.core.authors import approval_reason, safe_author_name
from agent_orchestrator.core.facts import COORDINATOR_KIND, SessionFacts
from agent_orchestrator.core.issues import Issue
from agent_orchestrator.errors import Denied, NotFound, UsageError
from agent_orchestrator.protocols.text import without_commands
from agent_orchestrator.server.access import auth
from agent_orchestrator.server.services import Services
from agent_orchestrator.sessions.creation.new_session import NewSession

COORDINATOR_FIELDS = frozenset(
    {"agent", "after", "base", "defer", "files", "issue", "labels", "model", "name"}
    | {"priority", "project", "prompt", "stack", "title"}
)
"""What a coordinator may set for a new session; other branches, pull requests and conversations are not its own."""


class Scope(StrEnum):
    """What a tool works on."""

    OWN = "own"
    """The caller's own session."""
    READ = "read"
    """The fleet, read only."""
    STEER = "steer"
    """The fleet, with changes."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller of a request, with the services that answer it."""

    services: Services
    identity: Identity
    context: CommandContext = NO_CONTEXT

    @property
    def session(self) -> SessionFacts | None:
        """The session whose token was sent, or None for another kind of caller; raises NotFound if it does not exist."""
        if self.identity.kind != "session":
            return None
        facts = self.services.sessions.flow.sessions.get(self.identity.session or "")
        if facts is None:
            raise NotFound(f"no session {self.identity.session}", "its token is worthless")
        return facts

    @property
    def is_coordinator(self) -> bool:
        """Whether the token is a coordinator's."""
        return self.session is not None and self.session.spec.kind == COORDINATOR_KIND

    @property
    def name(self) -> str:
        """The caller's name in events."""
        if self.identity.kind == "session":
            return f"session {self.identity.session}"
        return self.identity.name or "person"

    def tracker_text(self, text: str) -> str:
        """Return a text for a tracker: in an agent's text, forge commands are disabled, because they would run with the user's rights."""
        return text if self.session is None else without_commands(text)

    def may_use(self, scope: Scope, extra: str = "") -> bool:
        """Return whether the caller may use tools of this scope; `extra` must be allowed in the `coordinator.may` of a coordinator's
        project.
        """
        session = self.session
        if session is None:
            return scope is not Scope.OWN and auth.has_role(
                self.identity, "viewer" if scope is Scope.READ else "operator"
            )
        if session.spec.kind != COORDINATOR_KIND:
            return scope is Scope.OWN
        return not extra or extra in self.services.core.settings.project(session.project).coordinator.may

    def require_own_session(self) -> tuple[SessionFacts, int]:
        """Return the caller's own session and the launch that its token was made for; raise Denied if it is not a session's agent."""
        session = self.session
        if session is None:
            raise Denied("this is for the agent of a session", "ask with the token that it has in $AO_TOKEN")
        return session, self.identity.generation or 0

    def require_current_launch(self) -> None:
        """Raise if the caller is an agent whose launch is over: it may change nothing any more."""
        if self.identity.kind == "session":
            self.services.reporting.require_current_launch(*self._own_launch())

    def _own_launch(self) -> tuple[str, int]:
        """Return the caller's session id and the launch of its token."""
        facts, generation = self.require_own_session()
        return facts.id, generation

    def find_session(self, name: str) -> SessionFacts:
        """Return the session with this name; raise NotFound if the caller may not see it."""
        session = self.session
        if session is None:
            return self.services.sessions.find(name)
        visible = [facts for facts in self.services.sessions.flow.sessions.values() if self._can_see(session, facts)]
        matches = [facts for facts in visible if name in (facts.id, facts.name, f"{facts.project}-{facts.name}")]
        if len(matches) > 1:
            matches = [facts for facts in matches if facts.id == name] or matches[:1]
        if not matches:
            raise NotFound(f"no session {name}", "list_sessions tells their ids")
        return matches[0]

    def _can_see(self, session: SessionFacts, other: SessionFacts) -> bool:
        """Return whether a session's agent may see another session."""
        return other.project == session.project if session.spec.kind == COORDINATOR_KIND else other.id == session.id

    async def resolve_project(self, name: str | None) -> str | None:
        """Return the project that is meant, or None for all projects if the caller may see them."""
        session = self.session
        if session is None:
            return await self.services.projects.resolve(self.context, name)
        if name not in (None, session.project):
            raise Denied(f"the token of {session.id} is for {session.project} alone", "leave the project out")
        return session.project

    async def require_project(self, name: str | None) -> str:
        """Return the project that is meant; raise UsageError if it is none in particular."""
        project_id = await self.resolve_project(name)
        if project_id is None:
            raise UsageError("no project is named", "name one: `project`; list_projects tells them")
        return project_id

    async def create_session(self, request: NewSession, by: str, key: str | None = None) -> dict[str, Any]:
        """Create a session; a coordinator's belong to its project and have it as their parent."""
        session, sessions = self.session, self.services.sessions
        if session is None:
            return await sessions.create(request, key, self.context, by)
        if refused_fields := sorted(request.changed_fields() - COORDINATOR_FIELDS):
            raise Denied(
                f"{session.id} may not choose the {to_camel(refused_fields[0])} of a session",
                "leave it out, or ask a person",
            )
        project = await self.require_project(request.project)
        if request.issue:
            await self._refuse_untrusted_issue(project, request.issue)
        after = tuple(self.find_session(name).id for name in request.after)
        own_request = replace(request, project=project, after=after, parent=session.id)
        return await sessions.create(own_request, key, self.context, by)

    async def _refuse_untrusted_issue(self, project: str, name: str) -> None:
        """Raise Denied if an issue has texts that need a person's approval before an agent may get them."""
        known_issue = await self.services.sessions.read_issue(project, name)
        if known_issue is not None and (reason := self.approval_reason_for(known_issue)):
            raise Denied(
                f"issue {known_issue.name} holds {reason}", f"ask a person to start it: ao new {known_issue.name}"
            )

    def approval_reason_for(self, issue: Issue) -> str:
        """Return why an issue's texts may not be shown to the caller yet, or "" if they may or the caller is a person."""
        if not self.identity.is_agent:
            return ""
        trusted = self.services.projects.trusted_authors(issue.project)
        return approval_reason([issue], trusted)

    def visible_row(self, issue: Issue, row: dict[str, Any]) -> dict[str, Any]:
        """Return an issue's row as the caller may see it: for agents, texts that strangers chose are replaced."""
        reason = self.approval_reason_for(issue)
        if not reason:
            return row
        replacements: dict[str, Any] = {
            "title": f"({reason})",
            "body": "",
            "comments": [],
            "labels": [],
            "matchedBy": None,
        }
        replacements |= {"author": safe_author_name(issue.author), "waitingFor": reason, "reasons": [reason]}
        return {key: replacements.get(key, value) for key, value in row.items()}


def has_ended(facts: SessionFacts) -> bool:
    """Return whether a session has ended for good: stopped, merged or closed."""
    return facts.stopped or (facts.pr is not None and facts.pr.state != "open")
