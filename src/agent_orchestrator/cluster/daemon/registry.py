"""The registry of nodes: which are connected, since when, and until when the agents on them may work.

A node connects (`cluster/node/worker.py`), reports what it is, and renews the leases of its agents repeatedly. A closed link does not
mean that the agents have ended: a node counts as lost only when their leases are certainly over (`lost_nodes.py`).
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

from agent_orchestrator.base.api_tokens import Identity
from agent_orchestrator.base.background_tasks import Tasks
from agent_orchestrator.base.home import Home
from agent_orchestrator.cluster.daemon.mirror import MirrorReceiver
from agent_orchestrator.cluster.daemon.placement import NodeInfo
from agent_orchestrator.cluster.daemon.remote_node import RemoteNode, accept_node
from agent_orchestrator.cluster.daemon.settings import ClusterSettings
from agent_orchestrator.cluster.daemon.signals import NodeStateChanged
from agent_orchestrator.cluster.daemon.site import NodeSite
from agent_orchestrator.cluster.link.calls import PROTOCOL_VERSION, Hello, from_json, parsing_peer_data
from agent_orchestrator.cluster.link.connection import LinkReply, LinkRequest, NodeLink, Transport
from agent_orchestrator.cluster.node.lease import RENEWALS_PER_LEASE, LeaseGrants, boot_time
from agent_orchestrator.core import events as e
from agent_orchestrator.core.engine import Flow
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.facts import NodeFacts, SessionFacts
from agent_orchestrator.errors import AoError, Conflict, Denied
from agent_orchestrator.sessions.site import NodeSites

UNREACHABLE_AFTER_SECONDS = 1.0
"""Seconds without a link after which a node is recorded as unreachable; shorter interruptions are not recorded."""
LOAD_TIMEOUT = 2.0
"""Seconds that a node has to return its load and memory for `ao nodes`."""
MAX_PROC_BYTES = 1 << 16
"""Bytes of `/proc/loadavg` and of `/proc/meminfo` that are read from a node, at most."""
MAX_CPUS, MAX_MEMORY_BYTES = 1 << 20, 1 << 60
"""The most cpus and bytes of memory that a node may report."""
MAX_LABELS, MAX_LABEL_LENGTH = 100, 500
"""The most labels that a node may report, and the most characters of each name, label and value."""
_LOAD = re.compile(rb"(\d{1,9}\.\d{1,9}) ")
_AVAILABLE = re.compile(rb"^MemAvailable: *(\d{1,15}) kB$", re.MULTILINE)

log = structlog.get_logger()


@dataclass(slots=True)
class RegisteredNode:
    """A node that this daemon works with, connected or not."""

    remote: RemoteNode
    site: NodeSite
    disconnected_since: float | None
    """The time since which there is no link, by the clock of leases; None while there is one."""
    has_joined: bool = False
    """It has been connected since this daemon started."""
    address: str = ""
    is_recorded_unreachable: bool = False
    """It has been recorded as unreachable."""


CleanUpNode = Callable[[NodeSite, Hello], Awaitable[None]]
"""Cleans up a node that has connected, before it gets sessions."""


class NodeRegistry(NodeSites):
    """The registry of all nodes of the cluster."""

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
        """The clock that leases are measured with."""
        self._site = site
        self.nodes: dict[str, RegisteredNode] = {}
        lease = settings().lease_seconds
        self.grants = LeaseGrants(lease, clock, _exchange_lease_length(home, lease))
        self._tasks = Tasks()

    def start(self) -> None:
        """Register the nodes that sessions live on and those that were not lost; they are expected to reconnect."""
        for name in {facts.node for facts in self.flow.sessions.values() if facts.node and not facts.stopped}:
            self.get(name)
        for node in self.flow.home.nodes.values():
            if node.state != "gone":
                self.get(node.name)

    async def close(self) -> None:
        """Close all links; the agents on the nodes keep running."""
        await self._tasks.close()
        for node in self.nodes.values():
            with contextlib.suppress(AoError):
                await node.remote.close()

    # -- asking --------------------------------------------------------------------------------------------------------

    def get(self, name: str) -> RegisteredNode:
        """Return a node by its name; register it, without any data, if it is unknown."""
        if name not in self.nodes:
            hello = Hello(name, "", "", PROTOCOL_VERSION, self.settings().node_home, 0, 0)
            self._add(hello)
        return self.nodes[name]

    def site(self, name: str) -> NodeSite:
        """Return the site on which the sessions of a node live."""
        return self.get(name).site

    def sessions(self, name: str) -> list[SessionFacts]:
        """Return the sessions that live on a node and are not stopped."""
        return [facts for facts in self.flow.sessions.values() if facts.node == name and not facts.stopped]

    def infos(self) -> Sequence[NodeInfo]:
        """Return the nodes that have connected since the daemon started, for the placer."""
        infos = []
        for name, node in self.nodes.items():
            hello, facts = node.remote.hello, self.flow.home.nodes.get(name)
            drained = facts is not None and facts.drained
            ready = node.site.reachable and not drained
            reason = "is being drained" if drained else "" if ready else "is unreachable"
            if node.has_joined:
                infos.append(NodeInfo(name, *resources_for_sessions(hello), hello.labels, ready, reason))
        return infos

    # -- coming and going ----------------------------------------------------------------------------------------------

    async def serve(self, transport: Transport, identity: Identity, address: str, tidy: CleanUpNode) -> None:
        """Admit a node that has connected, clean it up by `tidy`, and serve it until its link is lost."""

        async def node_for(hello: Hello) -> RemoteNode:
            """Return the admitted node."""
            return self._admit(hello, identity)

        remote = await accept_node(transport, node_for)
        link, node = remote.link, self.nodes[remote.name]
        node.address = address
        listening = self._tasks.spawn(self._check_silence(remote, link))
        try:
            await self._on_joined(node, tidy)
            await link.closed.wait()
        finally:
            listening.cancel()
            if not remote.connected:
                self._on_left(node)

    async def _check_silence(self, remote: RemoteNode, link: NodeLink) -> None:
        """Send a request to a node that has been silent for half a lease; close its link after a whole one.

        A machine that lost its power does not close its connection, so the daemon has to.
        """
        length = self.grants.lease_seconds
        while True:
            await asyncio.sleep(length / RENEWALS_PER_LEASE)
            if time.monotonic() - link.last_received > length / 2:
                with contextlib.suppress(AoError, TimeoutError):
                    async with asyncio.timeout(length / RENEWALS_PER_LEASE):
                        await remote.path_exists(remote.home.path)
            if time.monotonic() - link.last_received > length:
                await link.close()

    def _admit(self, hello: Hello, identity: Identity) -> RemoteNode:
        """Return the node that a hello is from; raise `Denied` or `Conflict` if its token, home or name does not fit."""
        _check_hello(hello)
        if identity.kind == "node" and identity.name != hello.name:
            raise Denied(
                f"this token is for the node {identity.name}, not for {hello.name}",
                f"make one: ao token new {hello.name} --role node",
            )
        expected_home = self.settings().node_home
        if Path(hello.home) != expected_home:
            raise Conflict(
                f"the home of node {hello.name} is {hello.home}, not {expected_home}",
                f"start it with --home {expected_home}",
            )
        node = self.nodes.get(hello.name)
        if node is None:
            return self._add(hello).remote
        is_another_machine = node.remote.connected and node.has_joined and node.remote.boot_id != hello.boot_id
        if is_another_machine:
            raise Conflict(f"a node named {hello.name} is connected already", "give each machine a name of its own")
        return node.remote

    def _add(self, hello: Hello) -> RegisteredNode:
        """Register a node, and let it renew leases and send what its sessions write."""

        def accepts(session: str, generation: int) -> bool:
            """Return whether data of a launch is accepted from this node."""
            return self.accepts_data_of(hello.name, session, generation)

        async def renew(request: LinkRequest) -> LinkReply:
            """Answer the node's request to renew leases."""
            return await self._renew(hello.name, request)

        remote = RemoteNode(hello, self.home, MirrorReceiver(self.home, accepts), {"lease.renew": renew})
        node = self.nodes[hello.name] = RegisteredNode(remote, self._site(remote), self.clock())
        return node

    async def _on_joined(self, node: RegisteredNode, tidy: CleanUpNode) -> None:
        """Clean up a node that has connected, then record that it and its sessions can be reached."""
        remote, hello = node.remote, node.remote.hello
        node.site.is_cleaned_up = False
        await node.site.on_connected()
        try:
            await tidy(node.site, hello)
        except AoError as error:
            log.warning("a node could not be put in order", node=remote.name, error=str(error))
        node.site.is_cleaned_up, now = True, self.flow.clock()
        node.disconnected_since, node.has_joined, node.is_recorded_unreachable = None, True, False
        body = e.NodeJoined(remote.name, node.address, *resources_for_sessions(hello), dict(hello.labels))
        events = [Event(body, now, "node", uuid.uuid4().hex)] if self._is_news(body) else []
        events += [
            Event(e.SessionSeen(remote.name), now, "node", uuid.uuid4().hex, facts.project, facts.id)
            for facts in self.sessions(remote.name)
            if facts.unseen_since is not None
        ]
        log.info("a node has come", node=remote.name, address=node.address, holds=len(hello.sessions))
        if events:
            await self.flow.append(*events)
        self.flow.listeners.emit(NodeStateChanged())

    def _is_news(self, body: e.NodeJoined) -> bool:
        """Return whether the node was not connected or reports something new; a short reconnect is neither."""
        facts = self.flow.home.nodes.get(body.node)
        reported = (body.address, body.cpus, body.memory, dict(body.labels))
        return (
            facts is None
            or facts.state != "ready"
            or ((facts.address, facts.cpus, facts.memory, dict(facts.labels)) != reported)
        )

    def _on_left(self, node: RegisteredNode) -> None:
        """Note that a node's link is lost, and record that it is unreachable if it does not reconnect soon."""
        node.disconnected_since = self.clock()
        log.info("the link to a node is gone", node=node.remote.name)
        self._tasks.spawn(self._record_if_unseen(node, node.disconnected_since))

    async def _record_if_unseen(self, node: RegisteredNode, since: float) -> None:
        """Record that a node is unreachable if its link is still missing after `UNREACHABLE_AFTER_SECONDS`."""
        await asyncio.sleep(UNREACHABLE_AFTER_SECONDS)
        if node.disconnected_since == since:
            await self.record_unreachable(node, "its link is gone")

    async def record_unreachable(self, node: RegisteredNode, reason: str) -> None:
        """Record, once, that a node and its sessions cannot be reached."""
        if node.is_recorded_unreachable:
            return
        node.is_recorded_unreachable = True
        name, now = node.remote.name, self.flow.clock()
        events = [Event(e.NodeUnreachable(name, reason), now, "node", uuid.uuid4().hex)]
        events += [
            Event(e.SessionUnseen(name, reason), now, "node", uuid.uuid4().hex, facts.project, facts.id)
            for facts in self.sessions(name)
        ]
        await self.flow.append(*events)
        self.flow.listeners.emit(NodeStateChanged())

    # -- leases --------------------------------------------------------------------------------------------------------

    async def _renew(self, node: str, request: LinkRequest) -> LinkReply:
        """Answer a node's request to renew the leases of its launches."""
        with parsing_peer_data("the launches whose leases are to be renewed"):
            launches: Mapping[str, int] = from_json(Mapping[str, int], request.body["launches"])
        grant = self.grants.grant(launches, lambda session, generation: self.is_current(node, session, generation))
        return LinkReply({"length": grant.length, "refused": list(grant.refused)})

    def is_current(self, node: str, session: str, generation: int) -> bool:
        """Return whether this launch may run there: it is the session's live launch, or the next one if none is live."""
        facts = self.flow.sessions.get(session)
        if facts is None or facts.node != node or facts.stopped:
            return False
        if facts.live:
            return generation == facts.generation
        return generation == facts.generation + 1

    def accepts_data_of(self, node: str, session: str, generation: int) -> bool:
        """Return whether data of this launch is accepted from the node; a launch that ended last still counts."""
        facts = self.flow.sessions.get(session)
        if facts is None or facts.node != node:
            return False
        return generation in (0, facts.generation, facts.generation + 1)

    # -- showing -------------------------------------------------------------------------------------------------------

    async def list(self, placed_on: Sequence[NodeInfo] = ()) -> list[dict[str, Any]]:
        """Return all nodes as JSON data, with those that the placer knows although they have not connected yet."""
        placer_nodes = {info.name: info for info in placed_on}
        names = sorted({*self.flow.home.nodes, *self.nodes, *placer_nodes})
        return list(await asyncio.gather(*(self.view(name, placer_nodes.get(name)) for name in names)))

    async def view(self, name: str, chosen_by: NodeInfo | None = None) -> dict[str, Any]:
        """Return one node as JSON data; `chosen_by` is the placer's description, used if the node has never connected."""
        facts, node, requirements = self.flow.home.nodes.get(name), self.nodes.get(name), self.settings().requirements
        if facts is None:
            info = chosen_by or NodeInfo(name, 0.0, 0)
            facts = NodeFacts(name, "", info.cpus, info.memory, info.labels, 0.0, "unreachable", info.not_ready_reason)
        load, available = await self._read_load(node)
        sessions = self.sessions(name)
        return {
            "name": name,
            "state": node_state(facts, connected=node is not None and node.remote.connected),
            "reason": facts.reason if facts.state != "ready" else "",
            "address": facts.address,
            "labels": dict(facts.labels),
            "cpus": facts.cpus,
            "memory": facts.memory,
            "freeCpus": max(0.0, facts.cpus - requirements.cpus * len(sessions)),
            "freeMemory": max(0, facts.memory - requirements.memory * len(sessions)),
            "load": load,
            "availableMemory": available,
            "sessions": [session.id for session in sessions],
            "since": e.rfc3339(facts.since) if facts.since else None,
            "draining": facts.drained,
        }

    async def _read_load(self, node: RegisteredNode | None) -> tuple[float | None, int | None]:
        """Return a node's current load average and available memory in bytes; None for what it does not report in time."""
        if node is None or not node.remote.connected:
            return None, None
        try:
            async with asyncio.timeout(LOAD_TIMEOUT):
                load = await node.remote.read(Path("/proc/loadavg"), MAX_PROC_BYTES) or b""
                memory = await node.remote.read(Path("/proc/meminfo"), MAX_PROC_BYTES) or b""
        except (AoError, TimeoutError):
            return None, None
        average, available = _LOAD.match(load), _AVAILABLE.search(memory)
        return float(average[1]) if average else None, int(available[1]) << 10 if available else None


