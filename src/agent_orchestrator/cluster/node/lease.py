"""Leases: until when an agent on a node may work; the node renews its lease repeatedly, and the daemon grants it.

The node counts from the moment at which it *sent* its request, the daemon from the later moment at which it granted it: however slow
the network is, and whatever the clocks show, the node's lease is over first. The holder of the agent's terminal enforces it
(`plugins/runtimes/pty_holder/lease.py`), also when the Worker is dead; the daemon starts no other launch before `LeaseGrants.over_at`.

    node                                     daemon
    Leases.ask() ────────── launches ──────► Grants.grant()       over = now + length + margin
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

MARGIN_SECONDS = 1.0
"""Seconds that the daemon waits in addition: clocks do not run equally fast, and killing takes a moment."""
RENEWALS_PER_LEASE = 4
"""How often a lease is renewed while it holds."""


def boot_time() -> float:
    """Return the seconds since this machine was started, including sleep if the system measures that."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def write_deadline(path: Path, deadline: float) -> None:
    """Write a deadline for the terminal's holder, atomically."""
    draft = path.with_name(f"{path.name}.{os.getpid()}.new")
    draft.write_text(f"{int(deadline * 1e9)}\n")
    draft.replace(path)


@dataclass(frozen=True, slots=True)
class LeaseRequest:
    """A request for the leases of these launches (session → generation), with the time at which it was sent."""

    launches: Mapping[str, int]
    sent: float


@dataclass(frozen=True, slots=True)
class LeaseAnswer:
    """The daemon's answer: a lease of `length` seconds for all launches except the refused ones."""

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
        self.lease_seconds = 0.0
        """Seconds, as last granted."""

    def hold(self, session: str, generation: int, path: Path) -> None:
        """Renew this launch's lease from now on; its holder reads it from `path`.

        A session's later launch replaces an earlier one.
        """
        if self._held.get(session) != (generation, path):
            self._deadlines.pop(session, None)
        self._held[session] = (generation, path)

    def drop(self, session: str, generation: int) -> None:
        """Stop renewing the lease of a launch that has ended."""
        if self._held.get(session, (None,))[0] == generation:
            del self._held[session]
            self._deadlines.pop(session, None)

    def deadline(self, session: str) -> float | None:
        """Return until when the session's launch may run, or None if nothing was granted yet."""
        return self._deadlines.get(session)

    def create_request(self, *sessions: str) -> LeaseRequest:
        """Return a request for these sessions, or all. Send it at once, because the lease counts from now."""
        names = sessions or tuple(self._held)
        return LeaseRequest({session: self._held[session][0] for session in names}, self._clock())

    def apply_answer(self, request: LeaseRequest, answer: LeaseAnswer) -> dict[str, int]:
        """Extend what was granted; return the refused launches, which are stale and must be ended at once."""
        self.lease_seconds = answer.length
        refused: dict[str, int] = {}
        for session, generation in request.launches.items():
            holding = self._held.get(session)
            if session in answer.refused:
                refused[session] = generation
            elif holding is not None and holding[0] == generation:
                deadline = request.sent + answer.length
                if deadline > self._deadlines.get(session, 0.0):
                    self._write(holding[1], deadline)
                    self._deadlines[session] = deadline
        return refused

    async def begin(
        self, session: str, generation: int, path: Path, call: Callable[[LeaseRequest], Awaitable[LeaseAnswer]]
    ) -> None:
        """Get the first lease of a launch, before it starts. Raises `Conflict` if it is stale."""
        self.hold(session, generation, path)
        request = self.create_request(session)
        if self.apply_answer(request, await call(request)):
            self.drop(session, generation)
            raise Conflict(f"launch {generation} of {session} is over", "the session runs elsewhere, or not at all")

    async def keep_renewing(
        self,
        call: Callable[[LeaseRequest], Awaitable[LeaseAnswer]],
        stale: Callable[[str, int], Awaitable[None]],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        first: float = 1.0,
    ) -> None:
        """Renew all leases until cancelled; a request that fails is repeated, because the holders enforce the deadlines anyway."""
        while True:
            if self._held:
                request = self.create_request()
                try:
                    async with asyncio.timeout((self.lease_seconds or first) / 2):
                        answer = await call(request)
                except (AoError, TimeoutError):
                    await sleep((self.lease_seconds or first) / RENEWALS_PER_LEASE / 2)
                    continue
                for session, generation in self.apply_answer(request, answer).items():
                    await stale(session, generation)
            await sleep((self.lease_seconds or first) / RENEWALS_PER_LEASE)


class LeaseGrants:
    """The daemon's side: what was granted, and when it is certainly over."""

    def __init__(self, length: float, clock: Callable[[], float] = boot_time, earlier: float = 0.0) -> None:
        self.lease_seconds = length
        """Seconds that a lease holds."""
        self._clock = clock
        self._earlier_over = clock() + max(length, earlier)
        """When all leases of an earlier daemon are over, which may have held longer (`earlier` seconds)."""
        self._granted_until: dict[str, float] = {}
        self._ended: dict[str, int] = {}
        self._ended_agents: set[str] = set()

    def grant(self, launches: Mapping[str, int], current: Callable[[str, int], bool]) -> LeaseAnswer:
        """Extend the leases of those launches that are `current` and not ended; return the answer."""
        refused = []
        for session, generation in launches.items():
            if generation <= self._ended.get(session, -1) or not current(session, generation):
                refused.append(session)
            else:
                self._granted_until[session] = self._clock() + self.lease_seconds
                self._ended_agents.discard(session)
        return LeaseAnswer(self.lease_seconds, tuple(refused))

    def now(self) -> float:
        """Return the time of the leases' clock."""
        return self._clock()

    def over_at(self, session: str) -> float:
        """Return when the session's launches on nodes have certainly ended, unless a lease is renewed; by the leases' clock."""
        if session in self._ended_agents:
            return self._clock()
        return max(self._earlier_over, self._granted_until.get(session, 0.0)) + MARGIN_SECONDS

    def is_over(self, session: str) -> bool:
        """Return whether the session's launches on nodes have certainly ended.

        Call `end` first, or the lease may still be renewed.
        """
        return self._clock() >= self.over_at(session)

    def refuse_renewals(self, session: str, generation: int) -> None:
        """Stop renewing this launch and earlier ones, because another is to replace it."""
        self._ended[session] = max(generation, self._ended.get(session, -1))

    def record_agent_end(self, session: str) -> None:
        """Note that the node itself reported the end of the session's agent, so that nothing needs to be waited for."""
        self._ended_agents.add(session)

    def forget(self, session: str) -> None:
        """Remove a session that no longer exists."""
        self._granted_until.pop(session, None)
        self._ended.pop(session, None)
        self._ended_agents.discard(session)
