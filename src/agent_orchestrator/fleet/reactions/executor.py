"""Carries out reaction rules: decides whether the trigger still applies right before acting, and returns the events of
the action.

What takes time or touches the outside is only requested by an event and has its own effect (`command_action.py`,
`spawn_action.py`). Message texts are in `message_variables.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from agent_orchestrator.base.text.templates import is_true, render
from agent_orchestrator.core import events as e
from agent_orchestrator.core.effects import Effect, RetryLater
from agent_orchestrator.core.engine import Flow
from agent_orchestrator.core.episodes import RAISE_BUDGET
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.facts import SessionFacts, hold_key
from agent_orchestrator.core.pull_request import DEPENDENCY_ENDED
from agent_orchestrator.core.reactions import (
    Intent,
    is_undelivered,
    limited_until,
    message_id,
    trigger_still_applies,
)
from agent_orchestrator.core.rules.default_rules import DEFAULT_RULES
from agent_orchestrator.core.rules.model import Rule
from agent_orchestrator.core.rules.stuck_threshold import stuck_after_seconds
from agent_orchestrator.core.status import derive_status
from agent_orchestrator.fleet.notifications.quiet_hours import QuietHours
from agent_orchestrator.fleet.reactions.message_variables import AttachmentCollector, MessageText
from agent_orchestrator.fleet.usage.account_limits import (
    CLAIM_HOLD_SECONDS,
    CLAIM_INTERVAL,
    AccountLimits,
    account_of,
    holds_at_once,
    is_limit_read_by_plugin,
    limit_to_claim,
    next_hold,
)
from agent_orchestrator.sessions.lifecycle.usage_wait import UsageGate
from agent_orchestrator.sessions.part import Core, Part

_COMMAND_VARIABLES = (
    "trigger",
    "project",
    "branch",
    "base",
    "label",
    "author",
    "by",
    "reason",
    "attempt",
    "summary",
    "question",
)
"""The template variables that are passed to a command."""


MAX_HELD_MESSAGES = 20
"""The most messages of a session that wait for a person's approval, so that persistent untrusted authors cannot fill the queue."""
MAX_LIMIT_WAIT_SECONDS = 30.0
"""Seconds after which a session that reached a usage limit asks again whether it may continue."""
RECHECK_SECONDS = 1.0
"""Seconds, at least, after which it is checked again whether a person still watches the session or its agent is still
in its turn; a rule's own delay may be longer.
"""

_BUDGET_RAISED_TEXT = "Your budget was raised. Go on where you left off."
_AGENT_ACTIONS = ("send-to-agent", "spawn", "restart")
"""Actions whose text reaches an agent: text by authors who are not trusted needs a person's approval first."""


@dataclass(frozen=True, slots=True)
class PlannedReaction:
    """What a rule would do now."""

    applies: bool
    """Whether the rule's condition holds."""
    text: str
    is_offer: bool
    approval_reason: str
    """Why the message waits for a person's approval, or ""."""
    variables: Mapping[str, Any]


