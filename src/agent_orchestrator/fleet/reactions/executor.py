"""Carries out reaction rules: decides whether the trigger still applies right before acting, and returns the events of
the action.

The actions themselves are in `actions.py`, message texts in `message_text.py`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agent_orchestrator.base.text.templates import holds, render
from agent_orchestrator.core import events as e
from agent_orchestrator.core.effects import Again, Effect
from agent_orchestrator.core.engine import Flow
from agent_orchestrator.core.episodes import RAISE_BUDGET
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.pull_request import DEPENDENCY_ENDED
from agent_orchestrator.core.reactions import Intent, message_id, still_so, stuck_after, untold
from agent_orchestrator.core.rules import DEFAULT_RULES, Rule
from agent_orchestrator.core.status import derive
from agent_orchestrator.fleet.notifications.quiet_hours import Quiet
from agent_orchestrator.fleet.reactions.actions import Actions
from agent_orchestrator.fleet.reactions.attachments import Gathering
from agent_orchestrator.fleet.reactions.message_text import Wording
from agent_orchestrator.sessions.usage_wait import Wait

LONGEST_WAIT = 30.0
"""Seconds after which a session that reached a usage limit asks again whether it may continue."""
LOOK_AGAIN = 1.0
"""Seconds, at least, after which it is checked again whether a person still watches the session or its agent is still
in its turn; a rule's own delay may be longer.
"""

_BUDGET_RAISED_TEXT = "Your budget was raised. Go on where you left off."
_AGENT_ACTIONS = ("send-to-agent", "spawn", "restart")
"""Actions whose text reaches an agent: text by authors who are not trusted needs a person's approval first."""

Watched = Callable[[SessionFacts], Awaitable[bool]]


@dataclass(frozen=True, slots=True)
class Planned:
    """What a rule would do now."""

    applies: bool
    """Whether the rule's condition holds."""
    text: str
    offered: bool
    hold: str
    """Why the message waits for a person's approval, or ""."""
    variables: Mapping[str, Any]


