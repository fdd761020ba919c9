"""Who asks over MCP, and what that one may see and do.

A worker's token speaks for its own session and sees nothing else. A coordinator's is confined to its project. A viewer reads; an
operator, and whoever opened the Unix socket, may do everything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from agent_orchestrator.config.effective import ProjectConfig
from agent_orchestrator.config.projects.projects import NOWHERE, Context
from agent_orchestrator.config.tokens import Identity
from agent_orchestrator.core.authors import held, plain_name
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.pull_request import Issue
from agent_orchestrator.core.reactions import COORDINATOR
from agent_orchestrator.errors import Denied, NotFound, UsageError
from agent_orchestrator.protocols.text import without_commands
from agent_orchestrator.server.access import auth
from agent_orchestrator.server.services import Services
from agent_orchestrator.sessions import names

SPAWNS = frozenset(
    (
        "agent",
        "after",
        "base",
        "defer",
        "files",
        "issue",
        "labels",
        "model",
        "name",
        "priority",
        "projectId",
        "prompt",
        "stack",
        "title",
    )
)
"""What a coordinator may say of a session that it wants; other branches, pull requests and conversations are not its own."""


class Scope(StrEnum):
    """What a tool is about."""

    OWN = "own"
    """The caller's own session."""
    READ = "read"
    """The fleet, looked at."""
    STEER = "steer"
    """The fleet, changed."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks, with the services that answer."""

    services: Services
    identity: Identity
    context: Context = NOWHERE

    @property
    def session(self) -> SessionFacts | None:
        """The session that speaks by its own token; none: somebody else does."""
        if self.identity.kind != "session":
            return None
        facts = self.services.sessions.flow.sessions.get(self.identity.session or "")
        if facts is None:
            raise NotFound(f"no session {self.identity.session}", "its token is worthless")
        return facts

    @property
    def coordinates(self) -> bool:
        """It is the token of a coordinator."""
        return self.session is not None and self.session.spec.kind == COORDINATOR

    @property
    def name(self) -> str:
        """Who did it, as events tell."""
        if self.identity.kind == "session":
            return f"session {self.identity.session}"
        return self.identity.name or "person"

    def said(self, text: str) -> str:
        """What it says for a tracker: an agent's words are no commands, which a forge would carry out with the user's rights."""
        return text if self.session is None else without_commands(text)

    def may(self, scope: Scope, extra: str = "") -> bool:
        """Whether tools of this scope are for this one; `extra` names what a coordinator may only where its project says so."""
        session = self.session
        if session is None:
            return scope is not Scope.OWN and auth.has(self.identity, "viewer" if scope is Scope.READ else "operator")
        if session.spec.kind != COORDINATOR:
            return scope is Scope.OWN
        return not extra or extra in self._project(session.project).coordinator.may

    def own(self) -> tuple[SessionFacts, int]:
        """The caller's own session, and the launch that its token was made for."""
        session = self.session
        if session is None:
            raise Denied("this is for the agent of a session", "ask with the token that it has in $AO_TOKEN")
        return session, self.identity.generation or 0

    def acting(self) -> None:
        """Refuse an agent whose launch is over: what it still wants to change is nobody's wish any more."""
        if self.identity.kind == "session":
            self.services.reporting.check(*self._own_launch())

    def _own_launch(self) -> tuple[str, int]:
        facts, generation = self.own()
        return facts.id, generation

    def find(self, name: str) -> SessionFacts:
        """The session that is meant, if the caller may know of it."""
        session = self.session
        if session is None:
            return self.services.sessions.find(name)
        here = [facts for facts in self.services.sessions.flow.sessions.values() if self._sees(session, facts)]
        found = [facts for facts in here if name in (facts.id, facts.name, f"{facts.project}-{facts.name}")]
        if len(found) > 1:
            found = [facts for facts in found if facts.id == name] or found[:1]
        if not found:
            raise NotFound(f"no session {name}", "list_sessions tells their ids")
        return found[0]

    def _sees(self, session: SessionFacts, other: SessionFacts) -> bool:
        return other.project == session.project if session.spec.kind == COORDINATOR else other.id == session.id

    async def project(self, name: str | None) -> str | None:
        """The project that is meant; none: all of them, where the caller may see them."""
        session = self.session
        if session is None:
            return await self.services.projects.resolve(self.context, name)
        if name not in (None, session.project):
            raise Denied(f"the token of {session.id} is for {session.project} alone", "leave the project out")
        return session.project

    async def one_project(self, name: str | None) -> str:
        """The same where there must be one."""
        found = await self.project(name)
        if found is None:
            raise UsageError("no project is named", "name one: `project`; list_projects tells them")
        return found

    async def spawn(self, request: Mapping[str, Any], by: str, key: str | None = None) -> dict[str, Any]:
        """Have a session made; a coordinator's count, and are of its project."""
        session, sessions = self.session, self.services.sessions
        if session is None:
            return await sessions.create(request, key, self.context, by)
        if strange := sorted(set(request) - SPAWNS):
            raise Denied(f"{session.id} may not choose the {strange[0]} of a session", "leave it out, or ask a person")
        project = await self.one_project(request.get("projectId"))
        if request.get("issue"):
            await self._refuse_strangers(project, str(request["issue"]))
        after = [self.find(str(name)).id for name in request.get("after") or ()]
        mine = {**request, "projectId": project, "after": after, "parent": session.id}
        return await sessions.create(mine, key, self.context, by)

    async def _refuse_strangers(self, project: str, name: str) -> None:
        """An agent gives no other agent the words of somebody whom no person let pass."""
        sessions = self.services.sessions
        issue = names.checked_issue(name)
        await sessions.learn_issue(sessions.plugins.project(project), issue)
        known = sessions.creation.issue(project, issue)
        if known is not None and (reason := self.withheld(known)):
            raise Denied(f"issue {known.name} holds {reason}", f"ask a person to start it: ao new {known.name}")

    def withheld(self, issue: Issue) -> str:
        """Why an issue's words reach no agent yet; nothing: they may, or a person asks."""
        if not self.identity.is_agent:
            return ""
        trusted = self.services.projects.trusted_authors(issue.project)
        return held([issue], trusted)

    def shown(self, issue: Issue, row: dict[str, Any]) -> dict[str, Any]:
        """What is told of an issue, as whoever asks may see it: agents are shown nothing that a stranger chose the words of."""
        reason = self.withheld(issue)
        if not reason:
            return row
        words: dict[str, Any] = {"title": f"({reason})", "body": "", "comments": [], "labels": [], "matchedBy": None}
        words |= {"author": plain_name(issue.author), "waitingFor": reason, "reasons": [reason]}
        return {key: words.get(key, value) for key, value in row.items()}

    def _project(self, project: str) -> ProjectConfig:
        return self.services.sessions.plugins.project(project)


def is_over(facts: SessionFacts) -> bool:
    """Nothing more comes of it: stopped, landed or given up."""
    return facts.stopped or (facts.pr is not None and facts.pr.state != "open")
