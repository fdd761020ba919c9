"""The daemon's side of Ray: starts a bridge process, sends it requests, and restarts it when Ray's head was lost.

All requests are kept here and repeated to the next bridge, so that a session that waits for a node is not affected by a restart.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import structlog

from agent_orchestrator import __version__
from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.cluster.daemon.placement import NodeInfo, Requirements

log = structlog.get_logger()

RESTART_PAUSES = (0.5, 1.0, 2.0, 4.0, 8.0, 15.0)
"""Seconds before a bridge that ended is started again."""
STABLE_SECONDS = 30.0
"""Seconds that a bridge must have run for the pauses to start from the first one again."""


@dataclass(frozen=True, slots=True)
class WorkerSetup:
    """What the worker on a node is started with."""

    url: str
    token: str
    home: str
    more: Mapping[str, Any] = field(default_factory=dict)
    """Further arguments of `Worker`, by name."""


@dataclass(slots=True)
class _RayPlacement:
    """A session that has a node, or waits for one."""

    generation: int
    requirements: Requirements
    node: asyncio.Future[str]
    waiting_reason: str = ""


class RayPlacer:
    """A placer that lets Ray choose the nodes."""

    def __init__(
        self,
        host: LocalHost,
        address: Callable[[], str],
        node_home: Path,
        setup: Callable[[str], WorkerSetup],
        log_file: Path,
        on_change: Callable[[], None],
    ) -> None:
        self._host = host
        self._address = address
        self._key = "ao-" + hashlib.sha256(os.fsencode(node_home)).hexdigest()[:12]
        self._setup = setup
        self._log_file = log_file
        self._on_change = on_change
        self._placements: dict[str, _RayPlacement] = {}
        self._drained: set[str] = set()
        self._nodes: tuple[NodeInfo, ...] = ()
        self._ids = itertools.count(1)
        self._nodes_set_up: set[str] = set()
        self._place_requests: dict[int, str] = {}
        self._send_to_bridge: Callable[[dict[str, Any]], None] | None = None
        self.unreachable_reason = "is not connected yet"
        """Why Ray cannot be reached; "" while it can."""

    # -- what the daemon asks ------------------------------------------------------------------------------------------

    def count_existing(self, session: str, generation: int, node: str, requirements: Requirements) -> None:
        """Count a session that has its node since before this daemon started; its place is reserved again if Ray has lost it."""
        node_future = asyncio.get_running_loop().create_future()
        node_future.set_result(node)
        self._placements[session] = _RayPlacement(generation, requirements, node_future)
        self._request_place(session)

    async def place(self, session: str, generation: int, requirements: Requirements) -> str:
        """Return the node that Ray chooses; wait until there is one."""
        current = self._placements.get(session)
        if current is None or current.generation != generation:
            if current is not None:
                current.node.cancel()
            self._placements[session] = current = _RayPlacement(
                generation, requirements, asyncio.get_running_loop().create_future()
            )
            self._request_place(session)
        try:
            return await asyncio.shield(current.node)
        except asyncio.CancelledError:
            if self._placements.get(session) is current and not current.node.done():
                self._forget(session)
            raise

    def waiting_reason(self, session: str) -> str:
        """Return what a session waits for, or "" if it does not wait."""
        place = self._placements.get(session)
        if place is None or place.node.done():
            return ""
        return f"Ray, which {self.unreachable_reason}" if self.unreachable_reason else place.waiting_reason

    async def release(self, session: str) -> None:
        """Free the session's place, now or as soon as there is a bridge."""
        self._forget(session)

    def _forget(self, session: str) -> None:
        """Remove the session's place, and release its reservation."""
        if place := self._placements.pop(session, None):
            place.node.cancel()
        self._send_request(do="release", session=session)

    async def drain(self, node: str, drained: bool) -> None:
        """Place no sessions on the node any more, or use it again."""
        (self._drained.add if drained else self._drained.discard)(node)
        self._send_request(do="drain", nodes=sorted(self._drained))

    def nodes(self) -> Sequence[NodeInfo]:
        """Return the nodes that Ray reports; none of them is ready while Ray cannot be reached."""
        return self._nodes

    # -- the bridge ----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Keep a bridge running until cancelled."""
        pauses = iter(RESTART_PAUSES)
        while True:
            began = asyncio.get_running_loop().time()
            try:
                reason = await self._run_bridge()
            except OSError as error:
                reason = f"cannot be spoken to: {error.strerror}"
            if reason != self.unreachable_reason:
                log.warning("ray lost", why=reason)
            self._mark_lost(reason)
            if asyncio.get_running_loop().time() - began > STABLE_SECONDS:
                pauses = iter(RESTART_PAUSES)
            await asyncio.sleep(next(pauses, RESTART_PAUSES[-1]))

    async def _run_bridge(self) -> str:
        """Start one bridge and follow it to its end; return why it ended."""
        argv = [sys.executable, "-P", "-m", "agent_orchestrator.cluster.ray.bridge"]
        async with self._host.pipe(argv, log=self._log_file) as process:
            assert process.stdin is not None and process.stdout is not None
            stdin = process.stdin

            def send(record: dict[str, Any]) -> None:
                """Write one line to the bridge."""
                stdin.write(json.dumps(record).encode() + b"\n")

            reason = "is unreachable: its bridge ended"
            send({"address": self._address(), "key": self._key, "version": __version__})
            while line := await process.stdout.readline():
                record = json.loads(line)
                match record.get("event"):
                    case "connected":
                        self.unreachable_reason, self._send_to_bridge = "", send
                        log.info("ray connected", address=self._address())
                        self._resend_all()
                    case "nodes":
                        self._process_nodes(record["nodes"])
                    case "waits":
                        if place := self._placements.get(record["session"]):
                            place.waiting_reason = record["why"]
                    case "lost":
                        reason = f"is unreachable: {record['why']}"
                    case None:
                        self._process_answer(record)
            return reason

    def _send_request(self, **request: Any) -> int:
        """Send a request to the bridge, if there is one, and return its number; `_resend_all` repeats valid ones to the next bridge."""
        number = next(self._ids)
        if self._send_to_bridge is not None:
            self._send_to_bridge({"id": number, **request})
        return number

    def _resend_all(self) -> None:
        """Send a new bridge everything that still counts."""
        self._place_requests.clear()
        self._send_request(do="drain", nodes=sorted(self._drained))
        for session in self._placements:
            self._request_place(session)

    def _request_place(self, session: str) -> None:
        """Request a session's place; one that has its node requests that node."""
        place = self._placements[session]
        request = asdict(place.requirements)
        if place.node.done():
            request["node"] = place.node.result()
        number = self._send_request(do="place", session=session, generation=place.generation, **request)
        self._place_requests[number] = session

    def _process_answer(self, answer: dict[str, Any]) -> None:
        """Process the bridge's answer to a request."""
        session = self._place_requests.pop(answer["id"], "")
        place = self._placements.get(session)
        if "error" in answer:
            log.warning("ray refused", session=session, why=answer["error"])
            if place:
                place.waiting_reason = f"Ray, which says: {answer['error']}"
        elif place and answer.get("node") and not place.node.done():
            place.node.set_result(answer["node"])

    def _process_nodes(self, entries: list[dict[str, Any]]) -> None:
        """Process the bridge's list of nodes, and send the setup of new ones."""
        self._nodes = tuple(
            NodeInfo(entry["name"], entry["cpus"], entry["memory"], entry["labels"], entry["ready"], entry["why"])
            for entry in entries
        )
        for node in self._nodes:
            if node.name not in self._nodes_set_up:
                self._nodes_set_up.add(node.name)
                self._send_request(do="setup", node=node.name, setup=asdict(self._setup(node.name)))
        self._on_change()

    def _mark_lost(self, reason: str) -> None:
        """Mark Ray as unreachable, and all nodes as not ready."""
        self.unreachable_reason, self._send_to_bridge = reason, None
        self._nodes_set_up.clear()
        self._nodes = tuple(replace(node, ready=False, not_ready_reason=f"ray: {reason}") for node in self._nodes)
        self._on_change()