def resources_for_sessions(hello: Hello) -> tuple[float, int]:
    """Return the cpus and bytes of memory that a node has for sessions: as set by its worker's `--resource`, else the machine's."""
    resources = hello.resources
    return float(resources.get("cpus", hello.cpus)), int(resources.get("memory", hello.memory))


def _check_hello(hello: Hello) -> None:
    """Raise `ProtocolViolation` if a node reports values that no machine has; they are stored, shown and used in sums."""
    with parsing_peer_data("what a node says of itself"):
        cpus, memory = resources_for_sessions(hello)
        if not 0 <= cpus <= MAX_CPUS or not 0 <= memory <= MAX_MEMORY_BYTES:
            raise ValueError(f"{cpus:g} cpus and {memory} bytes of memory")
        texts = (hello.name, hello.boot_id, hello.version, *hello.labels, *hello.labels.values())
        if len(hello.labels) > MAX_LABELS or any(
            len(text) > MAX_LABEL_LENGTH or not text.isprintable() for text in texts
        ):
            raise ValueError("its name or labels are too long, too many, or cannot be printed")


def node_state(facts: NodeFacts, *, connected: bool) -> str:
    """Return a node's state: `ready`, `draining`, `unreachable` or `gone`."""
    if not connected:
        return "gone" if facts.state == "gone" else "unreachable"
    return "draining" if facts.drained else "ready"


def _exchange_lease_length(home: Home, lease: float) -> float:
    """Return how many seconds the leases of the last daemon held; save the length of ours for the next daemon."""
    path = home.path / "lease.json"
    try:
        earlier_lease = float(json.loads(path.read_text())["seconds"])
    except (OSError, ValueError, KeyError, TypeError):
        earlier_lease = 0.0
    if earlier_lease != lease:
        with contextlib.suppress(OSError):
            path.write_text(json.dumps({"seconds": lease}) + "\n")
    return earlier_lease
