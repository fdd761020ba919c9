"""A reviewing agent's judgement, found in what it said at the end of its turn: `review_in(text) -> AgentReview | None`. Pure.

It is a fenced block marked `review` with a JSON object: `{"verdict": …, "body": …, "comments": [{"path", "line", "body"}]}`.
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
MOST_COMMENTS = 100
LONGEST = 20_000

_BLOCK = re.compile(r"^```+ *review[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)


def review_in(text: str) -> AgentReview | None:
    """The last judgement in a text; none where there is none that can be read."""
    for block in reversed(_BLOCK.findall(text)):
        try:
            data = json.loads(block)
        except (ValueError, RecursionError):
            continue
        if found := review_of(data):
            return found
    return None


def review_of(data: Any) -> AgentReview | None:
    """A judgement from JSON data; what is no judgement is none, a comment without words is left out."""
    if not isinstance(data, Mapping) or not isinstance(data.get("verdict"), str):
        return None
    verdict = VERDICTS.get(data["verdict"].strip().lower())
    if verdict is None:
        return None
    given = data.get("comments")
    comments = [found for each in (given if isinstance(given, list) else []) if (found := _comment(each))]
    body = data.get("body") or data.get("summary") or ""
    return AgentReview(verdict, str(body)[:LONGEST], tuple(comments[:MOST_COMMENTS]))


def _comment(data: Any) -> dict[str, Any] | None:
    if not isinstance(data, Mapping) or not str(data.get("body") or "").strip():
        return None
    line = data.get("line")
    return {
        "body": str(data["body"])[:LONGEST],
        "path": str(data["path"]) if data.get("path") else None,
        "line": line if isinstance(line, int) and not isinstance(line, bool) and 0 < line < 10_000_000 else None,
    }
