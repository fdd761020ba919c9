"""When every session of a project is done, that is told once, with what each of them came to."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping, Sequence

import structlog

from agent_orchestrator.core import events as e
from agent_orchestrator.core.dependencies import is_over
from agent_orchestrator.core.engine import Change, Flow
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.reactions import COORDINATOR
from agent_orchestrator.errors import AoError

log = structlog.get_logger()


class Completion:
    """Watches for the end of all work."""

    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Look whenever a session is done."""
        self.flow.on_change.append(self._on_change)

    def close(self) -> None:
        """Look no more."""
        for task in self._tasks:
            task.cancel()

    def _on_change(self, changes: Sequence[Change]) -> None:
        ended = {
            change.after.project: change.after
            for change in changes
            if change.after and is_over(change.after) and not (change.before and is_over(change.before))
        }
        for last in ended.values():
            if event := self._told(last):
                task = asyncio.get_running_loop().create_task(self._tell(event))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    def _told(self, last: SessionFacts) -> Event | None:
        mine = {one.id: one for one in self.flow.sessions.values() if one.project == last.project}
        body = all_complete(mine, self.flow.home.completed.get(last.project, ()))
        if body is None:
            return None
        runs = ",".join(f"{name}:{mine[name].run}" for name in sorted(mine))
        key = f"all-complete:{last.project}:{hashlib.sha256(runs.encode()).hexdigest()[:16]}"
        return Event(body, self.flow.clock(), "daemon", key, last.project, last.id)

    async def _tell(self, event: Event) -> None:
        try:
            await self.flow.append(event)
        except AoError as error:
            log.warning("the end of all work could not be recorded", error=str(error))


def all_complete(sessions: Mapping[str, SessionFacts], told: Sequence[str]) -> e.AllComplete | None:
    """What there is to tell when all are done; nothing while one is not, or when nothing is new.

    One without a task does not count, and a coordinating agent is never done.
    """
    real = [
        facts
        for facts in sessions.values()
        if facts.spec.kind != COORDINATOR and (facts.launch or not facts.spec.defer or facts.stopped)
    ]
    if not real or not all(is_over(facts) for facts in real):
        return None
    new = [facts for facts in real if facts.id not in told and facts.spec.reviews is None]
    if not new:
        return None
    return e.AllComplete(tuple(facts.id for facts in new), "\n".join(_line(facts) for facts in new[:50]))


def _line(facts: SessionFacts) -> str:
    pr = facts.pr
    how = f"{pr.state} (#{pr.number})" if pr and pr.state != "open" else "stopped" if facts.stopped else "done"
    said = (facts.done or "").partition("\n")[0]
    return f"- {facts.id}: {how}{f', {said}' if said else ''}"
