"""Until when an agent on a node may work: a lease that the node asks for again and again, and the daemon grants.

The node counts from the moment at which it *sent* its request, the daemon from the moment at which it granted it, which is later: whatever
the network does, and whatever each one's clock says, the node's lease is over first. The holder of the agent's terminal enforces
it (`plugins/runtimes/pty_holder/lease.py`), also when whoever renews it is dead; the daemon starts nobody else before `Grants.over`.

    node                                     daemon
    Leases.ask() ────────── launches ──────► Grants.grant()       over = now + length + MARGIN
    Leases.take() ◄───── length, refused ───
    deadline = asked + length
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from agent_orchestrator.errors import AoError, Conflict

MARGIN = 1.0
"""Seconds that the daemon waits on top: clocks do not run equally fast, and killing takes a moment."""
RENEWALS = 4
"""How often a lease is renewed while it holds."""


def boot_time() -> float:
    """Seconds since this machine was started; its sleep counts, where the system can tell."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def write_deadline(path: Path, deadline: float) -> None:
    """Tell the holder, in one step."""
    fresh = path.with_name(f"{path.name}.{os.getpid()}.new")
    fresh.write_text(f"{int(deadline * 1e9)}\n")
    fresh.replace(path)


@dataclass(frozen=True, slots=True)
class Asked:
    """A request for the leases of these launches (session → generation), as it was sent."""

    launches: Mapping[str, int]
    sent: float


@dataclass(frozen=True, slots=True)
class Granted:
    """The daemon's answer: all but the refused ones, for so many seconds."""

    length: float
    refused: tuple[str, ...] = ()


class Leases:
    """The node's side: the launches it holds, and until when."""

    def __init__(
        self, clock: Callable[[], float] = boot_time, write: Callable[[Path, float], None] = write_deadline
    ) -> None:
        self._clock, self._write = clock, write
        self._held: dict[str, tuple[int, Path]] = {}
        self._deadlines: dict[str, float] = {}
        self.length = 0.0
        """Seconds, as last granted."""

    def hold(self, session: str, generation: int, path: Path) -> None:
        """Ask for this launch's lease from now on; the holder reads it from `path`. Of a session the last one counts."""
        if self._held.get(session) != (generation, path):
            self._deadlines.pop(session, None)
        self._held[session] = (generation, path)

    def drop(self, session: str, generation: int) -> None:
        """Ask for it no more: the launch has ended."""
        if self._held.get(session, (None,))[0] == generation:
            del self._held[session]
            self._deadlines.pop(session, None)

    def deadline(self, session: str) -> float | None:
        """Until when the session's launch may run; none: nothing was granted yet."""
        return self._deadlines.get(session)

    def ask(self, *sessions: str) -> Asked:
        """What to ask for now: these, or all. To be sent at once, for it counts from now."""
        wanted = sessions or tuple(self._held)
        return Asked({session: self._held[session][0] for session in wanted}, self._clock())

    def take(self, asked: Asked, granted: Granted) -> dict[str, int]:
        """Put off what was granted; returns the launches that were refused: they are stale, and to be ended at once."""
        self.length = granted.length
        refused: dict[str, int] = {}
        for session, generation in asked.launches.items():
            held = self._held.get(session)
            if session in granted.refused:
                refused[session] = generation
            elif held is not None and held[0] == generation:
                deadline = asked.sent + granted.length
                if deadline > self._deadlines.get(session, 0.0):
                    self._write(held[1], deadline)
                    self._deadlines[session] = deadline
        return refused

    async def begin(
        self, session: str, generation: int, path: Path, call: Callable[[Asked], Awaitable[Granted]]
    ) -> None:
        """Get the first lease of a launch, before it starts. Raises `Conflict` if it is stale."""
        self.hold(session, generation, path)
        asked = self.ask(session)
        if self.take(asked, await call(asked)):
            self.drop(session, generation)
            raise Conflict(f"launch {generation} of {session} is over", "the session runs elsewhere, or not at all")

    async def keep(
        self,
        call: Callable[[Asked], Awaitable[Granted]],
        stale: Callable[[str, int], Awaitable[None]],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        first: float = 1.0,
    ) -> None:
        """Renew all of them until cancelled; an answer that does not come is asked for again, for the holders decide what becomes of it."""
        while True:
            if self._held:
                asked = self.ask()
                try:
                    async with asyncio.timeout((self.length or first) / 2):
                        granted = await call(asked)
                except (AoError, TimeoutError):
                    await sleep((self.length or first) / RENEWALS / 2)
                    continue
                for session, generation in self.take(asked, granted).items():
                    await stale(session, generation)
            await sleep((self.length or first) / RENEWALS)


class Grants:
    """The daemon's side: what was granted, and when it is over for certain."""

    def __init__(self, length: float, clock: Callable[[], float] = boot_time, earlier: float = 0.0) -> None:
        self.length = length
        """Seconds that a lease holds."""
        self._clock = clock
        self._unknown = clock() + max(length, earlier)
        """When everything is over that a daemon before us granted, which may have been for longer (`earlier`)."""
        self._until: dict[str, float] = {}
        self._ended: dict[str, int] = {}
        self._gone: set[str] = set()

    def grant(self, launches: Mapping[str, int], current: Callable[[str, int], bool]) -> Granted:
        """Let those launches go on that are `current` and not ended."""
        refused = []
        for session, generation in launches.items():
            if generation <= self._ended.get(session, -1) or not current(session, generation):
                refused.append(session)
            else:
                self._until[session] = self._clock() + self.length
                self._gone.discard(session)
        return Granted(self.length, tuple(refused))

    def now(self) -> float:
        """By our clock."""
        return self._clock()

    def over(self, session: str) -> float:
        """When nothing of the session can run on a node any more, unless its lease is renewed; by our clock."""
        if session in self._gone:
            return self._clock()
        return max(self._unknown, self._until.get(session, 0.0)) + MARGIN

    def is_over(self, session: str) -> bool:
        """Is it certain that nothing of the session runs on a node? Decide on it only after `end`, for it may still be renewed."""
        return self._clock() >= self.over(session)

    def end(self, session: str, generation: int) -> None:
        """Renew this launch, and those before it, no more: another is to take its place."""
        self._ended[session] = max(generation, self._ended.get(session, -1))

    def gone(self, session: str) -> None:
        """The node itself said that its agent has ended: there is nothing to wait for."""
        self._gone.add(session)

    def forget(self, session: str) -> None:
        """There is no such session any more."""
        self._until.pop(session, None)
        self._ended.pop(session, None)
        self._gone.discard(session)
