"""Whose comments may reach an agent without approval: `held(words, trusted) -> reason`. Pure.

A forge reports for each author whether they may write to the repository. Authors with write access could put the same
text into the repository themselves. Comments of other authors, and of those for whom it is unknown, wait for a person,
unless the project trusts the author.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Protocol

HAS_WRITE_ACCESS = "yes"
"""Of `yes`, `no` and `unknown`, the only answer that means write access."""
_LOGIN = re.compile(r"[\w.@+-]{1,64}(?:\[bot\])?")
"""A single word, as logins are."""


class AuthoredText(Protocol):
    """A text that an author wrote."""

    @property
    def author(self) -> str:
        """Login of the author."""
        ...

    @property
    def write_access(self) -> str:
        """Whether the author may write to the repository: `yes`, `no` or `unknown`."""
        ...


@dataclass(frozen=True, slots=True)
class TextAuthor:
    """The author of a text, and whether they have write access."""

    author: str
    write_access: str = HAS_WRITE_ACCESS


LOCAL_PERSON = TextAuthor("person")
"""The person who uses the command line here."""


def author_kind(author: str) -> str:
    """Return whether an author's name is that of a `person` or a `bot`."""
    return "bot" if author.casefold().endswith("[bot]") else "person"


def is_trusted_text(text: AuthoredText, trusted: Collection[str]) -> bool:
    """Return whether a text may reach an agent without approval; names are compared ignoring case, as forges do."""
    return text.write_access == HAS_WRITE_ACCESS or text.author.casefold() in {name.casefold() for name in trusted}


def approval_reason(words: Iterable[AuthoredText], trusted: Collection[str]) -> str:
    """Return why texts that are delivered together need a person's approval, or "" if they do not."""
    untrusted = [text for text in words if not is_trusted_text(text, trusted)]
    if not untrusted:
        return ""
    is_known = all(text.write_access == "no" for text in untrusted)
    names = ", ".join(dict.fromkeys(safe_author_name(text.author) for text in untrusted))
    return (
        f"words of {names}, who may not write to the repository"
        if is_known
        else (f"words of {names}, of whom it is not known whether they may write to the repository")
    )


def safe_author_name(author: str) -> str:
    """Return an author's name for a text that agents read, or a placeholder unless it looks like a login.

    A freely chosen name may contain instructions.
    """
    return author if _LOGIN.fullmatch(author) else "somebody"
