"""Who said something at GitHub, and may he write to the repository. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from agent_orchestrator.protocols.forge import Author

_WRITES = {
    "OWNER": "yes",
    "CONTRIBUTOR": "no",
    "FIRST_TIMER": "no",
    "FIRST_TIME_CONTRIBUTOR": "no",
    "MANNEQUIN": "no",
    "NONE": "no",
}
"""What an association settles. A member or collaborator may do anything or only read: `permissions.py` asks."""
GHOST = Author("ghost", "person", "no")
"""Whose account is gone."""


def author(who: Any, association: Any) -> Author:
    """An author, from GraphQL's actor or REST's user."""
    if not isinstance(who, Mapping) or not who.get("login"):
        return GHOST
    name = str(who["login"])
    bot = "Bot" in (who.get("__typename"), who.get("type")) or name.endswith("[bot]")
    if bot and not name.endswith("[bot]"):
        name += "[bot]"
    return Author(name, "bot" if bot else "person", _WRITES.get(str(association), "unknown"))


def same(one: str, other: str) -> bool:
    """Are these two logins one, with or without a bot's ending?"""
    return bool(one) and one.removesuffix("[bot]").casefold() == other.removesuffix("[bot]").casefold()


def when(text: Any) -> float:
    """A time of GitHub's; 0 where it says none."""
    try:
        return datetime.fromisoformat(str(text)).timestamp() if text else 0.0
    except (ValueError, OverflowError):
        return 0.0