class RuleActions:
    """Turns a session and a rule into the events to record."""

    def __init__(self, flow: Flow, limits: AccountLimits) -> None:
        self.flow = flow
        self.limits = limits

    def event_bodies(
        self, facts: SessionFacts, rule: Rule, planned: PlannedReaction, args: Mapping[str, Any], key: str
    ) -> list[e.Body]:
        """Return the bodies of the events that carry out a rule's action."""
        text = planned.text
        match rule.action:
            case "send-to-agent":
                held_count = len(facts.held_messages) if planned.approval_reason else 0
                if held_count >= MAX_HELD_MESSAGES:
                    return []
                message = e.MessageQueued(message_id(key), text, f"rule {rule.name}", hold=planned.approval_reason)
                return [
                    message,
                    *(
                        [self._held_notification(facts, rule, planned.approval_reason)]
                        if planned.approval_reason and not held_count
                        else []
                    ),
                ]
            case "merge":
                return self._merge_bodies(facts, rule)
            case "stop":
                return self._stop_bodies(facts, rule, text, args, key)
            case "clean-up":
                return [e.StopRequested()]
            case "restart":
                return self._restart_bodies(facts, rule, text, key)
            case "rerun-ci":
                return [e.ChecksRequested(facts.head or "")] if facts.pr and facts.pr.state == "open" else []
            case "hold":
                return self._hold_bodies(facts, rule, text)
            case "escalate":
                return self.escalation(facts, rule, text, "the rule calls you")
            case "command":
                variables = {name: planned.variables.get(name, "") for name in _COMMAND_VARIABLES}
                event = {"type": "", **dict(args.get("event") or {})}
                command_input = {**variables, "session": facts.id, "event": event, "message": text}
                return [e.CommandRequested(rule.name, rule.trigger, int(args.get("attempt", 1)), command_input)]
            case "spawn":
                return [e.SpawnRequested(rule.name, rule.trigger, rule.agent or "", text)]
        return [self.notification(facts, rule, text)]

    def _stop_bodies(
        self, facts: SessionFacts, rule: Rule, text: str, args: Mapping[str, Any], key: str
    ) -> list[e.Body]:
        """Return the events that stop a session with its work saved; for a spent budget a person is offered to let it
        use as much again.
        """
        outcome = f"{text}; it is stopped, its work saved"
        event = dict(args.get("event") or {})
        can_continue = facts.spec.reviews is None  # a review is requested again instead
        if rule.trigger != "budget-exceeded" or not event.get("scope") or not can_continue:
            return [e.StopRequested(), *self._notification_bodies(facts, rule, outcome)]
        offer = e.ActionOffered(
            offer=f"b{message_id(key)[1:]}",
            rule=rule.name,
            trigger=rule.trigger,
            occurrence=str(args.get("occurrence", "")),
            action=RAISE_BUDGET,
            text=text,
            attempt=int(args.get("attempt", 1)),
            event=event,
        )
        tomorrow = "it goes on tomorrow, or at once with" if event.get("day") else "let it use as much again:"
        offer_text = f"{outcome}; {tomorrow} ao answer {facts.id} --allow"
        return [e.StopRequested(), offer, *self._notification_bodies(facts, rule, offer_text)]

    def _merge_bodies(self, facts: SessionFacts, rule: Rule) -> list[e.Body]:
        """Return a merge request if the change may be merged, else a notification of the reason: a rule does not act as `--force`."""
        if blocker := merge_blocker(facts):
            return [
                e.Notified(rule.trigger, f"{facts.id}: not merged", f"{blocker}; see: ao review {facts.id}", "action")
            ]
        return [e.MergeRequested(rule.strategy or "squash", delete_after=rule.delete_after)]

    def _restart_bodies(self, facts: SessionFacts, rule: Rule, text: str, key: str) -> list[e.Body]:
        if facts.requested_state == "stop" and not facts.stopped:
            return []
        message = e.MessageQueued(message_id(key), text, f"rule {rule.name}")
        return [e.RestoreRequested(), message, *self._notification_bodies(facts, rule, "its agent is started again")]

    def _hold_bodies(self, facts: SessionFacts, rule: Rule, text: str) -> list[e.Body]:
        """Return the events that hold the account, unless it is held already, and the notification of how long."""
        now, account, limited = self.flow.clock(), account_of(facts), facts.limited
        name = hold_key(account, facts.limit_model if limited else "")
        holds = self.limits.holds()
        current_hold = holds.get(name)
        bodies: list[e.Body] = []
        if current_hold is not None and current_hold.released_at is None and current_hold.until > now:
            until = current_hold.until
        else:
            resets, model = (facts.limit_until, facts.limit_model) if limited else (None, "")
            body = next_hold(holds, account, model, resets, now)
            if limited and not is_limit_read_by_plugin(facts):
                body = limit_to_claim(body, now, now + CLAIM_HOLD_SECONDS)
                at_once = holds_at_once(self.flow.rules(facts.project, facts.spec.profile))
                if at_once or (
                    current_hold is not None
                    and current_hold.session == facts.id
                    and now - current_hold.since < CLAIM_INTERVAL
                ):
                    when = f"this session goes on at {e.rfc3339(limited_until(facts))}"
                    return self._notification_bodies(
                        facts, rule, f"{text}; {when}; on its word alone, {name} is not held again so soon"
                    )
            until = body.until
            bodies.append(replace(body, reason=text.partition("\n")[0][:200]))
        own_reset = facts.limit_until if limited and facts.limit_until and facts.limit_until > until else None
        continuation = f"at {e.rfc3339(own_reset)}" if own_reset else "then"
        when = f"no other session of {name} starts before {e.rfc3339(until)}; this one goes on {continuation}"
        return [*bodies, *self._notification_bodies(facts, rule, f"{text}; {when}")]

    def _notification_bodies(self, facts: SessionFacts, rule: Rule, text: str) -> list[e.Body]:
        """Return a notification of an automatic action if the rule has a priority, else nothing."""
        return [self.notification(facts, rule, text)] if rule.priority else []

    def _held_notification(self, facts: SessionFacts, rule: Rule, hold: str) -> e.Notified:
        text = f"{hold}: read it and decide with ao answer {facts.id} --allow, or --deny"
        return e.Notified(rule.trigger, f"{facts.id}: a message waits for your word", text, "action")

    def escalation(self, facts: SessionFacts, rule: Rule, text: str, reason: str) -> list[e.Body]:
        """Return the events of an escalation: urgent, unless the rule does not ask to escalate; then with the rule's
        priority or `action`.
        """
        is_urgent = rule.escalate or rule.action == "escalate"
        is_urgent = is_urgent or rule.escalate_after_count is not None or rule.escalate_after_seconds is not None
        level = "urgent" if is_urgent else rule.priority or "action"
        return [
            e.Notified(rule.trigger, f"{facts.id}: {rule.trigger}", text, level),
            e.Escalated(rule.name, rule.trigger, reason),
        ]

    def notification(self, facts: SessionFacts, rule: Rule, text: str) -> e.Notified:
        """Return the notification of a rule for a session, with the session's status as its title."""
        rules = self.flow.rules(facts.project, facts.spec.profile)
        status = derive_status(facts, self.flow.clock(), stuck_after_seconds(rules))
        return e.Notified(rule.trigger, f"{facts.id}: {status.name}", text, rule.priority or "info")


