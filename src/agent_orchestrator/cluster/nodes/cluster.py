"""`ClusterNodes`: creates, starts and closes all parts of the cluster, and answers the requests of clients about nodes."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import shlex
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from agent_orchestrator.base.home import Home
from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.cluster.link.calls import TOKEN
from agent_orchestrator.cluster.link.connection import Transport
from agent_orchestrator.cluster.nodes.assignment import Placing
from agent_orchestrator.cluster.nodes.checkpoints import Checkpoints
from agent_orchestrator.cluster.nodes.conversations import Carrying
from agent_orchestrator.cluster.nodes.drain import Drain
from agent_orchestrator.cluster.nodes.lost_nodes import Loss
from agent_orchestrator.cluster.nodes.placement import HandPlacer, Placer
from agent_orchestrator.cluster.nodes.registry import Nodes
from agent_orchestrator.cluster.nodes.remote import RemoteNode
from agent_orchestrator.cluster.nodes.returning_nodes import Stale
from agent_orchestrator.cluster.nodes.settings import ClusterSettings, settings_of
from agent_orchestrator.cluster.nodes.site import Around, NodeSite
from agent_orchestrator.config.scope import ConfigSet
from agent_orchestrator.config.tokens import Identity, Tokens
from agent_orchestrator.core import events as e
from agent_orchestrator.core.effects import Effect
from agent_orchestrator.core.engine import Flow
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.reactions import Intent
from agent_orchestrator.errors import NotFound, UsageError
from agent_orchestrator.sessions.agents.observer import Observer
from agent_orchestrator.sessions.lifecycle import Lifecycle
from agent_orchestrator.sessions.plugins import Plugins


class ClusterNodes:
    """The daemon's interface to the cluster; created once by `daemon/wiring.py`."""

    def __init__(
        self, flow: Flow, home: Home, host: LocalHost, config: ConfigSet, plugins: Plugins, tokens: Tokens
    ) -> None:
        self.flow = flow
        self.home = home
        self.config = config
        self.plugins = plugins
        self.tokens = tokens
        self.fingerprint = ""
        """SHA-256 of the daemon's own TLS certificate, or "" if it has none of its own."""
        self.host = host
        self.on_placed: list[Callable[[], None]] = []
        """Called when a session that waited for a node may start."""
        self._bridge: asyncio.Task[None] | None = None
        plugins.node = lambda name: self.registry.site(name)

    def open(self, lifecycle: Lifecycle, observer: Observer, notice: Callable[[str, e.Notified], e.Body]) -> None:
        """Create all parts as configured; called before the first request."""
        self.registry = Nodes(self.flow, self.home, self.settings, self._create_site)
        self.placer: Placer = self._create_placer()
        self.placing = Placing(self.flow, self.placer, self.settings)
        self.placing.on_news += self.on_placed
        self.draining = Drain(self.flow, self.registry, self.placer)
        self.registry.tidy = Stale(self.flow, lifecycle.workspace_spec).tidy
        carrying = Carrying(self.home, self.plugins, self.registry.site, lifecycle.environment)
        lifecycle.carry = carrying.bring
        self.checkpoints = Checkpoints(
            self.flow, self.host, self.registry, self.settings, lifecycle.workspace_spec, carrying.save
        )
        self.losing = Loss(self.flow, self.registry, lifecycle, observer, notice)
        if isinstance(self.placer, HandPlacer):
            self.registry.on_news.append(self.placer.look)
            self.draining.on_news.append(self.placer.look)

    def settings(self) -> ClusterSettings:
        """Return the current configuration of the cluster."""
        return settings_of(self.config, self.home)

    def effects(self, lifecycle: Lifecycle) -> dict[str, Effect]:
        """Return the effects `place` and `move`, by kind of intent."""

        async def place(intent: Intent, attempts: int) -> Sequence[Event]:
            """Carry out an intent to choose a session's node."""
            return await self.placing.place(intent, attempts)

        async def move(intent: Intent, attempts: int) -> Sequence[Event]:
            """Carry out an intent to move a session away from its node."""
            return await self.losing.move(intent, attempts)

        return {
            "place": Effect(place, fatal="choosing its node"),
            "move": Effect(lifecycle.reaching(move), fatal="saving its work on its node"),
        }

    def gate(self, facts: SessionFacts, working: Sequence[SessionFacts]) -> str:
        """Return what a session that is ready to start waits for, or "" if its node has room."""
        return self.placing.gate(facts, working)

    # -- life ----------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start all parts with the sessions in the store, and the Ray bridge if Ray is configured."""
        self.registry.start()
        self.placing.start()
        self.losing.start()
        self.draining.start()
        self.checkpoints.start()
        if (run_bridge := getattr(self.placer, "run", None)) is not None:
            self._bridge = asyncio.get_running_loop().create_task(run_bridge())

    async def close(self) -> None:
        """Stop all parts and close the links; agents on nodes keep running."""
        self.placing.close()
        self.draining.close()
        self.checkpoints.close()
        self.losing.close()
        if self._bridge:
            self._bridge.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await self._bridge
        await self.registry.close()

    def _create_placer(self) -> Placer:
        """Return a Ray placer if `cluster.address` is configured, else one for workers that were started by hand."""
        settings = self.settings()
        if settings.address is None:
            return HandPlacer(self.registry.infos, lambda: self.settings().most)
        from agent_orchestrator.cluster.ray.placer import RayPlacer, Setup

        def setup(node: str) -> Setup:
            """Return what Ray's worker on a node is started with."""
            options = {"fingerprint": self.fingerprint} if self.fingerprint else {}
            return Setup(self.url(), self.tokens.for_node(node), str(settings.home), options)

        address = settings.address
        log = self.home.path / "ray-bridge.log"
        placer = RayPlacer(self.host, lambda: address, settings.home, setup, log)
        placer.on_nodes.append(lambda: [listener() for listener in self.on_placed].clear())
        return placer

    def _create_site(self, remote: RemoteNode) -> NodeSite:
        """Return the site for a node that the registry adds."""
        sessions = self.flow.sessions
        around = Around(
            home=self.home,
            host=self.host,
            url=self.url,
            project=lambda session: sessions[session].project,
            token=self._session_token,
        )
        return NodeSite(remote, around)

    def _session_token(self, session: str) -> str:
        """Return the saving token of a session's live or next launch; a token of a lost launch is no longer accepted."""
        facts = self.flow.sessions[session]
        launch = facts.launch
        is_lost = launch is not None and bool(launch.lost)
        return self.tokens.for_saving(session, max(1, facts.generation + is_lost))

    def url(self) -> str:
        """Return the address at which nodes reach the daemon."""
        return self.settings().url or self.plugins.here.url

    # -- asking --------------------------------------------------------------------------------------------------------

    def check(self, node: str | None) -> None:
        """Raise `NotFound` for an unknown node, or `UsageError` if the cluster's nodes cannot reach the daemon."""
        names = {*self.flow.home.nodes, *(info.name for info in self.placer.nodes())}
        if node is not None and node not in names:
            raise NotFound(f"no node {node}", f"known: {', '.join(sorted(names)) or 'none'}; see them: ao nodes")
        settings = self.settings()
        if settings.address and _is_elsewhere(settings.address) and _is_loopback(urlsplit(self.url()).hostname or ""):
            raise UsageError(
                f"the nodes of {settings.address} cannot reach the daemon at {self.url()}",
                "set host: (an address of this machine) or cluster.url in config.yaml",
            )

    async def list(self) -> list[dict[str, Any]]:
        """Return all nodes as JSON data."""
        return await self.registry.list(self.placer.nodes())

    def add(self, name: str) -> dict[str, str]:
        """Create a token for a machine that joins by hand; return it with the command that starts the worker there."""
        _, token = self.tokens.new_node(name)
        url, home = self.url(), str(self.settings().home)
        argv = [
            sys.executable,
            "-P",
            "-m",
            "agent_orchestrator.cluster.node.worker",
            "--url",
            url,
            "--name",
            name,
            "--home",
            home,
        ]
        if self.fingerprint and url.startswith("https:"):
            argv += ["--fingerprint", self.fingerprint]
        command = f"{TOKEN}={token} {shlex.join(argv)}"
        return {"name": name, "token": token, "url": url, "home": home, "command": command}

    async def drain(self, name: str, *, undo: bool, now: bool) -> dict[str, Any]:
        """Drain a node (`now`: without waiting for turns to end), or undo that; return the progress as JSON data."""
        return await self.draining.drain(name, undo=undo, now=now)

    def follow_drain(self, name: str) -> AsyncIterator[dict[str, Any]]:
        """Yield the progress of a drain until no session is left on the node."""
        return self.draining.follow(name)

    async def serve(self, transport: Transport, identity: Identity, address: str) -> None:
        """Serve a node that has connected, until its link is lost."""
        await self.registry.serve(transport, identity, address)

    def folder(self, project: str) -> Path:
        """Return the folder of a project's workspaces, which is the same on every node."""
        return Home(self.settings().home).worktrees / project


def _is_elsewhere(address: str) -> bool:
    """Return whether a Ray address names another machine."""
    host = address.rpartition("//")[2].partition(":")[0]
    return bool(host) and host not in ("auto", "local") and not _is_loopback(host)


def _is_loopback(host: str) -> bool:
    """Return whether a host name or address is this machine's loopback."""
    if host in ("localhost", ""):
        return True
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return False
