"""How often a forge or tracker is polled: seldom while its webhooks arrive, otherwise as its `poll` option says."""

from __future__ import annotations

from agent_orchestrator.changes.forge_sync.connections import ForgeConnections
from agent_orchestrator.config.effective import ProjectConfig
from agent_orchestrator.config.model import PluginSection

PULL_REQUEST_POLL_INTERVAL = 25.0
"""Seconds between two polls of a repository."""
ISSUE_POLL_INTERVAL = 60.0
"""Seconds between two polls of a tracker."""
WEBHOOK_POLL_INTERVAL = 600.0
"""Seconds between two polls while webhooks arrive."""
WEBHOOK_MEMORY_SECONDS = 3600.0
"""Seconds after its last webhook in which a repository or tracker counts as one that sends webhooks."""


def sends_webhooks(last_webhook_at: float, now: float) -> bool:
    """Return whether a repository or tracker counts as one that sends webhooks."""
    return now - last_webhook_at <= WEBHOOK_MEMORY_SECONDS


def poll_interval(
    connections: ForgeConnections, project: ProjectConfig, part: PluginSection, default: float, *, has_hooks: bool
) -> float:
    """Return the seconds between two polls of a project's forge or tracker, without regard to its rate limit."""
    return WEBHOOK_POLL_INTERVAL if has_hooks else connections.poll_interval(project, part, default)
