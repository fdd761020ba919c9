"""A GitHub for tests: a real HTTP server on loopback with REST, GraphQL, webhooks and Git, whose state behaves."""

from .people import People
from .server import GitHubServer
from .state import Protection, Pull, Repo, User

__all__ = ["GitHubServer", "People", "Protection", "Pull", "Repo", "User"]
