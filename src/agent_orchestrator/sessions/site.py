"""Where a session lives: this machine, or a node of the cluster. Whoever touches a session's workspace, terminal or agent asks its site.

The paths that a site gives are as they are there; the session's private files that grow on a node grow in this machine's own
`$AO_HOME/sessions/<id>` too, so whoever only reads those reads them here.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, cast

from agent_orchestrator.base.home import Home
from agent_orchestrator.config.projects.plugin_registry import Registry
from agent_orchestrator.errors import Conflict
from agent_orchestrator.protocols import Agent, AgentContext, AgentLaunch, Runtime, Workspace, WorkspaceSpec
from agent_orchestrator.protocols.host import Host
from agent_orchestrator.sessions import rescue as saving
from agent_orchestrator.sessions.agents import headless
from agent_orchestrator.sessions.rescue import BroughtBack, Rescue


class Site(Protocol):
    """A machine as sessions live on it."""

    @property
    def node(self) -> str | None:
        """The node's name; none: this machine."""
        ...

    @property
    def reachable(self) -> bool:
        """It can be asked just now."""
        ...

    @property
    def home(self) -> Home:
        """Our folder there."""
        ...

    @property
    def host(self) -> Host:
        """Runs programs there; on a node only `run` and `stream` may be asked for."""
        ...

    @property
    def login(self) -> Mapping[str, str]:
        """The environment of the user's login shell there."""
        ...

    @property
    def url(self) -> str:
        """Where agents there find this daemon."""
        ...

    def runtime(self, name: str, registry: Registry) -> Runtime:
        """A runtime there; one for all sessions."""
        ...

    def workspace(self, name: str, registry: Registry) -> Workspace:
        """A workspace plugin there."""
        ...

    def agent(self, tool: str, options: Mapping[str, Any], registry: Registry) -> Agent:
        """An agent plugin there."""
        ...

    async def headless(
        self,
        context: AgentContext,
        tool: str,
        options: Mapping[str, Any],
        plugins: tuple[Path, ...],
        message: str | None,
        scratch: Path | None = None,
    ) -> AgentLaunch:
        """How an agent is started whose turns have no terminal of their own."""
        ...

    async def present(self, path: Path) -> bool:
        """Is the folder there?"""
        ...

    async def identity(self, path: Path) -> str:
        """Names a folder for good, so that one which was made anew is another; nothing: it is not there."""
        ...

    async def users_of(self, path: Path) -> Sequence[tuple[int, str]]:
        """Processes (pid, name) that use the folder."""
        ...

    async def write_files(self, session: str, generation: int, prompt: str) -> None:
        """Write the task file, and make the files that a launch writes to."""
        ...

    async def append_line(self, path: Path, line: str) -> None:
        """Append a line to a file, unless it is there already."""
        ...

    async def learn(self, session: str, branch: str) -> None:
        """Let a session's workspace see the commits of a branch of the main repository."""
        ...

    async def rescue(self, spec: WorkspaceSpec) -> Rescue:
        """Save everything in the workspace that is nowhere else, in the main repository."""
        ...

    async def saved_before(self, spec: WorkspaceSpec) -> Rescue:
        """What was saved by a try whose end was not seen."""
        ...

    async def is_safe(self, spec: WorkspaceSpec) -> Sequence[str]:
        """Why the workspace may not be removed yet; nothing: it may."""
        ...

    async def bring_back(self, spec: WorkspaceSpec) -> BroughtBack:
        """Put saved work into the new workspace."""
        ...