def merge_blocker(facts: SessionFacts) -> str:
    """Return why a change may not be merged automatically, or "" if it may."""
    pr, head = facts.pr, facts.head
    if pr is None or pr.state != "open":
        return "it has no open pull request"
    if pr.merge_request:
        return "it is landing already"
    if facts.stacked:
        return f"{facts.spec.stack}, which it stands on, has not landed"
    if blocker := pr.merge_blocker(head):
        return blocker
    if not pr.is_green(head):
        return "its checks are not known to be good"
    if pr.mergeability(head, facts.base_head) != "yes":
        return f"it is not known to go together with {pr.base}"
    return ""


class RuleExecutor(Part):
    """The effects that carry out rules."""

    def __init__(
        self,
        core: Core,
        wording: MessageText,
        gathering: AttachmentCollector,
        actions: RuleActions,
        quiet: QuietHours,
        usage: UsageGate,
    ) -> None:
        super().__init__(core)
        self.message_text = wording
        self.attachment_collector = gathering
        self.actions = actions
        self.quiet_hours = quiet
        self.usage_gate = usage

    def effects(self) -> dict[str, Effect]:
        """Return the effects by kind of intent."""
        return {
            "react": Effect(self.react),
            "escalate": Effect(self.escalate),
            "take-offer": Effect(self.take_offer),
            "limit": Effect(self.continue_after_limit),
        }

    def _find_rule(self, facts: SessionFacts, name: str) -> Rule | None:
        rules = self.flow.rules(facts.project, facts.spec.profile)
        return next((rule for rule in rules if rule.name == name), None)

    async def plan(
        self, facts: SessionFacts, rule: Rule, args: Mapping[str, Any], *, keep: bool = True
    ) -> PlannedReaction:
        """Return what a rule would do for a session now, with the full text, without doing it; `keep` is whether logs
        are copied for the agent.
        """
        material = await self.attachment_collector.collect(facts, rule.trigger, keep=keep)
        variables = self.message_text.variables(facts, rule, args, material)
        applies = not rule.condition or is_true(rule.condition, variables)
        event = args.get("event") or {}
        template = self.message_text.restart_text(rule) if rule.action == "restart" else own_message(rule)
        text = render(template, variables) if template else self._default_text(facts, rule, event)
        offered = not rule.auto or (rule.approval_after is not None and args.get("attempt", 1) > rule.approval_after)
        approval_reason = self.message_text.approval_reason(facts, rule, args) if rule.action in _AGENT_ACTIONS else ""
        if rule.action != "send-to-agent":
            offered = offered or bool(approval_reason)
        hold = approval_reason if rule.action == "send-to-agent" and not offered else ""
        return PlannedReaction(applies, text, offered, hold, variables)

    def _default_text(self, facts: SessionFacts, rule: Rule, event: Mapping[str, Any]) -> str:
        """Return the text of a rule without a message: the task for a spawned session, otherwise what happened."""
        return facts.spec.prompt if rule.action == "spawn" else self.message_text.describe_trigger(facts, rule, event)

    async def react(self, intent: Intent, _attempts: int) -> Sequence[Event]:
        """Follow a rule: return the events of its action together with the event of the reaction itself."""
        facts = self.flow.sessions[intent.session]
        rule = self._find_rule(facts, intent.args["rule"])
        if rule is None or not self._still_applies(intent, facts):
            return []
        if rule.unless_watched and await self.core.plugins.is_watched(facts):
            raise RetryLater(max(rule.delay or 0.0, RECHECK_SECONDS))
        if rule.action == "merge" and self._is_working(facts):
            raise RetryLater(RECHECK_SECONDS)
        planned = await self.plan(facts, rule, intent.args)
        facts = self.flow.sessions[intent.session]
        if not planned.applies or not self._still_applies(intent, facts):
            return []
        if planned.is_offer:
            bodies = self._offer_bodies(facts, rule, planned.text, intent)
        else:
            bodies = self.actions.event_bodies(facts, rule, planned, intent.args, intent.key)
        reacted = e.Reacted(rule.name, rule.trigger, intent.args["occurrence"], rule.action, intent.args["attempt"])
        escalation = (
            [e.Escalated(rule.name, rule.trigger, planned.approval_reason or e.OFFER_REASON)]
            if planned.is_offer or planned.approval_reason
            else []
        )
        return self._events(facts, rule, intent.key, [*bodies, reacted, *escalation])

    def _still_applies(self, intent: Intent, facts: SessionFacts) -> bool:
        rules = self.flow.rules(facts.project, facts.spec.profile)
        if trigger_still_applies(intent, facts, rules, self.clock()) or is_undelivered(intent, facts):
            return True
        is_open_comment = (
            facts.pr is not None and facts.pr.state == "open" and intent.args["trigger"] == "review-comment"
        )
        return (
            is_open_comment
            and self.message_text.unseen_untrusted_comment(facts, str(intent.args["occurrence"])) is not None
        )

    def _is_working(self, facts: SessionFacts) -> bool:
        """Return whether the session's agent is working: it may still add to the change, and a merge would cut it short."""
        rules = self.flow.rules(facts.project, facts.spec.profile)
        return derive_status(facts, self.clock(), stuck_after_seconds(rules)).name == "working"

    def _offer_bodies(self, facts: SessionFacts, rule: Rule, text: str, intent: Intent) -> list[e.Body]:
        """Return the offer of the action to a person and its notification; for the action `notify` only the notification."""
        event = dict(intent.args.get("event") or {})
        if rule.action == "notify":
            return [self.actions.notification(facts, rule, text)]
        offer = e.ActionOffered(
            offer=f"o{message_id(intent.key)[1:]}",
            rule=rule.name,
            trigger=rule.trigger,
            occurrence=str(intent.args["occurrence"]),
            action=rule.action,
            text=text,
            attempt=int(intent.args["attempt"]),
            event=event,
        )
        if rule.trigger == "approved-and-green" and offer.attempt > 1:
            return [offer]  # only the base branch moved since the person was notified
        offer_text = (
            f"{self.message_text.describe_trigger(facts, rule, event)} — your word is asked: {rule.action}."
            f" Take it: ao answer {facts.id} --allow"
        )
        return [offer, self.actions.notification(facts, rule, offer_text)]

    async def take_offer(self, intent: Intent, _attempts: int) -> Sequence[Event]:
        """Do what a rule offered and a person accepted, without checking the state again: the person's decision is enough."""
        facts = self.flow.sessions[intent.session]
        event = await self.flow.store.event_by_key(f"offer:{intent.args['offer']}")
        body = event.body if event else None
        rule = self._find_rule(facts, body.rule) if isinstance(body, e.ActionOffered) else None
        if isinstance(body, e.ActionOffered) and body.action == RAISE_BUDGET:
            return self._raise_budget_events(facts, body, intent)
        if not isinstance(body, e.ActionOffered) or rule is None or body.trigger == DEPENDENCY_ENDED:
            return []  # nothing is left to do: the acceptance itself counts
        args = {"occurrence": body.occurrence, "attempt": body.attempt, "event": dict(body.event)}
        variables = self.message_text.variables(facts, rule, args)
        planned = PlannedReaction(True, body.text, False, "", variables)
        return self._events(facts, rule, intent.key, self.actions.event_bodies(facts, rule, planned, args, intent.key))

    def _raise_budget_events(self, facts: SessionFacts, offer: e.ActionOffered, intent: Intent) -> list[Event]:
        """Return the events that let the session use as much again and restore it with its conversation. Raises Again
        while it is still stopping.
        """
        if facts.requested_state == "stop" and not facts.stopped and facts.failure is None:
            raise RetryLater(RECHECK_SECONDS)
        event = offer.event
        raised = e.BudgetRaised(str(event.get("scope")), str(event.get("budget")), str(event.get("day") or ""))
        message = e.MessageQueued(message_id(intent.key), _BUDGET_RAISED_TEXT, "person")
        bodies = (raised, e.RestoreRequested(), message)
        now = self.clock()
        return [
            Event(body, now, "person", f"{intent.key}:{number}", facts.project, facts.id)
            for number, body in enumerate(bodies)
        ]

    async def escalate(self, intent: Intent, _attempts: int) -> Sequence[Event]:
        """Notify a person because the rule's attempts are used up or the state lasts too long."""
        facts = self.flow.sessions[intent.session]
        rules = self.flow.rules(facts.project, facts.spec.profile)
        rule = self._find_rule(facts, intent.args["rule"])
        episode = facts.episodes.get(intent.args["trigger"])
        if rule is None or (episode and episode.escalated):
            return []
        if episode is None and not (
            intent.args["attempt"] == 1 and self._state_and_condition_hold(intent, facts, rules, rule)
        ):
            return []  # it is over, or the rule's condition never held
        if ":since:" in intent.key and episode and episode.first_occurrence not in ("", intent.args["occurrence"]):
            return []  # that was an earlier episode; this one has its own clock
        if ":since:" not in intent.key and not self._still_applies(intent, facts):
            return []  # its agent works on it again, or moved on
        reason = str(intent.args["reason"])
        bodies = self.actions.escalation(
            facts, rule, f"{self.message_text.describe_trigger(facts, rule)}; {reason}", reason
        )
        return self._events(facts, rule, intent.key, bodies)

    def _state_and_condition_hold(self, intent: Intent, facts: SessionFacts, rules: Sequence[Rule], rule: Rule) -> bool:
        """Return whether the trigger and the rule's condition still apply."""
        if not trigger_still_applies(intent, facts, rules, self.clock()):
            return False
        return not rule.condition or is_true(rule.condition, self.message_text.variables(facts, rule, intent.args))

    async def continue_after_limit(self, intent: Intent, _attempts: int) -> Sequence[Event]:
        """Let the agent that was held continue after the usage limit's reset time, when it is its turn. Raises Again until then."""
        facts = self.flow.sessions[intent.session]
        now = self.clock()
        due = Event(e.TimerDue("limit"), now, "daemon", f"{intent.key}:done", facts.project, facts.id, facts.generation)
        rules = self.flow.rules(facts.project, facts.spec.profile)
        rule = next(
            (
                candidate
                for candidate in rules
                if candidate.trigger == "usage-limit" and candidate.action == "hold" and candidate.auto
            ),
            None,
        )
        if rule is None or not facts.limited:
            return [due]
        if wait := self.usage_gate.claim_turn_or_wait(facts):
            raise RetryLater(max(RECHECK_SECONDS, min(wait.until - now, MAX_LIMIT_WAIT_SECONDS)))
        limit_over = [due] if facts.live else []  # a session that ended is limited until it is started again
        if facts.next_message is not None:
            return limit_over
        text = render(self.message_text.restart_text(rule), self.message_text.variables(facts, rule, {}))
        message = e.MessageQueued(message_id(intent.key), text, f"rule {rule.name}")
        return [*limit_over, *self._events(facts, rule, intent.key, [message])]

    def _events(self, facts: SessionFacts, rule: Rule, key: str, bodies: Sequence[e.Body]) -> list[Event]:
        """Return each body as an event with a key that stays the same on every retry; notifications pass the quiet hours."""
        events = []
        for number, body in enumerate(bodies):
            event_key = f"offer:{body.offer}" if isinstance(body, e.ActionOffered) else f"{key}:{number}"
            gated_body = self.quiet_hours.gate(facts.project, body) if isinstance(body, e.Notified) else body
            events.append(Event(gated_body, self.clock(), f"rule {rule.name}", event_key, facts.project, facts.id))
        return events


def own_message(rule: Rule) -> str:
    """Return the rule's own message, or "" if it is the default's, which is meant for an agent, and the rule's action
    does not address one.
    """
    default = next((default_rule for default_rule in DEFAULT_RULES if default_rule.name == rule.name), None)
    inherited = default is not None and rule.message == default.message and rule.action not in _AGENT_ACTIONS
    return "" if inherited else rule.message
