"""Find a reviewing agent's verdict in the text at the end of its turn: `find_review(text) -> AgentReview | None`. Pure.

The verdict is a fenced block marked `review` with a JSON object: `{"verdict": …, "body": …, "comments": [{"path",
"line", "body"}]}`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from agent_orchestrator.core.events import AgentReview

VERDICTS: Mapping[str, str] = {
    "approved": "approved",
    "approve": "approved",
    "changes_requested": "changes_requested",
    "request-changes": "changes_requested",
    "request_changes": "changes_requested",
    "commented": "commented",
    "comment": "commented",
}
"""Spellings of a verdict that agents use → the verdict."""
MAX_COMMENTS = 100
"""Number of comments of one review that are kept."""
MAX_TEXT_LENGTH = 20_000
"""Longest text of a review or comment that is kept, in characters."""

_BLOCK = re.compile(r"^```+ *review[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)


def find_review(text: str) -> AgentReview | None:
    """Return the last valid review in a text, or None."""
    for block in reversed(_BLOCK.findall(text)):
        try:
            data = json.loads(block)
        except (ValueError, RecursionError):
            continue
        if review := parse_review(data):
            return review
    return None


def parse_review(data: Any) -> AgentReview | None:
    """Return a review from JSON data, or None if it is not one; comments without text are left out."""
    if not isinstance(data, Mapping) or not isinstance(data.get("verdict"), str):
        return None
    verdict = VERDICTS.get(data["verdict"].strip().lower())
    if verdict is None:
        return None
    entries = data.get("comments")
    comments = [
        comment for entry in (entries if isinstance(entries, list) else []) if (comment := _parse_comment(entry))
    ]
    body = data.get("body") or data.get("summary") or ""
    return AgentReview(verdict, str(body)[:MAX_TEXT_LENGTH], tuple(comments[:MAX_COMMENTS]))


def _parse_comment(data: Any) -> dict[str, Any] | None:
    """Return a comment from JSON data, or None if it has no text."""
    if not isinstance(data, Mapping) or not str(data.get("body") or "").strip():
        return None
    line = data.get("line")
    return {
        "body": str(data["body"])[:MAX_TEXT_LENGTH],
        "path": str(data["path"]) if data.get("path") else None,
        "line": line if isinstance(line, int) and not isinstance(line, bool) and 0 < line < 10_000_000 else None,
    }
