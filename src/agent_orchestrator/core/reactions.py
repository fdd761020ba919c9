"""What is to be done: `decide(before, after, rules, now) -> [Intent]`. Pure.

Two parts. *Lifecycle* is a matter of state, not of change: `needed(facts)` says what is to be done given what is known, each
intent under a key of its own. The outbox takes a key once, so deciding twice, or after a crash, does nothing twice; and an
intent that is not needed any more when its turn comes is dropped (`still_needed`), which fences effects by generation. What was
dropped was not done: when it is needed again, its key is free.
*Reactions* follow rules when a status is entered: they notify, send, merge …, with delays and retries as due times.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agent_orchestrator.core.episodes import is_state, occurrence, stands_since
from agent_orchestrator.core.events import (
    AgentReport,
    AgentReview,
    AgentTurnEnded,
    Body,
    ChecksRequested,
    CommandFinished,
    CommandRequested,
    CommentAdded,
    Event,
    IssueChanged,
    OfferAnswered,
    PeopleRequested,
    PrClosed,
    PrMerged,
    PrReady,
    ResolveRequested,
    SpawnRequested,
    encode,
)
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.pull_request import Episode, issue_number
from agent_orchestrator.core.rules import CHECK_NOT_SET_UP, Rule
from agent_orchestrator.core.status import STUCK_AFTER, WATCHING, derive
from agent_orchestrator.core.verdicts import review_in

LIFECYCLE = frozenset(
    {
        *("place", "prepare", "launch", "deliver", "publish", "move", "stop", "clean-up", "silence", "limit"),
        *("push", "track", "open-pr", "ready-pr", "check", "compare", "land", "rebase"),
    }
)


LIMIT_UNKNOWN = 1800.0
"""Seconds after which a usage limit without a reset time is tried again."""
IDLE_SETTLES = 1.0
"""Seconds after a turn before it counts that nothing came of it: what was committed gets its pull request meanwhile."""
REVIEWER = "reviewer"
"""The kind of session that judges another one's change and makes none of its own."""
COORDINATOR = WATCHING
"""The kind of session that plans, delegates and watches for a project, and makes no change of its own."""
CHANGELESS = frozenset({REVIEWER, COORDINATOR})
"""Kinds of session whose branch is nothing of their own: no pull request, no checks, nothing to land."""


@dataclass(frozen=True, slots=True)
class Intent:
    """Something to be done, once for its key."""

    kind: str
    key: str
    session: str
    generation: int = 0
    due: float = 0.0
    """Not before this time; 0 is at once."""
    args: Mapping[str, Any] = field(default_factory=dict)


def decide(before: SessionFacts | None, after: SessionFacts, rules: Sequence[Rule], now: float) -> list[Intent]:
    """What this change calls for."""
    earlier = needed(before, rules) + react(before, rules, min(now, before.updated_at)) if before else []
    known = {intent.key for intent in earlier}
    return [intent for intent in needed(after, rules) + react(after, rules, now) if intent.key not in known]


def needed(facts: SessionFacts, rules: Sequence[Rule] = ()) -> list[Intent]:
    """What is to be done for a session as it stands."""
    if facts.stopped:
        landing = _to_land(facts)
        return (_to_push(facts) if landing else []) + landing + _to_track(facts)
    if facts.wanted == "stop":
        return _to_stop(facts)
    if facts.moving and not facts.failure:
        return [_end_agent(facts) if facts.live else Intent("move", f"move:{facts.id}:{facts.moves}", facts.id)]
    if not facts.admitted or facts.failure:
        return []
    if facts.place is None or not facts.place.present:
        return _to_prepare(facts)
    if facts.live and facts.launched_run != facts.run:
        return [_end_agent(facts)]  # it is to be started anew
    of_branch = _to_track(facts) + _to_publish(facts) + _to_rebase(facts) + _for_change(facts)
    return of_branch + (_to_live(facts, rules) if facts.live else _to_launch(facts))


