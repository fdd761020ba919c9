"""The action `spawn`: another session because of this one, by a rule. A reviewer judges this one's change; a worker begins where this
one's change is, or on the base once that has landed. No rule leads to itself: what it led to does not follow it again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agent_orchestrator.base.text.templates import holds, render
from agent_orchestrator.changes.reviews.agent_reviews import AgentReviews
from agent_orchestrator.config.projects.projects import NOWHERE
from agent_orchestrator.core import events as e
from agent_orchestrator.core.authors import WRITES, Words, held, kind_of
from agent_orchestrator.core.effects import Effect
from agent_orchestrator.core.engine import Flow
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.fold.pull_requests import issue_key
from agent_orchestrator.core.issue_work import works_on
from agent_orchestrator.core.pull_request import Issue
from agent_orchestrator.core.reactions import Intent
from agent_orchestrator.core.rules import TEMPLATE_VARIABLES, Rule
from agent_orchestrator.errors import AoError
from agent_orchestrator.fleet.notifications.quiet_hours import Quiet
from agent_orchestrator.sessions.names import title_of
from agent_orchestrator.sessions.plugins import Plugins
from agent_orchestrator.sessions.sessions import Sessions

MOST_SPAWNED = 20
"""Sessions that one rule makes because of one session."""


class Spawning:
    """Makes sessions that rules want."""

    def __init__(self, flow: Flow, plugins: Plugins, sessions: Sessions, reviews: AgentReviews, quiet: Quiet) -> None:
        self.flow = flow
        self.plugins = plugins
        self.sessions = sessions
        self.reviews = reviews
        self.quiet = quiet

    def effects(self) -> dict[str, Effect]:
        """By kind of intent."""
        return {"spawn": Effect(self.spawn), "react-to-issue": Effect(self.react_to_issue)}

    async def spawn(self, intent: Intent, _attempts: int) -> Sequence[Event]:
        """Make the session that a rule wants; the intent's key makes it one, however often this is tried."""
        facts = self.flow.sessions[intent.session]
        rule, agent = str(intent.args["rule"]), str(intent.args.get("agent") or "") or None
        if why := self._refused(facts, rule):
            return self._told(facts, intent, f"no session was spawned: {why}")
        settings = self.plugins.config.agent(facts.project, agent)
        text = str(intent.args.get("prompt") or "")
        try:
            if settings is not None and settings.role == "reviewer":
                asked = "" if text == facts.spec.prompt else text
                await self.reviews.request(facts.id, agent, asked, key=intent.key, rule=rule)
            else:
                await self.sessions.create(self._request(facts, agent, text, rule), intent.key, NOWHERE)
        except AoError as error:
            if error.retryable:
                raise
            return self._told(facts, intent, f"no session was spawned: {error}")
        return []

    async def react_to_issue(self, intent: Intent, _attempts: int) -> Sequence[Event]:
        """Follow a rule for an issue that nobody works on: have it taken up, or tell of it."""
        project, told = str(intent.args["project"]), dict(intent.args["event"])
        rules = self.flow.rules(project, None)
        rule = next((one for one in rules if one.name == intent.args["rule"]), None)
        issue = self.flow.home.issues.get(issue_key(project, int(told["number"])))
        if rule is None or issue is None or issue.state != "open" or works_on(issue, self.flow.sessions.values()):
            return []
        variables = of_issue(issue, rule, told)
        if rule.condition and not holds(rule.condition, variables):
            return []
        text = render(rule.message, variables) if rule.message else ""
        if rule.action == "spawn" and rule.auto and not self._strange(project, told):
            try:
                wanted = {
                    "projectId": project,
                    "issue": str(issue.number),
                    "title": issue.title,
                    "agent": rule.agent,
                }
                made = await self.sessions.create({**wanted, **({"prompt": text} if text else {})}, intent.key, NOWHERE)
                done = e.Reacted(rule.name, rule.trigger, intent.key, rule.action)
                return [Event(done, self.flow.clock(), f"rule {rule.name}", f"{intent.key}:done", project, made["id"])]
            except AoError as error:
                if error.retryable:
                    raise
                text = f"no session was made: {error}"
        what = text or f"{rule.trigger}: {issue.title}"
        if rule.action == "spawn":
            what += f"; take it up: ao new {issue.number}"
        level = rule.priority or ("action" if rule.action == "spawn" else "info")
        notice = self.quiet.gate(
            project, e.Notified(rule.trigger, f"issue {issue.number}: {rule.trigger}", what, level)
        )
        return [Event(notice, self.flow.clock(), f"rule {rule.name}", f"{intent.key}:told", project)]

    def _strange(self, project: str, told: Mapping[str, Any]) -> str:
        """Words of strangers take nothing up, be they a title alone."""
        words = Words(str(told.get("author", "person")), str(told.get("writeAccess", WRITES)))
        return held([words], self.plugins.project(project).trusted_authors)

    def _refused(self, facts: SessionFacts, rule: str) -> str:
        if rule in facts.spec.spawned:
            return f"{facts.id} itself comes from rule {rule}"
        made = [
            one
            for one in self.flow.sessions.values()
            if one.spec.parent == facts.id and one.spec.spawned[-1:] == (rule,)
        ]
        return f"rule {rule} made {len(made)} for {facts.id} already" if len(made) >= MOST_SPAWNED else ""

    def _request(self, facts: SessionFacts, agent: str | None, text: str, rule: str) -> dict[str, Any]:
        """Where its change is not on the base yet, the new session begins on top of it."""
        open_change = facts.committed and (facts.pr is None or facts.pr.state == "open")
        return {
            "projectId": facts.project,
            "title": title_of(text) or facts.spec.title,
            "prompt": text,
            "agent": agent,
            "base": facts.branch if open_change else facts.base,
            "labels": list(facts.spec.labels),
            "spawned": (*facts.spec.spawned, rule),
            "parent": facts.id,
        }

    def _told(self, facts: SessionFacts, intent: Intent, text: str) -> Sequence[Event]:
        rule, trigger = str(intent.args["rule"]), str(intent.args["trigger"])
        body = self.quiet.gate(facts.project, e.Notified(trigger, f"{facts.id}: rule {rule}", text, "warning"))
        return [Event(body, self.flow.clock(), f"rule {rule}", f"{intent.key}:refused", facts.project, facts.id)]


def of_issue(issue: Issue, rule: Rule, told: Mapping[str, Any]) -> dict[str, Any]:
    """What a rule's templates may speak of where there is an issue and no session."""
    author = str(told.get("author") or ("person" if told.get("body") else ""))
    known = {
        "trigger": rule.trigger,
        "project": issue.project,
        "title": issue.title,
        "issue": {"id": str(issue.number), "title": issue.title, "labels": list(issue.labels)},
        "labels": list(issue.labels),
        "label": told.get("label", ""),
        "comment": "\n".join(f"> {line}" for line in str(told.get("body", "")).splitlines()),
        "author": author,
        "by": kind_of(author) if author else "",
        "event": dict(told),
        "attempt": 1,
        "retries": rule.retries,
    }
    return {name: known.get(name, "") for name in TEMPLATE_VARIABLES}
