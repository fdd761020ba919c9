"""What each action of a rule is: the events that it comes to. What takes time or touches the outside is asked for by an event, and has
an effect of its own (`command_action.py`, `spawn_action.py`)."""

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

_TOLD = ("trigger", "project", "branch", "base", "label", "author", "by", "reason", "attempt", "summary", "question")
"""What a command may read of what happened."""


MOST_HELD = 20
"""Messages of a session that wait for a person's word: strangers who write on and on fill no queue, and call nobody twice."""


class Actions:
    """Rule and session → what is to be recorded."""

    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self.holds: Callable[[], Mapping[str, AccountHold]] = lambda: self.flow.home.accounts
        """Which accounts are held."""

    def bodies(
        self, facts: SessionFacts, rule: Rule, planned: Planned, args: Mapping[str, Any], key: str
    ) -> list[e.Body]:
        """What carrying a rule's action out comes to."""
        text = planned.text
        match rule.action:
            case "send-to-agent":
                waiting = len(facts.held_messages) if planned.hold else 0
                if waiting >= MOST_HELD:
                    return []
                queued = e.MessageQueued(message_id(key), text, f"rule {rule.name}", hold=planned.hold)
                return [queued, *([self._held(facts, rule, planned.hold)] if planned.hold and not waiting else [])]
            case "merge":
                return self._merge(facts, rule)
            case "stop":
                return self._stop(facts, rule, text, args, key)
            case "clean-up":
                return [e.StopRequested()]
            case "restart":
                return self._restart(facts, rule, text, key)
            case "rerun-ci":
                return [e.ChecksRequested(facts.head or "")] if facts.pr and facts.pr.state == "open" else []
            case "hold":
                return self._hold(facts, rule, text)
            case "escalate":
                return self.escalation(facts, rule, text, "the rule calls you")
            case "command":
                known = {name: planned.variables.get(name, "") for name in _TOLD}
                told = {"type": "", **dict(args.get("event") or {})}
                variables = {**known, "session": facts.id, "event": told, "message": text}
                return [e.CommandRequested(rule.name, rule.trigger, int(args.get("attempt", 1)), variables)]
            case "spawn":
                return [e.SpawnRequested(rule.name, rule.trigger, rule.agent or "", text)]
        return [self.notification(facts, rule, text)]

    def _stop(self, facts: SessionFacts, rule: Rule, text: str, args: Mapping[str, Any], key: str) -> list[e.Body]:
        """Stopped, its work saved; for a spent budget a person is asked whether it may use as much again."""
        done = f"{text}; it is stopped, its work saved"
        told = dict(args.get("event") or {})
        again = facts.spec.reviews is None  # a review is asked for anew instead
        if rule.trigger != "budget-exceeded" or not told.get("scope") or not again:
            return [e.StopRequested(), *self._told(facts, rule, done)]
        offer = e.ActionOffered(
            offer=f"b{message_id(key)[1:]}",
            rule=rule.name,
            trigger=rule.trigger,
            occurrence=str(args.get("occurrence", "")),
            action=RAISE_BUDGET,
            text=text,
            attempt=int(args.get("attempt", 1)),
            event=told,
        )
        tomorrow = "it goes on tomorrow, or at once with" if told.get("day") else "let it use as much again:"
        asked = f"{done}; {tomorrow} ao answer {facts.id} --allow"
        return [e.StopRequested(), offer, *self._told(facts, rule, asked)]

    def _merge(self, facts: SessionFacts, rule: Rule) -> list[e.Body]:
        """Only what may land: a rule's word is no `--force`."""
        if why := unfit(facts):
            return [e.Notified(rule.trigger, f"{facts.id}: not merged", f"{why}; see: ao review {facts.id}", "action")]
        return [e.MergeRequested(rule.strategy or "squash", delete_after=rule.delete_after)]

    def _restart(self, facts: SessionFacts, rule: Rule, text: str, key: str) -> list[e.Body]:
        if facts.wanted == "stop" and not facts.stopped:
            return []
        go_on = e.MessageQueued(message_id(key), text, f"rule {rule.name}")
        return [e.RestoreRequested(), go_on, *self._told(facts, rule, "its agent is started again")]

    def _hold(self, facts: SessionFacts, rule: Rule, text: str) -> list[e.Body]:
        """The account is held by now where the limit was met; any other reason to hold it is as good."""
        now, account, limited = self.flow.clock(), account_of(facts), facts.limited
        name = hold_key(account, facts.limit_model if limited else "")
        holds = self.holds()
        held = holds.get(name)
        bodies: list[e.Body] = []
        if held is not None and held.released is None and held.until > now:
            until = held.until
        else:
            resets, model = (facts.limit_until, facts.limit_model) if limited else (None, "")
            body = next_hold(holds, account, model, resets, now)
            if limited and not is_read(facts):
                body = on_a_word(body, now, now + SPOKEN)
                at_once = holds_at_once(self.flow.rules(facts.project, facts.spec.profile))
                if at_once or (held is not None and held.session == facts.id and now - held.since < SPOKEN_AGAIN):
                    when = f"this session goes on at {e.rfc3339(limited_until(facts))}"
                    return self._told(
                        facts, rule, f"{text}; {when}; on its word alone, {name} is not held again so soon"
                    )
            until = body.until
            bodies.append(replace(body, reason=text.partition("\n")[0][:200]))
        own = facts.limit_until if limited and facts.limit_until and facts.limit_until > until else None
        then = f"at {e.rfc3339(own)}" if own else "then"
        when = f"no other session of {name} starts before {e.rfc3339(until)}; this one goes on {then}"
        return [*bodies, *self._told(facts, rule, f"{text}; {when}")]

    def _told(self, facts: SessionFacts, rule: Rule, text: str) -> list[e.Body]:
        """A person is told of what was done by itself where the rule has a priority."""
        return [self.notification(facts, rule, text)] if rule.priority else []

    def _held(self, facts: SessionFacts, rule: Rule, hold: str) -> e.Notified:
        what = f"{hold}: read it and decide with ao answer {facts.id} --allow, or --deny"
        return e.Notified(rule.trigger, f"{facts.id}: a message waits for your word", what, "action")

    def escalation(self, facts: SessionFacts, rule: Rule, text: str, reason: str) -> list[e.Body]:
        """A person is called: urgently, unless the rule neither asks for that nor has a priority of its own."""
        meant = rule.escalate or rule.action == "escalate"
        meant = meant or rule.escalate_after_count is not None or rule.escalate_after_seconds is not None
        level = "urgent" if meant else rule.priority or "action"
        return [
            e.Notified(rule.trigger, f"{facts.id}: {rule.trigger}", text, level),
            e.Escalated(rule.name, rule.trigger, reason),
        ]

    def notification(self, facts: SessionFacts, rule: Rule, text: str) -> e.Notified:
        """A person is told."""
        rules = self.flow.rules(facts.project, facts.spec.profile)
        status = derive(facts, self.flow.clock(), stuck_after(rules))
        return e.Notified(rule.trigger, f"{facts.id}: {status.name}", text, rule.priority or "info")


def unfit(facts: SessionFacts) -> str:
    """Why a change may not land by itself; nothing: it may."""
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
