"""What this machine lacks for the work, each with its remedy."""

from __future__ import annotations

import os
import platform
import shutil
import stat
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from agent_orchestrator.base.git.commands import Git
from agent_orchestrator.base.health import finding
from agent_orchestrator.base.home import Home
from agent_orchestrator.config.projects.projects import Projects
from agent_orchestrator.core.engine import Flow
from agent_orchestrator.errors import AoError
from agent_orchestrator.fleet.scheduling.admission import resources
from agent_orchestrator.plugins.runtimes import sandbox
from agent_orchestrator.plugins.runtimes.auto import tmux_version
from agent_orchestrator.plugins.runtimes.docker.engine import find as find_engine
from agent_orchestrator.protocols.host import Host
from agent_orchestrator.sessions.agents.catalog import Agents
from agent_orchestrator.views import findings

__all__ = ["Doctor", "finding"]

OLDEST_GIT = (2, 25)
GIT_FOR_PREDICTION = (2, 38)
OLDEST_TMUX = (3, 2)
LITTLE_DISK = 2 << 30


class Doctor:
    """Looks at every prerequisite."""

    def __init__(self, flow: Flow, home: Home, host: Host, projects: Projects, agents: Agents) -> None:
        self.flow = flow
        self.home = home
        self.host = host
        self.projects = projects
        self.agents = agents
        self.shell_problem = ""
        self.own_folders: list[str] = []
        """Of the login shell's PATH, what holds our own interpreter's programs."""
        self.tracing: dict[str, Any] | None = None
        """What is to be said of traces, where they are wanted."""
        self.more: list[Callable[[], Awaitable[list[dict[str, Any]]]]] = []
        """What other parts have to say."""

    async def run(self, fix: bool) -> list[dict[str, Any]]:
        """Every check: `ok`, `warning` or `failed`, with what to do."""
        return [
            finding("python", "ok", platform.python_version()),
            await self._git(),
            await self._identity(),
            await self._tmux(),
            await self._engine(),
            await self._sandbox(),
            self._home(fix),
            self._disk(),
            findings.of_watches(findings.read_watches()),
            findings.of_descriptors(findings.read_descriptors()),
            self._shell(),
            *(findings.of_own_folder(folder, self.home) for folder in self.own_folders),
            self._configuration(),
            *([self.tracing] if self.tracing else []),
            *await self._agents(),
            *[check for look in self.more for check in await look()],
        ]

    async def _git(self) -> dict[str, Any]:
        try:
            version = await Git(self.host, self.home.path).version()
        except AoError:
            return finding("git", "failed", "not found", "install Git 2.38 or newer")
        text = ".".join(map(str, version))
        if version < OLDEST_GIT:
            return finding("git", "failed", text, "install Git 2.38 or newer")
        if version < GIT_FOR_PREDICTION:
            return finding("git", "warning", f"{text}: conflicts cannot be predicted", "install Git 2.38 or newer")
        return finding("git", "ok", text)

    async def _identity(self) -> dict[str, Any]:
        """Of each project, or of this person where there is none yet."""
        login = self.agents.plugins.here.login
        names = {name: login[name] for name in login if name.startswith(("GIT_AUTHOR_", "EMAIL"))}
        places = {project.id: project.path for project in self.projects.config.projects()} or {"": self.home.path}
        nameless = []
        for name, path in places.items():
            try:
                await Git(self.host, path).run("var", "GIT_AUTHOR_IDENT", env=names)
            except AoError:
                nameless += [name] if path.is_dir() else []
        return findings.of_identity(nameless)

    async def _tmux(self) -> dict[str, Any]:
        remedy = "install tmux 3.2 or newer, or stay with runtime process"
        version = await tmux_version(self.host)
        if version == (0, 0):
            return finding("tmux", "warning", "not found; sessions run on process", remedy)
        text = ".".join(map(str, version))
        return (
            finding("tmux", "ok", text)
            if version >= OLDEST_TMUX
            else finding("tmux", "warning", f"{text} is too old", remedy)
        )

    async def _sandbox(self) -> dict[str, Any]:
        wanted = [project.id for project in self.projects.config.projects() if project.sandbox == "bwrap"]
        try:
            program = await sandbox.check(self.host)
        except AoError as error:
            state, detail = (
                ("failed", f"{error.text}; {wanted[0]} wants it") if wanted else ("ok", f"none: {error.text}")
            )
            return finding("sandbox", state, detail, error.remedy if wanted else "")
        return finding("sandbox", "ok", program)

    async def _engine(self) -> dict[str, Any]:
        """Asked for by runtime docker alone: that there is none is no fault."""
        try:
            engine = await find_engine(self.host)
        except AoError as error:
            used = any(project.runtime == "docker" for project in self.projects.config.projects())
            return finding("containers", "warning" if used else "ok", error.text, error.remedy if used else "")
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
        free = resources(self.home.path).disk
        text = f"{free / (1 << 30):.1f} GB free at {self.home.path}"
        return (
            finding("disk", "ok", text)
            if free > LITTLE_DISK
            else finding("disk", "warning", text, "make room, or: ao prune")
        )

    def _shell(self) -> dict[str, Any]:
        shell = os.environ.get("AO_SHELL") or os.environ.get("SHELL") or "/bin/sh"
        if self.shell_problem:
            return finding("shell", "warning", self.shell_problem, "see why its profile does not end, or set AO_SHELL")
        if shutil.which(shell) is None:
            return finding("shell", "warning", f"{shell} is not there", "set AO_SHELL to your shell")
        return finding("shell", "ok", shell)

    def _configuration(self) -> dict[str, Any]:
        config = self.projects.config
        if config.broken:
            problem = next(iter(config.broken.values()))
            return finding("configuration", "failed", problem, "correct it; the last good content is in force")
        loaded = [one for file in config.files if (one := config.loaded(file))]
        if warnings := [warning for one in loaded for warning in one.warnings]:
            more = f" (and {len(warnings) - 1} more)" if len(warnings) > 1 else ""
            return finding(
                "configuration", "warning", f"{warnings[0]}{more}", "see all of a file's: ao config validate"
            )
        return finding("configuration", "ok", f"{len(config.files)} files, {len(config.projects())} projects")

    async def _agents(self) -> list[dict[str, Any]]:
        used = {project.agent for project in self.projects.config.projects()}
        env, home = {**os.environ, **self.agents.plugins.here.login}, Path.home()
        return [
            findings.of_agent(
                agent,
                findings.login_of(agent["tool"], env, home),
                used=agent["project"] is not None or agent["name"] in used,
            )
            for agent in await self.agents.list()
        ]
