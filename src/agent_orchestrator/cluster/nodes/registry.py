"""The nodes of the cluster: who is connected, since when, and until when the agents there may work.

A node dials (`cluster/node/worker.py`), says who it is, and asks for its agents' leases again and again. A closed link says nothing about
the agents: only when their leases are certainly over is a node lost (`lost_nodes.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

from agent_orchestrator.base.home import Home
from agent_orchestrator.cluster.link.calls import PROTOCOL, Hello, load, understanding
from agent_orchestrator.cluster.link.connection import Link, Reply, Request, Transport
from agent_orchestrator.cluster.node.lease import RENEWALS, Grants, boot_time
from agent_orchestrator.cluster.nodes.placement import NodeInfo
from agent_orchestrator.cluster.nodes.remote import RemoteNode, accept
from agent_orchestrator.cluster.nodes.settings import ClusterSettings
from agent_orchestrator.cluster.nodes.site import NodeSite
from agent_orchestrator.config.tokens import Identity
from agent_orchestrator.core import events as e
from agent_orchestrator.core.engine import Flow
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.facts import NodeFacts, SessionFacts
from agent_orchestrator.errors import AoError, Conflict, Denied

UNSEEN_AFTER = 1.0
"""Seconds after which it is told that a node cannot be reached: a link that is dialled again at once is nobody's matter."""
LOOK_WITHIN = 2.0
LONGEST_LOOK = 1 << 16
"""Bytes that a node's kernel says of its load or memory, at most."""
MOST_CPUS, MOST_MEMORY = 1 << 20, 1 << 60
"""What a node may say that it has."""
MOST_LABELS, LONGEST_WORD = 100, 500
_LOAD = re.compile(rb"(\d{1,9}\.\d{1,9}) ")
_AVAILABLE = re.compile(rb"^MemAvailable: *(\d{1,15}) kB$", re.MULTILINE)

log = structlog.get_logger()


@dataclass(slots=True)
class Known:
    """A node that this daemon has to do with."""

    remote: RemoteNode
    site: NodeSite
    down: float | None
    """Since when there is no link, by the clock of leases."""
    joined: bool = False
    """It has been connected since this daemon started."""
    address: str = ""
    told: bool = False
    """It was told that it cannot be reached."""


