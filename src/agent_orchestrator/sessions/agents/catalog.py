"""Lists the agents that can be used on this machine."""

from __future__ import annotations

import asyncio
from typing import Any

from agent_orchestrator.config.effective import ProjectConfig, ResolvedAgent
from agent_orchestrator.config.projects.plugin_registry import PluginRegistry
from agent_orchestrator.errors import AoError
from agent_orchestrator.sessions.part import Core


class AgentCatalog:
    """The agent plugins and profiles, and whether their programs are installed."""

    def __init__(self, core: Core) -> None:
        self.core = core

    async def list(self) -> list[dict[str, Any]]:
        """Return every agent plugin and every profile, with the path and version of its program."""
        rows = [self._describe_plugin(name) for name in PluginRegistry().names("agent") if name != "command"]
        for project in self.core.config.projects():
            for name in project.profiles:
                settings = self.core.config.agent(project.id, name)
                assert settings is not None
                rows.append(self._describe_profile(project, settings))
        return await asyncio.gather(*rows)

    async def _describe_plugin(self, name: str) -> dict[str, Any]:
        """Return the row of an agent plugin."""
        try:
            program = await PluginRegistry().create("agent", name, {}, self.core.host).detect()
        except AoError as error:
            return _row(name, None, None, error.text)
        return _row(name, None, program)

    async def _describe_profile(self, project: ProjectConfig, settings: ResolvedAgent) -> dict[str, Any]:
        """Return the row of a project's profile."""
        name = settings.profile or settings.tool
        details = {"tool": settings.tool, "role": settings.role}
        try:
            program = await self.core.plugins.agent(project, settings).detect()
        except AoError as error:
            return _row(name, project.id, None, error.text) | details
        return _row(name, project.id, program) | details


def _row(name: str, project: str | None, program: Any, problem: str = "") -> dict[str, Any]:
    """Return an agent as JSON; `found` is its detected program or None."""
    return {
        "name": name,
        "project": project,
        "tool": name,
        "role": None,
        "found": program is not None,
        "path": program.path if program else None,
        "version": program.version or None if program else None,
        "problem": problem or None,
    }
