"""A GitHub for tests: a real HTTP server on loopback with REST, GraphQL, webhooks and Git, which behaves like GitHub."""

from agent_orchestrator.testing.github.people import GitHubPeople
from agent_orchestrator.testing.github.server import GitHubServer
from agent_orchestrator.testing.github.state import GitHubPullRequest, GitHubUser, Protection, Repo

__all__ = ["GitHubPeople", "GitHubPullRequest", "GitHubServer", "GitHubUser", "Protection", "Repo"]
