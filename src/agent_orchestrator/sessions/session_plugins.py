"""`SessionPlugins`: the plugins of a session: its agent, its runtime and its workspace, on the machine on which it lives."""

from __future__ import annotations

from typing import cast

from agent_orchestrator.config.effective import ProjectConfig, ResolvedAgent
from agent_orchestrator.config.projects.plugin_registry import PluginRegistry
from agent_orchestrator.config.projects.project_plugins import ProjectPlugins
from agent_orchestrator.config.projects.project_settings import ProjectSettings
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.errors import AoError, Missing
from agent_orchestrator.plugins.runtimes.auto import MIN_TMUX_VERSION, choose_runtime, tmux_version
from agent_orchestrator.plugins.runtimes.docker.container_host import container_host
from agent_orchestrator.plugins.runtimes.docker.engine import find_engine
from agent_orchestrator.protocols import Agent, Handle, Runtime, Workspace
from agent_orchestrator.protocols.host import Host
from agent_orchestrator.sessions.isolation.docker_container import DOCKER_RUNTIME as CONTAINED
from agent_orchestrator.sessions.site import Sites


class SessionPlugins:
    """The source of the plugins that sessions use."""

    def __init__(self, host: Host, settings: ProjectSettings, sites: Sites, project_plugins: ProjectPlugins) -> None:
        self._host = host
        self._settings = settings
        self._sites = sites
        self._project_plugins = project_plugins
        self._auto: str | None = None
        self._has_tmux = False
        self._has_engine = False

    def registry(self, project: ProjectConfig) -> PluginRegistry:
        """Return the plugins that a project may use."""
        return self._project_plugins.registry(project)

    def allowed_plugin_files(self, project: ProjectConfig) -> list[dict[str, str]]:
        """Return the plugin files that a project may run, with their digests, for a process that loads them itself."""
        return self._project_plugins.admitted_files(project)

    # -- choosing ------------------------------------------------------------------------------------------------------

    async def resolve_runtime(self, requested: str) -> str:
        """Return the runtime to use on this machine, with `auto` resolved; raise `Missing` if tmux or a container is not available."""
        if requested == "tmux" and not await self._has_supported_tmux():
            oldest = ".".join(map(str, MIN_TMUX_VERSION))
            raise Missing(
                f"tmux {oldest} or newer is not installed",
                "install it, or use --runtime process (runtime: auto chooses)",
            )
        if requested == CONTAINED and not self._has_engine:
            await find_engine(self._host)
            self._has_engine = True
        if requested != "auto":
            return requested
        if self._auto is None:
            self._auto = await choose_runtime(self._host)
        return self._auto

    async def _has_supported_tmux(self) -> bool:
        """Return whether a supported tmux is installed."""
        self._has_tmux = self._has_tmux or await tmux_version(self._host) >= MIN_TMUX_VERSION
        return self._has_tmux

    def resolve_workspace(
        self, project: ProjectConfig, settings: ResolvedAgent, requested: str | None, *, sandboxed: bool
    ) -> str:
        """Return the requested workspace, or the one that the agent needs, or a worktree; raise `NotFound` for an unknown one.

        In a sandbox it is a clone: in a worktree an agent writes the repository's own objects, and no sandbox can prevent that.
        """
        name = requested or settings.workspace
        if name is None:
            name = self.agent(project, settings).workspace or ("clone" if sandboxed else "worktree")
        self.registry(project).get("workspace", name)
        return name

    def agent(self, project: ProjectConfig, settings: ResolvedAgent) -> Agent:
        """Return an agent plugin of this machine with its configuration."""
        return self._sites.local.agent(settings.tool, settings.options, self.registry(project))

    def runtime(self, name: str, registry: PluginRegistry | None = None) -> Runtime:
        """Return a runtime of this machine, which is shared by all sessions."""
        return self._sites.local.runtime(name, registry or PluginRegistry())

    # -- of a session --------------------------------------------------------------------------------------------------

    def agent_of(self, facts: SessionFacts) -> Agent:
        """Return a session's agent plugin."""
        project, settings = self._settings.project(facts.project), self._settings.agent(facts)
        if facts.spec.runtime == CONTAINED:
            plugin = self.registry(project).create("agent", settings.tool, settings.options, container_host(self._host))
            return cast("Agent", plugin)
        return self._sites.for_session(facts).agent(settings.tool, settings.options, self.registry(project))

    def runtime_of(self, facts: SessionFacts) -> Runtime:
        """Return a session's runtime."""
        return self._sites.for_session(facts).runtime(facts.spec.runtime, self._registry_of(facts))

    def workspace_of(self, facts: SessionFacts) -> Workspace:
        """Return a session's workspace plugin."""
        return self._sites.for_session(facts).workspace(facts.spec.workspace, self._registry_of(facts))

    async def is_watched(self, facts: SessionFacts) -> bool:
        """Return whether a person views the session's terminal; False if the runtime cannot report it."""
        handle = handle_of(facts)
        if handle is None or not facts.live:
            return False
        try:
            runtime = self.runtime_of(facts)
            return await runtime.watched(handle)
        except AoError:
            return False

    def _registry_of(self, facts: SessionFacts) -> PluginRegistry:
        """Return the plugins that a session's project may use, or the built-in ones if it is not registered."""
        project = self._settings.config.project(facts.project)
        return self.registry(project) if project else PluginRegistry()


def handle_of(facts: SessionFacts) -> Handle | None:
    """Return the last launch's handle, or None."""
    return Handle(**facts.launch.handle) if facts.launch else None
