"""Authors at GitHub, and whether they may write to the repository. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent_orchestrator.protocols.forge import Author

_WRITE_ACCESS = {
    "OWNER": "yes",
    "CONTRIBUTOR": "no",
    "FIRST_TIMER": "no",
    "FIRST_TIME_CONTRIBUTOR": "no",
    "MANNEQUIN": "no",
    "NONE": "no",
}
"""The write access that an association settles. A member or collaborator may also be read-only: `permissions.py` asks GitHub."""
GHOST = Author("ghost", "person", "no")
"""The author whose account was deleted."""


def parse_author(who: Any, association: Any) -> Author:
    """Return an author from GraphQL's actor or REST's user, with the write access that the association settles."""
    if not isinstance(who, Mapping) or not who.get("login"):
        return GHOST
    name = str(who["login"])
    is_bot = "Bot" in (who.get("__typename"), who.get("type")) or name.endswith("[bot]")
    if is_bot and not name.endswith("[bot]"):
        name += "[bot]"
    return Author(name, "bot" if is_bot else "person", _WRITE_ACCESS.get(str(association), "unknown"))
