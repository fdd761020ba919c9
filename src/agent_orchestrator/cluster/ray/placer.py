"""The daemon's side of Ray: a bridge process that is started, asked, and started again when Ray's head was lost.

Whatever is asked is kept here and said again to the next bridge, so that nobody who waits for a node notices that there was another one.
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
from agent_orchestrator.cluster.nodes.placement import NodeInfo, Wish

log = structlog.get_logger()

PAUSES = (0.5, 1.0, 2.0, 4.0, 8.0, 15.0)
"""Seconds before a bridge that ended is started again."""
WELL_AFTER = 30.0


@dataclass(frozen=True, slots=True)
class Setup:
    """What the worker on a node is started with."""

    url: str
    token: str
    home: str
    more: Mapping[str, Any] = field(default_factory=dict)
    """What else the worker takes, by its names."""


@dataclass(slots=True)
class _Place:
    """A session that has a node, or waits for one."""

    generation: int
    wish: Wish
    node: asyncio.Future[str]
    why: str = ""


class RayPlacer:
    """Lets Ray choose."""

    def __init__(
        self,
        host: LocalHost,
        address: Callable[[], str],
        node_home: Path,
        setup: Callable[[str], Setup],
        log_file: Path,
    ) -> None:
        self._host = host
        self._address = address
        self._key = "ao-" + hashlib.sha256(os.fsencode(node_home)).hexdigest()[:12]
        self._setup = setup
        self._log_file = log_file
        self._places: dict[str, _Place] = {}
        self._drained: set[str] = set()
        self._nodes: tuple[NodeInfo, ...] = ()
        self._ids = itertools.count(1)
        self._set_up: set[str] = set()
        self._waiting: dict[int, str] = {}
        self._send: Callable[[dict[str, Any]], None] | None = None
        self.trouble = "is not connected yet"
        """Why Ray cannot be asked just now; empty while it can."""
        self.on_nodes: list[Callable[[], None]] = []

    # -- what the daemon asks ------------------------------------------------------------------------------------------

    def take(self, session: str, generation: int, node: str, wish: Wish) -> None:
        """A session has its place already, since before this daemon: it is to stay counted, also by a Ray that was started anew."""
        taken = asyncio.get_running_loop().create_future()
        taken.set_result(node)
        self._places[session] = _Place(generation, wish, taken)
        self._ask_for(session)

    async def place(self, session: str, generation: int, wish: Wish) -> str:
        """Wait for the node that Ray chooses."""
        now = self._places.get(session)
        if now is None or now.generation != generation:
            if now is not None:
                now.node.cancel()
            self._places[session] = now = _Place(generation, wish, asyncio.get_running_loop().create_future())
            self._ask_for(session)
        try:
            return await asyncio.shield(now.node)
        except asyncio.CancelledError:
            if self._places.get(session) is now and not now.node.done():
                self._forget(session)
            raise

    def why(self, session: str) -> str:
        """What a session waits for."""
        place = self._places.get(session)
        if place is None or place.node.done():
            return ""
        return f"Ray, which {self.trouble}" if self.trouble else place.why

    async def release(self, session: str) -> None:
        """Its place is free, now or as soon as Ray can be told."""
        self._forget(session)

    def _forget(self, session: str) -> None:
        if place := self._places.pop(session, None):
            place.node.cancel()
        self._say(do="release", session=session)

    async def drain(self, node: str, drained: bool) -> None:
        """Place nobody there any more, or as before."""
        (self._drained.add if drained else self._drained.discard)(node)
        self._say(do="drain", nodes=sorted(self._drained))

    def nodes(self) -> Sequence[NodeInfo]:
        """Those that Ray knows of; none of them is ready while it cannot be asked."""
        return self._nodes

    # -- the bridge ----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Keep a bridge, until cancelled."""
        pauses = iter(PAUSES)
        while True:
            began = asyncio.get_running_loop().time()
            try:
                why = await self._one_bridge()
            except OSError as error:
                why = f"cannot be spoken to: {error.strerror}"
            if why != self.trouble:
                log.warning("ray lost", why=why)
            self._lost(why)
            if asyncio.get_running_loop().time() - began > WELL_AFTER:
                pauses = iter(PAUSES)
            await asyncio.sleep(next(pauses, PAUSES[-1]))

    async def _one_bridge(self) -> str:
        """Start one and follow it to its end; returns why it ended."""
        argv = [sys.executable, "-P", "-m", "agent_orchestrator.cluster.ray.bridge"]
        async with self._host.talk(argv, log=self._log_file) as process:
            assert process.stdin is not None and process.stdout is not None
            stdin = process.stdin

            def send(record: dict[str, Any]) -> None:
                stdin.write(json.dumps(record).encode() + b"\n")

            why = "is unreachable: its bridge ended"
            send({"address": self._address(), "key": self._key, "version": __version__})
            while line := await process.stdout.readline():
                told = json.loads(line)
                match told.get("event"):
                    case "connected":
                        self.trouble, self._send = "", send
                        log.info("ray connected", address=self._address())
                        self._say_all()
                    case "nodes":
                        self._hear_nodes(told["nodes"])
                    case "waits":
                        if place := self._places.get(told["session"]):
                            place.why = told["why"]
                    case "lost":
                        why = f"is unreachable: {told['why']}"
                    case None:
                        self._hear_answer(told)
            return why

    def _say(self, **request: Any) -> int:
        """Tell the bridge, if there is one; the next one is told what still counts."""
        number = next(self._ids)
        if self._send is not None:
            self._send({"id": number, **request})
        return number

    def _say_all(self) -> None:
        self._waiting.clear()
        self._say(do="drain", nodes=sorted(self._drained))
        for session in self._places:
            self._ask_for(session)

    def _ask_for(self, session: str) -> None:
        place = self._places[session]
        wish = asdict(place.wish)
        if place.node.done():
            wish["node"] = place.node.result()
        number = self._say(do="place", session=session, generation=place.generation, **wish)
        self._waiting[number] = session

    def _hear_answer(self, told: dict[str, Any]) -> None:
        session = self._waiting.pop(told["id"], "")
        place = self._places.get(session)
        if "error" in told:
            log.warning("ray refused", session=session, why=told["error"])
            if place:
                place.why = f"Ray, which says: {told['error']}"
        elif place and told.get("node") and not place.node.done():
            place.node.set_result(told["node"])

    def _hear_nodes(self, told: list[dict[str, Any]]) -> None:
        self._nodes = tuple(
            NodeInfo(one["name"], one["cpus"], one["memory"], one["labels"], one["ready"], one["why"]) for one in told
        )
        for node in self._nodes:
            if node.name not in self._set_up:
                self._set_up.add(node.name)
                self._say(do="setup", node=node.name, setup=asdict(self._setup(node.name)))
        self._changed()

    def _lost(self, why: str) -> None:
        self.trouble, self._send = why, None
        self._set_up.clear()
        self._nodes = tuple(replace(node, ready=False, why=f"ray: {why}") for node in self._nodes)
        self._changed()

    def _changed(self) -> None:
        for listener in self.on_nodes:
            listener()
