"""The hidden mark on what we say at GitHub: by it we know our own words, and that they were said already."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote, unquote

from agent_orchestrator.plugins.forges.github.people import same
from agent_orchestrator.plugins.forges.shared.http import Http

_KEPT = ":/@#+=.,_"
"""What stays as it is in a mark, besides letters, digits and `-`."""
_MARK = re.compile(r"<!-- ao:(\S+) -->\s*\Z")
_LONGEST = 2_000
LONGEST_TEXT = 60_000
LONGEST_TITLE = 250


def marked(text: str, key: str) -> str:
    """A text with our hidden mark at its end, by which it is found again."""
    return f"{fitting(text)}\n\n{mark(key)}"


def fitting(text: str) -> str:
    """A text that is no longer than GitHub takes."""
    return text.rstrip() if len(text) <= LONGEST_TEXT else text[:LONGEST_TEXT].rstrip() + "\n\n… (cut)"


def mark(key: str) -> str:
    """The hidden mark of a key; no key can end it early."""
    return f"<!-- ao:{quote(key, safe=_KEPT).replace('--', '-%2D')} -->"


def unmarked(body: str) -> tuple[str, str]:
    """A text without our mark, and the mark's key; no key: it bears none."""
    found = _MARK.search(body)
    return (body[: found.start()].rstrip(), unquote(found[1])) if found else (body, "")


def bears(body: str, key: str) -> bool:
    """Is it what was said with this key? A mark in the midst of a text is a quotation."""
    return unmarked(body)[1] == key


async def already_said(http: Http, path: str, key: str, us: str) -> str | None:
    """The id of our comment with this key in a listing of comments."""
    said = await http.pages(path + "?per_page=100", keep=_ends)
    return next((node for name, end, node in said if bears(end, key) and same(us, name)), None)


def _ends(comments: Any) -> list[tuple[str, str, str]]:
    """Of each comment its author, its end, where a mark is, and its id."""
    listed = comments if isinstance(comments, list) else []
    return [
        (str((one.get("user") or {}).get("login")), str(one.get("body") or "")[-_LONGEST:], str(one.get("node_id")))
        for one in listed
    ]
