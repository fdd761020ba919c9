"""Rules, carried out: what a reaction does, right before which is looked again whether there is still something to react to."""

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
"""Seconds after which a session that met a limit asks again whether it may go on."""
LOOK_AGAIN = 1.0
"""Seconds, at least, after which it is looked again whether a person still looks at the session, or its agent is still in its turn; a
rule's own delay may be longer."""

_RAISED = "Your budget was raised. Go on where you left off."
_SPEAKING = ("send-to-agent", "spawn", "restart")
"""Actions whose words reach an agent: those of strangers need a person's word first."""

Watched = Callable[[SessionFacts], Awaitable[bool]]


@dataclass(frozen=True, slots=True)
class Planned:
    """What a rule would do just now."""

    applies: bool
    """Its condition holds."""
    text: str
    offered: bool
    hold: str
    """Why what it sends waits for a person's word."""
    variables: Mapping[str, Any]


class Reacting:
    """The effects of rules."""

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
        """Asked before a session goes on after a limit."""

    def effects(self) -> dict[str, Effect]:
        """By kind of intent."""
        return {
            "react": Effect(self.react),
            "escalate": Effect(self.escalate),
            "take-offer": Effect(self.take_offer),
            "limit": Effect(self.limit),
        }

    def _rule(self, facts: SessionFacts, name: str) -> Rule | None:
        rules = self.flow.rules(facts.project, facts.spec.profile)
        return next((one for one in rules if one.name == name), None)

    async def plan(self, facts: SessionFacts, rule: Rule, args: Mapping[str, Any], *, keep: bool = True) -> Planned:
        """What a rule does for a session as it stands, with every word of it; does none of it."""
        material = await self.gathering.material(facts, rule.trigger, keep=keep)
        variables = self.wording.variables(facts, rule, args, material)
        applies = not rule.condition or holds(rule.condition, variables)
        told = args.get("event") or {}
        template = self.wording.restart_text(rule) if rule.action == "restart" else words_of(rule)
        text = render(template, variables) if template else self._text(facts, rule, told)
        offered = not rule.auto or (rule.approval_after is not None and args.get("attempt", 1) > rule.approval_after)
        strange = self.wording.hold(facts, rule, args) if rule.action in _SPEAKING else ""
        if rule.action != "send-to-agent":
            offered = offered or bool(strange)
        hold = strange if rule.action == "send-to-agent" and not offered else ""
        return Planned(applies, text, offered, hold, variables)

    def _text(self, facts: SessionFacts, rule: Rule, told: Mapping[str, Any]) -> str:
        """Where a rule has no words of its own: the task again for another session, what happened for everybody else."""
        return facts.spec.prompt if rule.action == "spawn" else self.wording.plain(facts, rule, told)

    async def react(self, intent: Intent, _attempts: int) -> Sequence[Event]:
        """Follow a rule: each action becomes an event, recorded together with the reaction itself."""
        facts = self.flow.sessions[intent.session]
        rule = self._rule(facts, intent.args["rule"])
        if rule is None or not self._holds(intent, facts):
            return []
        if rule.unless_watched and await self.watched(facts):
            raise Again(max(rule.delay or 0.0, LOOK_AGAIN))
        if rule.action == "merge" and self._in_a_turn(facts):
            raise Again(LOOK_AGAIN)
        planned = await self.plan(facts, rule, intent.args)
        facts = self.flow.sessions[intent.session]
        if not planned.applies or not self._holds(intent, facts):
            return []
        if planned.offered:
            bodies = self._offer(facts, rule, planned.text, intent)
        else:
            bodies = self.actions.bodies(facts, rule, planned, intent.args, intent.key)
        done = e.Reacted(rule.name, rule.trigger, intent.args["occurrence"], rule.action, intent.args["attempt"])
        call = (
            [e.Escalated(rule.name, rule.trigger, planned.hold or e.OFFERED)] if planned.offered or planned.hold else []
        )
        return self._events(facts, rule, intent.key, [*bodies, done, *call])

    def _holds(self, intent: Intent, facts: SessionFacts) -> bool:
        rules = self.flow.rules(facts.project, facts.spec.profile)
        if still_so(intent, facts, rules, self.flow.clock()) or untold(intent, facts):
            return True
        is_open = facts.pr is not None and facts.pr.state == "open" and intent.args["trigger"] == "review-comment"
        return is_open and self.wording.overtaken(facts, str(intent.args["occurrence"])) is not None

    def _in_a_turn(self, facts: SessionFacts) -> bool:
        """Its agent may still add to the change, and would be cut short by a landing."""
        rules = self.flow.rules(facts.project, facts.spec.profile)
        return derive(facts, self.flow.clock(), stuck_after(rules)).name == "working"

    def _offer(self, facts: SessionFacts, rule: Rule, text: str, intent: Intent) -> list[e.Body]:
        """A person may take the action, or not; an offer to be told something is that already."""
        told = dict(intent.args.get("event") or {})
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
            event=told,
        )
        if rule.trigger == "approved-and-green" and offer.attempt > 1:
            return [offer]  # only the base moved since it was told
        asked = f"{self.wording.plain(facts, rule, told)} — your word is asked: {rule.action}. Take it: ao answer {facts.id} --allow"
        return [offer, self.actions.notification(facts, rule, asked)]

    async def take_offer(self, intent: Intent, _attempts: int) -> Sequence[Event]:
        """A person took what a rule offered: do it, whatever became of the state since; his word is enough."""
        facts = self.flow.sessions[intent.session]
        event = await self.flow.store.event_by_key(f"offer:{intent.args['offer']}")
        body = event.body if event else None
        rule = self._rule(facts, body.rule) if isinstance(body, e.ActionOffered) else None
        if isinstance(body, e.ActionOffered) and body.action == RAISE_BUDGET:
            return self._raise_budget(facts, body, intent)
        if not isinstance(body, e.ActionOffered) or rule is None or body.trigger == DEPENDENCY_ENDED:
            return []  # nothing is left to do: the word itself counts
        args = {"occurrence": body.occurrence, "attempt": body.attempt, "event": dict(body.event)}
        variables = self.wording.variables(facts, rule, args)
        planned = Planned(True, body.text, False, "", variables)
        return self._events(facts, rule, intent.key, self.actions.bodies(facts, rule, planned, args, intent.key))

    def _raise_budget(self, facts: SessionFacts, offer: e.ActionOffered, intent: Intent) -> list[Event]:
        """It may use as much again, and goes on with its conversation."""
        if facts.wanted == "stop" and not facts.stopped and facts.failure is None:
            raise Again(LOOK_AGAIN)
        told = offer.event
        raised = e.BudgetRaised(str(told.get("scope")), str(told.get("budget")), str(told.get("day") or ""))
        go_on = e.MessageQueued(message_id(intent.key), _RAISED, "person")
        bodies = (raised, e.RestoreRequested(), go_on)
        now = self.flow.clock()
        return [
            Event(body, now, "person", f"{intent.key}:{number}", facts.project, facts.id)
            for number, body in enumerate(bodies)
        ]

    async def escalate(self, intent: Intent, _attempts: int) -> Sequence[Event]:
        """Call a person: the rule's attempts are used up, or it lasts too long."""
        facts = self.flow.sessions[intent.session]
        rules = self.flow.rules(facts.project, facts.spec.profile)
        rule = self._rule(facts, intent.args["rule"])
        lasting = facts.episodes.get(intent.args["trigger"])
        if rule is None or (lasting and lasting.escalated):
            return []
        if lasting is None and not (intent.args["attempt"] == 1 and self._still(intent, facts, rules, rule)):
            return []  # it is over, or the rule's condition never held
        if ":since:" in intent.key and lasting and lasting.first not in ("", intent.args["occurrence"]):
            return []  # that was an earlier episode; this one has a clock of its own
        if ":since:" not in intent.key and not self._holds(intent, facts):
            return []  # its agent is at work on it again, or moved on
        reason = str(intent.args["reason"])
        bodies = self.actions.escalation(facts, rule, f"{self.wording.plain(facts, rule)}; {reason}", reason)
        return self._events(facts, rule, intent.key, bodies)

    def _still(self, intent: Intent, facts: SessionFacts, rules: Sequence[Rule], rule: Rule) -> bool:
        """Does the state hold for which nothing was done yet, and the rule's condition too?"""
        if not still_so(intent, facts, rules, self.flow.clock()):
            return False
        return not rule.condition or holds(rule.condition, self.wording.variables(facts, rule, intent.args))

    async def limit(self, intent: Intent, _attempts: int) -> Sequence[Event]:
        """The usage limit's reset time has come: the agent that was held goes on when it is its turn."""
        facts = self.flow.sessions[intent.session]
        now = self.flow.clock()
        due = Event(e.TimerDue("limit"), now, "daemon", f"{intent.key}:done", facts.project, facts.id, facts.generation)
        rules = self.flow.rules(facts.project, facts.spec.profile)
        rule = next((one for one in rules if one.trigger == "usage-limit" and one.action == "hold" and one.auto), None)
        if rule is None or not facts.limited:
            return [due]
        if later := self.may_go(facts):
            raise Again(max(LOOK_AGAIN, min(later.until - now, LONGEST_WAIT)))
        over = [due] if facts.live else []  # one that ended is limited until it is started again
        if facts.next_message is not None:
            return over
        text = render(self.wording.restart_text(rule), self.wording.variables(facts, rule, {}))
        go_on = e.MessageQueued(message_id(intent.key), text, f"rule {rule.name}")
        return [*over, *self._events(facts, rule, intent.key, [go_on])]

    def _events(self, facts: SessionFacts, rule: Rule, key: str, bodies: Sequence[e.Body]) -> list[Event]:
        """Each body as an event under a key that is the same however often this is done; what is to be told may have to wait."""
        events = []
        for number, body in enumerate(bodies):
            unique = f"offer:{body.offer}" if isinstance(body, e.ActionOffered) else f"{key}:{number}"
            told = self.quiet.gate(facts.project, body) if isinstance(body, e.Notified) else body
            events.append(Event(told, self.flow.clock(), f"rule {rule.name}", unique, facts.project, facts.id))
        return events


def words_of(rule: Rule) -> str:
    """A rule's own words; those of the default, meant for an agent, are for nobody else."""
    default = next((one for one in DEFAULT_RULES if one.name == rule.name), None)
    inherited = default is not None and rule.message == default.message and rule.action not in _SPEAKING
    return "" if inherited else rule.message
