"""`ForgeRecords`: where forges that are no service keep their data: the daemon's facts, changed by events.

Every new number of a project is taken from `NumberAllocator`, so that issues and pull requests are numbered together.
"""

from __future__ import annotations

from agent_orchestrator.changes.forge_records.issues import ProjectIssues
from agent_orchestrator.changes.forge_records.numbers import NumberAllocator
from agent_orchestrator.changes.forge_records.pull_requests import ProjectPullRequests
from agent_orchestrator.core.engine import Flow

__all__ = ["ForgeRecords", "NumberAllocator", "ProjectIssues", "ProjectPullRequests"]


class ForgeRecords:
    """The records of all projects."""

    def __init__(self, flow: Flow, numbers: NumberAllocator) -> None:
        self._flow = flow
        self._numbers = numbers

    def for_slot(self, slot: str, project: str) -> ProjectPullRequests | ProjectIssues:
        """Return the records of a project for a plugin of the slot `scm` or `tracker`."""
        records = ProjectPullRequests if slot == "scm" else ProjectIssues
        return records(self._flow, self._numbers, project)
