"""Lists the plugins: where they come from, what they declare, and whether they are in force. Imports none of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agent_orchestrator import __version__
from agent_orchestrator.config import trust
from agent_orchestrator.config.load import LoadedConfig
from agent_orchestrator.config.projects.plugin_registry import (
    BUILTIN_PLUGINS,
    SLOTS,
    declared_permissions,
    installed_plugins,
)
from agent_orchestrator.config.projects.project_plugins import ProjectPlugins, plugins_of
from agent_orchestrator.config.projects.projects import Projects

BUILT_IN_ORIGIN = "built in"
"""The origin of built-in plugins."""


class PluginList:
    """All plugins, in force or not."""

    def __init__(self, projects: Projects, project_plugins: ProjectPlugins) -> None:
        self.projects = projects
        self.project_plugins = project_plugins

    def list(self) -> list[dict[str, Any]]:
        """Return the built-in plugins by slot, those of installed packages, and the files that configurations name."""
        return [*self._built_in(), *self._from_packages(), *self._from_files()]

    def _built_in(self) -> Iterator[dict[str, Any]]:
        """Yield the built-in plugins."""
        for slot in SLOTS:
            for name in BUILTIN_PLUGINS.get(slot, {}):
                yield _row(slot, name, BUILT_IN_ORIGIN, __version__)

    def _from_packages(self) -> Iterator[dict[str, Any]]:
        """Yield the plugins of installed packages, with the reason if one is not in force."""
        project_by_plugin = {
            pair: project.id for project in self.projects.config.projects() for pair in plugins_of(project)
        }
        for slot in SLOTS:
            for name, code in installed_plugins(slot).items():
                if name in BUILTIN_PLUGINS.get(slot, {}):
                    problem = "one of ours has that name"
                else:
                    problem = "" if (slot, name) in project_by_plugin else "no configuration that you trust names it"
                yield _row(slot, name, code.origin, code.version, code.permissions, code.digest, problem)

    def _from_files(self) -> Iterator[dict[str, Any]]:
        """Yield the plugins in files that configurations name, with the reason if one is not in force."""
        plugin_by_path = {
            path: plugin
            for registry in self.project_plugins.registries()
            for path, plugin in registry.loaded_files().items()
        }
        errors = [error.text for registry in self.project_plugins.registries() for error in registry.import_errors]
        for file in self.projects.config.files:
            loaded = self.projects.config.loaded(file)
            for path in _plugin_files(loaded, self.projects) if loaded else ():
                slot, name = plugin_by_path.get(str(path), ("", path.stem.replace("_", "-")))
                is_trusted = loaded is not None and self.projects.trusts(loaded)
                load_error = next((text for text in errors if str(path) in text), "")
                problem = load_error or ("" if is_trusted else "not trusted: ao trust")
                yield _row(slot, name, str(path), "", declared_permissions(path), trust.sha256(path), problem)


def _plugin_files(loaded: LoadedConfig, projects: Projects) -> list[Path]:
    """Return the Python files that a configuration loads as plugins."""
    surrounding = projects.config.trust_context(loaded)
    return [path for path in trust.code_files(loaded, surrounding) if path.suffix == ".py"]


def _row(
    slot: str,
    name: str,
    origin: str,
    version: str,
    permissions: tuple[str, ...] | None = None,
    digest: str = "",
    problem: str = "",
) -> dict[str, Any]:
    """Return a plugin as JSON."""
    return {
        "slot": slot or None,
        "name": name,
        "origin": origin,
        "version": version or None,
        "permissions": None if permissions is None else list(permissions),
        "digest": digest or None,
        "inForce": not problem,
        "problem": problem or None,
    }
