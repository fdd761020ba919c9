"""The machine on which a session runs: this one, or a node of the cluster. All access to a session's workspace, terminal or agent goes
through its site.

The paths of a site are those on its machine. Files of the session's private folder that grow on a node are copied to this machine's
`$AO_HOME/sessions/<id>` as they grow, so code that only reads them reads them here.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, cast

from agent_orchestrator.base.home import Home
from agent_orchestrator.config.projects.plugin_registry import PluginRegistry
from agent_orchestrator.core.engine import Flow
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.errors import Conflict, Temporary
from agent_orchestrator.protocols import Agent, AgentContext, AgentLaunch, Runtime, Workspace, WorkspaceSpec
from agent_orchestrator.protocols.host import Host
from agent_orchestrator.sessions import rescue as saving
from agent_orchestrator.sessions.agents import headless
from agent_orchestrator.sessions.rescue import Rescue, RestoreResult


class Site(Protocol):
    """A machine on which sessions run."""

    @property
    def node(self) -> str | None:
        """The node's name, or None for this machine."""
        ...

    @property
    def reachable(self) -> bool:
        """Whether it can be reached at the moment."""
        ...

    @property
    def home(self) -> Home:
        """Our folder on that machine."""
        ...

    @property
    def host(self) -> Host:
        """Runs programs there; on a node only `run` and `stream` are available."""
        ...

    @property
    def login(self) -> Mapping[str, str]:
        """The environment of the user's login shell there."""
        ...

    @property
    def url(self) -> str:
        """The URL under which agents there reach this daemon."""
        ...

    def runtime(self, name: str, registry: PluginRegistry) -> Runtime:
        """Return a runtime there; it is shared by all sessions."""
        ...

    def workspace(self, name: str, registry: PluginRegistry) -> Workspace:
        """Return a workspace plugin there."""
        ...

    def agent(self, tool: str, options: Mapping[str, Any], registry: PluginRegistry) -> Agent:
        """Return an agent plugin there."""
        ...

    async def plan_headless_launch(
        self,
        context: AgentContext,
        tool: str,
        options: Mapping[str, Any],
        plugins: tuple[Path, ...],
        message: str | None,
        scratch: Path | None = None,
    ) -> AgentLaunch:
        """Return how to start an agent whose turns have no terminal of their own."""
        ...

    async def folder_exists(self, path: Path) -> bool:
        """Return whether the folder exists."""
        ...

    async def folder_identity(self, path: Path) -> str:
        """Return a permanent id of a folder, which differs if the folder was created again, or "" if it does not exist."""
        ...

    async def processes_using(self, path: Path) -> Sequence[tuple[int, str]]:
        """Return the processes (pid, name) that use the folder."""
        ...

    async def write_files(self, session: str, generation: int, prompt: str) -> None:
        """Write the task file, and create the files that a launch writes to."""
        ...

    async def append_line(self, path: Path, line: str) -> None:
        """Append a line to a file, unless it is there already."""
        ...

    async def make_commits_available(self, session: str, branch: str) -> None:
        """Make the commits of a branch of the main repository available in a session's workspace."""
        ...

    async def rescue(self, spec: WorkspaceSpec) -> Rescue:
        """Save everything in the workspace that is nowhere else, in the main repository."""
        ...

    async def stored_rescue(self, spec: WorkspaceSpec) -> Rescue:
        """Return what an earlier attempt saved that may not have been recorded."""
        ...

    async def removal_obstacles(self, spec: WorkspaceSpec) -> Sequence[str]:
        """Return why the workspace may not be removed yet; empty if it may."""
        ...

    async def restore_work(self, spec: WorkspaceSpec) -> RestoreResult:
        """Restore saved work into the new workspace."""
        ...