class Nodes:
    """Keeps the nodes."""

    def __init__(
        self,
        flow: Flow,
        home: Home,
        settings: Callable[[], ClusterSettings],
        site: Callable[[RemoteNode], NodeSite],
        clock: Callable[[], float] = boot_time,
    ) -> None:
        self.flow = flow
        self.home = home
        self.settings = settings
        self.clock = clock
        """Counts as leases do."""
        self._site = site
        self.known: dict[str, Known] = {}
        lease = settings().lease
        self.grants = Grants(lease, clock, _earlier(home, lease))
        self.on_news: list[Callable[[], None]] = []
        """Called when a node came or went."""
        self.tidy: Callable[[NodeSite, Hello], Awaitable[None]] = _nothing
        """Puts a node in order that has come, before it gets sessions."""
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Those that sessions live on are expected to come back."""
        for name in {facts.node for facts in self.flow.sessions.values() if facts.node and not facts.stopped}:
            self.of(name)
        for node in self.flow.home.nodes.values():
            if node.state != "gone":
                self.of(node.name)

    async def close(self) -> None:
        """Hang up; their agents work on."""
        for task in self._tasks:
            task.cancel()
        for known in self.known.values():
            with contextlib.suppress(AoError):
                await known.remote.close()

    # -- asking --------------------------------------------------------------------------------------------------------

    def of(self, name: str) -> Known:
        """A node by its name; one that has not come yet is known by its name alone."""
        if name not in self.known:
            hello = Hello(name, "", "", PROTOCOL, self.settings().home, 0, 0)
            self._add(RemoteNode(hello, self.home))
        return self.known[name]

    def site(self, name: str) -> NodeSite:
        """Where the sessions of a node live."""
        return self.of(name).site

    def sessions(self, name: str) -> list[SessionFacts]:
        """Those that live on a node."""
        return [facts for facts in self.flow.sessions.values() if facts.node == name and not facts.stopped]

    def infos(self) -> Sequence[NodeInfo]:
        """The nodes, for whoever places sessions."""
        found = []
        for name, known in self.known.items():
            hello, facts = known.remote.hello, self.flow.home.nodes.get(name)
            drained = facts is not None and facts.drained
            ready = known.site.reachable and not drained
            why = "is being drained" if drained else "" if ready else "is unreachable"
            if known.joined:
                found.append(NodeInfo(name, *lent(hello), hello.labels, ready, why))
        return found

    # -- coming and going ----------------------------------------------------------------------------------------------

    async def serve(self, transport: Transport, identity: Identity, address: str) -> None:
        """A node has dialled: take it up, until its link is gone."""

        async def node_for(hello: Hello) -> RemoteNode:
            return self._admit(hello, identity)

        remote = await accept(transport, node_for)
        link, known = remote.link, self.known[remote.name]
        known.address = address
        listening = asyncio.get_running_loop().create_task(self._listen(remote, link))
        try:
            await self._joined(known)
            await link.closed.wait()
        finally:
            listening.cancel()
            if not remote.connected:
                self._left(known)

    async def _listen(self, remote: RemoteNode, link: Link) -> None:
        """A machine that lost its power hangs up on nobody: one that says nothing is asked, and hung up on when its leases are over."""
        length = self.grants.length
        while True:
            await asyncio.sleep(length / RENEWALS)
            if time.monotonic() - link.heard > length / 2:
                with contextlib.suppress(AoError, TimeoutError):
                    async with asyncio.timeout(length / RENEWALS):
                        await remote.present(remote.home.path)
            if time.monotonic() - link.heard > length:
                await link.close()

    def _admit(self, hello: Hello, identity: Identity) -> RemoteNode:
        _check(hello)
        if identity.kind == "node" and identity.name != hello.name:
            raise Denied(
                f"this token is for the node {identity.name}, not for {hello.name}",
                f"make one: ao token new {hello.name} --role node",
            )
        wanted = self.settings().home
        if Path(hello.home) != wanted:
            raise Conflict(
                f"the home of node {hello.name} is {hello.home}, not {wanted}", f"start it with --home {wanted}"
            )
        known = self.known.get(hello.name)
        if known is None:
            return self._add(RemoteNode(hello, self.home)).remote
        other = known.remote.connected and known.joined and known.remote.boot_id != hello.boot_id
        if other:
            raise Conflict(f"a node named {hello.name} is connected already", "give each machine a name of its own")
        return known.remote

    def _add(self, remote: RemoteNode) -> Known:
        known = self.known[remote.name] = Known(remote, self._site(remote), self.clock())
        remote.receiver.accepts = lambda session, generation: self.has_say(remote.name, session, generation)
        remote.handlers["lease.renew"] = lambda request: self._renew(remote.name, request)
        return known

    async def _joined(self, known: Known) -> None:
        remote, hello = known.remote, known.remote.hello
        known.site.in_order = False
        await known.site.come()
        try:
            await self.tidy(known.site, hello)
        except AoError as error:
            log.warning("a node could not be put in order", node=remote.name, error=str(error))
        known.site.in_order, now = True, self.flow.clock()
        known.down, known.joined, known.told = None, True, False
        body = e.NodeJoined(remote.name, known.address, *lent(hello), dict(hello.labels))
        events = [Event(body, now, "node", uuid.uuid4().hex)] if self._is_news(body) else []
        events += [
            Event(e.SessionSeen(remote.name), now, "node", uuid.uuid4().hex, facts.project, facts.id)
            for facts in self.sessions(remote.name)
            if facts.unseen_since is not None
        ]
        log.info("a node has come", node=remote.name, address=known.address, holds=len(hello.sessions))
        if events:
            await self.flow.append(*events)
        self._news()

    def _is_news(self, body: e.NodeJoined) -> bool:
        """Is anything of it new? A link that was dialled again is not."""
        facts = self.flow.home.nodes.get(body.node)
        said = (body.address, body.cpus, body.memory, dict(body.labels))
        return (
            facts is None
            or facts.state != "ready"
            or ((facts.address, facts.cpus, facts.memory, dict(facts.labels)) != said)
        )

    def _left(self, known: Known) -> None:
        known.down = self.clock()
        log.info("the link to a node is gone", node=known.remote.name)
        self._spawn(self._tell_unseen(known, known.down))

    async def _tell_unseen(self, known: Known, since: float) -> None:
        await asyncio.sleep(UNSEEN_AFTER)
        if known.down == since:
            await self.unseen(known, "its link is gone")

    async def unseen(self, known: Known, reason: str) -> None:
        """Tell, once, that a node cannot be reached."""
        if known.told:
            return
        known.told = True
        name, now = known.remote.name, self.flow.clock()
        events = [Event(e.NodeUnreachable(name, reason), now, "node", uuid.uuid4().hex)]
        events += [
            Event(e.SessionUnseen(name, reason), now, "node", uuid.uuid4().hex, facts.project, facts.id)
            for facts in self.sessions(name)
        ]
        await self.flow.append(*events)
        self._news()

    # -- leases --------------------------------------------------------------------------------------------------------

    async def _renew(self, node: str, request: Request) -> Reply:
        with understanding("the launches whose leases are to be renewed"):
            launches: Mapping[str, int] = load(Mapping[str, int], request.body["launches"])
        granted = self.grants.grant(launches, lambda session, generation: self.is_current(node, session, generation))
        return Reply({"length": granted.length, "refused": list(granted.refused)})

    def is_current(self, node: str, session: str, generation: int) -> bool:
        """May this launch run there? It is the session's last one, or the one that is being started."""
        facts = self.flow.sessions.get(session)
        if facts is None or facts.node != node or facts.stopped:
            return False
        if facts.live:
            return generation == facts.generation
        return generation == facts.generation + 1

    def has_say(self, node: str, session: str, generation: int) -> bool:
        """May this launch still tell something? One that has just ended may."""
        facts = self.flow.sessions.get(session)
        if facts is None or facts.node != node:
            return False
        return generation in (0, facts.generation, facts.generation + 1)

    # -- showing -------------------------------------------------------------------------------------------------------

    async def list(self, placed_on: Sequence[NodeInfo] = ()) -> list[dict[str, Any]]:
        """All nodes, as JSON, with those that sessions may be placed on although they have not come yet."""
        told = {one.name: one for one in placed_on}
        names = sorted({*self.flow.home.nodes, *self.known, *told})
        return list(await asyncio.gather(*(self.view(name, told.get(name)) for name in names)))

    async def view(self, name: str, chosen_by: NodeInfo | None = None) -> dict[str, Any]:
        """One node, as JSON; `chosen_by`: as whoever places sessions knows it, where nobody here has heard of it yet."""
        facts, known, wish = self.flow.home.nodes.get(name), self.known.get(name), self.settings().wish
        if facts is None:
            told = chosen_by or NodeInfo(name, 0.0, 0)
            facts = NodeFacts(name, "", told.cpus, told.memory, told.labels, 0.0, "unreachable", told.why)
        load, free = await self._measured(known)
        sessions = self.sessions(name)
        return {
            "name": name,
            "state": state_of(facts, connected=known is not None and known.remote.connected),
            "reason": facts.reason if facts.state != "ready" else "",
            "address": facts.address,
            "labels": dict(facts.labels),
            "cpus": facts.cpus,
            "memory": facts.memory,
            "freeCpus": max(0.0, facts.cpus - wish.cpus * len(sessions)),
            "freeMemory": max(0, facts.memory - wish.memory * len(sessions)),
            "load": load,
            "availableMemory": free,
            "sessions": [one.id for one in sessions],
            "since": e.rfc3339(facts.since) if facts.since else None,
            "draining": facts.drained,
        }

    async def _measured(self, known: Known | None) -> tuple[float | None, int | None]:
        """A node's load average and available memory, as it tells them just now."""
        if known is None or not known.remote.connected:
            return None, None
        try:
            async with asyncio.timeout(LOOK_WITHIN):
                load = await known.remote.read(Path("/proc/loadavg"), LONGEST_LOOK) or b""
                memory = await known.remote.read(Path("/proc/meminfo"), LONGEST_LOOK) or b""
        except (AoError, TimeoutError):
            return None, None
        average, available = _LOAD.match(load), _AVAILABLE.search(memory)
        return float(average[1]) if average else None, int(available[1]) << 10 if available else None

    # -- inside --------------------------------------------------------------------------------------------------------

    def _news(self) -> None:
        for tell in self.on_news:
            tell()

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def lent(hello: Hello) -> tuple[float, int]:
    """How many cpus and bytes of memory a node has for sessions: what it says itself, else all that there are."""
    given = hello.resources
    return float(given.get("cpus", hello.cpus)), int(given.get("memory", hello.memory))


