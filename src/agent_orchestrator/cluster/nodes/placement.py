"""Which node a session goes to.

A `Placer` decides: Ray's bridge (`cluster/`), which lets Ray itself choose and shows those that wait as demand to its autoscaler, or
`HandPlacer`, which chooses among workers that somebody started by hand.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Wish:
    """What a session needs of a node."""

    cpus: float = 1.0
    memory: int = 0
    """In bytes."""
    labels: Mapping[str, str] = field(default_factory=dict)
    node: str | None = None
    """The node that a person asked for."""


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """A node as a placer knows it."""

    name: str
    cpus: float
    memory: int
    labels: Mapping[str, str] = field(default_factory=dict)
    ready: bool = True
    """Sessions may be placed there: it is connected, and nobody drains it."""
    why: str = ""
    """Why it is not ready."""


class Placer(Protocol):
    """Decides where sessions live. Each call may be repeated, also after a restart of the daemon."""

    def take(self, session: str, generation: int, node: str, wish: Wish) -> None:
        """A session has its place already, since before this daemon."""
        ...

    async def place(self, session: str, generation: int, wish: Wish) -> str:
        """The name of a node that takes it; returns when there is one, however long that lasts. Cancelled: it is not wanted any more.

        The same session and generation (its next launch) gets the same answer again, unless it was released meanwhile.
        """
        ...

    def why(self, session: str) -> str:
        """What a session that waits in `place` waits for: `a node with 4 cpus free`; nothing where that is not known."""
        ...

    async def release(self, session: str) -> None:
        """The session needs its place no more; nothing happens where it has none."""
        ...

    async def drain(self, node: str, drained: bool) -> None:
        """Place nobody there any more; false: as before."""
        ...

    def nodes(self) -> Sequence[NodeInfo]:
        """The nodes that sessions may be placed on, as far as known."""
        ...


class HandPlacer:
    """Places among workers that are connected: the least loaded one that fits."""

    def __init__(self, connected: Callable[[], Sequence[NodeInfo]], most: Callable[[], int | None]) -> None:
        self._connected = connected
        self._most = most
        self.taken: dict[str, tuple[str, Wish]] = {}
        """Session → its node, and what it takes of it."""
        self._whys: dict[str, str] = {}
        self._news = asyncio.Event()

    def take(self, session: str, generation: int, node: str, wish: Wish) -> None:
        """A session has its place already, since before this daemon."""
        del generation
        self.taken[session] = (node, wish)

    def look(self) -> None:
        """A node came, went or changed, or somebody left: those that wait look again."""
        self._news.set()
        self._news = asyncio.Event()

    async def place(self, session: str, generation: int, wish: Wish) -> str:
        """Wait for a node that fits."""
        del generation
        try:
            while True:
                news = self._news
                node, why = self.choose(session, wish)
                if node:
                    self.taken[session] = (node, wish)
                    return node
                self._whys[session] = why
                await news.wait()
        finally:
            self._whys.pop(session, None)

    def choose(self, session: str, wish: Wish) -> tuple[str, str]:
        """The node that fits best, or why none does."""
        had = self.taken.get(session, ("", wish))[0]
        if any(one.name == had and one.ready and wish.node in (None, had) for one in self.nodes()):
            return had, ""
        nodes = [one for one in self.nodes() if wish.node in (None, one.name)]
        if not nodes:
            return "", f"the node {wish.node}, which is not connected" if wish.node else "a node: none is connected"
        fitting = [one for one in nodes if all(one.labels.get(key) == value for key, value in wish.labels.items())]
        if not fitting:
            labels = ", ".join(f"{key}={value}" for key, value in wish.labels.items())
            return "", f"a node with the labels {labels}"
        ready = [one for one in fitting if one.ready]
        if not ready:
            return "", f"a node: {fitting[0].name} {fitting[0].why or 'is not ready'}"
        most = self._most()
        loads = {one.name: self._load(one.name, session) for one in ready}
        free = [one for one in ready if most is None or loads[one.name][0] < most]
        if not free:
            return "", f"a free place on a node ({most} agents at most on each)"
        free = [
            one
            for one in free
            if loads[one.name][1] + wish.cpus <= one.cpus and loads[one.name][2] + wish.memory <= one.memory
        ]
        if not free:
            return "", f"a node with {wish.cpus:g} cpus and {wish.memory >> 20} MB free"
        best = min(free, key=lambda one: ((loads[one.name][1] + wish.cpus) / max(one.cpus, 0.001), one.name))
        return best.name, ""

    def _load(self, node: str, but: str) -> tuple[int, float, int]:
        """How many sessions, cpus and bytes are taken of a node."""
        mine = [wish for session, (name, wish) in self.taken.items() if name == node and session != but]
        return len(mine), sum(one.cpus for one in mine), sum(one.memory for one in mine)

    def why(self, session: str) -> str:
        """What a session waits for."""
        return self._whys.get(session, "")

    async def release(self, session: str) -> None:
        """Its place is free."""
        if self.taken.pop(session, None):
            self.look()

    async def drain(self, node: str, drained: bool) -> None:
        """Whether a node is drained is seen in what is connected."""
        del node, drained
        self.look()

    def nodes(self) -> Sequence[NodeInfo]:
        """Those connected."""
        return self._connected()
