"""The agents that can be used here."""

from __future__ import annotations

import asyncio
from typing import Any

from agent_orchestrator.config.effective import AgentSettings, ProjectConfig
from agent_orchestrator.config.projects.plugin_registry import Registry
from agent_orchestrator.errors import AoError
from agent_orchestrator.sessions.plugins import Plugins


class Agents:
    """Agent plugins and profiles, and whether their programs are here."""

    def __init__(self, plugins: Plugins) -> None:
        self.plugins = plugins

    async def list(self) -> list[dict[str, Any]]:
        """Every agent plugin and every profile."""
        rows = [self._plugin(name) for name in Registry().names("agent") if name != "command"]
        for project in self.plugins.config.projects():
            for name in project.profiles:
                settings = self.plugins.config.agent(project.id, name)
                assert settings is not None
                rows.append(self._profile(project, settings))
        return await asyncio.gather(*rows)

    async def _plugin(self, name: str) -> dict[str, Any]:
        try:
            found = await Registry().make("agent", name, {}, self.plugins.host).detect()
        except AoError as error:
            return _row(name, None, None, error.text)
        return _row(name, None, found)

    async def _profile(self, project: ProjectConfig, settings: AgentSettings) -> dict[str, Any]:
        name = settings.profile or settings.tool
        more = {"tool": settings.tool, "role": settings.role}
        try:
            found = await self.plugins.agent(project, settings).detect()
        except AoError as error:
            return _row(name, project.id, None, error.text) | more
        return _row(name, project.id, found) | more


def _row(name: str, project: str | None, found: Any, problem: str = "") -> dict[str, Any]:
    return {
        "name": name,
        "project": project,
        "tool": name,
        "role": None,
        "found": found is not None,
        "path": found.path if found else None,
        "version": found.version or None if found else None,
        "problem": problem or None,
    }
