"""Would it conflict? Asked often, answered from memory while neither side has moved."""

from __future__ import annotations

from pathlib import Path

from agent_orchestrator.changes.merge.merge_tree import merging
from agent_orchestrator.changes.merge.repository import open_repository
from agent_orchestrator.protocols.host import Host

_REMEMBERED = 2000


class Prediction:
    """Predicts conflicts in one repository."""

    def __init__(self, host: Host, repo: Path, work: Path) -> None:
        self._host = host
        self._repo = repo
        self._work = work
        self._known: dict[tuple[str, str], tuple[str, ...]] = {}

    async def conflicts_with(self, head: str, base: str) -> tuple[str, ...]:
        """The files that would conflict if this commit were merged onto the base branch as it is now."""
        repository = await open_repository(self._host, self._repo, base)
        sides = await repository.commit(head), await repository.base(base)
        if sides not in self._known:
            async with merging(repository, self._work, sides[1]) as merger:
                found = (await merger.merge(sides[1], sides[0])).conflicts
            while len(self._known) >= _REMEMBERED:
                self._known.pop(next(iter(self._known)))
            self._known[sides] = found
        return self._known[sides]
