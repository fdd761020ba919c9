"""A GitHub for tests: a real HTTP server on loopback with REST, GraphQL, webhooks and Git, which behaves like GitHub."""

from agent_orchestrator.testing.github.people import People
from agent_orchestrator.testing.github.server import GitHubServer
from agent_orchestrator.testing.github.state import Protection, Pull, Repo, User

__all__ = ["GitHubServer", "People", "Protection", "Pull", "Repo", "User"]
