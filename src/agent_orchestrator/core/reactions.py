"""What is to be done: `decide(before, after, rules, now) -> [Intent]`. Pure.

There are two parts. *Lifecycle* intents follow from the state, not from its change: `needed(facts)` returns what is to
be done given the facts, each intent under its own key. The outbox accepts a key once, so deciding twice, or after a
crash, does nothing twice. An intent that is no longer needed when it is due is dropped (`still_needed`), so effects of
an earlier launch do not run. A dropped intent was not carried out; its key is free again if it becomes needed.

*Reactions* follow rules when a status is entered: they notify, send, merge and so on, with delays and retries as due
times.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agent_orchestrator.core.episodes import current_occurrence, find_open_comment, is_state_trigger
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
from agent_orchestrator.core.facts import COORDINATOR_KIND, REVIEWER_KIND, Episode, SessionFacts
from agent_orchestrator.core.issues import issue_number
from agent_orchestrator.core.rules.model import CHECK_NOT_SET_UP, Rule
from agent_orchestrator.core.rules.stuck_threshold import stuck_after_seconds
from agent_orchestrator.core.status import derive_status
from agent_orchestrator.core.turn_text.review_parser import find_review

LIFECYCLE_KINDS = frozenset(
    {
        *("place", "prepare", "launch", "deliver", "publish", "move", "stop", "clean-up", "silence", "limit"),
        *("push", "track", "open-pr", "ready-pr", "check", "compare", "land", "rebase"),
    }
)
"""Kinds of intents that `needed` returns."""


UNKNOWN_LIMIT_SECONDS = 1800.0
"""Seconds after which an agent that met a usage limit without a reset time is started again."""
IDLE_SETTLE_SECONDS = 1.0
"""Seconds to wait after a turn before it counts as one without a result; its commits get a pull request in this time."""
KINDS_WITHOUT_CHANGE = frozenset({REVIEWER_KIND, COORDINATOR_KIND})
"""Kinds of sessions that have no change of their own: no pull request, no checks, nothing to merge."""


@dataclass(frozen=True, slots=True)
class Intent:
    """Something to be done, at most once per key."""

    kind: str
    key: str
    session: str
    generation: int = 0
    due: float = 0.0
    """Earliest time to carry it out; 0 means at once."""
    args: Mapping[str, Any] = field(default_factory=dict)


def decide(before: SessionFacts | None, after: SessionFacts, rules: Sequence[Rule], now: float) -> list[Intent]:
    """Return the intents that the new facts call for and the facts before did not."""
    earlier = (
        lifecycle_intents(before, rules) + rule_intents(before, rules, min(now, before.updated_at)) if before else []
    )
    earlier_keys = {intent.key for intent in earlier}
    return [
        intent
        for intent in lifecycle_intents(after, rules) + rule_intents(after, rules, now)
        if intent.key not in earlier_keys
    ]


def lifecycle_intents(facts: SessionFacts, rules: Sequence[Rule] = ()) -> list[Intent]:
    """Return everything that is to be done for a session in its current state."""
    if facts.stopped:
        merge_intents = _merge_intents(facts)
        return (_push_intents(facts) if merge_intents else []) + merge_intents + _track_intents(facts)
    if facts.requested_state == "stop":
        return _stop_intents(facts)
    if facts.move_reason and not facts.failure:
        return [_stop_agent_intent(facts) if facts.live else Intent("move", f"move:{facts.id}:{facts.moves}", facts.id)]
    if not facts.admitted or facts.failure:
        return []
    if facts.workspace is None or not facts.workspace.present:
        return _prepare_intents(facts)
    if facts.live and facts.launched_run != facts.run:
        return [_stop_agent_intent(facts)]  # a new launch is due
    branch_intents = (
        _track_intents(facts) + _publish_intents(facts) + _rebase_intents(facts) + _pull_request_intents(facts)
    )
    return branch_intents + (_running_agent_intents(facts, rules) if facts.live else _launch_intents(facts))


def _prepare_intents(facts: SessionFacts) -> list[Intent]:
    """Return the intent that prepares the workspace, or chooses a node first for a session of the cluster.

    A session that left its node with nothing to do gets a new node only when its agent is needed again.
    """
    if facts.remote and facts.node is None:
        if facts.workspace is not None and facts.moves and not _launch_intents(facts):
            return _track_intents(facts) + _pull_request_intents(facts)
        return [Intent("place", f"place:{facts.id}:{facts.run}:{facts.moves}", facts.id)]
    move_suffix = f":{facts.moves}" if facts.moves else ""
    return [Intent("prepare", f"prepare:{facts.id}:{facts.run}{move_suffix}", facts.id)]


def _track_intents(facts: SessionFacts) -> list[Intent]:
    """Return the intent that sends the state of the session's work to the issue tracker, or none if the tracker has that state."""
    pr = facts.pr
    if not facts.has_remote_tracker or facts.spec.issue is None or facts.spec.kind in KINDS_WITHOUT_CHANGE:
        return []
    if pr is not None and pr.state == "merged":
        state = "closed"
    elif pr is not None and pr.state == "open" and not pr.draft:
        state = "in_review"
    else:
        state = "in_progress" if facts.launch is not None and not facts.stopped else facts.tracker_state
    if state == facts.tracker_state or (state == "in_progress" and facts.tracker_state):
        return []
    return [Intent("track", f"track:{facts.id}:{state}:{pr.number if pr else 0}", facts.id, args={"state": state})]


