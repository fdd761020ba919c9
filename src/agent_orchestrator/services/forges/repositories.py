"""Which forge serves a project, and the plugin that speaks with it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import cast

from agent_orchestrator.config.effective import ProjectConfig
from agent_orchestrator.config.values import duration
from agent_orchestrator.errors import AoError, UsageError
from agent_orchestrator.forge import SCM
from agent_orchestrator.host import Host
from agent_orchestrator.services.plugins import Plugins

LOCAL = "local"


class Repositories:
    """The forges in use: one plugin for each project, made when it is asked for."""

    def __init__(self, plugins: Plugins, host: Host) -> None:
        self.plugins = plugins
        self.host = host
        self._made: dict[tuple[str, str, str], SCM] = {}

    async def name(self, project: ProjectConfig) -> str:
        """The forge of a project's new sessions: the one it names, or the one that its `repo` is at if there is a token for it."""
        if project.scm.plugin not in ("auto", LOCAL):
            self._make(project, project.scm.plugin)  # what is wrong with it is said before anything is made
        if project.scm.plugin != "auto":
            return project.scm.plugin
        if project.repo is None:
            return LOCAL
        return "github" if await self._make(project, "github").configured() else LOCAL

    def interval(self, project_id: str, otherwise: float) -> float:
        """Seconds between two polls of a project's forge: `scm.poll`, or else."""
        given = self.plugins.project(project_id).scm.options.get("poll")
        try:
            return otherwise if given is None else max(1.0, duration(given))
        except ValueError as error:
            raise UsageError(f"scm.poll of {project_id}: {error}", "write poll: 30s") from None

    def of(self, project_id: str, name: str) -> SCM:
        """The forge by this name, for a project. Raises what is wrong with it."""
        return self._make(self.plugins.project(project_id), name)

    def _make(self, project: ProjectConfig, name: str) -> SCM:
        options = {**project.scm.options, "repo": project.repo, "path": str(project.path)}
        key = (project.id, name, json.dumps(options, sort_keys=True, default=str))
        if key not in self._made:
            made = self.plugins.registry(project).make("scm", name, options, self.host)
            self._made[key] = cast("SCM", made)
        return self._made[key]

    def secrets(self, name: str) -> Iterator[str]:
        """What projects have agreed upon with this forge or tracker, to know its webhooks by."""
        for project in self.plugins.config.projects():
            for part in (project.scm, project.tracker):
                hook = part.options.get("webhook")
                named = part.plugin == name or (part.plugin == "auto" and name == "github")
                if named and isinstance(hook, dict):
                    yield from self._secret(hook)

    def _secret(self, hook: dict[str, object]) -> Iterator[str]:
        if isinstance(secret := hook.get("secret"), str) and secret:
            yield secret
        if isinstance(variable := hook.get("secretEnvVar"), str) and (
            value := self.plugins.config.environ.get(variable)
        ):
            yield value


def problem(error: Exception) -> str:
    """What went wrong, in one line."""
    return str(error) if isinstance(error, AoError) else f"{type(error).__name__}: {error}"
