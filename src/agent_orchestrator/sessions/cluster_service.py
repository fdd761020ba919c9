"""`ClusterService`: what the rest of the daemon needs of the machines of a cluster.

This class is for a home without one: it knows no node. The package `cluster` derives from it; everything else works without that package.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from agent_orchestrator.base.api_tokens import Identity
from agent_orchestrator.core.effects import Effect
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.errors import NotFound
from agent_orchestrator.sessions.lifecycle.conversations import Conversations


class ClusterService:
    """No nodes."""

    def __init__(self) -> None:
        self.conversations = Conversations()

    def effects(self) -> dict[str, Effect]:
        """Return the effects that choose a session's node and move it to another one."""
        return {}

    def start(self) -> None:
        """Begin to watch the nodes and the sessions on them."""

    async def close(self) -> None:
        """Close the links to the nodes; agents there keep running."""

    def wait_reason(self, _facts: SessionFacts, _working: Sequence[SessionFacts]) -> str:
        """Return what a session that is ready to start waits for, or "" if its node has room."""
        return ""

    def require_node(self, node: str | None) -> None:
        """Raise `NotFound` for an unknown node."""
        raise _no_node(node)

    def workspaces_folder(self, _project: str) -> Path:
        """Return the folder of a project's workspaces, which is the same on every node."""
        raise _no_node(None)

    async def list_nodes(self) -> list[dict[str, Any]]:
        """Return all nodes as JSON data."""
        return []

    def add(self, name: str) -> dict[str, str]:
        """Create a token for a machine that joins by hand; return it with the command that starts the worker there."""
        raise _no_node(name)

    async def drain(self, name: str, *, undo: bool, now: bool) -> dict[str, Any]:  # noqa: ARG002
        """Drain a node (`now`: without waiting for turns to end), or undo that; return the progress as JSON data."""
        raise _no_node(name)

    def follow_drain(self, name: str) -> AsyncIterator[dict[str, Any]]:
        """Yield the progress of a drain until no session is left on the node."""
        raise _no_node(name)

    async def serve(self, _websocket: Any, identity: Identity, _address: str) -> None:
        """Serve a node that has connected, until its link is lost."""
        raise _no_node(identity.name)


def _no_node(node: str | None) -> NotFound:
    """Return the error for a node where there are none."""
    return NotFound(f"no node {node}" if node else "there is no cluster", "see the nodes: ao nodes")