def _publish_intents(facts: SessionFacts) -> list[Intent]:
    """Return the intent that brings new commits into the main repository, or none if they are there."""
    if facts.workspace is None or facts.workspace.shared or not facts.has_commits or facts.head == facts.published_head:
        return []
    if facts.spec.kind in KINDS_WITHOUT_CHANGE:
        return []
    return [Intent("publish", f"publish:{facts.id}:{facts.head}", facts.id)]


def _rebase_intents(facts: SessionFacts) -> list[Intent]:
    """Return the intent that moves the branch to its new base, or none if the branch need not or must not move."""
    if facts.old_base_commit is None or (facts.pr and (facts.pr.state != "open" or facts.pr.merge_request)):
        return []
    return [Intent("rebase", f"rebase:{facts.id}:{facts.base}:{facts.old_base_commit}:{facts.head}", facts.id)]


def _pull_request_intents(facts: SessionFacts) -> list[Intent]:
    """Return the intents for the session's pull request, or none unless its commits are in the main repository."""
    pr, head = facts.pr, facts.head
    if not facts.has_commits or not _is_in_main_repository(facts) or facts.spec.kind in KINDS_WITHOUT_CHANGE:
        return []
    has_forge = facts.has_remote_forge
    intents = _push_intents(facts)
    if pr is None:
        is_pushed = not has_forge or facts.pushed_head is not None
        return [*intents, Intent("open-pr", f"open-pr:{facts.id}", facts.id)] if is_pushed else intents
    if pr.state != "open":
        return []
    intents += _merge_intents(facts)
    if pr.draft and _has_finished(facts):
        intents.append(Intent("ready-pr", f"ready-pr:{facts.id}:{head}", facts.id))
    if has_forge:
        return intents
    if pr.settled_head != head:
        stage = "draft" if pr.draft else "ready"
        intents.append(Intent("check", f"check:{facts.id}:{head}:{stage}:{pr.check_request_count}", facts.id))
    needs_rebase = facts.old_base_commit is not None and facts.rebase_refused_head != head
    if facts.base_head and pr.compared_heads != (head, facts.base_head) and not pr.merge_request and not needs_rebase:
        intents.append(Intent("compare", f"compare:{facts.id}:{head}:{facts.base_head}", facts.id))
    return intents


def _is_in_main_repository(facts: SessionFacts) -> bool:
    """Return whether the session's commits are in the main repository."""
    return facts.workspace is not None and (facts.workspace.shared or facts.published_head == facts.head)


def _push_intents(facts: SessionFacts) -> list[Intent]:
    """Return the intent that pushes the branch to the forge, or none if it is pushed or its pull request is closed or merged."""
    is_closed = facts.pr is not None and facts.pr.state != "open"
    if not facts.has_remote_forge or facts.pushed_head == facts.head or is_closed or not _is_in_main_repository(facts):
        return []
    return [Intent("push", f"push:{facts.id}:{facts.head}", facts.id)]


def _merge_intents(facts: SessionFacts) -> list[Intent]:
    """Return the intent that merges the pull request if a merge was requested."""
    if facts.pr is None or facts.pr.merge_request is None:
        return []
    return [Intent("land", f"land:{facts.id}:{facts.pr.merge_request.at:.6f}", facts.id)]


