"""`ao doctor`: checks of what this machine needs, each with how to fix it. What the facts mean is in `machine_findings.py`."""

from __future__ import annotations

import os
import platform
import shutil
import stat
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from agent_orchestrator.base.finding import finding
from agent_orchestrator.base.git.commands import Git
from agent_orchestrator.errors import AoError
from agent_orchestrator.fleet.scheduling.admission import measure_free_resources
from agent_orchestrator.plugins.runtimes import bubblewrap
from agent_orchestrator.plugins.runtimes.auto import tmux_version
from agent_orchestrator.plugins.runtimes.docker.engine import find_engine as find_engine
from agent_orchestrator.sessions.agents.catalog import AgentCatalog
from agent_orchestrator.sessions.part import Core
from agent_orchestrator.views import machine_findings

__all__ = ["Doctor", "finding"]

MIN_TMUX_VERSION = (3, 2)
MIN_FREE_DISK_BYTES = 2 << 30


Probe = Callable[[], Awaitable[list[dict[str, Any]]]]
"""Returns findings."""


class Doctor:
    """Checks all prerequisites."""

    def __init__(self, core: Core, agents: AgentCatalog, probes: Sequence[Probe]) -> None:
        """`probes` are the checks of other parts of the daemon, in the order in which they run."""
        self.flow = core.flow
        self.home = core.home
        self.host = core.host
        self.projects = core.projects
        self.here = core.sites.local
        self.agents = agents
        self.probes = probes

    async def run(self, fix: bool) -> list[dict[str, Any]]:
        """Return the finding of every check: `ok`, `warning` or `failed`, with how to fix it."""
        return [
            finding("python", "ok", platform.python_version()),
            await self._git(),
            await self._identity(),
            await self._tmux(),
            await self._engine(),
            await self._sandbox(),
            self._home(fix),
            self._disk(),
            machine_findings.file_watch_finding(machine_findings.read_watches()),
            machine_findings.open_files_finding(machine_findings.read_open_files()),
            self._shell(),
            *(machine_findings.own_folder_finding(folder, self.home) for folder in self.here.own_folders),
            self._configuration(),
            *await self._agents(),
            *[check for probe in self.probes for check in await probe()],
        ]

    async def _git(self) -> dict[str, Any]:
        try:
            return machine_findings.git_finding(await Git(self.host, self.home.path).version())
        except AoError:
            return machine_findings.git_finding(None)

    async def _identity(self) -> dict[str, Any]:
        """Check Git's author name in each project, or in this user's home if there is no project."""
        login = self.here.login
        names = {name: login[name] for name in login if name.startswith(("GIT_AUTHOR_", "EMAIL"))}
        folders = {project.id: project.path for project in self.projects.config.projects()} or {"": self.home.path}
        nameless = []
        for name, path in folders.items():
            try:
                await Git(self.host, path).run("var", "GIT_AUTHOR_IDENT", env=names)
            except AoError:
                nameless += [name] if path.is_dir() else []
        return machine_findings.identity_finding(nameless)

    async def _tmux(self) -> dict[str, Any]:
        remedy = "install tmux 3.2 or newer, or stay with runtime process"
        version = await tmux_version(self.host)
        if version == (0, 0):
            return finding("tmux", "warning", "not found; sessions run on process", remedy)
        text = ".".join(map(str, version))
        return (
            finding("tmux", "ok", text)
            if version >= MIN_TMUX_VERSION
            else finding("tmux", "warning", f"{text} is too old", remedy)
        )

    async def _sandbox(self) -> dict[str, Any]:
        projects = [project.id for project in self.projects.config.projects() if project.sandbox == "bwrap"]
        try:
            program = await bubblewrap.find_bwrap(self.host)
        except AoError as error:
            state, detail = (
                ("failed", f"{error.text}; {projects[0]} wants it") if projects else ("ok", f"none: {error.text}")
            )
            return finding("sandbox", state, detail, error.remedy if projects else "")
        return finding("sandbox", "ok", program)

    async def _engine(self) -> dict[str, Any]:
        """Check the container engine; only the docker runtime needs one, so without it a missing engine is no problem."""
        try:
            engine = await find_engine(self.host)
        except AoError as error:
            is_used = any(project.runtime == "docker" for project in self.projects.config.projects())
            return finding("containers", "warning" if is_used else "ok", error.text, error.remedy if is_used else "")
        return finding("containers", "ok", f"{engine.name} {engine.version}{' (rootless)' if engine.rootless else ''}")

    def _home(self, fix: bool) -> dict[str, Any]:
        mode = stat.S_IMODE(self.home.path.stat().st_mode)
        if mode & 0o077 and fix:
            self.home.path.chmod(0o700)
            mode = 0o700
        if mode & 0o077:
            return finding(
                "home",
                "warning",
                f"{self.home.path} is open to others",
                f"ao doctor --fix, or chmod 700 {self.home.path}",
            )
        return finding("home", "ok", str(self.home.path))

    def _disk(self) -> dict[str, Any]:
        free = measure_free_resources(self.home.path).disk
        text = f"{free / (1 << 30):.1f} GB free at {self.home.path}"
        return (
            finding("disk", "ok", text)
            if free > MIN_FREE_DISK_BYTES
            else finding("disk", "warning", text, "make room, or: ao prune")
        )

    def _shell(self) -> dict[str, Any]:
        shell = os.environ.get("AO_SHELL") or os.environ.get("SHELL") or "/bin/sh"
        if self.here.shell_problem:
            return finding(
                "shell", "warning", self.here.shell_problem, "see why its profile does not end, or set AO_SHELL"
            )
        if shutil.which(shell) is None:
            return finding("shell", "warning", f"{shell} is not there", "set AO_SHELL to your shell")
        return finding("shell", "ok", shell)

    def _configuration(self) -> dict[str, Any]:
        config = self.projects.config
        if config.file_errors:
            problem = next(iter(config.file_errors.values()))
            return finding("configuration", "failed", problem, "correct it; the last good content is in force")
        loaded_files = [loaded_file for file in config.files if (loaded_file := config.loaded(file))]
        if warnings := [warning for loaded_file in loaded_files for warning in loaded_file.warnings]:
            more = f" (and {len(warnings) - 1} more)" if len(warnings) > 1 else ""
            return finding(
                "configuration", "warning", f"{warnings[0]}{more}", "see all of a file's: ao config validate"
            )
        return finding("configuration", "ok", f"{len(config.files)} files, {len(config.projects())} projects")

    async def _agents(self) -> list[dict[str, Any]]:
        used_agents = {project.agent for project in self.projects.config.projects()}
        env, home = {**os.environ, **self.here.login}, Path.home()
        return [
            machine_findings.agent_finding(
                agent,
                machine_findings.find_login(agent["tool"], env, home),
                used=agent["project"] is not None or agent["name"] in used_agents,
            )
            for agent in await self.agents.list()
        ]
