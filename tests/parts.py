"""A `Core` for tests: the daemon's parts in a folder of the test, with replacements that the test passes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from agent_orchestrator.base.clock import SystemClock
from agent_orchestrator.base.files.watch import FileWatcher
from agent_orchestrator.base.home import Home
from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.config.config_set import ConfigSet
from agent_orchestrator.config.load import LoadedConfig
from agent_orchestrator.config.projects.project_plugins import ProjectPlugins
from agent_orchestrator.config.projects.project_settings import ProjectSettings
from agent_orchestrator.config.projects.projects import Projects
from agent_orchestrator.config.projects.trusted_files import TrustedFiles
from agent_orchestrator.config.trust import TrustContext
from agent_orchestrator.core.engine import Flow
from agent_orchestrator.core.events import Body, Notified
from agent_orchestrator.core.outbox import Store
from agent_orchestrator.core.rules.model import Rule
from agent_orchestrator.protocols import Clock
from agent_orchestrator.sessions.part import Core
from agent_orchestrator.sessions.session_plugins import SessionPlugins
from agent_orchestrator.sessions.site import LocalSite, NodeSites, Sites
from agent_orchestrator.testing.memory_store import MemoryStore


class HandSetClock:
    """A clock that is set by hand; its timers are the event loop's, which run in real time."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now
        self.jump_seconds = 0.0
        """Seconds by which the time was set forward while no time passed."""
        self._made_at = time.monotonic()

    def __call__(self) -> float:
        """Return the time that was set."""
        return self.now

    def monotonic(self) -> float:
        """Return the time that was set, without the jumps, and what really passed: the timers run in real time."""
        return self.now - self.jump_seconds + time.monotonic() - self._made_at

    def call_later(self, seconds: float, call: Callable[[], object]) -> asyncio.TimerHandle:
        """Call something after some real seconds."""
        return asyncio.get_running_loop().call_later(seconds, call)


def never_quiet(_project: str, notice: Notified) -> Body:
    """Return the notification itself: there are no quiet hours."""
    return notice


class TrustsEverything:
    """Trusts every configuration file."""

    def trusts(self, _loaded: LoadedConfig, _around: TrustContext) -> bool:
        """Return True."""
        return True


class TrustsAccepted:
    """Trusts the configuration files that a function accepts."""

    def __init__(self, accepts: Callable[[LoadedConfig], bool]) -> None:
        self._accepts = accepts

    def trusts(self, loaded: LoadedConfig, _around: TrustContext) -> bool:
        """Return what the function says."""
        return self._accepts(loaded)


def make_config(home_config: Path, started_with: Path | None = None) -> ConfigSet:
    """Return a configuration without files, whose files are all trusted."""
    return ConfigSet(home_config, {}, started_with, trust=TrustsEverything())


def make_flow(
    store: Store | None = None,
    clock: Clock | None = None,
    rules: Sequence[Rule] = (),
    config: ConfigSet | None = None,
) -> Flow:
    """Return a flow on a store in memory, with these rules for every project, or with those of a configuration."""

    def rules_for(_project: str, _profile: str | None) -> Sequence[Rule]:
        """Return the given rules."""
        return rules

    chosen = (config.rules, config.routes) if config else (rules_for,)
    return Flow(store or MemoryStore(), clock or SystemClock(), *chosen)


def make_core(
    folder: Path,
    flow: Flow | None = None,
    *,
    config: ConfigSet | None = None,
    host: LocalHost | None = None,
    watch: FileWatcher | None = None,
    clock: Clock | None = None,
    rules: Sequence[Rule] = (),
    nodes: NodeSites | None = None,
) -> Core:
    """Return the core of a daemon with its home in `folder`; parts that are not passed are the daemon's."""
    home = Home(folder)
    config = config or make_config(home.config)
    flow = flow or make_flow(clock=clock, rules=rules)
    host, watch = host or LocalHost(), watch or FileWatcher()
    projects = Projects(flow, home, host, config, TrustedFiles(flow.facts, home), watch)
    settings, sites = ProjectSettings(config), Sites(flow, LocalSite(home, host), nodes or NodeSites())
    plugins = SessionPlugins(host, settings, sites, ProjectPlugins(projects))
    return Core(flow, home, host, watch, config, settings, projects, sites, plugins)