def _has_finished(facts: SessionFacts) -> bool:
    """Return whether the agent reported that it is done, or its process exited with 0."""
    launch = facts.launch
    return facts.done_summary is not None or (
        launch is not None and launch.ended and launch.code == 0 and not launch.stopped
    )


def _launch_intents(facts: SessionFacts) -> list[Intent]:
    """Return the intent that starts the agent: for a new run, for a waiting message, or after its usage limit."""
    message = facts.next_message
    is_due = facts.launched_run != facts.run and not (facts.spec.defer and facts.launch is None and message is None)
    if is_due or message:
        generation = facts.generation + 1
        return [Intent("launch", f"launch:{facts.id}:{generation}:{facts.run}", facts.id, generation)]
    return [_limit_intent(facts)] if facts.limited else []


def _limit_intent(facts: SessionFacts) -> Intent:
    """Return the intent that is due when the session's usage limit ends."""
    until, generation = limited_until(facts), facts.generation
    return Intent("limit", f"limit:{facts.id}:{generation}:{until:.0f}", facts.id, generation, until)


def still_needed(intent: Intent, facts: SessionFacts) -> bool:
    """Return whether the facts still call for a lifecycle intent; any other intent stays needed."""
    return intent.kind not in LIFECYCLE_KINDS or any(other.key == intent.key for other in lifecycle_intents(facts))


def _stop_intents(facts: SessionFacts) -> list[Intent]:
    """Return the intent that stops the agent, or that cleans up once it has stopped."""
    if facts.live:
        return [_stop_agent_intent(facts)]
    return [] if facts.failure else [Intent("clean-up", f"clean-up:{facts.id}:{facts.run}", facts.id)]


def _stop_agent_intent(facts: SessionFacts) -> Intent:
    """Return the intent that ends the running agent."""
    return Intent("stop", f"stop:{facts.id}:{facts.generation}:{facts.run}", facts.id, facts.generation)


def _running_agent_intents(facts: SessionFacts, rules: Sequence[Rule]) -> list[Intent]:
    """Return the intents for a running agent: the check for silence, its next message, the end of its usage limit."""
    launch, generation = facts.launch, facts.generation
    assert launch is not None
    due = launch.at + stuck_after_seconds(rules)
    intents = [Intent("silence", f"silence:{facts.id}:{generation}", facts.id, generation, due)]
    if message := facts.next_message:
        key = f"deliver:{message.id}:{generation}"
        intents.append(Intent("deliver", key, facts.id, generation, args={"message": message.id}))
    if facts.limit_until is not None or facts.activity.state == "limited":
        intents.append(_limit_intent(facts))
    return intents


def limited_until(facts: SessionFacts) -> float:
    """Return when the session's account can be used again: the limit's reset, or `UNKNOWN_LIMIT_SECONDS` later if that is not known."""
    return facts.limit_until if facts.limit_until is not None else (facts.limited_at or 0.0) + UNKNOWN_LIMIT_SECONDS


# -- Rules -------------------------------------------------------------------------------------------------------------


def rule_intents(facts: SessionFacts, rules: Sequence[Rule], now: float) -> list[Intent]:
    """Return what the rules call for in the current state; the outbox accepts each occurrence once."""
    status = derive_status(facts, now, stuck_after_seconds(rules))
    intents: list[Intent] = []
    for rule in rules:
        current = current_occurrence(rule.trigger, facts, status)
        episode = facts.episodes.get(rule.trigger)
        if current is not None and (episode is None or episode.last_occurrence != current):
            intents += _rule_intents(rule, facts, episode or Episode(now), current, now)
    return intents


def react_to(event: Event, facts: SessionFacts, rules: Sequence[Rule], now: float) -> list[Intent]:
    """Return what an event calls for: the reactions of rules whose trigger is its kind, and the effects that it requests itself."""
    names = _trigger_names(event, facts.id)
    matching = [rule for rule in rules if rule.trigger in names and not is_state_trigger(rule.trigger)]
    reactions = [_event_reaction(rule, event, facts, now) for rule in matching if _can_trigger(rule, event)]
    return reactions + _requested_effects(event, facts)


def _can_trigger(rule: Rule, event: Event) -> bool:
    """Return whether an event may trigger a rule.

    Events that a rule recorded trigger no rules, because two rules could trigger each other without end. The end of a
    rule's command may trigger rules that run no command.
    """
    by_rule = event.source.startswith("rule ")
    return not by_rule or (isinstance(event.body, CommandFinished) and rule.action != "command")