def _to_prepare(facts: SessionFacts) -> list[Intent]:
    """A workspace, on a node where that is its place. One that left its node at rest gets one when its agent is needed again."""
    if facts.remote and facts.node is None:
        if facts.place is not None and facts.moves and not _to_launch(facts):
            return _to_track(facts) + _for_change(facts)
        return [Intent("place", f"place:{facts.id}:{facts.run}:{facts.moves}", facts.id)]
    again = f":{facts.moves}" if facts.moves else ""
    return [Intent("prepare", f"prepare:{facts.id}:{facts.run}{again}", facts.id)]


def _to_track(facts: SessionFacts) -> list[Intent]:
    """Tell the tracker how far the work on the session's issue is."""
    pr = facts.pr
    if facts.spec.tracker == "local" or facts.spec.issue is None or facts.spec.kind in CHANGELESS:
        return []
    if pr is not None and pr.state == "merged":
        state = "closed"
    elif pr is not None and pr.state == "open" and not pr.draft:
        state = "in_review"
    else:
        state = "in_progress" if facts.launch is not None and not facts.stopped else facts.tracked
    if state == facts.tracked or (state == "in_progress" and facts.tracked):
        return []
    return [Intent("track", f"track:{facts.id}:{state}:{pr.number if pr else 0}", facts.id, args={"state": state})]


def _to_publish(facts: SessionFacts) -> list[Intent]:
    if facts.place is None or facts.place.shared or not facts.committed or facts.head == facts.published:
        return []
    if facts.spec.kind in CHANGELESS:
        return []
    return [Intent("publish", f"publish:{facts.id}:{facts.head}", facts.id)]


def _to_rebase(facts: SessionFacts) -> list[Intent]:
    if facts.below is None or (facts.pr and (facts.pr.state != "open" or facts.pr.landing)):
        return []
    return [Intent("rebase", f"rebase:{facts.id}:{facts.base}:{facts.below}:{facts.head}", facts.id)]


def _for_change(facts: SessionFacts) -> list[Intent]:
    """What its pull request needs, once there are commits and they are in the main repository."""
    pr, head = facts.pr, facts.head
    if not facts.committed or not _here(facts) or facts.spec.kind in CHANGELESS:
        return []
    remote = facts.spec.scm != "local"
    intents = _to_push(facts)
    if pr is None:
        there = not remote or facts.pushed is not None
        return [*intents, Intent("open-pr", f"open-pr:{facts.id}", facts.id)] if there else intents
    if pr.state != "open":
        return []
    intents += _to_land(facts)
    if pr.draft and _finished(facts):
        intents.append(Intent("ready-pr", f"ready-pr:{facts.id}:{head}", facts.id))
    if remote:
        return intents
    if pr.settled != head:
        stage = "draft" if pr.draft else "ready"
        intents.append(Intent("check", f"check:{facts.id}:{head}:{stage}:{pr.asked}", facts.id))
    moves = facts.below is not None and facts.unmoved != head
    if facts.base_head and pr.compared != (head, facts.base_head) and not pr.landing and not moves:
        intents.append(Intent("compare", f"compare:{facts.id}:{head}:{facts.base_head}", facts.id))
    return intents


def _here(facts: SessionFacts) -> bool:
    """Are its commits in the main repository?"""
    return facts.place is not None and (facts.place.shared or facts.published == facts.head)


def _to_push(facts: SessionFacts) -> list[Intent]:
    over = facts.pr is not None and facts.pr.state != "open"
    if facts.spec.scm == "local" or facts.pushed == facts.head or over or not _here(facts):
        return []
    return [Intent("push", f"push:{facts.id}:{facts.head}", facts.id)]


def _to_land(facts: SessionFacts) -> list[Intent]:
    if facts.pr is None or facts.pr.landing is None:
        return []
    return [Intent("land", f"land:{facts.id}:{facts.pr.landing.at:.6f}", facts.id)]


