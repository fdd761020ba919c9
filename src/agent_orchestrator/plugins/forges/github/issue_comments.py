"""Comments on issues and pull requests at GitHub: find the one that we posted."""

from __future__ import annotations

from typing import Any

from agent_orchestrator.plugins.forges.shared.comment_marks import has_mark, is_same_login
from agent_orchestrator.plugins.forges.shared.http import ForgeHttpClient

_MARK_SEARCH_LENGTH = 2_000
"""The end of a comment that is searched for a mark, in characters."""


async def find_own_comment(http: ForgeHttpClient, path: str, key: str, us: str) -> str | None:
    """Return the id of our comment with this key in a listing of comments, or None."""
    comments = await http.get_pages(path + "?per_page=100", keep=_comment_ends)
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
            str(comment.get("body") or "")[-_MARK_SEARCH_LENGTH:],
            str(comment.get("node_id")),
        )
        for comment in listed
    ]
