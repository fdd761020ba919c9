"""A GitLab for tests: a real HTTP server on loopback with REST, webhooks and Git, whose state behaves."""

from .people import People
from .server import GitLabServer
from .state import Job, MergeRequest, Pipeline, Project, User

__all__ = ["GitLabServer", "Job", "MergeRequest", "People", "Pipeline", "Project", "User"]
