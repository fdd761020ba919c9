"""Watch branches and record where they are.

A moved base is recorded for every open pull request onto it, and a change's own branch that moves after its agent has
ended is recorded for that change.

While the agent runs, the observer watches its workspace instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from agent_orchestrator.base.git.refs import find_layout, read_ref
from agent_orchestrator.core import events as e
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.listeners import FactsChange
from agent_orchestrator.errors import Temporary
from agent_orchestrator.sessions.part import Core, Part

RETRY_AFTER = 1.0
"""Seconds after which a branch that could not be read is read again."""


class BranchWatch(Part):
    """Watches the base branches and own branches of changes."""

    def __init__(self, core: Core) -> None:
        super().__init__(core)
        self._watched: set[tuple[Path, str]] = set()

    def start(self) -> None:
        """Watch the branches of open pull requests, and of those that are opened later."""
        self.on(self._watch_changed, e.PrOpened, e.BaseChanged)
        for facts in self.flow.sessions.values():
            self._watch_session(facts)

    def _watch_changed(self, changes: Sequence[FactsChange]) -> None:
        """Watch the branches of a pull request that was opened or got another base."""
        for change in changes:
            if change.after:
                self._watch_session(change.after)

    def _watch_session(self, facts: SessionFacts) -> None:
        """Watch the branches of a session's pull request, and record where they are."""
        if facts.pr is None or facts.pr.state != "open":
            return
        try:
            layout = find_layout(Path(facts.spec.repo))
            if layout is None:
                return
            for branch in (facts.pr.base, facts.branch):
                self._watch_branch(layout.common, branch)
                self._record_position(layout.common, branch)
        except Temporary:
            self._retry_later(lambda: self._watch_session(self.flow.sessions[facts.id]))

    def _watch_branch(self, common: Path, branch: str) -> None:
        """Watch a branch's files, if they are not watched yet."""
        if (common, branch) not in self._watched:
            for path in (common / "refs" / "heads" / branch, common / "packed-refs"):
                self.core.watch.watch_entry(path, lambda: self._record_position(common, branch))
            self._watched.add((common, branch))

    def _retry_later(self, read_again: Callable[[], None]) -> None:
        """Read again soon what could not be read, for lack of a file descriptor for example; no other event would report a move."""
        self.clock.call_later(RETRY_AFTER, read_again)

    def _record_position(self, common: Path, branch: str) -> None:
        """Record where a branch is, for the sessions that do not know it."""
        try:
            events = self._movement_events(common, branch)
        except Temporary:
            self._retry_later(lambda: self._record_position(common, branch))
            return
        if events:
            self.spawn(self._append(events))

    def _movement_events(self, common: Path, branch: str) -> list[Event]:
        """Return the events for sessions that do not know where a branch is."""
        head, now = read_ref(common, f"refs/heads/{branch}"), self.clock()
        events = []
        if head is None:
            return []
        for facts in self.flow.sessions.values():
            body = _movement_event(facts, branch, head)
            if body is not None and self._is_in_repository(facts, common):
                key = f"{body.type}:{facts.id}:{head}:{now:.6f}"
                events.append(Event(body, now, "git", key, facts.project, facts.id))
        return events

    def _is_in_repository(self, facts: SessionFacts, common: Path) -> bool:
        """Return whether a session is in this repository."""
        layout = find_layout(Path(facts.spec.repo))
        return layout is not None and layout.common == common

    async def _append(self, events: Sequence[Event]) -> None:
        """Record events."""
        await self.flow.append(*events)


def _movement_event(facts: SessionFacts, branch: str, head: str) -> e.Body | None:
    """Return the event for a session that does not know where a branch is, or None."""
    if facts.pr is None or facts.pr.state != "open":
        return None
    if facts.pr.base == branch and facts.base_head != head and not facts.has_remote_forge:
        return e.BaseMoved(head)
    is_own_branch = facts.branch == branch and not facts.live and facts.workspace is not None and facts.workspace.shared
    return e.HeadMoved(head) if is_own_branch and facts.head != head else None
