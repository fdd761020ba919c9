"""A GitLab for tests: a real HTTP server on loopback with REST, webhooks and Git, which behaves like GitLab."""

from agent_orchestrator.testing.gitlab.people import GitLabPeople
from agent_orchestrator.testing.gitlab.server import GitLabServer
from agent_orchestrator.testing.gitlab.state import (
    GitLabJob,
    GitLabMergeRequest,
    GitLabPipeline,
    GitLabProject,
    GitLabUser,
)

__all__ = [
    "GitLabJob",
    "GitLabMergeRequest",
    "GitLabPeople",
    "GitLabPipeline",
    "GitLabProject",
    "GitLabServer",
    "GitLabUser",
]