def _check(hello: Hello) -> None:
    """Refuse what no machine says of itself: it is kept, shown, and counted with."""
    with understanding("what a node says of itself"):
        cpus, memory = lent(hello)
        if not 0 <= cpus <= MOST_CPUS or not 0 <= memory <= MOST_MEMORY:
            raise ValueError(f"{cpus:g} cpus and {memory} bytes of memory")
        words = (hello.name, hello.boot_id, hello.version, *hello.labels, *hello.labels.values())
        if len(hello.labels) > MOST_LABELS or any(len(word) > LONGEST_WORD or not word.isprintable() for word in words):
            raise ValueError("its name or labels are too long, too many, or cannot be printed")


async def _nothing(_site: NodeSite, _hello: Hello) -> None:
    """There is nothing to be put in order."""


def state_of(facts: NodeFacts, *, connected: bool) -> str:
    """`ready`, `draining`, `unreachable` or `gone`."""
    if not connected:
        return "gone" if facts.state == "gone" else "unreachable"
    return "draining" if facts.drained else "ready"


def _earlier(home: Home, lease: float) -> float:
    """How long the leases of the last daemon were, at most; what ours are is written down for the next one."""
    path = home.path / "lease.json"
    try:
        before = float(json.loads(path.read_text())["seconds"])
    except (OSError, ValueError, KeyError, TypeError):
        before = 0.0
    if before != lease:
        with contextlib.suppress(OSError):
            path.write_text(json.dumps({"seconds": lease}) + "\n")
    return before
