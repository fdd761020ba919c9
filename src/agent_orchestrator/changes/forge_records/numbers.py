"""`NumberAllocator`: the numbers of issues and pull requests that the daemon itself gives."""

from __future__ import annotations

import asyncio

from agent_orchestrator.core.engine import Flow


class NumberAllocator:
    """The numbers of all projects; issues and pull requests of a project are numbered together."""

    def __init__(self, flow: Flow) -> None:
        self._flow = flow
        self.lock = asyncio.Lock()
        """To be held from `next` until what has the number is recorded."""

    def next_number(self, project: str) -> int:
        """Return a project's next free number."""
        numbers = [issue.number for issue in self._flow.home.issues.values() if issue.project == project]
        pulls = (facts.pr for facts in self._flow.sessions.values() if facts.project == project)
        return max([*numbers, *(pr.number for pr in pulls if pr)], default=0) + 1
