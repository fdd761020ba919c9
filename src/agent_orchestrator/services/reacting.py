"""Rules, carried out: what a reaction does, right before which is looked again whether there is still something to react to."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from agent_orchestrator.flow import events as e
from agent_orchestrator.flow.effects import Effect
from agent_orchestrator.flow.engine import Flow
from agent_orchestrator.flow.events import Event
from agent_orchestrator.flow.facts import SessionFacts
from agent_orchestrator.flow.reactions import Intent, still_so, stuck_after
from agent_orchestrator.flow.rules import Rule
from agent_orchestrator.flow.status import derive
from agent_orchestrator.services.wording import Wording
from agent_orchestrator.templates import holds, render


class Reacting:
    """The effects of rules."""

    def __init__(self, flow: Flow, wording: Wording) -> None:
        self.flow = flow
        self.wording = wording

    def effects(self) -> dict[str, Effect]:
        """By kind of intent."""
        return {"react": Effect(self.react), "escalate": Effect(self.escalate)}

    async def react(self, intent: Intent, _attempts: int) -> Sequence[Event]:
        """Follow a rule: each action becomes an event, recorded together with the reaction itself."""
        facts = self.flow.sessions[intent.session]
        rules = self.flow.rules(facts.project, facts.spec.profile)
        rule = next((one for one in rules if one.name == intent.args["rule"]), None)
        if rule is None or not still_so(intent, facts, rules, self.flow.clock()):
            return []
        variables = self.wording.variables(facts, rule, intent.args)
        if rule.condition and not holds(rule.condition, variables):
            return []
        text = render(rule.message, variables) if rule.message else self.wording.plain(facts, rule)
        offered = not rule.auto or (rule.approval_after is not None and intent.args["attempt"] > rule.approval_after)
        hold = "" if offered or rule.action != "send-to-agent" else self.wording.hold(facts, rule, intent.args)
        body = self._offer(facts, rule, text) if offered else self._act(facts, rule, text, intent, hold)
        done = e.Reacted(rule.name, rule.trigger, intent.args["occurrence"], rule.action, intent.args["attempt"])
        return [
            *(self._event(facts, one, f"{intent.key}:{number}", rule) for number, one in enumerate(body)),
            self._event(facts, done, f"{intent.key}:done", rule),
            *(
                [self._event(facts, self._call(rule, hold or "the rule asks you"), f"{intent.key}:called", rule)]
                if offered or hold
                else []
            ),
        ]

    def _act(self, facts: SessionFacts, rule: Rule, text: str, intent: Intent, hold: str) -> list[e.Body]:
        match rule.action:
            case "send-to-agent":
                message = f"r-{hashlib.sha256(intent.key.encode()).hexdigest()[:16]}"
                queued = e.MessageQueued(message, text, f"rule {rule.name}", hold=hold)
                return [queued, *([self._held(facts, rule, hold)] if hold else [])]
            case "merge":
                return [e.MergeRequested(rule.strategy or "squash", delete_after=rule.delete_after)]
            case "stop" | "clean-up":
                return [e.StopRequested()]
            case "restart":
                return [e.RestoreRequested()]
            case "rerun-ci":
                return [e.ChecksRequested(facts.head or "")]
        return [self._notification(facts, rule, text)]

    def _offer(self, facts: SessionFacts, rule: Rule, text: str) -> list[e.Body]:
        return [self._notification(facts, rule, f"{text} — your word is asked: {rule.action}")]

    def _held(self, facts: SessionFacts, rule: Rule, hold: str) -> e.Notified:
        what = f"{hold}: read it and decide with ao answer {facts.id} --allow, or --deny"
        return e.Notified(rule.trigger, f"{facts.id}: a message waits for your word", what, "action")

    def _notification(self, facts: SessionFacts, rule: Rule, text: str) -> e.Notified:
        rules = self.flow.rules(facts.project, facts.spec.profile)
        status = derive(facts, self.flow.clock(), stuck_after(rules))
        return e.Notified(rule.trigger, f"{facts.id}: {status.name}", text, rule.priority or "info")

    async def escalate(self, intent: Intent, _attempts: int) -> Sequence[Event]:
        """Call a person: the rule's attempts are used up, or it lasts too long."""
        facts = self.flow.sessions[intent.session]
        rules = self.flow.rules(facts.project, facts.spec.profile)
        rule = next((one for one in rules if one.name == intent.args["rule"]), None)
        lasting = facts.episodes.get(intent.args["trigger"])
        if rule is None or lasting is None or lasting.escalated:
            return []
        reason = str(intent.args["reason"])
        title = f"{facts.id}: {rule.trigger}"
        told = e.Notified(rule.trigger, title, f"{self.wording.plain(facts, rule)}; {reason}", "urgent")
        return [
            self._event(facts, told, f"{intent.key}:told", rule),
            self._event(facts, self._call(rule, reason), f"{intent.key}:done", rule),
        ]

    def _call(self, rule: Rule, reason: str) -> e.Escalated:
        return e.Escalated(rule.name, rule.trigger, reason)

    def _event(self, facts: SessionFacts, body: e.Body, key: str, rule: Rule) -> Event:
        return Event(body, self.flow.clock(), f"rule {rule.name}", key, facts.project, facts.id)
