"""What others say on and on is put into words as far as a message has room for it, and takes no longer than that."""

from __future__ import annotations

import pytest

from agent_orchestrator.core.pull_request import Comment, PullRequest, Review
from agent_orchestrator.fleet.reactions import message_text
from agent_orchestrator.protocols.text import clean_text

LONG = "many words\n" * 6000


@pytest.fixture
def cleaned(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The lengths of all texts that were looked through."""
    found: list[int] = []

    def noting(text: str) -> str:
        found.append(len(text))
        return clean_text(text)

    monkeypatch.setattr(message_text, "clean_text", noting)
    return found


def thread(count: int, body: str, review: str | None = None) -> tuple[Comment, ...]:
    """So many comments, each an answer to the first one."""
    return tuple(
        Comment(f"c{number}", body, "eve", float(number), thread="c0" if number else None, review=review)
        for number in range(count)
    )


@pytest.mark.parametrize("trigger", ["review-comment", "changes-requested"])
def test_wording_a_long_thread_is_read_as_far_as_there_is_room(trigger: str, cleaned: list[int]) -> None:
    asked = Review("r1", "changes_requested", "h", "bob", "look", 1.0)
    said = thread(40, LONG, "r1")
    pull = PullRequest(1, "t", "main", reviews=(asked,), comments=said)
    told = message_text.comments(pull, said, trigger)
    assert message_text.MAX_LENGTH - 100 < len(told) <= message_text.MAX_LENGTH + 20
    assert told.endswith("… (cut)")
    assert sum(cleaned) < 4 * len(LONG), "it was not all looked through, again and again"


def test_wording_what_has_room_is_told_whole() -> None:
    said = thread(3, "a word")
    told = message_text.comments(PullRequest(1, "t", "main", comments=said), said, "review-comment")
    assert told == (
        "eve (comment c0):\n> a word\n\n"
        "eve (comment c1):\nin answer to:\n> > eve: a word\n> a word\n\n"
        "eve (comment c2):\nin answer to:\n> > eve: a word\n> > eve: a word\n> a word"
    )