def _finished(facts: SessionFacts) -> bool:
    """The agent said that it is done, or its process ended well."""
    launch = facts.launch
    return facts.done is not None or (launch is not None and launch.ended and launch.code == 0 and not launch.stopped)


def _to_launch(facts: SessionFacts) -> list[Intent]:
    message = facts.next_message
    first = facts.launched_run != facts.run and not (facts.spec.defer and facts.launch is None and message is None)
    if first or message:
        generation = facts.generation + 1
        return [Intent("launch", f"launch:{facts.id}:{generation}:{facts.run}", facts.id, generation)]
    return [_after_limit(facts)] if facts.limited else []


def _after_limit(facts: SessionFacts) -> Intent:
    until, generation = limited_until(facts), facts.generation
    return Intent("limit", f"limit:{facts.id}:{generation}:{until:.0f}", facts.id, generation, until)


def still_needed(intent: Intent, facts: SessionFacts) -> bool:
    """Is a lifecycle intent still what the facts call for?"""
    return intent.kind not in LIFECYCLE or any(other.key == intent.key for other in needed(facts))


def _to_stop(facts: SessionFacts) -> list[Intent]:
    if facts.live:
        return [_end_agent(facts)]
    return [] if facts.failure else [Intent("clean-up", f"clean-up:{facts.id}:{facts.run}", facts.id)]


def _end_agent(facts: SessionFacts) -> Intent:
    return Intent("stop", f"stop:{facts.id}:{facts.generation}:{facts.run}", facts.id, facts.generation)


def _to_live(facts: SessionFacts, rules: Sequence[Rule]) -> list[Intent]:
    launch, generation = facts.launch, facts.generation
    assert launch is not None
    due = launch.at + stuck_after(rules)
    intents = [Intent("silence", f"silence:{facts.id}:{generation}", facts.id, generation, due)]
    if message := facts.next_message:
        key = f"deliver:{message.id}:{generation}"
        intents.append(Intent("deliver", key, facts.id, generation, args={"message": message.id}))
    if facts.limit_until is not None or facts.activity.state == "limited":
        intents.append(_after_limit(facts))
    return intents


def limited_until(facts: SessionFacts) -> float:
    """When its account may be used again: at the limit's reset, or in a while where nobody said when."""
    return facts.limit_until if facts.limit_until is not None else (facts.limited_at or 0.0) + LIMIT_UNKNOWN


# -- Rules -------------------------------------------------------------------------------------------------------------


def stuck_after(rules: Sequence[Rule]) -> float:
    """Seconds of silence after which these rules call a session stuck."""
    return next((rule.threshold for rule in rules if rule.trigger == "agent-stuck" and rule.threshold), STUCK_AFTER)


def react(facts: SessionFacts, rules: Sequence[Rule], now: float) -> list[Intent]:
    """What the rules say to everything that there is to react to; the outbox takes each occurrence once."""
    status = derive(facts, now, stuck_after(rules))
    intents: list[Intent] = []
    for rule in rules:
        what = occurrence(rule.trigger, facts, status)
        episode = facts.episodes.get(rule.trigger)
        if what is not None and (episode is None or episode.occurrence != what):
            intents += _follow(rule, facts, episode or Episode(now), what, now)
    return intents


def react_to(event: Event, facts: SessionFacts, rules: Sequence[Rule], now: float) -> list[Intent]:
    """What an event as such calls for: any kind of event is a trigger by its name, and some ask for an effect of their own."""
    names = _names(event, facts.id)
    followed = [rule for rule in rules if rule.trigger in names and not is_state(rule.trigger)]
    told = [_told(rule, event, facts, now) for rule in followed if _may_follow(rule, event)]
    return told + _asked_for(event, facts)


