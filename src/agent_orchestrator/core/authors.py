"""Whose words may reach an agent by themselves: `held(words, trusted) -> why not`. Pure.

A forge says of each author whether he may write to the repository. Who may could have put his words there himself; the words of
anybody else, and of those of whom nobody knows, wait for a person, unless the project trusts their author.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Protocol

WRITES = "yes"
"""Of `yes`, `no` and `unknown`, the only answer that counts."""
_NAME = re.compile(r"[\w.@+-]{1,64}(?:\[bot\])?")
"""One word, as logins are."""


class Said(Protocol):
    """Something that somebody said."""

    @property
    def author(self) -> str:
        """Who."""
        ...

    @property
    def write_access(self) -> str:
        """May he write to the repository: `yes`, `no` or `unknown`."""
        ...


@dataclass(frozen=True, slots=True)
class Words:
    """Somebody's words, whatever they are."""

    author: str
    write_access: str = WRITES


A_PERSON = Words("person")
"""Whoever uses the command line here."""


def kind_of(author: str) -> str:
    """What an author is by his name: a `person`, or a `bot`."""
    return "bot" if author.casefold().endswith("[bot]") else "person"


def free(said: Said, trusted: Collection[str]) -> bool:
    """May these words reach an agent by themselves? Names are compared as forges do, whatever their case."""
    return said.write_access == WRITES or said.author.casefold() in {name.casefold() for name in trusted}


def held(words: Iterable[Said], trusted: Collection[str]) -> str:
    """Why all these words together wait for a person; nothing: they need not."""
    strangers = [one for one in words if not free(one, trusted)]
    if not strangers:
        return ""
    known = all(one.write_access == "no" for one in strangers)
    names = ", ".join(dict.fromkeys(plain_name(one.author) for one in strangers))
    return (
        f"words of {names}, who may not write to the repository"
        if known
        else (f"words of {names}, of whom it is not known whether they may write to the repository")
    )


def plain_name(author: str) -> str:
    """A stranger's name where agents may read it: where names are free to choose, one may be an order; what is no plain one is not told."""
    return author if _NAME.fullmatch(author) else "somebody"
