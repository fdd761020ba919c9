"""The permissions of members and collaborators of a repository at GitHub: one request per person, remembered for a while.

For most authors the association in GitHub's answer is enough. A member or collaborator may be read-only: for the author of a review
GitHub says whether the author may push; for others there is a request, which needs a token that may push. Unknown permissions count
as no permission.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple
from urllib.parse import quote

from agent_orchestrator.errors import AoError, Temporary
from agent_orchestrator.plugins.forges.github.people import parse_author
from agent_orchestrator.plugins.forges.shared.http import ForgeHttpClient
from agent_orchestrator.protocols.forge import Author

MAX_REMEMBERED_PEOPLE = 500
"""People whose permissions are remembered."""
REMEMBERED_SECONDS = 3_600.0
"""Seconds for which they are remembered."""
MAX_REQUESTS_PER_READING = 50
"""People whose permissions one reading requests; those of the others are unknown until the next reading."""
_UNDECIDED_ASSOCIATIONS = ("MEMBER", "COLLABORATOR")
_PERMISSIONS = {"admin": "yes", "write": "yes", "read": "no", "none": "no"}
"""Write access by GitHub's permission. GitHub reports `maintain` as `write`, and `triage` as `read`."""


class CommentAuthor(NamedTuple):
    """The author of a review, comment or issue."""

    who: Any
    """GraphQL's actor or REST's user."""
    association: Any
    may_push: Any = None
    """Whether the author may push, if GitHub says so in the same answer; otherwise None."""


class RepositoryPermissions:
    """The write access of people to one repository."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._access: OrderedDict[str, tuple[float, str]] = OrderedDict()

    def author(self, who: Any, association: Any) -> Author:
        """Return an author with the write access that is known."""
        known_author = parse_author(who, association)
        if association not in _UNDECIDED_ASSOCIATIONS or known_author.write_access != "unknown":
            return known_author
        _, access = self._access.get(known_author.name.casefold(), (0.0, "unknown"))
        return replace(known_author, write_access=access)

    async def read_permissions(self, http: ForgeHttpClient, repo: str, people: Iterable[CommentAuthor]) -> None:
        """Request the permissions of people that are not known yet.

        A permission that cannot be read stays unknown. Raise `Temporary` if the host demands a pause.
        """
        undecided: dict[str, str] = {}
        for who, association, may_push in people:
            name = parse_author(who, association).name
            if association not in _UNDECIDED_ASSOCIATIONS or not isinstance(who, Mapping):
                continue
            if isinstance(may_push, bool):
                self._keep(name, "yes" if may_push else "no")
            else:
                undecided.setdefault(name.casefold(), name)
        now = self._clock()
        outdated = {key: name for key, name in undecided.items() if self._access.get(key, (0.0, ""))[0] <= now}
        for key in outdated:
            self._access.pop(key, None)
        for name in list(outdated.values())[:MAX_REQUESTS_PER_READING]:
            try:
                answer = await http.get(
                    f"repos/{repo}/collaborators/{quote(name, safe='')}/permission", keep=_write_access
                )
                self._keep(name, answer.data)
            except Temporary as error:
                if error.until is not None:
                    raise
                return
            except AoError:
                self._keep(name, "unknown")

    def _keep(self, name: str, access: str) -> None:
        """Remember the write access of a login, and forget the oldest beyond `MAX_REMEMBERED_PEOPLE`."""
        key = name.casefold()
        self._access[key] = (self._clock() + REMEMBERED_SECONDS, access)
        self._access.move_to_end(key)
        while len(self._access) > MAX_REMEMBERED_PEOPLE:
            self._access.popitem(last=False)


def _write_access(data: Any) -> str:
    """Return the write access that GitHub's answer stands for."""
    return _PERMISSIONS.get(str(data.get("permission")), "unknown") if isinstance(data, Mapping) else "unknown"
