"""Rules without a daemon: pauses, episodes, offers, judgements, what an event asks for."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_orchestrator.core import events as e
from agent_orchestrator.core.events import Event, encode
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.fold.sessions import reduce
from agent_orchestrator.core.pull_request import PullRequest, Review
from agent_orchestrator.core.reactions import (
    IDLE_SETTLE_SECONDS,
    Intent,
    backoff,
    decide,
    lifecycle_intents,
    react_to,
    rule_intents,
    trigger_still_applies,
)
from agent_orchestrator.core.rules import DEFAULT_RULES, Rule
from agent_orchestrator.core.verdicts import review_in
from tests.unit.core.test_facts_properties import begun

ALL = settings(max_examples=100, derandomize=True, deadline=None, database=None)
HEAD = "c1"


def told(facts: SessionFacts, *bodies: e.Body, at: float = 1001.0, source: str = "test") -> SessionFacts:
    for number, body in enumerate(bodies):
        key = f"{body.type}:{at}:{number}:{facts.seq}"
        after = reduce(facts, Event(body, at, source, key, "app", facts.id, facts.generation, seq=facts.seq + 1))
        assert after is not None
        facts = after
    return facts


def opened() -> SessionFacts:
    return told(begun(), e.HeadMoved(HEAD), e.PrOpened(1, "x", "main", draft=False))


# -- pauses ------------------------------------------------------------------------------------------------------------


@ALL
@given(
    first=st.floats(0.0, 1000.0), more=st.floats(0.0, 10_000.0), attempt=st.integers(2, 40), key=st.text(max_size=20)
)
def test_a_pause_stays_within_its_bounds_and_is_the_same_whenever_it_is_asked(
    first: float, more: float, attempt: int, key: str
) -> None:
    rule = Rule("r", "ci-failed", backoff=(first, first + more))
    pause = backoff(rule, attempt, key)
    assert first <= pause <= first + more
    assert pause == backoff(rule, attempt, key)


@ALL
@given(key=st.text(max_size=20), attempt=st.integers(2, 12))
def test_pauses_grow(key: str, attempt: int) -> None:
    rule = Rule("r", "ci-failed", backoff=(30.0, 1e9))
    assert backoff(rule, attempt, key) <= backoff(rule, attempt + 1, f"{key}x")


def test_pauses_begin_where_the_rule_says_and_double() -> None:
    rule = Rule("r", "ci-failed", backoff=(30.0, 600.0))
    for attempt, low in ((2, 30.0), (3, 60.0), (4, 120.0), (5, 240.0), (6, 480.0)):
        assert all(low <= backoff(rule, attempt, f"app-{n}") <= min(1.5 * low, 600.0) for n in range(20))


def test_pauses_are_spread() -> None:
    rule = Rule("r", "ci-failed", backoff=(30.0, 600.0))
    assert len({round(backoff(rule, 2, f"app-{n}"), 3) for n in range(50)}) > 40


# -- attempts ----------------------------------------------------------------------------------------------------------


def failing(facts: SessionFacts, head: str) -> SessionFacts:
    return told(facts, e.HeadMoved(head), e.CheckFinished("t", head, "failure"), e.ChecksSettled(head))


def followed(facts: SessionFacts, rules: tuple[Rule, ...], now: float = 1001.0) -> list[Intent]:
    return rule_intents(facts, rules, now)


def test_attempts_count_across_pushes_until_the_checks_are_green() -> None:
    rules = (Rule("ci-failed", "ci-failed", action="send-to-agent", retries=2, escalate_after_count=2),)
    facts = opened()
    kinds = []
    for number, head in enumerate(("c1", "c2", "c3")):
        facts = failing(facts, head)
        intents = followed(facts, rules)
        kinds.append([intent.kind for intent in intents])
        for intent in intents:
            if intent.kind == "react":
                args = intent.args
                facts = told(facts, e.Reacted("ci-failed", "ci-failed", args["occurrence"], "x", args["attempt"]))
        assert facts.episodes["ci-failed"].attempts == min(2, number + 1)
    assert kinds == [["react"], ["react"], ["escalate"]]
    facts = told(facts, e.HeadMoved("c4"), e.CheckFinished("t", "c4", "success"), e.ChecksSettled("c4"))
    assert "ci-failed" not in facts.episodes


def test_a_turn_that_mends_nothing_is_an_attempt_and_after_the_last_a_person_is_called() -> None:
    rules = (Rule("ci-failed", "ci-failed", action="send-to-agent", retries=2, escalate_after_count=2),)
    facts = failing(opened(), "c1")
    for at, attempt in ((1010.0, 1), (1020.0, 2)):
        (intent,) = followed(facts, rules, at)
        assert (intent.kind, intent.args["attempt"]) == ("react", attempt) and trigger_still_applies(
            intent, facts, rules, at
        )
        done = e.Reacted("ci-failed", "ci-failed", intent.args["occurrence"], "x", attempt)
        facts = told(facts, e.MessageQueued(f"m{attempt}", "mend it", "rule ci-failed"), done, at=at)
        assert followed(facts, rules, at) == [], "it has not been told yet"
        facts = told(facts, e.MessageDelivered(f"m{attempt}"), e.AgentAck(f"m{attempt}"), at=at + 1, source="spool")
        facts = told(facts, e.AgentActivity("active"), at=at + 2, source="spool")
        assert followed(facts, rules, at + 2) == [], "it is at work on it"
        facts = told(facts, e.AgentTurnEnded("I did."), at=at + 5, source="spool")
    (called,) = followed(facts, rules, 1030.0)
    assert (called.kind, called.due) == ("escalate", 1030.0 + IDLE_SETTLE_SECONDS)
    pushed = told(facts, e.HeadMoved("c2"), at=1030.5)
    assert not trigger_still_applies(called, pushed, rules, 1031.0), "what it committed came a moment later"
    facts = told(facts, e.Escalated("ci-failed", "ci-failed", "x"), at=1040.0)
    facts = told(facts, e.AgentActivity("active"), e.AgentTurnEnded("Hm."), at=1050.0, source="spool")
    assert followed(facts, rules, 1050.0) == [], "who was called for it is not called again at every turn"


def test_only_a_turn_that_a_rule_asked_for_is_an_attempt() -> None:
    rules = (Rule("ci-failed", "ci-failed", action="notify"),)
    facts = failing(opened(), "c1")
    (intent,) = followed(facts, rules, 1010.0)
    facts = told(facts, e.Reacted("ci-failed", "ci-failed", intent.args["occurrence"], "notify", 1), at=1010.0)
    facts = told(facts, e.MessageQueued("mine", "and the docs?", "person"), e.MessageDelivered("mine"), at=1011.0)
    facts = told(facts, e.AgentAck("mine"), e.AgentActivity("active"), at=1012.0, source="spool")
    facts = told(facts, e.AgentTurnEnded("Done."), at=1015.0, source="spool")
    assert followed(facts, rules, 1020.0) == []


def test_no_attempt_at_all_calls_a_person_at_once() -> None:
    rules = (Rule("ci-failed", "ci-failed", action="send-to-agent", retries=0),)
    assert [intent.kind for intent in followed(failing(opened(), "c2"), rules)] == ["escalate"]


def test_a_state_must_last_as_long_as_the_rule_says() -> None:
    facts = told(begun(), e.AgentActivity("idle"), source="spool")
    intents = followed(facts, (Rule("r", "agent-idle", threshold=60.0),), 1001.0)
    assert [intent.due for intent in intents] == [1061.0]


def test_a_state_that_is_over_is_not_reacted_to_any_more_and_an_event_stays_happened() -> None:
    rules = (Rule("r", "agent-needs-input", delay=20.0), Rule("by-event", "agent-ask", delay=20.0))
    facts = told(begun(), e.AgentAsk("Which?"), source="spool")
    (waiting,) = followed(facts, rules, 1001.0)
    assert waiting.due == 1021.0 and trigger_still_applies(waiting, facts, rules, 1021.0)
    asked = Event(e.AgentAsk("Which?"), 1001.0, "spool", "k", "app", facts.id)
    (happened,) = react_to(asked, facts, rules, 1001.0)
    answered = told(facts, e.AgentActivity("active"), at=1005.0, source="spool")
    assert not trigger_still_applies(waiting, answered, rules, 1021.0) and trigger_still_applies(
        happened, answered, rules, 1021.0
    )
    again = told(answered, e.AgentAsk("Which one?"), at=1010.0, source="spool")
    assert not trigger_still_applies(waiting, again, rules, 1021.0), "that is another question, with a time of its own"


def test_an_agent_that_exits_again_after_a_restart_is_the_same_trouble_and_one_that_lived_is_another() -> None:
    rules = (Rule("agent-exited", "agent-exited", action="restart", retries=2),)
    facts, at, attempts = begun(), 1001.0, []
    for life in (5.0, 5.0, 5.0, 4000.0):
        facts = told(facts, e.AgentExited(3), at=at)
        intents = followed(facts, rules, at)
        attempts.append([intent.args["attempt"] for intent in intents if intent.kind == "react"])
        for intent in intents:
            if intent.kind == "react":
                what = intent.args["occurrence"]
                facts = told(
                    facts, e.Reacted("agent-exited", "agent-exited", what, "restart", intent.args["attempt"]), at=at
                )
        facts = told(facts, e.RestoreRequested(), e.SessionAdmitted(), at=at)
        launched = Event(e.AgentLaunched({}), at, "test", f"l{at}", "app", facts.id, facts.generation + 1)
        after = reduce(facts, launched)
        assert after is not None
        facts, at = told(after, e.AgentActivity("active"), at=at, source="spool"), at + life
    assert attempts == [[1], [2], [], []]
    facts = told(facts, e.AgentExited(3), at=at)
    assert [intent.args["attempt"] for intent in followed(facts, rules, at) if intent.kind == "react"] == [1]


def test_nudging_an_idle_agent_has_an_end_until_somebody_else_speaks() -> None:
    rules = (Rule("r", "agent-idle", action="send-to-agent", retries=2),)
    facts, attempts = begun(), []
    for at in (1001.0, 1011.0, 1021.0):
        facts = told(facts, e.AgentActivity("idle"), at=at, source="spool")
        intents = [intent for intent in followed(facts, rules, at) if intent.kind == "react"]
        attempts.append([intent.args["attempt"] for intent in intents])
        for intent in intents:
            reacted = e.Reacted("r", "agent-idle", intent.args["occurrence"], "x", intent.args["attempt"])
            facts = told(facts, e.MessageQueued(f"m{at}", "go on", "rule r"), reacted, at=at + 1)
        facts = told(facts, e.AgentActivity("active"), at=at + 2, source="spool")
    assert attempts == [[1], [2], []]
    facts = told(facts, e.MessageQueued("mine", "go on", "person"), at=1030.0)
    assert "agent-idle" not in facts.episodes


def test_a_live_agent_that_is_to_be_started_anew_is_ended_first_and_keeps_what_waits_for_it() -> None:
    facts = told(
        begun(), e.AgentActivity("active"), e.MessageQueued("m1", "go on"), e.RestoreRequested(), source="spool"
    )
    facts = told(facts, e.SessionAdmitted())
    assert [intent.kind for intent in lifecycle_intents(facts, DEFAULT_RULES)] == ["stop"]
    facts = told(facts, e.AgentStopped(0), at=1002.0)
    assert facts.next_message is not None
    assert [intent.kind for intent in lifecycle_intents(facts, DEFAULT_RULES)] == ["launch"]


# -- offers ------------------------------------------------------------------------------------------------------------


def offer(trigger: str, what: str) -> e.ActionOffered:
    return e.ActionOffered("o1", trigger, trigger, what, "merge")


def test_an_offer_stands_as_long_as_what_it_is_about() -> None:
    facts = failing(opened(), "c2")
    what = followed(facts, (Rule("ci-failed", "ci-failed"),))[0].args["occurrence"]
    facts = told(facts, offer("ci-failed", what))
    assert [one.id for one in facts.offers] == ["o1"]
    assert not told(facts, e.OfferAnswered("o1", "deny")).offers
    assert not told(facts, e.HeadMoved("c3")).offers


def test_an_offer_about_an_event_stands_until_it_is_answered() -> None:
    facts = told(opened(), offer("label-added", "k1"), e.HeadMoved("c9"))
    assert facts.offers
    assert not told(facts, e.OfferAnswered("o1", "allow")).offers
    assert not told(facts, e.StopRequested(), e.SessionStopped()).offers


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
def test_some_events_ask_for_an_effect_of_their_own(body: e.Body, kind: str | None) -> None:
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
def test_what_rules_do_sets_off_no_other_rule_but_the_end_of_a_command(
    body: e.Body, source: str, action: str, followed: bool
) -> None:
    facts, rule = begun(), Rule("r", body.type, action=action)
    event = Event(body, 1001.0, source, "k", "app", facts.id)
    assert bool(react_to(event, facts, (rule,), 1001.0)) is followed


def test_an_agents_own_report_is_a_trigger_by_its_name() -> None:
    facts, rule = begun(), Rule("r", "deploy-ready")
    event = Event(e.AgentReport("deploy-ready", {"to": "staging"}), 1001.0, "spool", "k", "app", facts.id)
    assert [intent.args["rule"] for intent in react_to(event, facts, (rule,), 1001.0)] == ["r"]


# -- judgements --------------------------------------------------------------------------------------------------------


def review(verdict: str, kind: str = "person", counts: bool = True, reviewer: str = "") -> Review:
    return Review(f"{kind}{verdict}", verdict, HEAD, kind, "", 1.0, kind=kind, counts=counts, reviewer=reviewer)


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
def test_an_agents_approval_is_none_and_takes_back_only_its_own_word(reviews: list[Review], verdict: str) -> None:
    assert PullRequest(1, "x", "main", reviews=tuple(reviews)).verdict(HEAD) == verdict


def test_who_looked_at_it() -> None:
    pr = PullRequest(1, "x", "main", reviews=(review("changes_requested", "agent", False, "r"),))
    assert not pr.seen_by_person
    assert replace(pr, reviews=(*pr.reviews, review("commented"))).seen_by_person


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
def test_a_judgement_is_found_in_the_last_words_of_a_turn(text: str, verdict: str | None) -> None:
    found = review_in(text)
    assert (found.verdict if found else None) == verdict


@ALL
@given(st.text(max_size=200))
def test_whatever_is_said_is_a_judgement_or_none(text: str) -> None:
    assert review_in(text) is None or review_in(f"```review\n{text}\n```") is not None


def test_the_end_of_a_reviewers_turn_posts_its_judgement_and_anybody_elses_does_not() -> None:
    facts = begun()
    said = e.AgentTurnEnded('```review\n{"verdict": "approved"}\n```')
    event = Event(said, 1001.0, "t", "k", "app", facts.id)
    assert react_to(event, facts, (), 1001.0) == []
    reviewer = replace(facts, spec=replace(facts.spec, reviews="app-y", kind="reviewer"))
    assert [intent.kind for intent in react_to(event, reviewer, (), 1001.0)] == ["post-review"]


def test_a_reviewer_makes_no_change_of_its_own() -> None:
    facts = begun()
    reviewer = replace(facts, spec=replace(facts.spec, reviews="app-y", kind="reviewer"))
    moved = told(reviewer, e.HeadMoved("c5"))
    assert "open-pr" not in {intent.kind for intent in decide(reviewer, moved, DEFAULT_RULES, 1001.0)}


def test_a_turn_has_a_moment_for_its_pull_request_before_it_counts_as_idle() -> None:
    rules = (Rule("r", "agent-idle", action="send-to-agent", retries=1, escalate=True),)
    facts = told(begun(), e.AgentActivity("idle"), at=1001.0, source="spool")
    (first,) = followed(facts, rules, 1001.0)
    assert (first.kind, first.due) == ("react", 1001.0 + IDLE_SETTLE_SECONDS)
    reacted = e.Reacted("r", "agent-idle", first.args["occurrence"], "x", 1)
    facts = told(facts, e.MessageQueued("m", "go on", "rule r"), reacted, at=1002.0)
    facts = told(facts, e.AgentActivity("active"), e.AgentActivity("idle"), at=1010.0, source="spool")
    (called,) = followed(facts, rules, 1010.0)
    assert (called.kind, called.due) == ("escalate", 1010.0 + IDLE_SETTLE_SECONDS)
    more = (Rule("r", "agent-idle", action="send-to-agent", retries=9),)
    assert [intent.due for intent in followed(facts, more, 1010.0)] == [1010.0 + IDLE_SETTLE_SECONDS]


def test_a_base_that_moves_makes_it_no_other_approval() -> None:
    rules = (Rule("r", "approved-and-green", auto=False, action="merge"),)
    facts = told(opened(), e.CheckFinished("t", HEAD, "success"), e.ChecksSettled(HEAD))
    facts = told(facts, e.ReviewSubmitted("v1", "approved", HEAD))
    attempts = []
    for base in ("b1", "b2"):
        facts = told(facts, e.BaseMoved(base), e.ConflictsSeen(HEAD, base))
        (intent,) = followed(facts, rules)
        attempts.append(intent.args["attempt"])
        facts = told(facts, e.Reacted("r", "approved-and-green", intent.args["occurrence"], "merge", attempts[-1]))
    assert attempts == [1, 2]
    facts = told(facts, e.HeadMoved("c2"))
    assert "approved-and-green" not in facts.episodes
