"""A Linear for tests: a real HTTP server on loopback with GraphQL on the published schema and webhooks, which behaves like Linear."""

from agent_orchestrator.testing.linear.server import LinearServer
from agent_orchestrator.testing.linear.state import (
    Attachment,
    LinearComment,
    LinearIssue,
    LinearLabel,
    LinearTeamRecord,
    LinearUser,
    WorkflowState,
)

__all__ = [
    "Attachment",
    "LinearComment",
    "LinearIssue",
    "LinearLabel",
    "LinearServer",
    "LinearTeamRecord",
    "LinearUser",
    "WorkflowState",
]
