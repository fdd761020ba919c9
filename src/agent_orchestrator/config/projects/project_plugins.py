"""`ProjectPlugins`: the plugins that each project may use; which code that is, the user has to trust."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from pathlib import Path

from agent_orchestrator.base.files.safe import read_regular_file
from agent_orchestrator.config.effective import ProjectConfig
from agent_orchestrator.config.projects.plugin_registry import PluginRegistry
from agent_orchestrator.config.projects.projects import Projects
from agent_orchestrator.core.signals import ConfigurationReloaded


class ProjectPlugins:
    """One registry for each combination of plugin files and installed plugins that projects name."""

    def __init__(self, projects: Projects) -> None:
        self._projects = projects
        self._registries: dict[tuple[tuple[Path, ...], frozenset[tuple[str, str]]], PluginRegistry] = {}
        projects.flow.listeners.on_signal(ConfigurationReloaded, self._forget_failed)

    def registry(self, project: ProjectConfig) -> PluginRegistry:
        """Return the plugins that a project may use."""
        key = (project.plugins, frozenset(plugins_of(project)))
        if key not in self._registries:
            files = [{"path": str(path)} for path in project.plugins]
            admits, note_plugin = self._projects.trusted_files.admits, self._projects.record_plugin
            self._registries[key] = PluginRegistry(files, installed=key[1], admit=admits, loaded=note_plugin)
        return self._registries[key]

    def registries(self) -> list[PluginRegistry]:
        """Return the registries in use."""
        return list(self._registries.values())

    def admitted_files(self, project: ProjectConfig) -> list[dict[str, str]]:
        """Return the plugin files that a project may run, with their digests, for a process that loads them itself."""
        files = []
        for path in project.plugins:
            with contextlib.suppress(OSError):
                data = read_regular_file(path.resolve())
                if self._projects.trusted_files.admits(path, data):
                    files.append({"path": str(path), "sha256": hashlib.sha256(data).hexdigest()})
        return files

    def _forget_failed(self, _signal: ConfigurationReloaded) -> None:
        """Let plugins that could not be loaded be tried again."""
        self._registries = {key: registry for key, registry in self._registries.items() if not registry.import_errors}


def plugins_of(project: ProjectConfig) -> Iterator[tuple[str, str]]:
    """Yield slot and name of every plugin that a project's configuration names."""
    yield from (("runtime", project.runtime), ("agent", project.agent), ("terminal", project.terminal.plugin))
    yield from (("tracker", project.tracker.plugin), ("scm", project.scm.plugin))
    yield from (("notifier", notifier.plugin) for notifier in project.notifiers.values())
    for profile in (None, *project.profiles.values()):
        profile_plugins = (("agent", profile.tool), ("runtime", profile.runtime)) if profile else ()
        workspace = profile.workspace if profile else project.workspace
        yield from ((slot, name) for slot, name in (*profile_plugins, ("workspace", workspace)) if name)
