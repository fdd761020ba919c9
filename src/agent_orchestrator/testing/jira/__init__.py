"""A Jira for tests: a real HTTP server on loopback with REST 3 (cloud) and REST 2 (servers), workflows, JQL and webhooks."""

from agent_orchestrator.testing.jira.server import JiraServer
from agent_orchestrator.testing.jira.state import JiraComment, JiraIssue, JiraProject, JiraStatusRecord, JiraUser

__all__ = ["JiraComment", "JiraIssue", "JiraProject", "JiraServer", "JiraStatusRecord", "JiraUser"]