class LocalSite:
    """This machine, as a site."""

    node: str | None = None
    reachable = True

    def __init__(self, home: Home, host: Host) -> None:
        self.home = home
        self.host = host
        self.login: Mapping[str, str] = os.environ
        """The environment of the user's login shell; ours until that is read."""
        self.login_ready = asyncio.Event()
        self.shell_problem = ""
        """Why the login shell gave no environment, or ""."""
        self.own_folders: list[str] = []
        """Folders in the login shell's PATH that hold our own interpreter's programs."""
        self.url = ""
        self._runtimes: dict[str, Runtime] = {}

    def runtime(self, name: str, registry: PluginRegistry) -> Runtime:
        """Return a runtime, which is shared by all sessions."""
        if name not in self._runtimes:
            plugin = registry.create("runtime", name, {"home": str(self.home.path)}, self.host)
            self._runtimes[name] = cast("Runtime", plugin)
        return self._runtimes[name]

    @property
    def runtimes(self) -> dict[str, Runtime]:
        """The runtimes in use."""
        return dict(self._runtimes)

    def workspace(self, name: str, registry: PluginRegistry) -> Workspace:
        """Return a new workspace plugin."""
        return cast("Workspace", registry.create("workspace", name, {}, self.host))

    def agent(self, tool: str, options: Mapping[str, Any], registry: PluginRegistry) -> Agent:
        """Return an agent plugin with its configuration."""
        return cast("Agent", registry.create("agent", tool, options, self.host))

    async def plan_headless_launch(
        self,
        context: AgentContext,
        tool: str,
        options: Mapping[str, Any],
        plugins: tuple[Path, ...],
        message: str | None,
        scratch: Path | None = None,
    ) -> AgentLaunch:
        """Return how to start our program that runs an agent's turns one after the other."""
        return headless.plan_launch(context, tool, options, plugins, message, scratch)

    async def folder_exists(self, path: Path) -> bool:
        """Return whether the folder exists."""
        return path.is_dir()

    async def folder_identity(self, path: Path) -> str:
        """Return the folder's device and inode, or "" if it does not exist."""
        try:
            status = path.stat()
        except OSError:
            return ""
        return f"{status.st_dev} {status.st_ino}"

    async def processes_using(self, path: Path) -> Sequence[tuple[int, str]]:
        """Return the processes that have the folder as working directory, or files in it open."""
        return self.host.users_of(path)

    async def write_files(self, session: str, generation: int, prompt: str) -> None:
        """Write the task file, and create the files that a launch writes to, readable only by the owner."""
        write_files(self.home, session, generation, prompt)

    async def append_line(self, path: Path, line: str) -> None:
        """Append a line to a file, unless it is there already."""
        append_line(path, line)

    async def make_commits_available(self, session: str, branch: str) -> None:
        """Do nothing: all workspaces here share the main repository's objects."""

    async def rescue(self, spec: WorkspaceSpec) -> Rescue:
        """Save everything in the workspace that is nowhere else."""
        return await saving.rescue(
            self.host, spec.repo, spec.path, spec.session, _saved_ignored_files(spec), spec.branch
        )

    async def stored_rescue(self, spec: WorkspaceSpec) -> Rescue:
        """Return what is stored under the session's rescue ref."""
        return await saving.stored_rescue(self.host, spec.repo, spec.session)

    async def removal_obstacles(self, spec: WorkspaceSpec) -> Sequence[str]:
        """Return why the workspace may not be removed yet; empty if it may."""
        return await saving.removal_obstacles(self.host, spec.repo, spec.path, spec.session, _saved_ignored_files(spec))

    async def restore_work(self, spec: WorkspaceSpec) -> RestoreResult:
        """Restore saved work into the new workspace."""
        return await saving.restore_work(self.host, spec.repo, spec.path, spec.session)


def _saved_ignored_files(spec: WorkspaceSpec) -> tuple[str, ...]:
    """Return the files that are saved although Git ignores them.

    Those are copied files, and files that replaced a symlink of ours (`sed -i` does that).
    """
    files = [name for name in spec.symlinks if (spec.path / name).is_file() and not (spec.path / name).is_symlink()]
    return (*spec.copy, *files)


class NodeSites:
    """The sites of a cluster's nodes. This class is for a home without a cluster; a cluster's registry of nodes derives from it."""

    def site(self, name: str) -> Site:
        """Return the site of a node by its name; raise `Conflict` for an unknown one."""
        raise Conflict(f"node {name} is not known", "see the nodes: ao nodes")


class Sites:
    """Where each session lives."""

    def __init__(self, flow: Flow, here: LocalSite, nodes: NodeSites) -> None:
        self.local = here
        """This machine."""
        self._flow = flow
        self._nodes = nodes

    def for_session(self, facts: SessionFacts) -> Site:
        """Return the site of a session; raise `Conflict` if it needs a node and has none, `Temporary` if it belongs to another home."""
        if home := self._flow.owner_home(facts.id):
            raise Temporary(f"{facts.id} lives in {home}", "it can be reached once the daemon there is the active one")
        if not facts.remote:
            return self.local
        if facts.node is None:
            raise Conflict(f"{facts.id} lives on no node just now", f"see what it waits for: ao status {facts.id}")
        return self._nodes.site(facts.node)


def write_files(home: Home, session: str, generation: int, prompt: str) -> None:
    """Write the task file and create the files that a launch writes to, in a session's private folder."""
    private = home.session(session)
    private.mkdir(mode=0o700, parents=True, exist_ok=True)
    (private / "task.md").write_text(prompt, encoding="utf-8")
    for file in (home.spool(session, generation), private / "inbox.jsonl", home.terminal_log(session)):
        file.touch(mode=0o600)


def append_line(path: Path, line: str) -> None:
    """Append a line to a file, unless it is there already; an incomplete last line is ended first."""
    content = path.read_text(encoding="utf-8") if path.exists() else ""
    if line not in content.splitlines():
        with path.open("a", encoding="utf-8") as file:
            file.write(("" if content.endswith("\n") or not content else "\n") + line + "\n")