def _may_follow(rule: Rule, event: Event) -> bool:
    """What rules do sets off no other rule, or two could call each other for ever; but a command's end may be told."""
    by_rule = event.source.startswith("rule ")
    return not by_rule or (isinstance(event.body, CommandFinished) and rule.action != "command")


def react_to_issue(event: Event, rules: Sequence[Rule], now: float) -> list[Intent]:
    """What the rules say to an event of an issue that nobody works on: somebody may be told, or somebody may take it up."""
    if getattr(event.body, "number", None) is None:
        return []
    names = _names(event)
    followed = [rule for rule in rules if rule.trigger in names and rule.action in ("spawn", "notify")]
    told = {"type": event.type, **encode(event.body)}
    return [
        Intent(
            "react-to-issue",
            f"react:{rule.name}:{event.project}:{event.key}",
            "",
            due=now + waits(rule),
            args={"rule": rule.name, "trigger": rule.trigger, "project": event.project, "event": told},
        )
        for rule in followed
        if _may_follow(rule, event)
    ]


def _names(event: Event, session: str = "") -> set[str]:
    """The triggers that an event is: its type, what it means, or the name that an agent gave it."""
    body, names = event.body, {event.type}
    if isinstance(body, IssueChanged) and body.assignee and body.assignee != session:
        names.add("issue-assigned")
    if isinstance(body, AgentReport):
        names.add(body.name)
    return names


def _told(rule: Rule, event: Event, facts: SessionFacts, now: float) -> Intent:
    told = {"type": event.type, **encode(event.body)}
    args = {"rule": rule.name, "trigger": rule.trigger, "occurrence": event.key, "attempt": 1, "event": told}
    due = now + waits(rule)
    return Intent("react", f"react:{rule.name}:{facts.id}:{event.key}", facts.id, due=due, args=args)


def _asked_for(event: Event, facts: SessionFacts) -> list[Intent]:
    """Effects that an event itself asks for; they are recorded with it."""
    body = event.body
    if isinstance(body, AgentTurnEnded):
        body = (facts.spec.reviews and review_in(body.text)) or body
    kind = _ASKING.get(type(body)) or _at_forge(event, facts) or _from_forge(body, facts)
    if kind is None or (isinstance(body, OfferAnswered) and body.decision != "allow"):
        return []
    name = body.offer if isinstance(body, OfferAnswered) else event.key  # of two who take an offer, one does
    return [Intent(kind, f"{kind}:{name}", facts.id, args=encode(body))]


def _at_forge(event: Event, facts: SessionFacts) -> str | None:
    """What was said or decided here, and is to be done at the forge too."""
    if facts.spec.scm in ("local", event.source):
        return None
    body = event.body
    if isinstance(body, CommentAdded):
        said = facts.pr.comments if body.by_agent and facts.pr else ()
        return "reply" if any(one.id == body.comment for one in said) else None
    return _DONE_THERE.get(type(body))


def _from_forge(body: Body, facts: SessionFacts) -> str | None:
    """What happened at the forge, and is to be seen here too."""
    return "follow" if isinstance(body, PrMerged) and facts.spec.scm != "local" else None


_ASKING: Mapping[type[Body], str] = {
    CommandRequested: "command",
    SpawnRequested: "spawn",
    OfferAnswered: "take-offer",
    AgentReview: "post-review",
    ResolveRequested: "resolve",
    PeopleRequested: "request-review",
}


_DONE_THERE: Mapping[type[Body], str] = {
    PrReady: "make-ready",
    PrClosed: "close-pr",
    ChecksRequested: "rerun",
}


def concerned(event: Event, sessions: Iterable[SessionFacts]) -> list[SessionFacts]:
    """The sessions that an event without a session is about: those that work on its issue."""
    number = getattr(event.body, "number", None)
    if number is None:
        return []
    return [
        facts
        for facts in sessions
        if facts.project == event.project
        and issue_number(facts.spec.issue or "") == number
        and not facts.stopped
        and facts.wanted == "run"
    ]