class Reacting:
    """The effects that carry out rules."""

    def __init__(
        self, flow: Flow, wording: Wording, gathering: Gathering, actions: Actions, quiet: Quiet, watched: Watched
    ) -> None:
        self.flow = flow
        self.wording = wording
        self.gathering = gathering
        self.actions = actions
        self.quiet = quiet
        self.watched = watched
        self.may_go: Callable[[SessionFacts], Wait | None] = lambda _facts: None
        """Returns why a session must wait before it continues after a usage limit, or None."""

    def effects(self) -> dict[str, Effect]:
        """Return the effects by kind of intent."""
        return {
            "react": Effect(self.react),
            "escalate": Effect(self.escalate),
            "take-offer": Effect(self.take_offer),
            "limit": Effect(self.limit),
        }

    def _find_rule(self, facts: SessionFacts, name: str) -> Rule | None:
        rules = self.flow.rules(facts.project, facts.spec.profile)
        return next((rule for rule in rules if rule.name == name), None)

    async def plan(self, facts: SessionFacts, rule: Rule, args: Mapping[str, Any], *, keep: bool = True) -> Planned:
        """Return what a rule would do for a session now, with the full text, without doing it; `keep` is whether logs
        are copied for the agent.
        """
        material = await self.gathering.material(facts, rule.trigger, keep=keep)
        variables = self.wording.variables(facts, rule, args, material)
        applies = not rule.condition or holds(rule.condition, variables)
        event = args.get("event") or {}
        template = self.wording.restart_text(rule) if rule.action == "restart" else words_of(rule)
        text = render(template, variables) if template else self._default_text(facts, rule, event)
        offered = not rule.auto or (rule.approval_after is not None and args.get("attempt", 1) > rule.approval_after)
        approval_reason = self.wording.hold(facts, rule, args) if rule.action in _AGENT_ACTIONS else ""
        if rule.action != "send-to-agent":
            offered = offered or bool(approval_reason)
        hold = approval_reason if rule.action == "send-to-agent" and not offered else ""
        return Planned(applies, text, offered, hold, variables)

    def _default_text(self, facts: SessionFacts, rule: Rule, event: Mapping[str, Any]) -> str:
        """Return the text of a rule without a message: the task for a spawned session, otherwise what happened."""
        return facts.spec.prompt if rule.action == "spawn" else self.wording.plain(facts, rule, event)

    async def react(self, intent: Intent, _attempts: int) -> Sequence[Event]:
        """Follow a rule: return the events of its action together with the event of the reaction itself."""
        facts = self.flow.sessions[intent.session]
        rule = self._find_rule(facts, intent.args["rule"])
        if rule is None or not self._still_applies(intent, facts):
            return []
        if rule.unless_watched and await self.watched(facts):
            raise Again(max(rule.delay or 0.0, LOOK_AGAIN))
        if rule.action == "merge" and self._is_working(facts):
            raise Again(LOOK_AGAIN)
        planned = await self.plan(facts, rule, intent.args)
        facts = self.flow.sessions[intent.session]
        if not planned.applies or not self._still_applies(intent, facts):
            return []
        if planned.offered:
            bodies = self._offer_bodies(facts, rule, planned.text, intent)
        else:
            bodies = self.actions.bodies(facts, rule, planned, intent.args, intent.key)
        reacted = e.Reacted(rule.name, rule.trigger, intent.args["occurrence"], rule.action, intent.args["attempt"])
        escalation = (
            [e.Escalated(rule.name, rule.trigger, planned.hold or e.OFFERED)] if planned.offered or planned.hold else []
        )
        return self._events(facts, rule, intent.key, [*bodies, reacted, *escalation])

    def _still_applies(self, intent: Intent, facts: SessionFacts) -> bool:
        rules = self.flow.rules(facts.project, facts.spec.profile)
        if still_so(intent, facts, rules, self.flow.clock()) or untold(intent, facts):
            return True
        is_open_comment = (
            facts.pr is not None and facts.pr.state == "open" and intent.args["trigger"] == "review-comment"
        )
        return is_open_comment and self.wording.overtaken(facts, str(intent.args["occurrence"])) is not None

    def _is_working(self, facts: SessionFacts) -> bool:
        """Return whether the session's agent is working: it may still add to the change, and a merge would cut it short."""
        rules = self.flow.rules(facts.project, facts.spec.profile)
        return derive(facts, self.flow.clock(), stuck_after(rules)).name == "working"

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
        offer_text = f"{self.wording.plain(facts, rule, event)} — your word is asked: {rule.action}. Take it: ao answer {facts.id} --allow"
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
        variables = self.wording.variables(facts, rule, args)
        planned = Planned(True, body.text, False, "", variables)
        return self._events(facts, rule, intent.key, self.actions.bodies(facts, rule, planned, args, intent.key))

    def _raise_budget_events(self, facts: SessionFacts, offer: e.ActionOffered, intent: Intent) -> list[Event]:
        """Return the events that let the session use as much again and restore it with its conversation. Raises Again
        while it is still stopping.
        """
        if facts.wanted == "stop" and not facts.stopped and facts.failure is None:
            raise Again(LOOK_AGAIN)
        event = offer.event
        raised = e.BudgetRaised(str(event.get("scope")), str(event.get("budget")), str(event.get("day") or ""))
        message = e.MessageQueued(message_id(intent.key), _BUDGET_RAISED_TEXT, "person")
        bodies = (raised, e.RestoreRequested(), message)
        now = self.flow.clock()
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
        if ":since:" in intent.key and episode and episode.first not in ("", intent.args["occurrence"]):
            return []  # that was an earlier episode; this one has its own clock
        if ":since:" not in intent.key and not self._still_applies(intent, facts):
            return []  # its agent works on it again, or moved on
        reason = str(intent.args["reason"])
        bodies = self.actions.escalation(facts, rule, f"{self.wording.plain(facts, rule)}; {reason}", reason)
        return self._events(facts, rule, intent.key, bodies)

    def _state_and_condition_hold(self, intent: Intent, facts: SessionFacts, rules: Sequence[Rule], rule: Rule) -> bool:
        """Return whether the trigger and the rule's condition still apply."""
        if not still_so(intent, facts, rules, self.flow.clock()):
            return False
        return not rule.condition or holds(rule.condition, self.wording.variables(facts, rule, intent.args))

    async def limit(self, intent: Intent, _attempts: int) -> Sequence[Event]:
        """Let the agent that was held continue after the usage limit's reset time, when it is its turn. Raises Again until then."""
        facts = self.flow.sessions[intent.session]
        now = self.flow.clock()
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
        if wait := self.may_go(facts):
            raise Again(max(LOOK_AGAIN, min(wait.until - now, LONGEST_WAIT)))
        limit_over = [due] if facts.live else []  # a session that ended is limited until it is started again
        if facts.next_message is not None:
            return limit_over
        text = render(self.wording.restart_text(rule), self.wording.variables(facts, rule, {}))
        message = e.MessageQueued(message_id(intent.key), text, f"rule {rule.name}")
        return [*limit_over, *self._events(facts, rule, intent.key, [message])]

    def _events(self, facts: SessionFacts, rule: Rule, key: str, bodies: Sequence[e.Body]) -> list[Event]:
        """Return each body as an event with a key that stays the same on every retry; notifications pass the quiet hours."""
        events = []
        for number, body in enumerate(bodies):
            event_key = f"offer:{body.offer}" if isinstance(body, e.ActionOffered) else f"{key}:{number}"
            gated_body = self.quiet.gate(facts.project, body) if isinstance(body, e.Notified) else body
            events.append(Event(gated_body, self.flow.clock(), f"rule {rule.name}", event_key, facts.project, facts.id))
        return events


def words_of(rule: Rule) -> str:
    """Return the rule's own message, or "" if it is the default's, which is meant for an agent, and the rule's action
    does not address one.
    """
    default = next((default_rule for default_rule in DEFAULT_RULES if default_rule.name == rule.name), None)
    inherited = default is not None and rule.message == default.message and rule.action not in _AGENT_ACTIONS
    return "" if inherited else rule.message
