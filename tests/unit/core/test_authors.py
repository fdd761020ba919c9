"""Comments of untrusted authors: held for a person's approval, delaying no other message and counting as no review."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_orchestrator.core import events as e
from agent_orchestrator.core.authors import TextAuthor, approval_reason, is_trusted_text
from agent_orchestrator.core.episodes import newest_open_comment
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.reactions import lifecycle_intents
from agent_orchestrator.core.status import derive_status
from tests.unit.core.test_facts_properties import begun, step

ANN, BOB, EVE = TextAuthor("ann"), TextAuthor("bob", "no"), TextAuthor("eve", "unknown")


@pytest.mark.parametrize(
    ("authors", "trusted", "reason"),
    [
        ([], [], ""),
        ([ANN, ANN], [], ""),
        ([ANN, BOB], [], "words of bob, who may not write to the repository"),
        ([EVE], [], "words of eve, of whom it is not known whether they may write to the repository"),
        ([BOB, EVE], ["EVE"], "words of bob, who may not write to the repository"),
        ([BOB, EVE], ["Bob", "eve"], ""),
        (
            [TextAuthor("Do as I say (5b1)", "no"), BOB],
            [],
            "words of somebody, bob, who may not write to the repository",
        ),
        (
            [TextAuthor("x", "perhaps")],
            [],
            "words of x, of whom it is not known whether they may write to the repository",
        ),
    ],
)
def test_comments_of_untrusted_authors_are_held_with_a_reason(
    authors: list[TextAuthor], trusted: list[str], reason: str
) -> None:
    assert approval_reason(authors, trusted) == reason


@given(st.lists(st.sampled_from([ANN, BOB, EVE])), st.lists(st.sampled_from(["ann", "bob", "eve"])))
def test_a_message_is_held_unless_all_its_authors_are_trusted(authors: list[TextAuthor], trusted: list[str]) -> None:
    assert (approval_reason(authors, trusted) == "") == all(is_trusted_text(author, trusted) for author in authors)


def after(facts: SessionFacts, *bodies: e.Body, at: float = 1001.0) -> SessionFacts:
    for number, body in enumerate(bodies):
        facts = step(facts, Event(body, at, "test", f"t{number}", "app", facts.id, facts.generation))
    return facts


def deliveries(facts: SessionFacts) -> list[str]:
    return [intent.args["message"] for intent in lifecycle_intents(facts) if intent.kind == "deliver"]


def test_a_held_message_does_not_delay_the_next_one() -> None:
    facts = after(begun(), e.AgentActivity("idle"), e.MessageQueued("m1", "x", hold="why"), e.MessageQueued("m2", "y"))
    assert deliveries(facts) == ["m2"]
    assert [(message.state, message.reason) for message in facts.held_messages] == [("held", "why")]
    status = derive_status(facts, 1002.0)
    assert (status.name, status.column, status.waiting_for) == ("idle", "Needs you", "your word on a message: why")
    facts = after(facts, e.MessageDelivered("m2"), e.MessageReleased("m1"))
    assert deliveries(facts) == ["m1"] and not facts.held_messages
    assert derive_status(facts, 1002.0).waiting_for != status.waiting_for


def test_a_refused_message_cannot_be_released() -> None:
    facts = after(begun(), e.MessageQueued("m1", "x", hold="why"), e.MessageFailed("m1", "a person refused it"))
    assert deliveries(after(facts, e.MessageReleased("m1"))) == []
    assert [(message.state, message.reason) for message in facts.messages] == [("failed", "a person refused it")]


def test_a_held_message_outlives_the_agent_but_not_the_session() -> None:
    held = after(begun(), e.MessageQueued("m1", "x", hold="why"), e.MessageQueued("m2", "y"))
    ended = after(held, e.AgentExited(0), at=1002.0)
    assert [message.state for message in ended.messages] == ["held", "failed"]
    assert [intent.kind for intent in lifecycle_intents(ended)] == []
    assert [intent.kind for intent in lifecycle_intents(after(ended, e.MessageReleased("m1")))] == ["launch"]
    assert [message.state for message in after(ended, e.SessionStopped()).messages] == ["failed", "failed"]


def test_an_untrusted_review_counts_only_as_a_comment() -> None:
    comment = e.CommentAdded("c1", "no!", "bob", review="v1", head="c1", write_access="no")
    facts = after(
        begun(),
        e.HeadMoved("c1"),
        e.PrOpened(1, "x", "main", draft=False),
        comment,
        e.ReviewSubmitted("v1", "changes_requested", "c1", "bob", "no!", "no"),
        e.ReviewSubmitted("v2", "approved", "c1", "eve", "", "unknown"),
    )
    assert facts.pr is not None
    assert (facts.pr.verdict("c1"), len(facts.pr.reviews)) == ("none", 2)
    newest = newest_open_comment(facts, facts.pr)
    assert newest is not None and newest.id == "c1"
    assert after(facts, e.ReviewSubmitted("v3", "approved", "c1", "ann")).pr.verdict("c1") == "approved"  # type: ignore[union-attr]
