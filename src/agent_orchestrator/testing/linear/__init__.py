"""A Linear for tests: a real HTTP server on loopback whose GraphQL runs on the published schema, with webhooks, whose state behaves."""

from .server import LinearServer
from .state import Attachment, Comment, Issue, Label, Team, User, WorkflowState

__all__ = ["Attachment", "Comment", "Issue", "Label", "LinearServer", "Team", "User", "WorkflowState"]
