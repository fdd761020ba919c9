"""The rules in force, the state of each, and what one would do now without doing it: `ao reactions list` and `ao reactions test`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from agent_orchestrator.config import units
from agent_orchestrator.core.engine import Flow
from agent_orchestrator.core.episodes import current_occurrence, is_state_trigger
from agent_orchestrator.core.events import EVENT_KINDS, rfc3339
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.pull_request import CheckRun, Comment, PullRequest, Review
from agent_orchestrator.core.reactions import backoff_seconds, delay_seconds
from agent_orchestrator.core.rules.default_rules import DEFAULT_RULES, TRIGGERS
from agent_orchestrator.core.rules.model import Rule
from agent_orchestrator.errors import AoError, NotFound
from agent_orchestrator.fleet.reactions.executor import PlannedReaction, RuleExecutor, merge_blocker
from agent_orchestrator.sessions.session_view import SessionViews

Rows = list[dict[str, Any]]

_SAMPLE_ERROR = "FAILED tests/test_sample.py::test_sample - AssertionError: assert 1 == 2"
_SAMPLES: Mapping[str, Mapping[str, Any]] = {
    "label-added": {"number": 1, "label": "sample-label"},
    "issue-assigned": {"number": 1, "assignee": "somebody"},
    "issue-comment": {"number": 1, "body": "A sample comment.", "author": "somebody"},
    "conflict-predicted": {"other": "another-session", "files": ["sample.txt"], "kind": "text"},
    "budget-exceeded": {"scope": "session", "budget": "5 USD", "spent": "5.01 USD"},
    "all-complete": {"sessions": ["a-session"], "summary": "- a-session: merged (#1)"},
}
"""Sample fields for an event that has not happened."""


class RuleInspection:
    """Lists and tests rules; carries out none."""

    def __init__(self, flow: Flow, views: SessionViews, reacting: RuleExecutor) -> None:
        self.flow = flow
        self.views = views
        self.executor = reacting

    # -- listing -------------------------------------------------------------------------------------------------------

    def list(self, project: str | None, session: str | None = None) -> Rows:
        """Return the rules in force for a session, or for a project's sessions without a profile, as JSON."""
        facts = self.flow.sessions[session] if session else None
        rules = self.flow.rules(facts.project if facts else project or "", facts.spec.profile if facts else None)
        return [self._json(rule, facts) for rule in rules]

    def _json(self, rule: Rule, facts: SessionFacts | None) -> dict[str, Any]:
        current_occurrence = self._current_occurrence(rule, facts) if facts else None
        episode = facts.episodes.get(rule.trigger) if facts else None
        return {
            **rule_json(rule),
            "holds": None if facts is None or not is_state_trigger(rule.trigger) else current_occurrence is not None,
            "attempts": episode.attempts if episode else 0,
            "escalated": bool(episode and episode.escalated),
            "since": rfc3339(episode.since) if episode else None,
        }

    def _current_occurrence(self, rule: Rule, facts: SessionFacts) -> str | None:
        return (
            current_occurrence(rule.trigger, facts, self.views.status(facts))
            if is_state_trigger(rule.trigger)
            else None
        )

    # -- trying --------------------------------------------------------------------------------------------------------

    async def test(self, trigger: str, session: str) -> dict[str, Any]:
        """Return what each rule of a trigger would do for a session now; sends and changes nothing. Raises NotFound for
        an unknown trigger.
        """
        facts = self.flow.sessions[session]
        rules = [
            candidate
            for candidate in self.flow.rules(facts.project, facts.spec.profile)
            if trigger in (candidate.trigger, candidate.name)
        ]
        triggers = {*TRIGGERS, *EVENT_KINDS}
        if not rules and trigger not in triggers:
            suggestions = ", ".join(sorted(name for name in triggers if trigger[:5] and name.startswith(trigger[:5])))
            raise NotFound(
                f"there is no trigger {trigger}",
                f"did you mean {suggestions}?" if suggestions else "see: ao reactions list",
            )
        return {
            "session": session,
            "trigger": trigger,
            "rules": [await self._planned_json(rule, facts) for rule in rules],
        }

    async def _planned_json(self, rule: Rule, facts: SessionFacts) -> dict[str, Any]:
        current = self._current_occurrence(rule, facts)
        sample_facts, event, sample = with_samples(rule.trigger, facts, current is not None)
        episode = facts.episodes.get(rule.trigger)
        attempt = (episode.attempts if episode else 0) + 1
        args = {"occurrence": current or "sample", "attempt": attempt, "event": event}
        planned: PlannedReaction | None = None
        error_text = ""
        try:
            planned = await self.executor.plan(sample_facts, rule, args, keep=False)
        except AoError as error:  # a template that is wrong for these values
            error_text = str(error)
        exhausted = rule.retries is not None and attempt > rule.retries
        delay = (
            delay_seconds(rule) if attempt == 1 else backoff_seconds(rule, attempt, f"{rule.name}:{facts.id}:{current}")
        )
        return {
            "rule": rule.name,
            "action": rule.action,
            "holds": current is not None if is_state_trigger(rule.trigger) else None,
            "sample": sample,
            "condition": rule.condition or None,
            "applies": bool(planned and planned.applies),
            "offered": bool(planned and planned.is_offer),
            "attempt": attempt,
            "exhausted": exhausted,
            "after": round(delay, 3),
            "text": planned.text if planned else None,
            "heldFor": (planned.approval_reason or None) if planned else None,
            "to": self._receiver(rule, facts, offered=bool(planned and planned.is_offer)),
            "command": list(rule.command) or None,
            "problem": error_text or self._problem(rule, facts) or None,
        }

    def _receiver(self, rule: Rule, facts: SessionFacts, *, offered: bool) -> str:
        if offered or rule.action in ("notify", "escalate"):
            return "you"
        return {
            "send-to-agent": f"the agent of {facts.id}",
            "restart": f"the agent of {facts.id}",
            "spawn": f"a new session of {rule.agent or 'the same agent'}",
            "merge": "the merge queue",
            "command": "a command in its workspace",
            "rerun-ci": "its checks",
            "hold": f"every session of {facts.spec.agent}",
        }.get(rule.action, facts.id)

    def _problem(self, rule: Rule, facts: SessionFacts) -> str:
        if rule.action == "merge":
            return merge_blocker(facts) and f"it would not land: {merge_blocker(facts)}"
        if rule.action == "command" and not rule.command:
            return "the rule has no command"
        if rule.action == "spawn" and rule.name in facts.spec.spawned:
            return f"{facts.id} itself comes from this rule"
        return ""