def react_to_issue(event: Event, rules: Sequence[Rule], now: float) -> list[Intent]:
    """Return the `spawn` and `notify` intents of the rules for an event of an issue that no session works on."""
    if getattr(event.body, "number", None) is None:
        return []
    names = _trigger_names(event)
    matching = [rule for rule in rules if rule.trigger in names and rule.action in ("spawn", "notify")]
    event_data = {"type": event.type, **encode(event.body)}
    return [
        Intent(
            "react-to-issue",
            f"react:{rule.name}:{event.project}:{event.key}",
            "",
            due=now + delay_seconds(rule),
            args={"rule": rule.name, "trigger": rule.trigger, "project": event.project, "event": event_data},
        )
        for rule in matching
        if _can_trigger(rule, event)
    ]


def _trigger_names(event: Event, session: str = "") -> set[str]:
    """Return the triggers that an event matches: its type, its meaning, or the name that an agent gave to its report."""
    body, names = event.body, {event.type}
    if isinstance(body, IssueChanged) and body.assignee and body.assignee != session:
        names.add("issue-assigned")
    if isinstance(body, AgentReport):
        names.add(body.name)
    return names


def _event_reaction(rule: Rule, event: Event, facts: SessionFacts, now: float) -> Intent:
    """Return the intent of a rule that reacts to an event."""
    event_data = {"type": event.type, **encode(event.body)}
    args = {"rule": rule.name, "trigger": rule.trigger, "occurrence": event.key, "attempt": 1, "event": event_data}
    due = now + delay_seconds(rule)
    return Intent("react", f"react:{rule.name}:{facts.id}:{event.key}", facts.id, due=due, args=args)


def _requested_effects(event: Event, facts: SessionFacts) -> list[Intent]:
    """Return the effects that an event itself requests; they are recorded with it."""
    body = event.body
    if isinstance(body, AgentTurnEnded):
        body = (facts.spec.reviews and find_review(body.text)) or body
    kind = _EFFECT_OF_REQUEST.get(type(body)) or _forge_effect(event, facts) or _local_effect(body, facts)
    if kind is None or (isinstance(body, OfferAnswered) and body.decision != "allow"):
        return []
    name = body.offer if isinstance(body, OfferAnswered) else event.key  # accepted twice, it runs once
    return [Intent(kind, f"{kind}:{name}", facts.id, args=encode(body))]


def _forge_effect(event: Event, facts: SessionFacts) -> str | None:
    """Return the effect that repeats at the forge what was decided or written here, or None if there is none."""
    if not facts.has_remote_forge or facts.spec.scm == event.source:
        return None
    body = event.body
    if isinstance(body, CommentAdded):
        comments = facts.pr.comments if body.by_agent and facts.pr else ()
        return "reply" if any(comment.id == body.comment for comment in comments) else None
    return _FORGE_EFFECTS.get(type(body))


def _local_effect(body: Body, facts: SessionFacts) -> str | None:
    """Return the effect that applies here what happened at the forge, or None if there is none."""
    return "follow" if isinstance(body, PrMerged) and facts.has_remote_forge else None


_EFFECT_OF_REQUEST: Mapping[type[Body], str] = {
    CommandRequested: "command",
    SpawnRequested: "spawn",
    OfferAnswered: "take-offer",
    AgentReview: "post-review",
    ResolveRequested: "resolve",
    PeopleRequested: "request-review",
}
"""Kinds of events that request an effect, and its kind."""


_FORGE_EFFECTS: Mapping[type[Body], str] = {
    PrReady: "make-ready",
    PrClosed: "close-pr",
    ChecksRequested: "rerun",
}
"""Kinds of events that are also carried out at the forge, and the kind of that effect."""


def sessions_of_issue_event(event: Event, sessions: Iterable[SessionFacts]) -> list[SessionFacts]:
    """Return the sessions that an event without a session is about: the running ones that work on its issue."""
    number = getattr(event.body, "number", None)
    if number is None:
        return []
    return [
        facts
        for facts in sessions
        if facts.project == event.project
        and issue_number(facts.spec.issue or "") == number
        and not facts.stopped
        and facts.requested_state == "run"
    ]


