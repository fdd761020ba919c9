"""Placement: which node a session goes to.

A `Placer` decides: `RayPlacer` (`cluster/ray/placer.py`) lets Ray choose and shows waiting sessions as demand to Ray's autoscaler, and
`ManualPlacer` chooses among workers that were started by hand.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Requirements:
    """What a session needs of a node."""

    cpus: float = 1.0
    memory: int = 0
    """In bytes."""
    labels: Mapping[str, str] = field(default_factory=dict)
    node: str | None = None
    """The only node that is acceptable: the one that a person requested, or the one with the session's workspace."""


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """A node as a placer knows it."""

    name: str
    cpus: float
    memory: int
    labels: Mapping[str, str] = field(default_factory=dict)
    ready: bool = True
    """Sessions may be placed there: it is connected and not drained."""
    not_ready_reason: str = ""
    """Why it is not ready."""


class Placer(Protocol):
    """Decides where sessions live. Each call may be repeated, also after a restart of the daemon."""

    def count_existing(self, session: str, generation: int, node: str, requirements: Requirements) -> None:
        """Count a session that has had its node since before this daemon started."""
        ...

    async def place(self, session: str, generation: int, requirements: Requirements) -> str:
        """Return the name of a node for the session; wait until there is one. Cancel the call to withdraw the request.

        The same session and generation (its next launch) gets the same answer again unless it was released in between.
        """
        ...

    def waiting_reason(self, session: str) -> str:
        """Return what a session that waits in `place` waits for, like `a node with 4 cpus free`, or "" if that is unknown."""
        ...

    async def release(self, session: str) -> None:
        """Free the session's place; does nothing if it has none."""
        ...

    async def drain(self, node: str, drained: bool) -> None:
        """Place no sessions on the node any more; with `drained` false, place sessions there again."""
        ...

    def nodes(self) -> Sequence[NodeInfo]:
        """Return the nodes that sessions may be placed on, as far as known."""
        ...


class ManualPlacer:
    """Places sessions on connected workers: on the least loaded node that fits."""

    def __init__(self, connected: Callable[[], Sequence[NodeInfo]], most: Callable[[], int | None]) -> None:
        self._connected = connected
        self._max_sessions = most
        self.placements: dict[str, tuple[str, Requirements]] = {}
        """Session → its node, and what it takes of it."""
        self._reasons: dict[str, str] = {}
        self._change = asyncio.Event()

    def count_existing(self, session: str, generation: int, node: str, requirements: Requirements) -> None:
        """Count a session that has had its node since before this daemon started."""
        del generation
        self.placements[session] = (node, requirements)

    def recheck(self) -> None:
        """Let waiting sessions choose again, after a node came, went or changed, or a session left."""
        self._change.set()
        self._change = asyncio.Event()

    async def place(self, session: str, generation: int, requirements: Requirements) -> str:
        """Return the name of a node that fits; wait until there is one."""
        del generation
        try:
            while True:
                news = self._change
                node, reason = self.choose(session, requirements)
                if node:
                    self.placements[session] = (node, requirements)
                    return node
                self._reasons[session] = reason
                await news.wait()
        finally:
            self._reasons.pop(session, None)

    def choose(self, session: str, requirements: Requirements) -> tuple[str, str]:
        """Return the node that fits best and "", or "" and why none fits."""
        current_node = self.placements.get(session, ("", requirements))[0]
        if any(
            node.name == current_node and node.ready and requirements.node in (None, current_node)
            for node in self.nodes()
        ):
            return current_node, ""
        nodes = [node for node in self.nodes() if requirements.node in (None, node.name)]
        if not nodes:
            return (
                "",
                f"the node {requirements.node}, which is not connected"
                if requirements.node
                else "a node: none is connected",
            )
        fitting = [
            node for node in nodes if all(node.labels.get(key) == value for key, value in requirements.labels.items())
        ]
        if not fitting:
            labels = ", ".join(f"{key}={value}" for key, value in requirements.labels.items())
            return "", f"a node with the labels {labels}"
        ready = [node for node in fitting if node.ready]
        if not ready:
            return "", f"a node: {fitting[0].name} {fitting[0].not_ready_reason or 'is not ready'}"
        limit = self._max_sessions()
        loads = {node.name: self._load(node.name, session) for node in ready}
        free = [node for node in ready if limit is None or loads[node.name][0] < limit]
        if not free:
            return "", f"a free place on a node ({limit} agents at most on each)"
        free = [
            node
            for node in free
            if loads[node.name][1] + requirements.cpus <= node.cpus
            and loads[node.name][2] + requirements.memory <= node.memory
        ]
        if not free:
            return "", f"a node with {requirements.cpus:g} cpus and {requirements.memory >> 20} MB free"
        best = min(
            free, key=lambda node: ((loads[node.name][1] + requirements.cpus) / max(node.cpus, 0.001), node.name)
        )
        return best.name, ""

    def _load(self, node: str, excluded: str) -> tuple[int, float, int]:
        """Return how many sessions, cpus and bytes are taken of a node, without the session `but`."""
        requirements_here = [
            requirements
            for session, (name, requirements) in self.placements.items()
            if name == node and session != excluded
        ]
        return (
            len(requirements_here),
            sum(share.cpus for share in requirements_here),
            sum(share.memory for share in requirements_here),
        )

    def waiting_reason(self, session: str) -> str:
        """Return what a session waits for, or "" if it does not wait."""
        return self._reasons.get(session, "")

    async def release(self, session: str) -> None:
        """Free the session's place."""
        if self.placements.pop(session, None):
            self.recheck()

    async def drain(self, node: str, drained: bool) -> None:
        """Let waiting sessions choose again; whether a node is drained is read from the connected nodes."""
        del node, drained
        self.recheck()

    def nodes(self) -> Sequence[NodeInfo]:
        """Return the connected nodes."""
        return self._connected()
