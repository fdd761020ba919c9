"""Watching base branches: whoever moves one, every open pull request onto it is told."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from agent_orchestrator.flow import events as e
from agent_orchestrator.flow.engine import Change, Flow
from agent_orchestrator.flow.events import Event
from agent_orchestrator.flow.facts import SessionFacts
from agent_orchestrator.git_files import find_layout, read_ref
from agent_orchestrator.watch import Watch


class Bases:
    """Keeps an eye on the branches that changes are to land on."""

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
            if isinstance(change.event.body, e.PrOpened) and change.after:
                self._look(change.after)

    def _look(self, facts: SessionFacts) -> None:
        if facts.pr is None or facts.pr.state != "open":
            return
        layout = find_layout(Path(facts.spec.repo))
        if layout is None:
            return
        key = (layout.common, facts.pr.base)
        if key not in self._watched:
            self._watched.add(key)
            ref = layout.common / "refs" / "heads" / facts.pr.base
            for path in (ref, layout.common / "packed-refs"):
                self.watch.entry(path, lambda: self._moved(*key))
        self._moved(*key)

    def _moved(self, common: Path, base: str) -> None:
        head = read_ref(common, f"refs/heads/{base}")
        if head is None:
            return
        stale = [
            facts
            for facts in self.flow.sessions.values()
            if self._concerns(facts, common, base) and facts.base_head != head
        ]
        if stale:
            task = asyncio.get_running_loop().create_task(self._tell(stale, head))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _concerns(self, facts: SessionFacts, common: Path, base: str) -> bool:
        if facts.pr is None or facts.pr.state != "open" or facts.pr.base != base:
            return False
        layout = find_layout(Path(facts.spec.repo))
        return layout is not None and layout.common == common

    async def _tell(self, stale: Sequence[SessionFacts], head: str) -> None:
        now = self.flow.clock()
        await self.flow.append(
            *(
                Event(e.BaseMoved(head), now, "git", f"base:{facts.id}:{head}:{now:.6f}", facts.project, facts.id)
                for facts in stale
            )
        )
