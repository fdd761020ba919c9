"""The events that each action of a rule consists of.

What takes time or touches the outside is only requested by an event and has an effect of its own (`command_action.py`,
`spawn_action.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from agent_orchestrator.core import events as e
from agent_orchestrator.core.engine import Flow
from agent_orchestrator.core.episodes import RAISE_BUDGET
from agent_orchestrator.core.facts import AccountHold, SessionFacts, hold_key
from agent_orchestrator.core.reactions import limited_until, message_id, stuck_after
from agent_orchestrator.core.rules import Rule
from agent_orchestrator.core.status import derive
from agent_orchestrator.fleet.usage.account_limits import (
    SPOKEN,
    SPOKEN_AGAIN,
    account_of,
    holds_at_once,
    is_read,
    next_hold,
    on_a_word,
)

if TYPE_CHECKING:
    from agent_orchestrator.fleet.reactions.executor import Planned

_INPUTS = ("trigger", "project", "branch", "base", "label", "author", "by", "reason", "attempt", "summary", "question")
"""The template variables that are passed to a command."""


MOST_HELD = 20
"""The most messages of a session that wait for a person's approval, so that persistent untrusted authors cannot fill the queue."""


class Actions:
    """Turns a session and a rule into the events to record."""

    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self.holds: Callable[[], Mapping[str, AccountHold]] = lambda: self.flow.home.accounts
        """Returns the account holds."""

    def bodies(
        self, facts: SessionFacts, rule: Rule, planned: Planned, args: Mapping[str, Any], key: str
    ) -> list[e.Body]:
        """Return the bodies of the events that carry out a rule's action."""
        text = planned.text
        match rule.action:
            case "send-to-agent":
                held_count = len(facts.held_messages) if planned.hold else 0
                if held_count >= MOST_HELD:
                    return []
                message = e.MessageQueued(message_id(key), text, f"rule {rule.name}", hold=planned.hold)
                return [
                    message,
                    *([self._held_notification(facts, rule, planned.hold)] if planned.hold and not held_count else []),
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
                variables = {name: planned.variables.get(name, "") for name in _INPUTS}
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
        if blocker := unfit(facts):
            return [
                e.Notified(rule.trigger, f"{facts.id}: not merged", f"{blocker}; see: ao review {facts.id}", "action")
            ]
        return [e.MergeRequested(rule.strategy or "squash", delete_after=rule.delete_after)]

    def _restart_bodies(self, facts: SessionFacts, rule: Rule, text: str, key: str) -> list[e.Body]:
        if facts.wanted == "stop" and not facts.stopped:
            return []
        message = e.MessageQueued(message_id(key), text, f"rule {rule.name}")
        return [e.RestoreRequested(), message, *self._notification_bodies(facts, rule, "its agent is started again")]

    def _hold_bodies(self, facts: SessionFacts, rule: Rule, text: str) -> list[e.Body]:
        """Return the events that hold the account, unless it is held already, and the notification of how long."""
        now, account, limited = self.flow.clock(), account_of(facts), facts.limited
        name = hold_key(account, facts.limit_model if limited else "")
        holds = self.holds()
        current_hold = holds.get(name)
        bodies: list[e.Body] = []
        if current_hold is not None and current_hold.released is None and current_hold.until > now:
            until = current_hold.until
        else:
            resets, model = (facts.limit_until, facts.limit_model) if limited else (None, "")
            body = next_hold(holds, account, model, resets, now)
            if limited and not is_read(facts):
                body = on_a_word(body, now, now + SPOKEN)
                at_once = holds_at_once(self.flow.rules(facts.project, facts.spec.profile))
                if at_once or (
                    current_hold is not None
                    and current_hold.session == facts.id
                    and now - current_hold.since < SPOKEN_AGAIN
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
        status = derive(facts, self.flow.clock(), stuck_after(rules))
        return e.Notified(rule.trigger, f"{facts.id}: {status.name}", text, rule.priority or "info")


def unfit(facts: SessionFacts) -> str:
    """Return why a change may not be merged automatically, or "" if it may."""
    pr, head = facts.pr, facts.head
    if pr is None or pr.state != "open":
        return "it has no open pull request"
    if pr.landing:
        return "it is landing already"
    if facts.stacked:
        return f"{facts.spec.stack}, which it stands on, has not landed"
    if blocker := pr.merge_blocker(head):
        return blocker
    if not pr.green(head):
        return "its checks are not known to be good"
    if pr.mergeable(head, facts.base_head) != "yes":
        return f"it is not known to go together with {pr.base}"
    return ""
