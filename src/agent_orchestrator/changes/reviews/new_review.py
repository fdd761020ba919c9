"""`NewReview`: a review of a change as a person, an agent or a plugin submits it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agent_orchestrator.core.turn_text.review_parser import VERDICTS


@dataclass(frozen=True, slots=True)
class NewComment:
    """A comment on a change, on one of its files or on a line."""

    body: str
    path: str | None = None
    line: int | None = None
    thread: str | None = None
    """The comment that it answers."""


@dataclass(frozen=True, slots=True)
class NewReview:
    """A verdict on a change, in any spelling of `VERDICTS`, with any number of comments."""

    verdict: str
    body: str = ""
    comments: tuple[NewComment, ...] = ()


def parse_review(data: Mapping[str, Any]) -> NewReview:
    """Return the review that an intent stores; a spelling of the verdict that is not known counts as a comment."""
    comments = tuple(
        NewComment(
            str(comment.get("body") or ""),
            str(comment["path"]) if comment.get("path") else None,
            int(comment["line"]) if comment.get("line") else None,
            str(comment["thread"]) if comment.get("thread") else None,
        )
        for comment in data.get("comments") or ()
    )
    return NewReview(VERDICTS.get(str(data.get("verdict")), "commented"), str(data.get("body") or ""), comments)
