"""Texts of messages: long comments are cut, and no more of them is processed than needed."""

from __future__ import annotations

import pytest

from agent_orchestrator.core.pull_request import Comment, PullRequest, Review
from agent_orchestrator.fleet.reactions import message_variables
from agent_orchestrator.protocols.text import clean_text

LONG_TEXT = "many words\n" * 6000


@pytest.fixture
def cleaned(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that receives the lengths of all processed texts."""
    lengths: list[int] = []

    def recording_clean(text: str) -> str:
        lengths.append(len(text))
        return clean_text(text)

    monkeypatch.setattr(message_variables, "clean_text", recording_clean)
    return lengths


def thread(count: int, body: str, review: str | None = None) -> tuple[Comment, ...]:
    """Return a thread of comments, each an answer to the first one."""
    return tuple(
        Comment(f"c{number}", body, "eve", float(number), thread="c0" if number else None, review=review)
        for number in range(count)
    )


@pytest.mark.parametrize("trigger", ["review-comment", "changes-requested"])
def test_a_long_thread_is_processed_only_up_to_the_limit(trigger: str, cleaned: list[int]) -> None:
    review = Review("r1", "changes_requested", "h", "bob", "look", 1.0)
    comments = thread(40, LONG_TEXT, "r1")
    pull = PullRequest(1, "t", "main", reviews=(review,), comments=comments)
    text = message_variables.comments_text(pull, comments, trigger)
    assert message_variables.MAX_LENGTH - 100 < len(text) <= message_variables.MAX_LENGTH + 20
    assert text.endswith("… (cut)")
    assert sum(cleaned) < 4 * len(LONG_TEXT), "it was not all looked through, again and again"


def test_a_short_thread_is_shown_completely() -> None:
    comments = thread(3, "a word")
    text = message_variables.comments_text(PullRequest(1, "t", "main", comments=comments), comments, "review-comment")
    assert text == (
        "eve (comment c0):\n> a word\n\n"
        "eve (comment c1):\nin answer to:\n> > eve: a word\n> a word\n\n"
        "eve (comment c2):\nin answer to:\n> > eve: a word\n> > eve: a word\n> a word"
    )
