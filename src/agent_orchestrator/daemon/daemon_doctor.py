"""Checks of `ao doctor` that need parts which only the daemon knows: the database, the clock, the nodes, the event loop."""

from __future__ import annotations

from typing import Any

from agent_orchestrator.base.finding import finding
from agent_orchestrator.base.home import Home
from agent_orchestrator.base.loop_watchdog import StallStatistics
from agent_orchestrator.core.engine import Flow
from agent_orchestrator.core.store.database import Database
from agent_orchestrator.daemon.foundation import Foundation
from agent_orchestrator.errors import AoError
from agent_orchestrator.sessions.cluster_service import ClusterService
from agent_orchestrator.views.machine_findings import address_finding, clock_finding, node_findings

MAX_CHECKED_MEGABYTES = 512
"""Megabytes from which on checking the database takes too long while the daemon runs."""

Findings = list[dict[str, Any]]


class DaemonDoctor:
    """The daemon's own checks."""

    def __init__(
        self,
        foundation: Foundation,
        cluster: ClusterService,
        stalls: StallStatistics,
        address: tuple[str, str | None],
        tracing: dict[str, Any] | None,
    ) -> None:
        """`address` is where the daemon listens, and why that is not the configured one; `tracing` the finding about traces."""
        self._foundation = foundation
        self._cluster = cluster
        self._stalls = stalls
        self._address = address
        self._tracing = tracing

    async def database(self) -> Findings:
        """Return the finding about the database."""
        shared = self._foundation.shared_store
        if shared is None:
            return [await _check_database_file(self._foundation.home, self._foundation.flow)]
        try:
            version = await shared.server_version()
        except AoError as error:
            return [finding("database", "failed", error.text, error.remedy)]
        return [finding("database", "ok", f"{shared.address}, PostgreSQL {version}")]

    async def clock(self) -> Findings:
        """Return the finding about the clock; runs after the checks of the forges, whose answers contain the time."""
        from agent_orchestrator.plugins.forges.shared.http import shared_clients

        return [
            clock_finding(
                {http.host_text.name: http.clock_skew for http in shared_clients() if http.clock_skew is not None}
            )
        ]

    async def nodes(self) -> Findings:
        """Return the findings about the nodes."""
        return node_findings(await self._cluster.list_nodes()) if self._foundation.flow.home.nodes else []

    async def loop(self) -> Findings:
        """Return the findings about the address, the event loop and traces."""
        loop = finding("event loop", "ok", self._stalls.summary_line())
        return [address_finding(*self._address), loop, *([self._tracing] if self._tracing else [])]


async def _check_database_file(home: Home, flow: Flow) -> dict[str, Any]:
    """Return the finding about an SQLite database."""
    size = home.database.stat().st_size / (1 << 20)
    if size > MAX_CHECKED_MEGABYTES:
        note = "not looked through: ao doctor --repair --dry-run does, while no daemon runs"
        return finding("database", "ok", f"sqlite: {home.database}, {size:,.0f} MB, {note}")
    try:
        damage = await flow.store.damage() if isinstance(flow.store, Database) else ""
    except AoError as error:
        damage = error.text
    if damage:
        remedy = "ao shutdown, then ao doctor --repair: what it changes is kept as it was"
        return finding("database", "failed", f"{home.database} is damaged: {damage}", remedy)
    return finding("database", "ok", f"sqlite: {home.database}, {size:.1f} MB, sound")
