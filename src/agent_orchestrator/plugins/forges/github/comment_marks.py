"""The hidden mark in our comments: by it we recognize them, and know that a comment was already posted."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote, unquote

from agent_orchestrator.plugins.forges.github.people import is_same_login
from agent_orchestrator.plugins.forges.shared.http import Http

_UNQUOTED = ":/@#+=.,_"
"""Characters that are not quoted in a mark, in addition to letters, digits and `-`."""
_MARK = re.compile(r"<!-- ao:(\S+) -->\s*\Z")
_LONGEST_MARK = 2_000
"""The end of a comment that is searched for a mark, in characters."""
LONGEST_TEXT = 60_000
"""Characters of a body that are posted; GitHub's limit is 65,536."""
LONGEST_TITLE = 250
"""Characters of a title that are posted."""


def with_mark(text: str, key: str) -> str:
    """Return a text with our hidden mark at its end."""
    return f"{cut_to_limit(text)}\n\n{mark(key)}"


def cut_to_limit(text: str) -> str:
    """Return a text cut to the length that GitHub accepts."""
    return text.rstrip() if len(text) <= LONGEST_TEXT else text[:LONGEST_TEXT].rstrip() + "\n\n… (cut)"


def mark(key: str) -> str:
    """Return the hidden mark for a key, quoted so that no key can close the HTML comment early."""
    return f"<!-- ao:{quote(key, safe=_UNQUOTED).replace('--', '-%2D')} -->"


def split_mark(body: str) -> tuple[str, str]:
    """Return a text without our mark, and the mark's key, or "" if it has no mark."""
    match = _MARK.search(body)
    return (body[: match.start()].rstrip(), unquote(match[1])) if match else (body, "")


def has_mark(body: str, key: str) -> bool:
    """Return whether a text was posted with this key. Only a mark at the end counts: elsewhere it is part of a quotation."""
    return split_mark(body)[1] == key


async def find_own_comment(http: Http, path: str, key: str, us: str) -> str | None:
    """Return the id of our comment with this key in a listing of comments, or None."""
    comments = await http.pages(path + "?per_page=100", keep=_comment_ends)
    return next(
        (comment_id for author, ending, comment_id in comments if has_mark(ending, key) and is_same_login(us, author)),
        None,
    )


def _comment_ends(comments: Any) -> list[tuple[str, str, str]]:
    """Return each comment's author, its end, where a mark would be, and its id."""
    listed = comments if isinstance(comments, list) else []
    return [
        (
            str((comment.get("user") or {}).get("login")),
            str(comment.get("body") or "")[-_LONGEST_MARK:],
            str(comment.get("node_id")),
        )
        for comment in listed
    ]