def still_so(intent: Intent, facts: SessionFacts, rules: Sequence[Rule], now: float) -> bool:
    """Is there still what a rule was to react to? What happened stays happened; a state may be over."""
    if not is_state(intent.args["trigger"]):
        return True
    status = derive(facts, now, stuck_after(rules))
    return occurrence(intent.args["trigger"], facts, status) == str(intent.args["occurrence"])


def untold(intent: Intent, facts: SessionFacts) -> bool:
    """Did somebody say something that its agent was not told yet? What it did meanwhile is no answer to it."""
    pr, what = facts.pr, str(intent.args["occurrence"])
    if pr is None or pr.state != "open":
        return False
    if intent.args["trigger"] == "changes-requested":
        return bool(pr.judgements) and (pr.judgements[-1].id, pr.judgements[-1].verdict) == (what, "changes_requested")
    return intent.args["trigger"] == "review-comment" and stands_since(facts, what) is not None


def _follow(rule: Rule, facts: SessionFacts, episode: Episode, what: str, now: float) -> list[Intent]:
    attempt = episode.attempts + 1
    args = {"rule": rule.name, "trigger": rule.trigger, "occurrence": what, "attempt": attempt}
    about = facts.project if rule.trigger == CHECK_NOT_SET_UP and rule.action == "notify" else facts.id
    name = f"{rule.name}:{about}:{what}"
    intents = []
    exhausted = rule.retries is not None and attempt > rule.retries
    if not exhausted:
        due = now + (waits(rule) if attempt == 1 else max(backoff(rule, attempt, name), _settles(rule, attempt)))
        intents.append(Intent("react", f"react:{name}", facts.id, facts.generation, due, args))
    often = rule.escalate_after_count is not None and attempt > rule.escalate_after_count
    if exhausted or often:
        tried = f"{attempt - 1} attempt{'' if attempt == 2 else 's'} did not settle it"
        reason = tried if attempt > 1 else "no attempt is to be made"
        due = now + max(waits(rule), _settles(rule, attempt))
        intents.append(Intent("escalate", f"escalate:{name}", facts.id, due=due, args={**args, "reason": reason}))
    elif rule.escalate_after_seconds is not None and attempt == 1:
        reason = f"it lasts for over {rule.escalate_after_seconds / 60:g} min"
        key = f"escalate:{rule.name}:{facts.id}:since:{what}"
        due = now + waits(rule) + rule.escalate_after_seconds
        intents.append(Intent("escalate", key, facts.id, due=due, args={**args, "reason": reason}))
    return intents


def waits(rule: Rule) -> float:
    """Seconds that the state must last before the rule acts; a stuck agent's silence is part of its status already."""
    lasted = rule.threshold or 0.0 if rule.trigger != "agent-stuck" else 0.0
    return max(rule.delay or 0.0, lasted, _settles(rule))


def _settles(rule: Rule, attempt: int = 1) -> float:
    """A turn that is over has a moment to show its work before it counts as one without."""
    by_turn = rule.trigger == "agent-idle" or (rule.trigger == "ci-failed" and attempt > 1)
    return IDLE_SETTLES if by_turn else 0.0


def backoff(rule: Rule, attempt: int, key: str) -> float:
    """Seconds before an attempt from the second on: doubling, spread by up to a half, within the rule's bounds.

    What it is spread by comes from the reaction's own name, so that it is the same whenever it is asked.
    """
    if rule.backoff is None:
        return 0.0
    first, most = rule.backoff
    low = min(most, first * 2.0 ** min(attempt - 2, 60))
    high = min(most, 1.5 * low)
    share = int.from_bytes(hashlib.sha256(key.encode()).digest()[:6], "big") / float(1 << 48)
    return low + (high - low) * share


def message_id(key: str) -> str:
    """The id of what a reaction sends: the same however often it is tried."""
    return f"r-{hashlib.sha256(key.encode()).hexdigest()[:16]}"
