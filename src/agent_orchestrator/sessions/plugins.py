"""Plugins for a session: which class, with which configuration, made once where it may be shared."""

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
    """Makes the plugins that sessions use."""

    def __init__(self, home: Home, host: Host, config: ConfigSet) -> None:
        self.home = home
        self.host = host
        self.config = config
        self._registries: dict[tuple[tuple[Path, ...], frozenset[tuple[str, str]]], Registry] = {}
        self.admit: Admit = lambda _path, _data: True
        """May a plugin's file be run with this content?"""
        self.loaded: Callable[[Code], None] = lambda _code: None
        """Is told of each plugin of others before it is run."""
        self.here = Here(home, host)
        self.node: Find = no_nodes
        """The site of a node."""
        self.elsewhere: Callable[[str], str] = lambda _session: ""
        """The home that a session lives in, if it is neither this one nor a node."""
        self._auto: str | None = None
        self._has_tmux = False
        self._has_engine = False
        self.own_commands: Callable[[SessionFacts], tuple[str, ...]] = lambda _facts: ()
        """What one session's agent may run without asking beside its project's commands."""
        self.own_checks: Callable[[SessionFacts], Mapping[str, Check]] = _none
        """Checks that one session's change must pass beside its project's, for its own sake: the base may well fail them."""

    def project(self, project_id: str) -> ProjectConfig:
        """A project's configuration; `Conflict` when it is not registered any more."""
        project = self.config.project(project_id)
        if project is None:
            raise Conflict(f"the project {project_id} is not registered any more", "add it again: ao add-project PATH")
        return project

    def in_force(self, project_id: str) -> ProjectConfig:
        """The same, for who starts or lands something: `Conflict` where its file is there and what it demands is not known."""
        project = self.project(project_id)
        self.config.refuse_unread(project)
        return project

    def checks(self, facts: SessionFacts) -> dict[str, Check]:
        """Every check that a session's change must pass, by name."""
        return {**self.in_force(facts.project).ci, **self.own_checks(facts)}

    def registry(self, project: ProjectConfig) -> Registry:
        """The plugins that a project may use."""
        key = (project.plugins, frozenset(named(project)))
        if key not in self._registries:
            files = [{"path": str(path)} for path in project.plugins]
            self._registries[key] = Registry(files, installed=key[1], admit=self._admitted, loaded=self._loading)
        return self._registries[key]

    def admitted(self, project: ProjectConfig) -> list[dict[str, str]]:
        """The files of code that a project may use, with the digests of what may be run, for a process that loads them itself."""
        found = []
        for path in project.plugins:
            with contextlib.suppress(OSError):
                data = read_plain(path.resolve())
                if self.admit(path, data):
                    found.append({"path": str(path), "sha256": hashlib.sha256(data).hexdigest()})
        return found

    def forget(self) -> None:
        """What could not be loaded may be loaded now."""
        self._registries = {key: one for key, one in self._registries.items() if not one.failed}

    def _admitted(self, path: Path, data: bytes) -> bool:
        return self.admit(path, data)

    def _loading(self, code: Code) -> None:
        self.loaded(code)

    def registries(self) -> list[Registry]:
        """Those in use."""
        return list(self._registries.values())

    async def runtime_name(self, wanted: str) -> str:
        """The runtime that `auto` comes to on this machine; `Missing` where tmux or a container is wanted and not to be had."""
        if wanted == "tmux" and not await self._new_enough():
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

    async def _new_enough(self) -> bool:
        self._has_tmux = self._has_tmux or await tmux_version(self.host) >= OLDEST_TMUX
        return self._has_tmux

    def runtime(self, name: str, registry: Registry | None = None) -> Runtime:
        """A runtime; one for all sessions."""
        return self.here.runtime(name, registry or Registry())

    def site_of(self, facts: SessionFacts) -> Site:
        """Where a session lives; `Conflict` where it is to live on a node and has none just now, `Temporary` in another's home."""
        if home := self.elsewhere(facts.id):
            raise Temporary(f"{facts.id} lives in {home}", "it can be reached once the daemon there is the active one")
        if not facts.remote:
            return self.here
        if facts.node is None:
            raise Conflict(f"{facts.id} lives on no node just now", f"see what it waits for: ao status {facts.id}")
        return self.node(facts.node)

    def _registry_of(self, facts: SessionFacts) -> Registry:
        project = self.config.project(facts.project)
        return self.registry(project) if project else Registry()

    def runtime_of(self, facts: SessionFacts) -> Runtime:
        """A session's runtime."""
        return self.site_of(facts).runtime(facts.spec.runtime, self._registry_of(facts))

    async def watched(self, facts: SessionFacts) -> bool:
        """Does a person look at the session's terminal just now? A runtime that cannot tell says no."""
        handle = handle_of(facts)
        if handle is None or not facts.live:
            return False
        try:
            runtime = self.runtime_of(facts)
            return isinstance(runtime, Watchable) and await runtime.watched(handle)
        except AoError:
            return False

    def workspace_of(self, facts: SessionFacts) -> Workspace:
        """A session's workspace plugin."""
        return self.site_of(facts).workspace(facts.spec.workspace, self._registry_of(facts))

    def workspace_name(
        self, project: ProjectConfig, settings: AgentSettings, wanted: str | None, *, sandboxed: bool
    ) -> str:
        """The workspace that is asked for, else the one that the agent needs, else a worktree; `NotFound` for one there is not.

        In a sandbox a clone: in a worktree an agent writes the repository's own objects, which no sandbox can keep from it.
        """
        name = wanted or settings.workspace
        if name is None:
            agent = self.agent(project, settings)
            name = agent.workspace if isinstance(agent, NeedsWorkspace) else "clone" if sandboxed else "worktree"
        self.registry(project).get("workspace", name)
        return name

    def settings(self, facts: SessionFacts) -> AgentSettings:
        """How a session's agent is run."""
        self.project(facts.project)
        found = self.config.agent(facts.project, facts.spec.profile or facts.spec.agent)
        assert found is not None
        return found

    def agent(self, project: ProjectConfig, settings: AgentSettings) -> Agent:
        """An agent plugin of this machine with its configuration."""
        return self.here.agent(settings.tool, settings.options, self.registry(project))

    def agent_of(self, facts: SessionFacts) -> Agent:
        """A session's agent plugin."""
        project, settings = self.project(facts.project), self.settings(facts)
        if facts.spec.runtime == CONTAINED:
            made = self.registry(project).make("agent", settings.tool, settings.options, inside(self.host))
            return cast("Agent", made)
        return self.site_of(facts).agent(settings.tool, settings.options, self.registry(project))


def named(project: ProjectConfig) -> Iterator[tuple[str, str]]:
    """Slot and name of every plugin that a project's configuration names."""
    yield from (("runtime", project.runtime), ("agent", project.agent), ("terminal", project.terminal.plugin))
    yield from (("tracker", project.tracker.plugin), ("scm", project.scm.plugin))
    yield from (("notifier", one.plugin) for one in project.notifiers.values())
    for profile in (None, *project.profiles.values()):
        given = (("agent", profile.tool), ("runtime", profile.runtime)) if profile else ()
        workspace = profile.workspace if profile else project.workspace
        yield from ((slot, name) for slot, name in (*given, ("workspace", workspace)) if name)


def _none(_facts: SessionFacts) -> Mapping[str, Check]:
    return {}


def handle_of(facts: SessionFacts) -> Handle | None:
    """The last launch's handle."""
    return Handle(**facts.launch.handle) if facts.launch else None
