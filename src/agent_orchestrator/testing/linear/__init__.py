"""A Linear for tests: a real HTTP server on loopback whose GraphQL runs on the published schema, with webhooks, whose state behaves."""

from agent_orchestrator.testing.linear.server import LinearServer
from agent_orchestrator.testing.linear.state import Attachment, Comment, Issue, Label, Team, User, WorkflowState

__all__ = ["Attachment", "Comment", "Issue", "Label", "LinearServer", "Team", "User", "WorkflowState"]
