"""The cluster, put together: what the daemon starts, and what people ask."""

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
    """Everything about the machines of the cluster."""

    def __init__(
        self, flow: Flow, home: Home, host: LocalHost, config: ConfigSet, plugins: Plugins, tokens: Tokens
    ) -> None:
        self.flow = flow
        self.home = home
        self.config = config
        self.plugins = plugins
        self.tokens = tokens
        self.fingerprint = ""
        """Of the daemon's own certificate, where it has one."""
        self.host = host
        self.on_placed: list[Callable[[], None]] = []
        """Called when a session that waited for a node may start."""
        self._bridge: asyncio.Task[None] | None = None
        plugins.node = lambda name: self.registry.site(name)

    def open(self, lifecycle: Lifecycle, observer: Observer, notice: Callable[[str, e.Notified], e.Body]) -> None:
        """Make everything as it is configured; before anybody asks."""
        self.registry = Nodes(self.flow, self.home, self.settings, self._site)
        self.placer: Placer = self._placer()
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
        """The cluster as it is configured now."""
        return settings_of(self.config, self.home)

    def effects(self, lifecycle: Lifecycle) -> dict[str, Effect]:
        """By kind of intent."""

        async def place(intent: Intent, attempts: int) -> Sequence[Event]:
            return await self.placing.place(intent, attempts)

        async def move(intent: Intent, attempts: int) -> Sequence[Event]:
            return await self.losing.move(intent, attempts)

        return {
            "place": Effect(place, fatal="choosing its node"),
            "move": Effect(lifecycle.reaching(move), fatal="saving its work on its node"),
        }

    def gate(self, facts: SessionFacts, working: Sequence[SessionFacts]) -> str:
        """What a session that wants to start waits for."""
        return self.placing.gate(facts, working)

    # -- life ----------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Take up what was there before, and let Ray choose where it is to."""
        self.registry.start()
        self.placing.start()
        self.losing.start()
        self.draining.start()
        self.checkpoints.start()
        if (run := getattr(self.placer, "run", None)) is not None:
            self._bridge = asyncio.get_running_loop().create_task(run())

    async def close(self) -> None:
        """Hang up; agents on nodes work on."""
        self.placing.close()
        self.draining.close()
        self.checkpoints.close()
        self.losing.close()
        if self._bridge:
            self._bridge.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await self._bridge
        await self.registry.close()

    def _placer(self) -> Placer:
        settings = self.settings()
        if settings.address is None:
            return HandPlacer(self.registry.infos, lambda: self.settings().most)
        from agent_orchestrator.cluster.ray.placer import RayPlacer, Setup

        def setup(node: str) -> Setup:
            more = {"fingerprint": self.fingerprint} if self.fingerprint else {}
            return Setup(self.url(), self.tokens.for_node(node), str(settings.home), more)

        address = settings.address
        log = self.home.path / "ray-bridge.log"
        placer = RayPlacer(self.host, lambda: address, settings.home, setup, log)
        placer.on_nodes.append(lambda: [tell() for tell in self.on_placed].clear())
        return placer

    def _site(self, remote: RemoteNode) -> NodeSite:
        sessions = self.flow.sessions
        around = Around(
            home=self.home,
            host=self.host,
            url=self.url,
            project=lambda session: sessions[session].project,
            token=self._token,
        )
        return NodeSite(remote, around)

    def _token(self, session: str) -> str:
        """Of the launch that lives, or of the one that is to come: a lost one's is worth nothing any more."""
        facts = self.flow.sessions[session]
        launch = facts.launch
        lost = launch is not None and bool(launch.lost)
        return self.tokens.for_saving(session, max(1, facts.generation + lost))

    def url(self) -> str:
        """Where nodes reach the daemon."""
        return self.settings().url or self.plugins.here.url

    # -- asking --------------------------------------------------------------------------------------------------------

    def check(self, node: str | None) -> None:
        """Refuse what cannot be: a node that nobody knows, or a cluster that could not reach the daemon."""
        names = {*self.flow.home.nodes, *(one.name for one in self.placer.nodes())}
        if node is not None and node not in names:
            raise NotFound(f"no node {node}", f"known: {', '.join(sorted(names)) or 'none'}; see them: ao nodes")
        settings = self.settings()
        if settings.address and _is_elsewhere(settings.address) and _is_loopback(urlsplit(self.url()).hostname or ""):
            raise UsageError(
                f"the nodes of {settings.address} cannot reach the daemon at {self.url()}",
                "set host: (an address of this machine) or cluster.url in config.yaml",
            )

    async def list(self) -> list[dict[str, Any]]:
        """All nodes, as JSON."""
        return await self.registry.list(self.placer.nodes())

    def add(self, name: str) -> dict[str, str]:
        """A token for a machine that is to join by hand, and the command that starts its worker."""
        _, token = self.tokens.new_node(name)
        url, home = self.url(), str(self.settings().home)
        words = [
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
            words += ["--fingerprint", self.fingerprint]
        command = f"{TOKEN}={token} {shlex.join(words)}"
        return {"name": name, "token": token, "url": url, "home": home, "command": command}

    async def drain(self, name: str, *, undo: bool, now: bool) -> dict[str, Any]:
        """Empty a node, or let it be used again."""
        return await self.draining.drain(name, undo=undo, now=now)

    def follow_drain(self, name: str) -> AsyncIterator[dict[str, Any]]:
        """How far it is, until nobody is left there."""
        return self.draining.follow(name)

    async def serve(self, transport: Transport, identity: Identity, address: str) -> None:
        """A node has dialled."""
        await self.registry.serve(transport, identity, address)

    def folder(self, project: str) -> Path:
        """Where a project's workspaces are on every node."""
        return Home(self.settings().home).worktrees / project


def _is_elsewhere(address: str) -> bool:
    host = address.rpartition("//")[2].partition(":")[0]
    return bool(host) and host not in ("auto", "local") and not _is_loopback(host)


def _is_loopback(host: str) -> bool:
    if host in ("localhost", ""):
        return True
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return False
