"""Find the forge and tracker of a project, and the plugins for them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, cast

from agent_orchestrator.changes.forge_records import ForgeRecords
from agent_orchestrator.config.effective import ProjectConfig
from agent_orchestrator.config.model import PluginSection
from agent_orchestrator.config.projects.plugin_registry import BUILTIN_PLUGINS, PluginRegistry
from agent_orchestrator.config.units import parse_duration
from agent_orchestrator.core.pull_request import LOCAL_FORGE
from agent_orchestrator.errors import UsageError
from agent_orchestrator.protocols.forge import SCM, Tracker
from agent_orchestrator.sessions.part import Core


class ForgeConnections:
    """The forges and trackers in use: one plugin per project, created on first use."""

    def __init__(self, core: Core, records: ForgeRecords) -> None:
        """Create without connections; plugins that keep their data in the daemon's log get their `records`."""
        self.core = core
        self._records = records
        self._plugins_by_key: dict[tuple[str, str, str, str], object] = {}

    async def check_trust(self, project: ProjectConfig) -> None:
        """Raise an error if an untrusted configuration would have a token sent to a server that it names."""
        await self.core.projects.check_trust(project, None)

    async def forge_name(self, project: ProjectConfig) -> str:
        """Return the forge for a project's new sessions: the configured one, that of its `repo` if there is a token, or `local`."""
        if project.scm.plugin != "auto":
            self._forge_plugin(project, project.scm.plugin)  # raises configuration errors before anything is created
            return project.scm.plugin
        if project.repo is None:
            return LOCAL_FORGE
        await self.check_trust(project)
        kind = forge_kind(project.repo)
        return kind if await self._forge_plugin(project, kind).configured() else LOCAL_FORGE

    async def tracker_name(self, project: ProjectConfig) -> str:
        """Return the tracker of a project's issues: the configured one, or that of its forge."""
        if project.tracker.plugin != "auto":
            return project.tracker.plugin
        forge = await self.forge_name(project)
        return forge if forge in BUILTIN_PLUGINS["tracker"] else LOCAL_FORGE

    def is_hosted(self, slot: str, project: ProjectConfig, name: str) -> bool:
        """Return whether a plugin of the slot `scm` or `tracker` says that it is for a service.

        Constructs nothing, and for a built-in plugin loads no plugin file of the project.
        """
        registry = PluginRegistry() if name in BUILTIN_PLUGINS[slot] else self.core.plugins.registry(project)
        return bool(getattr(registry.get(slot, name), "hosted", True))

    def tracker(self, project_id: str, name: str) -> Tracker:
        """Return a project's tracker plugin with this name. Raises an error if its configuration is wrong."""
        project = self.core.settings.project(project_id)
        options = project.tracker.options if project.tracker.plugin == name else project.scm.options
        return cast("Tracker", self._plugin_for("tracker", project, name, options))

    def trackers(self, project_id: str) -> list[Tracker]:
        """Return a project's trackers that are in use."""
        return [
            cast("Tracker", plugin)
            for (project, slot, *_), plugin in self._plugins_by_key.items()
            if (project, slot) == (project_id, "tracker")
        ]

    def poll_interval(self, project: ProjectConfig, part: PluginSection, otherwise: float) -> float:
        """Return the seconds between two polls of a forge or tracker: its `poll` option, or `otherwise`."""
        poll = part.options.get("poll")
        try:
            return otherwise if poll is None else max(1.0, parse_duration(poll))
        except ValueError as error:
            raise UsageError(f"poll of {project.id}'s {part.plugin}: {error}", "write poll: 30s") from None

    async def trusted_forge(self, project_id: str, name: str) -> SCM:
        """Return the forge plugin with this name after checking that the project may use its token, if it is for a service."""
        project = self.core.settings.project(project_id)
        if self.is_hosted("scm", project, name):
            await self.check_trust(project)
        return self.forge(project_id, name)

    async def trusted_tracker(self, project_id: str, name: str) -> Tracker:
        """Return the tracker plugin with this name after checking that the project may use its token, if it is for a service."""
        project = self.core.settings.project(project_id)
        if self.is_hosted("tracker", project, name):
            await self.check_trust(project)
        return self.tracker(project_id, name)

    def forge(self, project_id: str, name: str) -> SCM:
        """Return a project's forge plugin with this name. Raises an error if its configuration is wrong."""
        return self._forge_plugin(self.core.settings.project(project_id), name)

    def _forge_plugin(self, project: ProjectConfig, name: str) -> SCM:
        """Return a project's forge plugin."""
        return cast("SCM", self._plugin_for("scm", project, name, project.scm.options))

    def _plugin_for(self, slot: str, project: ProjectConfig, name: str, base_options: Mapping[str, Any]) -> object:
        """Return the plugin of a slot for a project; created once per set of options."""
        options = {**base_options, "repo": base_options.get("repo") or project.repo, "path": str(project.path)}
        key = (project.id, slot, name, json.dumps(options, sort_keys=True, default=str))
        if key not in self._plugins_by_key:
            if not self.is_hosted(slot, project, name):
                options["records"] = self._records.for_slot(slot, project.id)
            self._plugins_by_key[key] = self.core.plugins.registry(project).create(slot, name, options, self.core.host)
        return self._plugins_by_key[key]

    def webhook_secrets(self, name: str) -> dict[str, frozenset[str]]:
        """Return the webhook secrets that projects share with this forge or tracker, each with the projects that use it."""
        projects_by_secret: dict[str, frozenset[str]] = {}
        for project in self.core.config.projects():
            for part in (project.scm, project.tracker):
                hook = part.options.get("webhook")
                is_configured = part.plugin == name or (
                    part.plugin == "auto" and name == forge_kind(project.repo or "")
                )
                if is_configured and isinstance(hook, dict):
                    for secret in self._secrets_in(hook):
                        projects_by_secret[secret] = projects_by_secret.get(secret, frozenset()) | {project.id}
        return projects_by_secret

    def unset_secret_variable(self, project: ProjectConfig, name: str) -> str | None:
        """Return the environment variable that a project names for its webhook secret and that is not set, or None."""
        hooks = [
            part.options.get("webhook") for part in (project.scm, project.tracker) if part.plugin in (name, "auto")
        ]
        variables = [str(hook["secretEnvVar"]) for hook in hooks if isinstance(hook, dict) and hook.get("secretEnvVar")]
        return next((variable for variable in variables if not self.core.config.environ.get(variable)), None)

    def _secrets_in(self, hook: dict[str, object]) -> Iterator[str]:
        """Yield the webhook secrets of one configuration: given in place, or by environment variable."""
        if isinstance(secret := hook.get("secret"), str) and secret:
            yield secret
        if isinstance(variable := hook.get("secretEnvVar"), str) and (value := self.core.config.environ.get(variable)):
            yield value


def forge_kind(repo: str) -> str:
    """Return the kind of forge at a repository's address: `gitlab` if the host's name contains that, else `github`."""
    host, path, _ = (
        repo.partition("://")[2].partition("/") if "://" in repo else repo.replace(":", "/", 1).partition("/")
    )
    return "gitlab" if path and "." in host and "gitlab" in host.lower() else "github"
