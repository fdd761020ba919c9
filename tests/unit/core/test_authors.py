"""Words of strangers: they reach nobody by themselves, hold nothing else up, and decide nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_orchestrator.core import events as e
from agent_orchestrator.core.authors import Author, approval_reason, is_trusted_text
from agent_orchestrator.core.episodes import newest_open_comment
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.reactions import lifecycle_intents
from agent_orchestrator.core.status import derive
from tests.unit.core.test_facts_properties import ALL, begun, step

ANN, BOB, EVE = Author("ann"), Author("bob", "no"), Author("eve", "unknown")


@pytest.mark.parametrize(
    ("words", "trusted", "reason"),
    [
        ([], [], ""),
        ([ANN, ANN], [], ""),
        ([ANN, BOB], [], "words of bob, who may not write to the repository"),
        ([EVE], [], "words of eve, of whom it is not known whether they may write to the repository"),
        ([BOB, EVE], ["EVE"], "words of bob, who may not write to the repository"),
        ([BOB, EVE], ["Bob", "eve"], ""),
        ([Author("Do as I say (5b1)", "no"), BOB], [], "words of somebody, bob, who may not write to the repository"),
        ([Author("x", "perhaps")], [], "words of x, of whom it is not known whether they may write to the repository"),
    ],
)
def test_who_is_held(words: list[Author], trusted: list[str], reason: str) -> None:
    assert approval_reason(words, trusted) == reason


@ALL
@given(st.lists(st.sampled_from([ANN, BOB, EVE])), st.lists(st.sampled_from(["ann", "bob", "eve"])))
def test_all_words_are_free_or_the_message_is_held(words: list[Author], trusted: list[str]) -> None:
    assert (approval_reason(words, trusted) == "") == all(is_trusted_text(one, trusted) for one in words)


def told(facts: SessionFacts, *bodies: e.Body, at: float = 1001.0) -> SessionFacts:
    for number, body in enumerate(bodies):
        facts = step(facts, Event(body, at, "test", f"t{number}", "app", facts.id, facts.generation))
    return facts


def deliveries(facts: SessionFacts) -> list[str]:
    return [intent.args["message"] for intent in lifecycle_intents(facts) if intent.kind == "deliver"]


def test_a_held_message_waits_and_the_next_one_does_not() -> None:
    facts = told(begun(), e.AgentActivity("idle"), e.MessageQueued("m1", "x", hold="why"), e.MessageQueued("m2", "y"))
    assert deliveries(facts) == ["m2"]
    assert [(one.state, one.reason) for one in facts.held_messages] == [("held", "why")]
    status = derive(facts, 1002.0)
    assert (status.name, status.column, status.waiting_for) == ("idle", "Needs you", "your word on a message: why")
    facts = told(facts, e.MessageDelivered("m2"), e.MessageReleased("m1"))
    assert deliveries(facts) == ["m1"] and not facts.held_messages
    assert derive(facts, 1002.0).waiting_for != status.waiting_for


def test_a_refused_message_is_over_and_no_later_word_brings_it_back() -> None:
    facts = told(begun(), e.MessageQueued("m1", "x", hold="why"), e.MessageFailed("m1", "a person refused it"))
    assert deliveries(told(facts, e.MessageReleased("m1"))) == []
    assert [(one.state, one.reason) for one in facts.messages] == [("failed", "a person refused it")]


def test_a_held_message_outlives_the_agent_but_not_the_session() -> None:
    held_one = told(begun(), e.MessageQueued("m1", "x", hold="why"), e.MessageQueued("m2", "y"))
    ended = told(held_one, e.AgentExited(0), at=1002.0)
    assert [one.state for one in ended.messages] == ["held", "failed"]
    assert [intent.kind for intent in lifecycle_intents(ended)] == []
    assert [intent.kind for intent in lifecycle_intents(told(ended, e.MessageReleased("m1")))] == ["launch"]
    assert [one.state for one in told(ended, e.SessionStopped()).messages] == ["failed", "failed"]


def test_a_strangers_judgement_is_but_a_comment() -> None:
    said = e.CommentAdded("c1", "no!", "bob", review="v1", head="c1", write_access="no")
    facts = told(
        begun(),
        e.HeadMoved("c1"),
        e.PrOpened(1, "x", "main", draft=False),
        said,
        e.ReviewSubmitted("v1", "changes_requested", "c1", "bob", "no!", "no"),
        e.ReviewSubmitted("v2", "approved", "c1", "eve", "", "unknown"),
    )
    assert facts.pr is not None
    assert (facts.pr.verdict("c1"), len(facts.pr.reviews)) == ("none", 2)
    found = newest_open_comment(facts, facts.pr)
    assert found is not None and found.id == "c1"
    assert told(facts, e.ReviewSubmitted("v3", "approved", "c1", "ann")).pr.verdict("c1") == "approved"  # type: ignore[union-attr]
