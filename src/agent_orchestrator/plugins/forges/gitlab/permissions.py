"""Authors at GitLab, and whether they may write to the project: one request per person, remembered for a while."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from agent_orchestrator.errors import AoError, NotFound, Temporary
from agent_orchestrator.plugins.forges.shared.http import ForgeHttpClient
from agent_orchestrator.protocols.forge import Author

DEVELOPER_LEVEL = 30
"""The access level from which a member may write."""
MAX_REMEMBERED_PEOPLE = 500
"""People whose access is remembered."""
REMEMBERED_SECONDS = 3_600.0
"""Seconds for which it is remembered."""
MAX_REQUESTS_PER_READING = 20
"""People whose access one reading requests; that of the others is unknown until the next reading."""
_BOT = re.compile(
    r"(?:project|group)_\d+_bot(?:_\w+)?|service_account_\w+|(?:alert|support|security|migration|automation)-bot", re.I
)
"""Usernames of bots and service accounts."""
GHOST = Author("ghost", "person", "no")
"""The author whose account was deleted."""


class ProjectPermissions:
    """The write access of people to one project."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._access: OrderedDict[int, tuple[float, str]] = OrderedDict()

    def author(self, who: Any) -> Author:
        """Return an author with the write access that is known."""
        if not isinstance(who, Mapping) or not who.get("username") or who["username"] == "ghost":
            return GHOST
        name = str(who["username"])
        is_bot = bool(who.get("bot")) or bool(_BOT.fullmatch(name))
        _, access = self._access.get(_user_id(who), (0.0, "unknown"))
        return Author(name, "bot" if is_bot else "person", access)

    async def read_permissions(self, http: ForgeHttpClient, project: int, people: Iterable[Any]) -> None:
        """Request the access of people that is not known yet.

        Access that cannot be read stays unknown. Raise `Temporary` if the host demands a pause.
        """
        now = self._clock()
        numbers = dict.fromkeys(_user_id(person) for person in people if isinstance(person, Mapping))
        outdated = [number for number in numbers if number and self._access.get(number, (0.0, ""))[0] <= now]
        for number in outdated:
            self._access.pop(number, None)
        for number in outdated[:MAX_REQUESTS_PER_READING]:
            try:
                answer = await http.get(f"projects/{project}/members/all/{number}")
                level = answer.data.get("access_level") if isinstance(answer.data, Mapping) else None
                access = "unknown" if not isinstance(level, int) else "yes" if level >= DEVELOPER_LEVEL else "no"
            except NotFound:
                access = "no"
            except Temporary as error:
                if error.until is not None:
                    raise
                return
            except AoError:
                access = "unknown"
            self._access[number] = (now + REMEMBERED_SECONDS, access)
            while len(self._access) > MAX_REMEMBERED_PEOPLE:
                self._access.popitem(last=False)


def _user_id(user: Mapping[str, Any]) -> int:
    """Return a user's id, or 0."""
    number = user.get("id")
    return number if isinstance(number, int) else 0
