"""What members and collaborators of a repository at GitHub may do: one question for each person, remembered for a while.

Of most authors GitHub tells enough beside their words. A member or collaborator may be one who only reads: of who reviewed it tells
whether he may push, of the others it is asked, which is answered to whoever may push himself. What is not known is no right.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple
from urllib.parse import quote

from agent_orchestrator.errors import AoError, Temporary
from agent_orchestrator.plugins.forges.github.people import author
from agent_orchestrator.plugins.forges.shared.http import Http
from agent_orchestrator.protocols.forge import Author

REMEMBERED = 500
FOR = 3_600.0
AT_ONCE = 50
"""People who are asked about by one reading; the others' rights are unknown until the next."""
_ASKED_ABOUT = ("MEMBER", "COLLABORATOR")
_PERMISSIONS = {"admin": "yes", "write": "yes", "read": "no", "none": "no"}
"""GitHub tells `maintain` as `write`, and `triage` as `read`."""


class Speaks(NamedTuple):
    """Somebody who said something."""

    who: Any
    """GraphQL's actor or REST's user."""
    association: Any
    may_push: Any = None
    """Where it is told beside: may he push?"""


class Rights:
    """Who may write to one repository."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._known: OrderedDict[str, tuple[float, str]] = OrderedDict()

    def author(self, who: Any, association: Any) -> Author:
        """An author, with what is known of his rights."""
        found = author(who, association)
        if association not in _ASKED_ABOUT or found.write_access != "unknown":
            return found
        _, access = self._known.get(found.name.casefold(), (0.0, "unknown"))
        return replace(found, write_access=access)

    async def learn(self, http: Http, repo: str, people: Iterable[Speaks]) -> None:
        """Ask about those who are not known yet. What cannot be learned stays unknown; who must wait for the host raises `Temporary`."""
        wanted: dict[str, str] = {}
        for who, association, may_push in people:
            name = author(who, association).name
            if association not in _ASKED_ABOUT or not isinstance(who, Mapping):
                continue
            if isinstance(may_push, bool):
                self._keep(name, "yes" if may_push else "no")
            else:
                wanted.setdefault(name.casefold(), name)
        now = self._clock()
        asked = {key: name for key, name in wanted.items() if self._known.get(key, (0.0, ""))[0] <= now}
        for key in asked:
            self._known.pop(key, None)
        for name in list(asked.values())[:AT_ONCE]:
            try:
                answer = await http.get(f"repos/{repo}/collaborators/{quote(name, safe='')}/permission", keep=_granted)
                self._keep(name, answer.data)
            except Temporary as error:
                if error.until is not None:
                    raise
                return
            except AoError:
                self._keep(name, "unknown")

    def _keep(self, name: str, access: str) -> None:
        key = name.casefold()
        self._known[key] = (self._clock() + FOR, access)
        self._known.move_to_end(key)
        while len(self._known) > REMEMBERED:
            self._known.popitem(last=False)


def _granted(data: Any) -> str:
    """May he write, by GitHub's word for what he may?"""
    return _PERMISSIONS.get(str(data.get("permission")), "unknown") if isinstance(data, Mapping) else "unknown"
