"""Predict the conflicts of a commit with its base branch; results are cached while neither side moves."""

from __future__ import annotations

from pathlib import Path

from agent_orchestrator.changes.merge.merge_tree import open_merger
from agent_orchestrator.changes.merge.repository import open_repository
from agent_orchestrator.protocols.host import Host

_MAX_CACHED_PREDICTIONS = 2000
"""Maximum number of cached predictions."""


class BaseConflicts:
    """Predicts conflicts in one repository."""

    def __init__(self, host: Host, repo: Path, work: Path) -> None:
        self._host = host
        self._repo = repo
        self._work = work
        self._conflicts_by_sides: dict[tuple[str, str], tuple[str, ...]] = {}

    async def conflicts_with(self, head: str, base: str) -> tuple[str, ...]:
        """Return the files that would conflict if this commit were merged into the base branch as it is now."""
        repository = await open_repository(self._host, self._repo, base)
        sides = await repository.resolve_commit(head), await repository.base_head(base)
        if sides not in self._conflicts_by_sides:
            async with open_merger(repository, self._work, sides[1]) as merger:
                conflicts = (await merger.merge(sides[1], sides[0])).conflicts
            while len(self._conflicts_by_sides) >= _MAX_CACHED_PREDICTIONS:
                self._conflicts_by_sides.pop(next(iter(self._conflicts_by_sides)))
            self._conflicts_by_sides[sides] = conflicts
        return self._conflicts_by_sides[sides]
