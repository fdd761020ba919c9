"""Who said something at GitLab, and may he write to the project: one question for each person, remembered for a while."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from agent_orchestrator.errors import AoError, NotFound, Temporary
from agent_orchestrator.plugins.forges.shared.http import Http
from agent_orchestrator.protocols.forge import Author

DEVELOPER = 30
"""The access level from which on a member may write."""
REMEMBERED = 500
FOR = 3_600.0
AT_ONCE = 20
"""People who are asked about by one reading; the others' rights are unknown until the next."""
_BOT = re.compile(
    r"(?:project|group)_\d+_bot(?:_\w+)?|service_account_\w+|(?:alert|support|security|migration|automation)-bot", re.I
)
GHOST = Author("ghost", "person", "no")
"""Whose account is gone."""


class Members:
    """Who may write to one project."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._known: OrderedDict[int, tuple[float, str]] = OrderedDict()

    def author(self, who: Any) -> Author:
        """An author, with what is known of his rights."""
        if not isinstance(who, Mapping) or not who.get("username") or who["username"] == "ghost":
            return GHOST
        name = str(who["username"])
        bot = bool(who.get("bot")) or bool(_BOT.fullmatch(name))
        _, access = self._known.get(_number(who), (0.0, "unknown"))
        return Author(name, "bot" if bot else "person", access)

    async def learn(self, http: Http, project: int, people: Iterable[Any]) -> None:
        """Ask about those who are not known yet. What cannot be learned stays unknown; who must wait for the host raises `Temporary`."""
        now = self._clock()
        numbers = dict.fromkeys(_number(one) for one in people if isinstance(one, Mapping))
        wanted = [number for number in numbers if number and self._known.get(number, (0.0, ""))[0] <= now]
        for number in wanted:
            self._known.pop(number, None)
        for number in wanted[:AT_ONCE]:
            try:
                answer = await http.get(f"projects/{project}/members/all/{number}")
                level = answer.data.get("access_level") if isinstance(answer.data, Mapping) else None
                access = "unknown" if not isinstance(level, int) else "yes" if level >= DEVELOPER else "no"
            except NotFound:
                access = "no"
            except Temporary as error:
                if error.until is not None:
                    raise
                return
            except AoError:
                access = "unknown"
            self._known[number] = (now + FOR, access)
            while len(self._known) > REMEMBERED:
                self._known.popitem(last=False)


def _number(who: Mapping[str, Any]) -> int:
    number = who.get("id")
    return number if isinstance(number, int) else 0