def trigger_still_applies(intent: Intent, facts: SessionFacts, rules: Sequence[Rule], now: float) -> bool:
    """Return whether the trigger of a rule's intent still applies; a trigger that is a kind of event always does."""
    if not is_state_trigger(intent.args["trigger"]):
        return True
    status = derive_status(facts, now, stuck_after_seconds(rules))
    return current_occurrence(intent.args["trigger"], facts, status) == str(intent.args["occurrence"])


def is_undelivered(intent: Intent, facts: SessionFacts) -> bool:
    """Return whether the review or comment of a rule's intent is still open; commits made before the agent received it are no answer."""
    pr, occurrence_id = facts.pr, str(intent.args["occurrence"])
    if pr is None or pr.state != "open":
        return False
    if intent.args["trigger"] == "changes-requested":
        return bool(pr.counting_reviews) and (pr.counting_reviews[-1].id, pr.counting_reviews[-1].verdict) == (
            occurrence_id,
            "changes_requested",
        )
    return intent.args["trigger"] == "review-comment" and find_open_comment(facts, occurrence_id) is not None


def _rule_intents(rule: Rule, facts: SessionFacts, episode: Episode, new_occurrence: str, now: float) -> list[Intent]:
    """Return the intents of one rule for a new occurrence: the next attempt, and the escalation if the rule has one.

    Attempts follow each other with the rule's backoff. The rule escalates when its attempts are used up, after a number
    of attempts, or when the state has lasted too long.
    """
    attempt = episode.attempts + 1
    args = {"rule": rule.name, "trigger": rule.trigger, "occurrence": new_occurrence, "attempt": attempt}
    subject = facts.project if rule.trigger == CHECK_NOT_SET_UP and rule.action == "notify" else facts.id
    name = f"{rule.name}:{subject}:{new_occurrence}"
    intents = []
    is_exhausted = rule.retries is not None and attempt > rule.retries
    if not is_exhausted:
        due = now + (
            delay_seconds(rule)
            if attempt == 1
            else max(backoff_seconds(rule, attempt, name), _settle_delay(rule, attempt))
        )
        intents.append(Intent("react", f"react:{name}", facts.id, facts.generation, due, args))
    is_too_often = rule.escalate_after_count is not None and attempt > rule.escalate_after_count
    if is_exhausted or is_too_often:
        attempts_text = f"{attempt - 1} attempt{'' if attempt == 2 else 's'} did not settle it"
        reason = attempts_text if attempt > 1 else "no attempt is to be made"
        due = now + max(delay_seconds(rule), _settle_delay(rule, attempt))
        intents.append(Intent("escalate", f"escalate:{name}", facts.id, due=due, args={**args, "reason": reason}))
    elif rule.escalate_after_seconds is not None and attempt == 1:
        reason = f"it lasts for over {rule.escalate_after_seconds / 60:g} min"
        key = f"escalate:{rule.name}:{facts.id}:since:{new_occurrence}"
        due = now + delay_seconds(rule) + rule.escalate_after_seconds
        intents.append(Intent("escalate", key, facts.id, due=due, args={**args, "reason": reason}))
    return intents


def delay_seconds(rule: Rule) -> float:
    """Return the seconds that the state must last before the rule acts; for a stuck agent its status already includes them."""
    threshold = rule.threshold or 0.0 if rule.trigger != "agent-stuck" else 0.0
    return max(rule.delay or 0.0, threshold, _settle_delay(rule))


def _settle_delay(rule: Rule, attempt: int = 1) -> float:
    """Return the seconds after a turn before the rule acts, so that the agent's commits can become a pull request first."""
    is_after_turn = rule.trigger == "agent-idle" or (rule.trigger == "ci-failed" and attempt > 1)
    return IDLE_SETTLE_SECONDS if is_after_turn else 0.0


def backoff_seconds(rule: Rule, attempt: int, key: str) -> float:
    """Return the seconds before the second or a later attempt: doubling, spread by up to a half, within the rule's bounds.

    The spread is computed from the reaction's key, so repeated calls return the same value.
    """
    if rule.backoff is None:
        return 0.0
    initial, maximum = rule.backoff
    low = min(maximum, initial * 2.0 ** min(attempt - 2, 60))
    high = min(maximum, 1.5 * low)
    share = int.from_bytes(hashlib.sha256(key.encode()).digest()[:6], "big") / float(1 << 48)
    return low + (high - low) * share


def message_id(key: str) -> str:
    """Return the id of the message that a reaction sends; it is the same for every attempt."""
    return f"r-{hashlib.sha256(key.encode()).hexdigest()[:16]}"
