"""A GitLab for tests: a real HTTP server on loopback with REST, webhooks and Git, which behaves like GitLab."""

from agent_orchestrator.testing.gitlab.people import People
from agent_orchestrator.testing.gitlab.server import GitLabServer
from agent_orchestrator.testing.gitlab.state import Job, MergeRequest, Pipeline, Project, User

__all__ = ["GitLabServer", "Job", "MergeRequest", "People", "Pipeline", "Project", "User"]