class Here:
    """This machine."""

    node: str | None = None
    reachable = True

    def __init__(self, home: Home, host: Host) -> None:
        self.home = home
        self.host = host
        self.login: Mapping[str, str] = os.environ
        self.login_ready = asyncio.Event()
        self.url = ""
        self._runtimes: dict[str, Runtime] = {}

    def runtime(self, name: str, registry: Registry) -> Runtime:
        """One for all sessions."""
        if name not in self._runtimes:
            made = registry.make("runtime", name, {"home": str(self.home.path)}, self.host)
            self._runtimes[name] = cast("Runtime", made)
        return self._runtimes[name]

    @property
    def runtimes(self) -> dict[str, Runtime]:
        """Those in use."""
        return dict(self._runtimes)

    def workspace(self, name: str, registry: Registry) -> Workspace:
        """Made anew each time."""
        return cast("Workspace", registry.make("workspace", name, {}, self.host))

    def agent(self, tool: str, options: Mapping[str, Any], registry: Registry) -> Agent:
        """With its configuration."""
        return cast("Agent", registry.make("agent", tool, options, self.host))

    async def headless(
        self,
        context: AgentContext,
        tool: str,
        options: Mapping[str, Any],
        plugins: tuple[Path, ...],
        message: str | None,
        scratch: Path | None = None,
    ) -> AgentLaunch:
        """By a program of ours that takes the turns one after the other."""
        return headless.plan(context, tool, options, plugins, message, scratch)

    async def present(self, path: Path) -> bool:
        """Is the folder there?"""
        return path.is_dir()

    async def identity(self, path: Path) -> str:
        """By its place on the disk."""
        try:
            status = path.stat()
        except OSError:
            return ""
        return f"{status.st_dev} {status.st_ino}"

    async def users_of(self, path: Path) -> Sequence[tuple[int, str]]:
        """By their working directories and open files."""
        return self.host.users_of(path)

    async def write_files(self, session: str, generation: int, prompt: str) -> None:
        """For the owner only."""
        write_files(self.home, session, generation, prompt)

    async def append_line(self, path: Path, line: str) -> None:
        """A line is there once, however often this is tried."""
        append_line(path, line)

    async def learn(self, session: str, branch: str) -> None:
        """All workspaces here see the main repository's objects."""

    async def rescue(self, spec: WorkspaceSpec) -> Rescue:
        """Save what is nowhere else."""
        return await saving.rescue(self.host, spec.repo, spec.path, spec.session, _named(spec), spec.branch)

    async def saved_before(self, spec: WorkspaceSpec) -> Rescue:
        """What waits under the session's rescue ref."""
        return await saving.saved_before(self.host, spec.repo, spec.session)

    async def is_safe(self, spec: WorkspaceSpec) -> Sequence[str]:
        """Why it may not be removed yet."""
        return await saving.is_safe(self.host, spec.repo, spec.path, spec.session, _named(spec))

    async def bring_back(self, spec: WorkspaceSpec) -> BroughtBack:
        """Put saved work into the new workspace."""
        return await saving.bring_back(self.host, spec.repo, spec.path, spec.session)


def _named(spec: WorkspaceSpec) -> tuple[str, ...]:
    """What is saved although Git ignores it: what was copied, and a file that took the place of a symlink of ours (`sed -i` makes one)."""
    files = [name for name in spec.symlinks if (spec.path / name).is_file() and not (spec.path / name).is_symlink()]
    return (*spec.copy, *files)


Find = Callable[[str], Site]
"""The site of a node by its name; raises `Conflict` for one that nobody knows."""


def no_nodes(node: str) -> Site:
    """There is no cluster."""
    raise Conflict(f"node {node} is not known", "see the nodes: ao nodes")


def write_files(home: Home, session: str, generation: int, prompt: str) -> None:
    """The task file, and the files that a launch writes to, in a session's private folder."""
    private = home.session(session)
    private.mkdir(mode=0o700, parents=True, exist_ok=True)
    (private / "task.md").write_text(prompt, encoding="utf-8")
    for file in (home.spool(session, generation), private / "inbox.jsonl", home.terminal_log(session)):
        file.touch(mode=0o600)


def append_line(path: Path, line: str) -> None:
    """Append a line to a file, unless it is there already; one that was cut short is ended first."""
    known = path.read_text(encoding="utf-8") if path.exists() else ""
    if line not in known.splitlines():
        with path.open("a", encoding="utf-8") as file:
            file.write(("" if known.endswith("\n") or not known else "\n") + line + "\n")
