"""Watching branches: whoever moves a base here, every open pull request onto it is told; whoever moves a change's own branch once its agent
has ended, that change is. (While the agent lives, the observer watches its workspace.)"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

from agent_orchestrator.base.files.watch import Watch
from agent_orchestrator.base.git.refs import find_layout, read_ref
from agent_orchestrator.core import events as e
from agent_orchestrator.core.engine import Change, Flow
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.errors import Temporary

TRY_AGAIN = 1.0
"""Seconds after which a branch that could not be looked at is looked at again."""


class Bases:
    """Keeps an eye on the branches that changes are to land on, and on those that they are on."""

    def __init__(self, flow: Flow, watch: Watch) -> None:
        self.flow = flow
        self.watch = watch
        self._watched: set[tuple[Path, str]] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Look at those that are open, and at those to come."""
        self.flow.on_change.append(self._on_change)
        for facts in self.flow.sessions.values():
            self._look(facts)

    def _on_change(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if isinstance(change.event.body, e.PrOpened | e.BaseChanged) and change.after:
                self._look(change.after)

    def _look(self, facts: SessionFacts) -> None:
        if facts.pr is None or facts.pr.state != "open":
            return
        try:
            layout = find_layout(Path(facts.spec.repo))
            if layout is None:
                return
            for branch in (facts.pr.base, facts.branch):
                self._watch(layout.common, branch)
                self._moved(layout.common, branch)
        except Temporary:
            self._later(lambda: self._look(self.flow.sessions[facts.id]))

    def _watch(self, common: Path, branch: str) -> None:
        if (common, branch) not in self._watched:
            for path in (common / "refs" / "heads" / branch, common / "packed-refs"):
                self.watch.entry(path, lambda: self._moved(common, branch))
            self._watched.add((common, branch))

    def _later(self, look: Callable[[], None]) -> None:
        """What could not be looked at now, without a free descriptor say, is looked at soon: nothing else would tell that it moved."""
        asyncio.get_running_loop().call_later(TRY_AGAIN, look)

    def _moved(self, common: Path, branch: str) -> None:
        try:
            news = self._news(common, branch)
        except Temporary:
            self._later(lambda: self._moved(common, branch))
            return
        if news:
            task = asyncio.get_running_loop().create_task(self._tell(news))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _news(self, common: Path, branch: str) -> list[Event]:
        head, now = read_ref(common, f"refs/heads/{branch}"), self.flow.clock()
        told = []
        if head is None:
            return []
        for facts in self.flow.sessions.values():
            body = _news(facts, branch, head)
            if body is not None and self._is_in(facts, common):
                key = f"{body.type}:{facts.id}:{head}:{now:.6f}"
                told.append(Event(body, now, "git", key, facts.project, facts.id))
        return told

    def _is_in(self, facts: SessionFacts, common: Path) -> bool:
        layout = find_layout(Path(facts.spec.repo))
        return layout is not None and layout.common == common

    async def _tell(self, events: Sequence[Event]) -> None:
        await self.flow.append(*events)


def _news(facts: SessionFacts, branch: str, head: str) -> e.Body | None:
    """What a branch's place means for a session that did not know it."""
    if facts.pr is None or facts.pr.state != "open":
        return None
    if facts.pr.base == branch and facts.base_head != head and facts.spec.scm == "local":
        return e.BaseMoved(head)
    mine = facts.branch == branch and not facts.live and facts.place is not None and facts.place.shared
    return e.HeadMoved(head) if mine and facts.head != head else None
