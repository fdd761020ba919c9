"""Which forge serves a project, and the plugin that speaks with it."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, cast

from agent_orchestrator.config.effective import ProjectConfig
from agent_orchestrator.config.model import Plugin
from agent_orchestrator.config.projects.plugin_registry import BUILT_IN
from agent_orchestrator.config.values import duration
from agent_orchestrator.errors import AoError, UsageError
from agent_orchestrator.protocols.forge import SCM, Tracker
from agent_orchestrator.protocols.host import Host
from agent_orchestrator.sessions.plugins import Plugins

LOCAL = "local"


class Repositories:
    """The forges in use: one plugin for each project, made when it is asked for."""

    def __init__(self, plugins: Plugins, host: Host) -> None:
        self.plugins = plugins
        self.host = host
        self.check: Callable[[ProjectConfig], Awaitable[None]] = _anybody
        """Raises where a configuration that nobody trusted would have a token sent somewhere."""
        self._made: dict[tuple[str, str, str, str], object] = {}

    async def name(self, project: ProjectConfig) -> str:
        """The forge of a project's new sessions: the one it names, or the one that its `repo` is at if there is a token for it."""
        if project.scm.plugin not in ("auto", LOCAL):
            self._make(project, project.scm.plugin)  # what is wrong with it is said before anything is made
        if project.scm.plugin != "auto":
            return project.scm.plugin
        if project.repo is None:
            return LOCAL
        await self.check(project)
        kind = kind_of(project.repo)
        return kind if await self._make(project, kind).configured() else LOCAL

    async def tracker_name(self, project: ProjectConfig) -> str:
        """The tracker of a project's issues: the one it names, or that of the forge which serves it."""
        if project.tracker.plugin != "auto":
            return project.tracker.plugin
        forge = await self.name(project)
        return forge if forge in BUILT_IN["tracker"] else LOCAL

    def tracker(self, project_id: str, name: str) -> Tracker:
        """The tracker by this name, for a project. Raises what is wrong with it."""
        project = self.plugins.project(project_id)
        options = project.tracker.options if project.tracker.plugin == name else project.scm.options
        return cast("Tracker", self._plugin("tracker", project, name, options))

    def trackers(self, project_id: str) -> list[Tracker]:
        """Those of a project that are in use."""
        return [
            cast("Tracker", made)
            for (project, slot, *_), made in self._made.items()
            if (project, slot) == (project_id, "tracker")
        ]

    def interval(self, project: ProjectConfig, part: Plugin, otherwise: float) -> float:
        """Seconds between two polls of a forge or tracker: its `poll`, or else."""
        given = part.options.get("poll")
        try:
            return otherwise if given is None else max(1.0, duration(given))
        except ValueError as error:
            raise UsageError(f"poll of {project.id}'s {part.plugin}: {error}", "write poll: 30s") from None

    async def reach(self, project_id: str, name: str) -> SCM:
        """The forge by this name, to be spoken with."""
        await self.check(self.plugins.project(project_id))
        return self.of(project_id, name)

    async def reach_tracker(self, project_id: str, name: str) -> Tracker:
        """The tracker by this name, to be spoken with."""
        await self.check(self.plugins.project(project_id))
        return self.tracker(project_id, name)

    def of(self, project_id: str, name: str) -> SCM:
        """The forge by this name, for a project. Raises what is wrong with it."""
        return self._make(self.plugins.project(project_id), name)

    def _make(self, project: ProjectConfig, name: str) -> SCM:
        return cast("SCM", self._plugin("scm", project, name, project.scm.options))

    def _plugin(self, slot: str, project: ProjectConfig, name: str, given: Mapping[str, Any]) -> object:
        options = {**given, "repo": given.get("repo") or project.repo, "path": str(project.path)}
        key = (project.id, slot, name, json.dumps(options, sort_keys=True, default=str))
        if key not in self._made:
            self._made[key] = self.plugins.registry(project).make(slot, name, options, self.host)
        return self._made[key]

    def secrets(self, name: str) -> dict[str, frozenset[str]]:
        """What projects have agreed upon with this forge or tracker, to know its webhooks by: each secret, and whose it is."""
        found: dict[str, frozenset[str]] = {}
        for project in self.plugins.config.projects():
            for part in (project.scm, project.tracker):
                hook = part.options.get("webhook")
                named = part.plugin == name or (part.plugin == "auto" and name == kind_of(project.repo or ""))
                if named and isinstance(hook, dict):
                    for secret in self._secret(hook):
                        found[secret] = found.get(secret, frozenset()) | {project.id}
        return found

    def unset_secret(self, project: ProjectConfig, name: str) -> str | None:
        """The variable that a project names for its webhooks' secret, where it is not set."""
        hooks = [
            part.options.get("webhook") for part in (project.scm, project.tracker) if part.plugin in (name, "auto")
        ]
        named = [str(hook["secretEnvVar"]) for hook in hooks if isinstance(hook, dict) and hook.get("secretEnvVar")]
        return next((variable for variable in named if not self.plugins.config.environ.get(variable)), None)

    def _secret(self, hook: dict[str, object]) -> Iterator[str]:
        if isinstance(secret := hook.get("secret"), str) and secret:
            yield secret
        if isinstance(variable := hook.get("secretEnvVar"), str) and (
            value := self.plugins.config.environ.get(variable)
        ):
            yield value


def kind_of(repo: str) -> str:
    """The forge that a repository's address is at: one whose host is called so is a GitLab, any other a GitHub."""
    host, inner, _ = (
        repo.partition("://")[2].partition("/") if "://" in repo else repo.replace(":", "/", 1).partition("/")
    )
    return "gitlab" if inner and "." in host and "gitlab" in host.lower() else "github"


def problem(error: Exception) -> str:
    """What went wrong, in one line."""
    return str(error) if isinstance(error, AoError) else f"{type(error).__name__}: {error}"


async def _anybody(_project: ProjectConfig) -> None:
    """Everybody is trusted."""
