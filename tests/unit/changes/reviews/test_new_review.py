"""Reviews of agents stored in an intent: read once, also if fields are missing."""

from __future__ import annotations

from agent_orchestrator.changes.reviews.new_review import NewComment, NewReview, parse_review


def test_a_stored_review_is_read() -> None:
    comment = {"body": "Why?", "path": "a.txt", "line": 3, "thread": "c-1"}
    review = parse_review({"verdict": "request-changes", "body": "Mend it.", "comments": [comment]})
    assert review == NewReview("changes_requested", "Mend it.", (NewComment("Why?", "a.txt", 3, "c-1"),))


def test_what_is_not_there_is_empty_and_an_unknown_verdict_is_a_comment() -> None:
    assert parse_review({}) == NewReview("commented")
    assert parse_review(
        {"verdict": "magnificent", "comments": [{"body": "a", "path": None, "line": None}]}
    ) == NewReview("commented", "", (NewComment("a"),))
