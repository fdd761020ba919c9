"""`Followers`: requests that wait for a session to change, and the live output of its set-up that they show meanwhile."""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing

from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.listeners import FactsChange
from agent_orchestrator.plugins.agents.shared.spool import clean_text
from agent_orchestrator.sessions.part import Core, Part

MAX_OUTPUT_LINES = 500
"""Lines of a session's set-up output that are kept."""


class Followers(Part):
    """Wakes the followers of a session when it changes or prints something."""

    def __init__(self, core: Core) -> None:
        super().__init__(core)
        self._waiters: dict[str, set[asyncio.Event]] = defaultdict(set)
        self._output: dict[str, deque[str]] = defaultdict(lambda: deque(maxlen=MAX_OUTPUT_LINES))
        self._printed: dict[str, int] = defaultdict(int)
        self.on(self._wake_changed)

    def add_output(self, session: str, line: str) -> None:
        """Add a line of live output of a session's set-up."""
        self._output[session].append(clean_text(line))
        self._printed[session] += 1
        self._wake(session)

    def output_since(self, session: str, count: int) -> tuple[list[str], int]:
        """Return the lines that a session printed after the first `count`, as far as they are kept, and how many it printed in all."""
        new_lines = self._printed[session] - count
        lines = list(self._output[session])[-min(new_lines, MAX_OUTPUT_LINES) :] if new_lines > 0 else []
        return lines, self._printed[session]

    async def wait_until(
        self, session: str, done: Callable[[SessionFacts], bool], timeout: float | None = None
    ) -> SessionFacts:
        """Wait until `done` accepts a session's facts; return the current facts when that happens or time is up."""
        async with aclosing(self.follow(session, timeout)) as changes:
            async for facts in changes:
                if done(facts):
                    return facts
        return self.flow.sessions[session]

    async def follow(self, session: str, timeout: float | None = None) -> AsyncGenerator[SessionFacts, None]:
        """Yield a session's facts now and at each change or line of output, until time is up."""
        changed, loop = asyncio.Event(), asyncio.get_running_loop()
        deadline = None if timeout is None else loop.time() + timeout
        self._waiters[session].add(changed)
        try:
            while True:
                changed.clear()
                yield self.flow.sessions[session]
                await asyncio.wait_for(changed.wait(), None if deadline is None else max(0.0, deadline - loop.time()))
        except TimeoutError:
            return
        finally:
            self._waiters[session].discard(changed)

    def _wake_changed(self, changes: Sequence[FactsChange]) -> None:
        """Wake the waiters of the sessions that changed."""
        for session in {change.event.session for change in changes}:
            self._wake(session or "")

    def _wake(self, session: str) -> None:
        """Wake everything that waits for a change of the session."""
        for waiter in self._waiters.get(session, ()):
            waiter.set()
