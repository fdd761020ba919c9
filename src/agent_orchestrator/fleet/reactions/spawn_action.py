"""The action `spawn` of rules: create another session because of this one.

A reviewer reviews this session's change. A worker begins on this session's branch, or on the base branch once the
change is merged. A rule does not apply to sessions that it spawned, so that it cannot cause itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agent_orchestrator.base.text.templates import is_true, render
from agent_orchestrator.changes.reviews.agent_reviews import AgentReviews
from agent_orchestrator.config.projects.projects import NO_CONTEXT
from agent_orchestrator.core import events as e
from agent_orchestrator.core.authors import HAS_WRITE_ACCESS, TextAuthor, approval_reason, author_kind
from agent_orchestrator.core.dependencies import session_working_on
from agent_orchestrator.core.effects import Effect
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.fold.issues import issue_key
from agent_orchestrator.core.issues import Issue
from agent_orchestrator.core.reactions import Intent
from agent_orchestrator.core.rules.model import TEMPLATE_VARIABLES, Rule
from agent_orchestrator.errors import AoError
from agent_orchestrator.fleet.notifications.quiet_hours import QuietHours
from agent_orchestrator.sessions.creation.names import title_of
from agent_orchestrator.sessions.creation.new_session import NewSession
from agent_orchestrator.sessions.part import Core, Part
from agent_orchestrator.sessions.sessions import Sessions

MAX_SPAWNED = 20
"""The most sessions that one rule creates because of one session."""


class SpawnAction(Part):
    """Creates the sessions that rules ask for."""

    def __init__(self, core: Core, sessions: Sessions, reviews: AgentReviews, quiet: QuietHours) -> None:
        super().__init__(core)
        self.sessions = sessions
        self.reviews = reviews
        self.quiet_hours = quiet

    def effects(self) -> dict[str, Effect]:
        """Return the effects by kind of intent."""
        return {"spawn": Effect(self.create_session), "react-to-issue": Effect(self.react_to_issue)}

    async def create_session(self, intent: Intent, _attempts: int) -> Sequence[Event]:
        """Create the session that a rule asks for; the intent's key prevents a second one when this is retried."""
        facts = self.flow.sessions[intent.session]
        rule, agent = str(intent.args["rule"]), str(intent.args.get("agent") or "") or None
        if reason := self._refusal(facts, rule):
            return self._notification_events(facts, intent, f"no session was spawned: {reason}")
        settings = self.core.config.agent(facts.project, agent)
        text = str(intent.args.get("prompt") or "")
        try:
            if settings is not None and settings.role == "reviewer":
                instructions = "" if text == facts.spec.prompt else text
                await self.reviews.request_review(facts.id, agent, instructions, key=intent.key, rule=rule)
            else:
                await self.sessions.create(self._request(facts, agent, text, rule), intent.key, NO_CONTEXT)
        except AoError as error:
            if error.retryable:
                raise
            return self._notification_events(facts, intent, f"no session was spawned: {error}")
        return []

    async def react_to_issue(self, intent: Intent, _attempts: int) -> Sequence[Event]:
        """Follow a rule for an issue that no session works on: create a session for it, or notify a person."""
        project, event = str(intent.args["project"]), dict(intent.args["event"])
        rules = self.flow.rules(project, None)
        rule = next((candidate for candidate in rules if candidate.name == intent.args["rule"]), None)
        issue = self.flow.home.issues.get(issue_key(project, int(event["number"])))
        if (
            rule is None
            or issue is None
            or issue.state != "open"
            or session_working_on(issue, self.flow.sessions.values())
        ):
            return []
        variables = issue_variables(issue, rule, event)
        if rule.condition and not is_true(rule.condition, variables):
            return []
        text = render(rule.message, variables) if rule.message else ""
        if rule.action == "spawn" and rule.auto and not self._approval_reason(project, event):
            try:
                request = NewSession(
                    project=project, issue=str(issue.number), title=issue.title, agent=rule.agent, prompt=text
                )
                session = await self.sessions.create(request, intent.key, NO_CONTEXT)
                reacted = e.Reacted(rule.name, rule.trigger, intent.key, rule.action)
                return [Event(reacted, self.clock(), f"rule {rule.name}", f"{intent.key}:done", project, session["id"])]
            except AoError as error:
                if error.retryable:
                    raise
                text = f"no session was made: {error}"
        description = text or f"{rule.trigger}: {issue.title}"
        if rule.action == "spawn":
            description += f"; take it up: ao new {issue.number}"
        level = rule.priority or ("action" if rule.action == "spawn" else "info")
        notice = self.quiet_hours.gate(
            project, e.Notified(rule.trigger, f"issue {issue.number}: {rule.trigger}", description, level)
        )
        return [Event(notice, self.clock(), f"rule {rule.name}", f"{intent.key}:told", project)]

    def _approval_reason(self, project: str, event: Mapping[str, Any]) -> str:
        """Return why the event needs a person's approval, or "": text by untrusted authors, even a title alone, creates no session."""
        text = TextAuthor(str(event.get("author", "person")), str(event.get("writeAccess", HAS_WRITE_ACCESS)))
        return approval_reason([text], self.core.settings.project(project).trusted_authors)

    def _refusal(self, facts: SessionFacts, rule: str) -> str:
        if rule in facts.spec.spawned:
            return f"{facts.id} itself comes from rule {rule}"
        spawned = [
            session
            for session in self.flow.sessions.values()
            if session.spec.parent == facts.id and session.spec.spawned[-1:] == (rule,)
        ]
        return f"rule {rule} made {len(spawned)} for {facts.id} already" if len(spawned) >= MAX_SPAWNED else ""

    def _request(self, facts: SessionFacts, agent: str | None, text: str, rule: str) -> NewSession:
        """Return the request for the new session; it begins on this session's branch while its change is not on the base branch."""
        is_unmerged = facts.has_commits and (facts.pr is None or facts.pr.state == "open")
        return NewSession(
            project=facts.project,
            title=title_of(text) or facts.spec.title,
            prompt=text,
            agent=agent,
            base=facts.branch if is_unmerged else facts.base,
            labels=facts.spec.labels,
            spawned=(*facts.spec.spawned, rule),
            parent=facts.id,
        )

    def _notification_events(self, facts: SessionFacts, intent: Intent, text: str) -> Sequence[Event]:
        rule, trigger = str(intent.args["rule"]), str(intent.args["trigger"])
        body = self.quiet_hours.gate(facts.project, e.Notified(trigger, f"{facts.id}: rule {rule}", text, "warning"))
        return [Event(body, self.clock(), f"rule {rule}", f"{intent.key}:refused", facts.project, facts.id)]


def issue_variables(issue: Issue, rule: Rule, event_data: Mapping[str, Any]) -> dict[str, Any]:
    """Return all variables that a rule's templates may use if there is an issue and no session."""
    author = str(event_data.get("author") or ("person" if event_data.get("body") else ""))
    values = {
        "trigger": rule.trigger,
        "project": issue.project,
        "title": issue.title,
        "issue": {"id": str(issue.number), "title": issue.title, "labels": list(issue.labels)},
        "labels": list(issue.labels),
        "label": event_data.get("label", ""),
        "comment": "\n".join(f"> {line}" for line in str(event_data.get("body", "")).splitlines()),
        "author": author,
        "by": author_kind(author) if author else "",
        "event": dict(event_data),
        "attempt": 1,
        "retries": rule.retries,
    }
    return {name: values.get(name, "") for name in TEMPLATE_VARIABLES}
