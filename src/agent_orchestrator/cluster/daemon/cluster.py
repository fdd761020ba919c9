"""`ClusterNodes`: creates, starts and closes all parts of the cluster, and answers the requests of clients about nodes."""

from __future__ import annotations

import contextlib
import ipaddress
import shlex
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from agent_orchestrator.base.api_tokens import Identity, Tokens
from agent_orchestrator.base.background_tasks import Tasks
from agent_orchestrator.base.home import Home
from agent_orchestrator.cluster.daemon.checkpoints import Checkpoints
from agent_orchestrator.cluster.daemon.conversations import ConversationCopier
from agent_orchestrator.cluster.daemon.drain import Drain
from agent_orchestrator.cluster.daemon.lost_nodes import LostNodes
from agent_orchestrator.cluster.daemon.node_assignment import NodeAssignment
from agent_orchestrator.cluster.daemon.placement import ManualPlacer, Placer
from agent_orchestrator.cluster.daemon.registry import NodeRegistry
from agent_orchestrator.cluster.daemon.returning_nodes import NodeCleanup
from agent_orchestrator.cluster.daemon.settings import ClusterSettings, settings_of
from agent_orchestrator.cluster.daemon.signals import NodeStateChanged
from agent_orchestrator.cluster.daemon.site import DaemonContext, NodeSite
from agent_orchestrator.cluster.link.calls import TOKEN_VARIABLE
from agent_orchestrator.cluster.link.transports import StarletteTransport
from agent_orchestrator.config.config_set import ConfigSet
from agent_orchestrator.core.effects import Effect
from agent_orchestrator.core.engine import Flow
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.notices import NoticeGate
from agent_orchestrator.core.signals import NodesChanged
from agent_orchestrator.errors import NotFound, UsageError
from agent_orchestrator.protocols.host import Host
from agent_orchestrator.sessions.agents.observer import Observer
from agent_orchestrator.sessions.cluster_service import ClusterService
from agent_orchestrator.sessions.lifecycle.reachability import retry_while_unreachable
from agent_orchestrator.sessions.lifecycle.session_specs import SessionSpecs
from agent_orchestrator.sessions.part import Core, Part
from agent_orchestrator.sessions.site import LocalSite


def create_registry(
    flow: Flow, home: Home, host: Host, config: ConfigSet, tokens: Tokens, here: LocalSite
) -> NodeRegistry:
    """Return the registry of nodes, which finds the site of each; the daemon's other parts are made with it."""

    def settings() -> ClusterSettings:
        """Return the current configuration of the cluster."""
        return settings_of(config, home)

    def session_token(session: str) -> str:
        """Return the saving token of a session's live or next launch; a token of a lost launch is no longer accepted."""
        facts = flow.sessions[session]
        is_lost = facts.launch is not None and bool(facts.launch.loss_reason)
        return tokens.for_upload(session, max(1, facts.generation + is_lost))

    around = DaemonContext(
        home=home,
        host=host,
        url=lambda: settings().url or here.url,
        project=lambda session: flow.sessions[session].project,
        token=session_token,
    )
    return NodeRegistry(flow, home, settings, lambda remote: NodeSite(remote, around))


