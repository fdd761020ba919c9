"""`ProjectSettings`: the settings of a registered project, and how the agent of one of its sessions is run."""

from __future__ import annotations

from agent_orchestrator.config.config_set import ConfigSet
from agent_orchestrator.config.effective import ProjectConfig, ResolvedAgent
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.errors import Conflict


class ProjectSettings:
    """Reads the configuration in force, for code that needs a project to be there."""

    def __init__(self, config: ConfigSet) -> None:
        self.config = config

    def project(self, project_id: str) -> ProjectConfig:
        """Return a project's configuration; raise `Conflict` if it is not registered."""
        project = self.config.project(project_id)
        if project is None:
            raise Conflict(f"the project {project_id} is not registered any more", "add it again: ao add-project PATH")
        return project

    def checked_project(self, project_id: str) -> ProjectConfig:
        """Return a project's configuration to start or merge something; raise `Conflict` if its file exists but could not be read."""
        project = self.project(project_id)
        self.config.require_readable(project)
        return project

    def agent(self, facts: SessionFacts) -> ResolvedAgent:
        """Return how a session's agent is run; raise `Conflict` if its project is not registered."""
        self.project(facts.project)
        settings = self.config.agent(facts.project, facts.spec.profile or facts.spec.agent)
        assert settings is not None
        return settings