def with_samples(trigger: str, facts: SessionFacts, holds: bool) -> tuple[SessionFacts, dict[str, Any], list[str]]:
    """Return the facts with sample values where the trigger's data does not exist yet, the event, and the names of the
    sample variables.
    """
    sample: list[str] = []
    event: dict[str, Any] = {}
    if not is_state_trigger(trigger):
        event = {"type": trigger, **_SAMPLES.get(trigger, {})}
        return facts, event, ["event"]
    head = facts.head or "0" * 40
    pr = facts.pr or PullRequest(0, facts.spec.title, facts.base, draft=False)
    if not holds and trigger == "ci-failed":
        run = CheckRun("sample-check", head, "failure", _SAMPLE_ERROR, "sample.log")
        pr, sample = replace(pr, checks={**pr.checks, run.name: run}), ["errors", "checks"]
    elif not holds and trigger == "changes-requested":
        review = Review("v-sample", "changes_requested", head, "somebody", "A sample request.", facts.updated_at)
        comment = Comment(
            "c-sample", "A sample comment.", "somebody", facts.updated_at, "sample.txt", 1, review="v-sample"
        )
        pr, sample = (
            replace(pr, reviews=(*pr.reviews, review), comments=(*pr.comments, comment)),
            ["comments", "author"],
        )
    elif not holds and trigger == "review-comment":
        comment = Comment("c-sample", "A sample comment.", "somebody", facts.updated_at, "sample.txt", 1, head=head)
        pr, sample = replace(pr, comments=(*pr.comments, comment)), ["comments", "author"]
    elif not holds and trigger == "merge-conflicts":
        pr = replace(pr, conflicting_files=("sample.txt",), compared_heads=(head, facts.base_head or ""))
        sample = ["files", "ours", "theirs"]
    elif not holds:
        return facts, event, ["reason"]
    return replace(facts, head=head, pr=pr), event, sample


def rule_json(rule: Rule) -> dict[str, Any]:
    """Return a rule in the spelling of the configuration."""
    by_name = {default.name: default for default in DEFAULT_RULES}
    escalate_after: int | float | None = rule.escalate_after_count
    return {
        "name": rule.name,
        "trigger": rule.trigger,
        "auto": rule.auto,
        "action": rule.action,
        "message": rule.message or None,
        "retries": rule.retries,
        "backoff": list(rule.backoff) if rule.backoff else None,
        "escalateAfter": escalate_after
        if escalate_after is not None
        else units.format_duration(rule.escalate_after_seconds)
        if rule.escalate_after_seconds is not None
        else None,
        "escalate": rule.escalate,
        "threshold": rule.threshold,
        "delay": rule.delay,
        "unlessWatched": rule.unless_watched,
        "condition": rule.condition or None,
        "priority": rule.priority,
        "strategy": rule.strategy,
        "deleteAfter": rule.delete_after,
        "includeSummary": rule.include_summary,
        "approvalAfter": rule.approval_after,
        "command": list(rule.command) or None,
        "timeout": rule.timeout if rule.action == "command" else None,
        "agent": rule.agent,
        "source": "default" if by_name.get(rule.name) == rule else "changed" if rule.name in by_name else "configured",
    }