class ClusterNodes(ClusterService):
    """The daemon's interface to the cluster."""

    def __init__(
        self,
        core: Core,
        registry: NodeRegistry,
        tokens: Tokens,
        specs: SessionSpecs,
        observer: Observer,
        notices: NoticeGate,
        fingerprint: str,
    ) -> None:
        """Create the nodes; `fingerprint` is the SHA-256 of the daemon's own TLS certificate, or "" if it has none."""
        self.core = core
        self.registry = registry
        self.tokens = tokens
        self.fingerprint = fingerprint
        self.settings = registry.settings
        self.placer = self._create_placer()
        self.assignment = NodeAssignment(core, self.placer, self.settings)
        self.node_drain = Drain(core, registry, self.placer)
        self.cleanup = NodeCleanup(core.flow, specs)
        self.conversations: ConversationCopier = ConversationCopier(core, registry, specs)
        self.checkpoints = Checkpoints(core, registry, self.settings, specs, self.conversations)
        self.lost_nodes = LostNodes(core, registry, specs, observer, notices)
        self._parts: tuple[Part, ...] = (self.assignment, self.lost_nodes, self.node_drain, self.checkpoints)
        self._bridge = Tasks()

    def effects(self) -> dict[str, Effect]:
        """Return the effects `place` and `move`, by kind of intent."""
        return {
            "place": Effect(self.assignment.place, fatal_step="choosing its node"),
            "move": Effect(
                retry_while_unreachable(self.core, self.lost_nodes.move), fatal_step="saving its work on its node"
            ),
        }

    def wait_reason(self, facts: SessionFacts, working: Sequence[SessionFacts]) -> str:
        """Return what a session that is ready to start waits for, or "" if its node has room."""
        return self.assignment.gate(facts, working)

    # -- life ----------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start all parts with the sessions in the store, and the Ray bridge if Ray is configured."""
        self.registry.start()
        for part in self._parts:
            part.start()
        if (run_bridge := getattr(self.placer, "run", None)) is not None:
            self._bridge.spawn(run_bridge())

    async def close(self) -> None:
        """Stop all parts and close the links; agents on nodes keep running."""
        for part in self._parts:
            await part.close()
        await self._bridge.close()
        await self.registry.close()

    def _create_placer(self) -> Placer:
        """Return a Ray placer if `cluster.address` is configured, else one for workers that were started by hand."""
        settings, listeners = self.settings(), self.core.flow.listeners
        if settings.ray_address is None:
            placer = ManualPlacer(self.registry.infos, lambda: self.settings().max_sessions_per_node)
            listeners.on_signal(NodeStateChanged, lambda _signal: placer.recheck())
            return placer
        from agent_orchestrator.cluster.ray.placer import RayPlacer, WorkerSetup

        def setup(node: str) -> WorkerSetup:
            """Return what Ray's worker on a node is started with."""
            options = {"fingerprint": self.fingerprint} if self.fingerprint else {}
            return WorkerSetup(self.url(), self.tokens.for_node(node), str(settings.node_home), options)

        address = settings.ray_address
        log = self.core.home.path / "ray-bridge.log"
        return RayPlacer(
            self.core.host, lambda: address, settings.node_home, setup, log, lambda: listeners.emit(NodesChanged())
        )

    def url(self) -> str:
        """Return the address at which nodes reach the daemon."""
        return self.settings().url or self.core.sites.local.url

    # -- asking --------------------------------------------------------------------------------------------------------

    def require_node(self, node: str | None) -> None:
        """Raise `NotFound` for an unknown node, or `UsageError` if the cluster's nodes cannot reach the daemon."""
        names = {*self.core.flow.home.nodes, *(info.name for info in self.placer.nodes())}
        if node is not None and node not in names:
            raise NotFound(f"no node {node}", f"known: {', '.join(sorted(names)) or 'none'}; see them: ao nodes")
        settings = self.settings()
        if (
            settings.ray_address
            and _is_elsewhere(settings.ray_address)
            and _is_loopback(urlsplit(self.url()).hostname or "")
        ):
            raise UsageError(
                f"the nodes of {settings.ray_address} cannot reach the daemon at {self.url()}",
                "set host: (an address of this machine) or cluster.url in config.yaml",
            )

    async def list_nodes(self) -> list[dict[str, Any]]:
        """Return all nodes as JSON data."""
        return await self.registry.list(self.placer.nodes())

    def add(self, name: str) -> dict[str, str]:
        """Create a token for a machine that joins by hand; return it with the command that starts the worker there."""
        _, token = self.tokens.create_for_node(name)
        url, home = self.url(), str(self.settings().node_home)
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
        command = f"{TOKEN_VARIABLE}={token} {shlex.join(argv)}"
        return {"name": name, "token": token, "url": url, "home": home, "command": command}

    async def drain(self, name: str, *, undo: bool, now: bool) -> dict[str, Any]:
        """Drain a node (`now`: without waiting for turns to end), or undo that; return the progress as JSON data."""
        return await self.node_drain.drain(name, undo=undo, now=now)

    def follow_drain(self, name: str) -> AsyncIterator[dict[str, Any]]:
        """Yield the progress of a drain until no session is left on the node."""
        return self.node_drain.follow_progress(name)

    async def serve(self, websocket: Any, identity: Identity, address: str) -> None:
        """Serve a node that has connected, until its link is lost."""
        await self.registry.serve(StarletteTransport(websocket), identity, address, self.cleanup.tidy)

    def workspaces_folder(self, project: str) -> Path:
        """Return the folder of a project's workspaces, which is the same on every node."""
        return Home(self.settings().node_home).worktrees / project


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
