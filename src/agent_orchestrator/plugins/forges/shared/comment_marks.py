"""The hidden mark in our comments: by it we recognize them, and know that a comment was already posted."""

from __future__ import annotations

import re
from urllib.parse import quote, unquote

_UNQUOTED = ":/@#+=.,_"
"""Characters that are not quoted in a mark, in addition to letters, digits and `-`."""
_MARK = re.compile(r"<!-- ao:(\S+) -->\s*\Z")
MAX_BODY_LENGTH = 60_000
"""Characters of a body that are posted; GitHub's limit is 65,536."""
MAX_TITLE_LENGTH = 250
"""Characters of a title that are posted."""


def with_mark(text: str, key: str) -> str:
    """Return a text with our hidden mark at its end."""
    return f"{cut_to_limit(text)}\n\n{hidden_mark(key)}"


def cut_to_limit(text: str) -> str:
    """Return a text cut to the length that GitHub accepts."""
    return text.rstrip() if len(text) <= MAX_BODY_LENGTH else text[:MAX_BODY_LENGTH].rstrip() + "\n\n… (cut)"


def hidden_mark(key: str) -> str:
    """Return the hidden mark for a key, quoted so that no key can close the HTML comment early."""
    return f"<!-- ao:{quote(key, safe=_UNQUOTED).replace('--', '-%2D')} -->"


def split_mark(body: str) -> tuple[str, str]:
    """Return a text without our mark, and the mark's key, or "" if it has no mark."""
    match = _MARK.search(body)
    return (body[: match.start()].rstrip(), unquote(match[1])) if match else (body, "")


def has_mark(body: str, key: str) -> bool:
    """Return whether a text was posted with this key. Only a mark at the end counts: elsewhere it is part of a quotation."""
    return split_mark(body)[1] == key


def is_same_login(first: str, second: str) -> bool:
    """Return whether two logins are the same account, with or without the suffix of a bot."""
    return bool(first) and first.removesuffix("[bot]").casefold() == second.removesuffix("[bot]").casefold()
