"""A Linear for tests: a real HTTP server on loopback with GraphQL on the published schema and webhooks, which behaves like Linear."""

from agent_orchestrator.testing.linear.server import LinearServer
from agent_orchestrator.testing.linear.state import Attachment, Comment, Issue, Label, Team, User, WorkflowState

__all__ = ["Attachment", "Comment", "Issue", "Label", "LinearServer", "Team", "User", "WorkflowState"]
