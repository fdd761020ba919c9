"""Reaction rules without a daemon: pauses, episodes, offers, reviews and the intents of an event."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_orchestrator.core import events as e
from agent_orchestrator.core.events import Event, encode
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.fold.sessions import reduce
from agent_orchestrator.core.pull_request import PullRequest, Review
from agent_orchestrator.core.reactions import (
    IDLE_SETTLE_SECONDS,
    Intent,
    backoff_seconds,
    decide,
    lifecycle_intents,
    react_to,
    rule_intents,
    trigger_still_applies,
)
from agent_orchestrator.core.rules.default_rules import DEFAULT_RULES
from agent_orchestrator.core.rules.model import Rule
from agent_orchestrator.core.turn_text.review_parser import find_review
from tests.unit.core.test_facts_properties import begun

HEAD = "c1"


def later(facts: SessionFacts, *bodies: e.Body, at: float = 1001.0, source: str = "test") -> SessionFacts:
    for number, body in enumerate(bodies):
        key = f"{body.type}:{at}:{number}:{facts.seq}"
        changed = reduce(facts, Event(body, at, source, key, "app", facts.id, facts.generation, seq=facts.seq + 1))
        assert changed is not None
        facts = changed
    return facts


def with_pull_request() -> SessionFacts:
    return later(begun(), e.HeadMoved(HEAD), e.PrOpened(1, "x", "main", draft=False))


# -- pauses ------------------------------------------------------------------------------------------------------------
@given(
    first=st.floats(0.0, 1000.0), more=st.floats(0.0, 10_000.0), attempt=st.integers(2, 40), key=st.text(max_size=20)
)
def test_a_pause_is_within_its_bounds_and_deterministic(first: float, more: float, attempt: int, key: str) -> None:
    rule = Rule("r", "ci-failed", backoff=(first, first + more))
    pause = backoff_seconds(rule, attempt, key)
    assert first <= pause <= first + more
    assert pause == backoff_seconds(rule, attempt, key)


@given(key=st.text(max_size=20), attempt=st.integers(2, 12))
def test_pauses_grow_with_each_attempt(key: str, attempt: int) -> None:
    rule = Rule("r", "ci-failed", backoff=(30.0, 1e9))
    assert backoff_seconds(rule, attempt, key) <= backoff_seconds(rule, attempt + 1, f"{key}x")


def test_pauses_begin_at_the_rules_minimum_and_double() -> None:
    rule = Rule("r", "ci-failed", backoff=(30.0, 600.0))
    for attempt, low in ((2, 30.0), (3, 60.0), (4, 120.0), (5, 240.0), (6, 480.0)):
        assert all(low <= backoff_seconds(rule, attempt, f"app-{n}") <= min(1.5 * low, 600.0) for n in range(20))


def test_pauses_of_different_sessions_differ() -> None:
    rule = Rule("r", "ci-failed", backoff=(30.0, 600.0))
    assert len({round(backoff_seconds(rule, 2, f"app-{n}"), 3) for n in range(50)}) > 40


# -- attempts ----------------------------------------------------------------------------------------------------------


def with_failed_check(facts: SessionFacts, head: str) -> SessionFacts:
    return later(facts, e.HeadMoved(head), e.CheckFinished("t", head, "failure"), e.ChecksSettled(head))


def intents_of(facts: SessionFacts, rules: tuple[Rule, ...], now: float = 1001.0) -> list[Intent]:
    return rule_intents(facts, rules, now)


def test_attempts_count_across_pushes_until_the_checks_are_green() -> None:
    rules = (Rule("ci-failed", "ci-failed", action="send-to-agent", retries=2, escalate_after_count=2),)
    facts = with_pull_request()
    kinds = []
    for number, head in enumerate(("c1", "c2", "c3")):
        facts = with_failed_check(facts, head)
        intents = intents_of(facts, rules)
        kinds.append([intent.kind for intent in intents])
        for intent in intents:
            if intent.kind == "react":
                args = intent.args
                facts = later(facts, e.Reacted("ci-failed", "ci-failed", args["occurrence"], "x", args["attempt"]))
        assert facts.episodes["ci-failed"].attempts == min(2, number + 1)
    assert kinds == [["react"], ["react"], ["escalate"]]
    facts = later(facts, e.HeadMoved("c4"), e.CheckFinished("t", "c4", "success"), e.ChecksSettled("c4"))
    assert "ci-failed" not in facts.episodes


def test_a_turn_without_a_fix_is_an_attempt_and_the_last_one_notifies_a_person() -> None:
    rules = (Rule("ci-failed", "ci-failed", action="send-to-agent", retries=2, escalate_after_count=2),)
    facts = with_failed_check(with_pull_request(), "c1")
    for at, attempt in ((1010.0, 1), (1020.0, 2)):
        (intent,) = intents_of(facts, rules, at)
        assert (intent.kind, intent.args["attempt"]) == ("react", attempt) and trigger_still_applies(
            intent, facts, rules, at
        )
        done = e.Reacted("ci-failed", "ci-failed", intent.args["occurrence"], "x", attempt)
        facts = later(facts, e.MessageQueued(f"m{attempt}", "mend it", "rule ci-failed"), done, at=at)
        assert intents_of(facts, rules, at) == [], "it has not been told yet"
        facts = later(facts, e.MessageDelivered(f"m{attempt}"), e.AgentAck(f"m{attempt}"), at=at + 1, source="spool")
        facts = later(facts, e.AgentActivity("active"), at=at + 2, source="spool")
        assert intents_of(facts, rules, at + 2) == [], "it is at work on it"
        facts = later(facts, e.AgentTurnEnded("I did."), at=at + 5, source="spool")
    (escalation,) = intents_of(facts, rules, 1030.0)
    assert (escalation.kind, escalation.due) == ("escalate", 1030.0 + IDLE_SETTLE_SECONDS)
    pushed = later(facts, e.HeadMoved("c2"), at=1030.5)
    assert not trigger_still_applies(escalation, pushed, rules, 1031.0), "what it committed came a moment later"
    facts = later(facts, e.Escalated("ci-failed", "ci-failed", "x"), at=1040.0)
    facts = later(facts, e.AgentActivity("active"), e.AgentTurnEnded("Hm."), at=1050.0, source="spool")
    assert intents_of(facts, rules, 1050.0) == [], "who was called for it is not called again at every turn"


def test_only_a_turn_that_a_rule_asked_for_is_an_attempt() -> None:
    rules = (Rule("ci-failed", "ci-failed", action="notify"),)
    facts = with_failed_check(with_pull_request(), "c1")
    (intent,) = intents_of(facts, rules, 1010.0)
    facts = later(facts, e.Reacted("ci-failed", "ci-failed", intent.args["occurrence"], "notify", 1), at=1010.0)
    facts = later(facts, e.MessageQueued("mine", "and the docs?", "person"), e.MessageDelivered("mine"), at=1011.0)
    facts = later(facts, e.AgentAck("mine"), e.AgentActivity("active"), at=1012.0, source="spool")
    facts = later(facts, e.AgentTurnEnded("Done."), at=1015.0, source="spool")
    assert intents_of(facts, rules, 1020.0) == []


def test_a_rule_without_retries_notifies_a_person_at_once() -> None:
    rules = (Rule("ci-failed", "ci-failed", action="send-to-agent", retries=0),)
    assert [intent.kind for intent in intents_of(with_failed_check(with_pull_request(), "c2"), rules)] == ["escalate"]


def test_a_state_must_last_as_long_as_the_rule_says() -> None:
    facts = later(begun(), e.AgentActivity("idle"), source="spool")
    intents = intents_of(facts, (Rule("r", "agent-idle", threshold=60.0),), 1001.0)
    assert [intent.due for intent in intents] == [1061.0]


def test_a_state_that_has_ended_is_not_reacted_to_but_an_event_is() -> None:
    rules = (Rule("r", "agent-needs-input", delay=20.0), Rule("by-event", "agent-ask", delay=20.0))
    facts = later(begun(), e.AgentAsk("Which?"), source="spool")
    (waiting,) = intents_of(facts, rules, 1001.0)
    assert waiting.due == 1021.0 and trigger_still_applies(waiting, facts, rules, 1021.0)
    event = Event(e.AgentAsk("Which?"), 1001.0, "spool", "k", "app", facts.id)
    (by_event,) = react_to(event, facts, rules, 1001.0)
    answered = later(facts, e.AgentActivity("active"), at=1005.0, source="spool")
    assert not trigger_still_applies(waiting, answered, rules, 1021.0) and trigger_still_applies(
        by_event, answered, rules, 1021.0
    )
    again = later(answered, e.AgentAsk("Which one?"), at=1010.0, source="spool")
    assert not trigger_still_applies(waiting, again, rules, 1021.0), "that is another question, with a time of its own"


def test_a_quick_second_exit_counts_as_the_same_failure_and_a_late_one_does_not() -> None:
    rules = (Rule("agent-exited", "agent-exited", action="restart", retries=2),)
    facts, at, attempts = begun(), 1001.0, []
    for seconds in (5.0, 5.0, 5.0, 4000.0):
        facts = later(facts, e.AgentExited(3), at=at)
        intents = intents_of(facts, rules, at)
        attempts.append([intent.args["attempt"] for intent in intents if intent.kind == "react"])
        for intent in intents:
            if intent.kind == "react":
                occurrence = intent.args["occurrence"]
                facts = later(
                    facts,
                    e.Reacted("agent-exited", "agent-exited", occurrence, "restart", intent.args["attempt"]),
                    at=at,
                )
        facts = later(facts, e.RestoreRequested(), e.SessionAdmitted(), at=at)
        launched = Event(e.AgentLaunched({}), at, "test", f"l{at}", "app", facts.id, facts.generation + 1)
        changed = reduce(facts, launched)
        assert changed is not None
        facts, at = later(changed, e.AgentActivity("active"), at=at, source="spool"), at + seconds
    assert attempts == [[1], [2], [], []]
    facts = later(facts, e.AgentExited(3), at=at)
    assert [intent.args["attempt"] for intent in intents_of(facts, rules, at) if intent.kind == "react"] == [1]


def test_messages_to_an_idle_agent_end_after_the_retries_until_a_person_writes() -> None:
    rules = (Rule("r", "agent-idle", action="send-to-agent", retries=2),)
    facts, attempts = begun(), []
    for at in (1001.0, 1011.0, 1021.0):
        facts = later(facts, e.AgentActivity("idle"), at=at, source="spool")
        intents = [intent for intent in intents_of(facts, rules, at) if intent.kind == "react"]
        attempts.append([intent.args["attempt"] for intent in intents])
        for intent in intents:
            reacted = e.Reacted("r", "agent-idle", intent.args["occurrence"], "x", intent.args["attempt"])
            facts = later(facts, e.MessageQueued(f"m{at}", "go on", "rule r"), reacted, at=at + 1)
        facts = later(facts, e.AgentActivity("active"), at=at + 2, source="spool")
    assert attempts == [[1], [2], []]
    facts = later(facts, e.MessageQueued("mine", "go on", "person"), at=1030.0)
    assert "agent-idle" not in facts.episodes


def test_a_live_agent_is_stopped_before_a_restore_and_keeps_its_messages() -> None:
    facts = later(
        begun(), e.AgentActivity("active"), e.MessageQueued("m1", "go on"), e.RestoreRequested(), source="spool"
    )
    facts = later(facts, e.SessionAdmitted())
    assert [intent.kind for intent in lifecycle_intents(facts, DEFAULT_RULES)] == ["stop"]
    facts = later(facts, e.AgentStopped(0), at=1002.0)
    assert facts.next_message is not None
    assert [intent.kind for intent in lifecycle_intents(facts, DEFAULT_RULES)] == ["launch"]


# -- offers ------------------------------------------------------------------------------------------------------------


def offer(trigger: str, what: str) -> e.ActionOffered:
    return e.ActionOffered("o1", trigger, trigger, what, "merge")


def test_an_offer_is_open_while_its_state_lasts() -> None:
    facts = with_failed_check(with_pull_request(), "c2")
    occurrence = intents_of(facts, (Rule("ci-failed", "ci-failed"),))[0].args["occurrence"]
    facts = later(facts, offer("ci-failed", occurrence))
    assert [offer_open.id for offer_open in facts.offers] == ["o1"]
    assert not later(facts, e.OfferAnswered("o1", "deny")).offers
    assert not later(facts, e.HeadMoved("c3")).offers


def test_an_offer_about_an_event_is_open_until_it_is_answered() -> None:
    facts = later(with_pull_request(), offer("label-added", "k1"), e.HeadMoved("c9"))
    assert facts.offers
    assert not later(facts, e.OfferAnswered("o1", "allow")).offers
    assert not later(facts, e.StopRequested(), e.SessionStopped()).offers


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (e.CommandRequested("r", "t"), "command"),
        (e.SpawnRequested("r", "t"), "spawn"),
        (e.OfferAnswered("o", "allow"), "take-offer"),
        (e.OfferAnswered("o", "deny"), None),
        (e.AgentReview("approved"), "post-review"),
    ],
)
def test_some_events_have_an_effect_without_a_rule(body: e.Body, kind: str | None) -> None:
    facts = begun()
    intents = react_to(Event(body, 1001.0, "t", "k", "app", facts.id), facts, (), 1001.0)
    assert [intent.kind for intent in intents] == ([kind] if kind else [])
    assert all(intent.args == encode(body) for intent in intents)


@pytest.mark.parametrize(
    ("body", "source", "action", "followed"),
    [
        (e.MessageQueued("m", "x"), "person", "notify", True),
        (e.MessageQueued("m", "x"), "rule other", "notify", False),
        (e.CommandFinished("other", 0, "x"), "rule other", "notify", True),
        (e.CommandFinished("other", 0, "x"), "rule other", "command", False),
    ],
)
def test_actions_of_rules_trigger_no_other_rule_except_a_commands_end(
    body: e.Body, source: str, action: str, followed: bool
) -> None:
    facts, rule = begun(), Rule("r", body.type, action=action)
    event = Event(body, 1001.0, source, "k", "app", facts.id)
    assert bool(react_to(event, facts, (rule,), 1001.0)) is followed


def test_an_agents_own_report_is_a_trigger_by_its_name() -> None:
    facts, rule = begun(), Rule("r", "deploy-ready")
    event = Event(e.AgentReport("deploy-ready", {"to": "staging"}), 1001.0, "spool", "k", "app", facts.id)
    assert [intent.args["rule"] for intent in react_to(event, facts, (rule,), 1001.0)] == ["r"]


# -- reviews -----------------------------------------------------------------------------------------------------------


def review(verdict: str, kind: str = "person", counts: bool = True, reviewer: str = "") -> Review:
    return Review(f"{kind}{verdict}", verdict, HEAD, kind, "", 1.0, kind=kind, is_sufficient=counts, reviewer=reviewer)


@pytest.mark.parametrize(
    ("reviews", "verdict"),
    [
        ([review("approved", "agent", False, "r")], "none"),
        ([review("approved", "agent", True, "r")], "approved"),
        ([review("approved", "bot", False)], "none"),
        ([review("changes_requested", "agent", False, "r")], "changes_requested"),
        ([review("changes_requested", "agent", False, "r"), review("approved", "agent", False, "r")], "none"),
        ([review("approved"), review("changes_requested", "agent", False, "r")], "changes_requested"),
        (
            [
                review("approved"),
                review("changes_requested", "agent", False, "r"),
                review("approved", "agent", False, "r"),
            ],
            "approved",
        ),
        ([review("changes_requested"), review("approved", "agent", False, "r")], "changes_requested"),
    ],
)
def test_an_agents_approval_withdraws_only_its_own_objection(reviews: list[Review], verdict: str) -> None:
    assert PullRequest(1, "x", "main", reviews=tuple(reviews)).verdict(HEAD) == verdict


def test_a_review_of_a_person_is_recognized() -> None:
    pr = PullRequest(1, "x", "main", reviews=(review("changes_requested", "agent", False, "r"),))
    assert not pr.is_reviewed_by_person
    assert replace(pr, reviews=(*pr.reviews, review("commented"))).is_reviewed_by_person


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ('```review\n{"verdict": "approve"}\n```', "approved"),
        ('words\n```review\n{"verdict": "changes_requested", "comments": [{"body": "x"}]}\n```\n', "changes_requested"),
        ('```review\n{"verdict": "approved"}\n```\n```review\n{"verdict": "comment"}\n```', "commented"),
        ('```review\n{"verdict": "splendid"}\n```', None),
        ("```review\nnot json\n```", None),
        ("approved", None),
    ],
)
def test_a_review_is_parsed_from_the_end_of_a_turn(text: str, verdict: str | None) -> None:
    parsed = find_review(text)
    assert (parsed.verdict if parsed else None) == verdict


@given(st.text(max_size=200))
def test_any_text_parses_as_a_review_or_as_none(text: str) -> None:
    assert find_review(text) is None or find_review(f"```review\n{text}\n```") is not None


def test_only_a_reviewers_turn_posts_its_review() -> None:
    facts = begun()
    ended = e.AgentTurnEnded('```review\n{"verdict": "approved"}\n```')
    event = Event(ended, 1001.0, "t", "k", "app", facts.id)
    assert react_to(event, facts, (), 1001.0) == []
    reviewer = replace(facts, spec=replace(facts.spec, reviews="app-y", kind="reviewer"))
    assert [intent.kind for intent in react_to(event, reviewer, (), 1001.0)] == ["post-review"]


def test_a_reviewers_commits_open_no_pull_request() -> None:
    facts = begun()
    reviewer = replace(facts, spec=replace(facts.spec, reviews="app-y", kind="reviewer"))
    moved = later(reviewer, e.HeadMoved("c5"))
    assert "open-pr" not in {intent.kind for intent in decide(reviewer, moved, DEFAULT_RULES, 1001.0)}


def test_a_finished_turn_counts_as_idle_only_after_a_settling_time() -> None:
    rules = (Rule("r", "agent-idle", action="send-to-agent", retries=1, escalate=True),)
    facts = later(begun(), e.AgentActivity("idle"), at=1001.0, source="spool")
    (first,) = intents_of(facts, rules, 1001.0)
    assert (first.kind, first.due) == ("react", 1001.0 + IDLE_SETTLE_SECONDS)
    reacted = e.Reacted("r", "agent-idle", first.args["occurrence"], "x", 1)
    facts = later(facts, e.MessageQueued("m", "go on", "rule r"), reacted, at=1002.0)
    facts = later(facts, e.AgentActivity("active"), e.AgentActivity("idle"), at=1010.0, source="spool")
    (escalation,) = intents_of(facts, rules, 1010.0)
    assert (escalation.kind, escalation.due) == ("escalate", 1010.0 + IDLE_SETTLE_SECONDS)
    more = (Rule("r", "agent-idle", action="send-to-agent", retries=9),)
    assert [intent.due for intent in intents_of(facts, more, 1010.0)] == [1010.0 + IDLE_SETTLE_SECONDS]


def test_a_moved_base_starts_no_new_approval_episode() -> None:
    rules = (Rule("r", "approved-and-green", auto=False, action="merge"),)
    facts = later(with_pull_request(), e.CheckFinished("t", HEAD, "success"), e.ChecksSettled(HEAD))
    facts = later(facts, e.ReviewSubmitted("v1", "approved", HEAD))
    attempts = []
    for base in ("b1", "b2"):
        facts = later(facts, e.BaseMoved(base), e.ConflictsSeen(HEAD, base))
        (intent,) = intents_of(facts, rules)
        attempts.append(intent.args["attempt"])
        facts = later(facts, e.Reacted("r", "approved-and-green", intent.args["occurrence"], "merge", attempts[-1]))
    assert attempts == [1, 2]
    facts = later(facts, e.HeadMoved("c2"))
    assert "approved-and-green" not in facts.episodes
