"""The plugins of a session: which class, with which configuration; shared ones are created once."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import cast

from agent_orchestrator.base.files.safe import read_plain
from agent_orchestrator.base.home import Home
from agent_orchestrator.config.effective import AgentSettings, ProjectConfig
from agent_orchestrator.config.model import Check
from agent_orchestrator.config.projects.plugin_registry import Admit, Code, Registry
from agent_orchestrator.config.scope import ConfigSet
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.errors import AoError, Conflict, Missing, Temporary
from agent_orchestrator.plugins.runtimes.auto import OLDEST_TMUX, pick, tmux_version
from agent_orchestrator.plugins.runtimes.docker.engine import find as find_engine
from agent_orchestrator.plugins.runtimes.docker.inside import inside
from agent_orchestrator.protocols import Agent, Handle, NeedsWorkspace, Runtime, Watchable, Workspace
from agent_orchestrator.protocols.host import Host
from agent_orchestrator.sessions.isolation.containers import RUNTIME as CONTAINED
from agent_orchestrator.sessions.site import Find, Here, Site, no_nodes


class Plugins:
    """The source of the plugins that sessions use."""

    def __init__(self, home: Home, host: Host, config: ConfigSet) -> None:
        self.home = home
        self.host = host
        self.config = config
        self._registries: dict[tuple[tuple[Path, ...], frozenset[tuple[str, str]]], Registry] = {}
        self.admit: Admit = lambda _path, _data: True
        """Returns whether a plugin's file may be run with this content."""
        self.loaded: Callable[[Code], None] = lambda _code: None
        """Receives each third-party plugin before it is run."""
        self.here = Here(home, host)
        self.node: Find = no_nodes
        """Returns the site of a node."""
        self.elsewhere: Callable[[str], str] = lambda _session: ""
        """Returns the home that a session belongs to, or "" if it is this one or a node's."""
        self._auto: str | None = None
        self._has_tmux = False
        self._has_engine = False
        self.own_commands: Callable[[SessionFacts], tuple[str, ...]] = lambda _facts: ()
        """Returns commands that one session's agent may run without asking, in addition to its project's."""
        self.own_checks: Callable[[SessionFacts], Mapping[str, Check]] = _no_checks
        """Returns checks that only one session's change must pass, in addition to its project's: the base may fail them."""

    def project(self, project_id: str) -> ProjectConfig:
        """Return a project's configuration; raise `Conflict` if it is not registered."""
        project = self.config.project(project_id)
        if project is None:
            raise Conflict(f"the project {project_id} is not registered any more", "add it again: ao add-project PATH")
        return project

    def in_force(self, project_id: str) -> ProjectConfig:
        """Return a project's configuration to start or merge something; raise `Conflict` if its file exists but could not be read."""
        project = self.project(project_id)
        self.config.refuse_unread(project)
        return project

    def checks(self, facts: SessionFacts) -> dict[str, Check]:
        """Return every check that a session's change must pass, by name."""
        return {**self.in_force(facts.project).ci, **self.own_checks(facts)}

    def registry(self, project: ProjectConfig) -> Registry:
        """Return the plugins that a project may use."""
        key = (project.plugins, frozenset(named(project)))
        if key not in self._registries:
            files = [{"path": str(path)} for path in project.plugins]
            self._registries[key] = Registry(files, installed=key[1], admit=self._is_admitted, loaded=self._on_load)
        return self._registries[key]

    def admitted(self, project: ProjectConfig) -> list[dict[str, str]]:
        """Return the plugin files that a project may run, with their digests, for a process that loads them itself."""
        files = []
        for path in project.plugins:
            with contextlib.suppress(OSError):
                data = read_plain(path.resolve())
                if self.admit(path, data):
                    files.append({"path": str(path), "sha256": hashlib.sha256(data).hexdigest()})
        return files

    def forget(self) -> None:
        """Let plugins that could not be loaded be tried again."""
        self._registries = {key: registry for key, registry in self._registries.items() if not registry.failed}

    def _is_admitted(self, path: Path, data: bytes) -> bool:
        """Return whether a file may be run, by the current `admit`."""
        return self.admit(path, data)

    def _on_load(self, code: Code) -> None:
        """Pass a plugin that is loaded to the current `loaded`."""
        self.loaded(code)

    def registries(self) -> list[Registry]:
        """Return the registries in use."""
        return list(self._registries.values())

    async def runtime_name(self, wanted: str) -> str:
        """Return the runtime to use on this machine, with `auto` resolved; raise `Missing` if tmux or a container is not available."""
        if wanted == "tmux" and not await self._has_supported_tmux():
            oldest = ".".join(map(str, OLDEST_TMUX))
            raise Missing(
                f"tmux {oldest} or newer is not installed",
                "install it, or use --runtime process (runtime: auto chooses)",
            )
        if wanted == CONTAINED and not self._has_engine:
            await find_engine(self.host)
            self._has_engine = True
        if wanted != "auto":
            return wanted
        if self._auto is None:
            self._auto = await pick(self.host)
        return self._auto

    async def _has_supported_tmux(self) -> bool:
        """Return whether a supported tmux is installed."""
        self._has_tmux = self._has_tmux or await tmux_version(self.host) >= OLDEST_TMUX
        return self._has_tmux

    def runtime(self, name: str, registry: Registry | None = None) -> Runtime:
        """Return a runtime, which is shared by all sessions."""
        return self.here.runtime(name, registry or Registry())

    def site_of(self, facts: SessionFacts) -> Site:
        """Return the site of a session; raise `Conflict` if it needs a node and has none, `Temporary` if it belongs to another home."""
        if home := self.elsewhere(facts.id):
            raise Temporary(f"{facts.id} lives in {home}", "it can be reached once the daemon there is the active one")
        if not facts.remote:
            return self.here
        if facts.node is None:
            raise Conflict(f"{facts.id} lives on no node just now", f"see what it waits for: ao status {facts.id}")
        return self.node(facts.node)

    def _registry_of(self, facts: SessionFacts) -> Registry:
        """Return the plugins that a session's project may use, or the built-in ones if it is not registered."""
        project = self.config.project(facts.project)
        return self.registry(project) if project else Registry()

    def runtime_of(self, facts: SessionFacts) -> Runtime:
        """Return a session's runtime."""
        return self.site_of(facts).runtime(facts.spec.runtime, self._registry_of(facts))

    async def watched(self, facts: SessionFacts) -> bool:
        """Return whether a person views the session's terminal; False if the runtime cannot tell."""
        handle = handle_of(facts)
        if handle is None or not facts.live:
            return False
        try:
            runtime = self.runtime_of(facts)
            return isinstance(runtime, Watchable) and await runtime.watched(handle)
        except AoError:
            return False

    def workspace_of(self, facts: SessionFacts) -> Workspace:
        """Return a session's workspace plugin."""
        return self.site_of(facts).workspace(facts.spec.workspace, self._registry_of(facts))

    def workspace_name(
        self, project: ProjectConfig, settings: AgentSettings, wanted: str | None, *, sandboxed: bool
    ) -> str:
        """Return the requested workspace, or the one that the agent needs, or a worktree; raise `NotFound` for an unknown one.

        In a sandbox it is a clone: in a worktree an agent writes the repository's own objects, and no sandbox can prevent that.
        """
        name = wanted or settings.workspace
        if name is None:
            agent = self.agent(project, settings)
            name = agent.workspace if isinstance(agent, NeedsWorkspace) else "clone" if sandboxed else "worktree"
        self.registry(project).get("workspace", name)
        return name

    def settings(self, facts: SessionFacts) -> AgentSettings:
        """Return how a session's agent is run."""
        self.project(facts.project)
        settings = self.config.agent(facts.project, facts.spec.profile or facts.spec.agent)
        assert settings is not None
        return settings

    def agent(self, project: ProjectConfig, settings: AgentSettings) -> Agent:
        """Return an agent plugin of this machine with its configuration."""
        return self.here.agent(settings.tool, settings.options, self.registry(project))

    def agent_of(self, facts: SessionFacts) -> Agent:
        """Return a session's agent plugin."""
        project, settings = self.project(facts.project), self.settings(facts)
        if facts.spec.runtime == CONTAINED:
            plugin = self.registry(project).make("agent", settings.tool, settings.options, inside(self.host))
            return cast("Agent", plugin)
        return self.site_of(facts).agent(settings.tool, settings.options, self.registry(project))


def named(project: ProjectConfig) -> Iterator[tuple[str, str]]:
    """Yield slot and name of every plugin that a project's configuration names."""
    yield from (("runtime", project.runtime), ("agent", project.agent), ("terminal", project.terminal.plugin))
    yield from (("tracker", project.tracker.plugin), ("scm", project.scm.plugin))
    yield from (("notifier", notifier.plugin) for notifier in project.notifiers.values())
    for profile in (None, *project.profiles.values()):
        profile_plugins = (("agent", profile.tool), ("runtime", profile.runtime)) if profile else ()
        workspace = profile.workspace if profile else project.workspace
        yield from ((slot, name) for slot, name in (*profile_plugins, ("workspace", workspace)) if name)


def _no_checks(_facts: SessionFacts) -> Mapping[str, Check]:
    """Return no checks."""
    return {}


def handle_of(facts: SessionFacts) -> Handle | None:
    """Return the last launch's handle, or None."""
    return Handle(**facts.launch.handle) if facts.launch else None
