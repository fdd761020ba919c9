"""A node as a session's site: requests go to it over its link, and its work comes back into the main repository.

The node has a copy of the project's repository (`cluster/node/repository.py`), which the workspaces on it are clones of. Commits reach
the main repository by a push to the session's own ref, and the daemon itself moves the branch; other saved work arrives the same way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from agent_orchestrator.base.files.safe import escapes_folder, read_regular_file
from agent_orchestrator.base.git.commands import Git
from agent_orchestrator.base.git.refs import find_layout
from agent_orchestrator.base.home import Home
from agent_orchestrator.cluster.daemon.remote_node import RemoteNode
from agent_orchestrator.cluster.node.repository import Repositories, RepositoryAccess
from agent_orchestrator.config.learned_secrets import learn_environment
from agent_orchestrator.config.projects.plugin_registry import PluginRegistry
from agent_orchestrator.errors import AoError
from agent_orchestrator.plugins.workspaces import branch_publication, copied_and_linked_files, git_exclude
from agent_orchestrator.plugins.workspaces.branch_reservation import release, reserve
from agent_orchestrator.protocols import (
    Agent,
    AgentContext,
    AgentLaunch,
    LineCallback,
    Runtime,
    Workspace,
    WorkspaceInfo,
    WorkspaceSpec,
)
from agent_orchestrator.protocols.host import Host
from agent_orchestrator.sessions import rescue as saving
from agent_orchestrator.sessions.rescue import CheckpointResult, Rescue, RestoreResult
from agent_orchestrator.sessions.rescue.manifest import checkpoint_ref, rescue_ref
from agent_orchestrator.sessions.site import write_files

MAX_COPIED_FILE_BYTES = 128 << 20
"""Bytes of a file that `copy` names, at most; the file is in memory on its way to the node."""
LOGIN_SHELL_TIMEOUT = 15.0
"""Seconds that a node's login shell has to report its environment."""


@dataclass(frozen=True, slots=True)
class DaemonContext:
    """What a site needs from the daemon."""

    home: Home
    host: Host
    url: Callable[[], str]
    project: Callable[[str], str]
    """Session → its project."""
    token: Callable[[str], str]
    """Session → the token that its live or next launch is recognized by."""


class NodeSite:
    """One node as the place where sessions live."""

    def __init__(self, remote: RemoteNode, around: DaemonContext) -> None:
        self.remote = remote
        self.daemon = around
        self.login: Mapping[str, str] = {}
        self.is_cleaned_up = False
        """Whether the node was cleaned up since it connected (`returning_nodes.py`)."""

    @property
    def node(self) -> str | None:
        """The node's name."""
        return self.remote.name

    @property
    def reachable(self) -> bool:
        """Whether there is a link and the node was cleaned up."""
        return self.remote.connected and self.is_cleaned_up

    @property
    def home(self) -> Home:
        """The orchestrator's folder on the node."""
        return self.remote.home

    @property
    def host(self) -> Host:
        """Runs programs on the node."""
        return self.remote.host

    @property
    def url(self) -> str:
        """The address at which agents on the node reach this daemon."""
        return self.daemon.url()

    async def on_connected(self) -> None:
        """Read the environment of the login shell of a node that has connected; keep the earlier one if that fails."""
        try:
            async with asyncio.timeout(LOGIN_SHELL_TIMEOUT):
                login: Mapping[str, str] = (await self.remote.link.call("host.environment")).body
                learn_environment(login)
                self.login = login
        except (AoError, TimeoutError):
            self.login = self.login or {}

    # -- the slots -----------------------------------------------------------------------------------------------------

    def runtime(self, name: str, registry: PluginRegistry) -> Runtime:
        """Return the runtime on the node; there is only one."""
        del name, registry
        return self.remote.runtime()

    def workspace(self, name: str, registry: PluginRegistry) -> Workspace:
        """Return a workspace plugin that makes clones on the node."""
        return NodeWorkspace(self, self.remote.workspace(name, registry.files))

    def agent(self, tool: str, options: Mapping[str, Any], registry: PluginRegistry) -> Agent:
        """Return the agent plugin on the node."""
        return self.remote.agent(tool, options, registry.files)

    async def plan_headless_launch(
        self,
        context: AgentContext,
        tool: str,
        options: Mapping[str, Any],
        plugins: tuple[Path, ...],
        message: str | None,
        scratch: Path | None = None,
    ) -> AgentLaunch:
        """Return how to start an agent without a terminal on the node."""
        del scratch
        return await self.remote.headless_plan(context, tool, options, plugins, message)

    # -- files ---------------------------------------------------------------------------------------------------------

    async def folder_exists(self, path: Path) -> bool:
        """Return whether the path exists on the node."""
        return await self.remote.path_exists(path)

    async def folder_identity(self, path: Path) -> str:
        """Return the node's name with the path's device and inode, or "" if there is no such path."""
        completed = await self.host.run(["stat", "-c", "%d %i", str(path)])
        return "" if completed.code else f"{self.node} {completed.text.strip()}"

    async def processes_using(self, path: Path) -> Sequence[tuple[int, str]]:
        """Return processes (pid, name) on the node whose working directory or open files are below the path."""
        return await self.remote.users_of(path)

    async def write_files(self, session: str, generation: int, prompt: str) -> None:
        """Write a launch's files here and on the node, because those that grow there are mirrored here."""
        write_files(self.daemon.home, session, generation, prompt)
        private = self.home.session(session)
        await self.remote.write(private / "task.md", prompt.encode())
        for file in (self.home.spool(session, generation), private / "inbox.jsonl", self.home.terminal_log(session)):
            await self.remote.write(file, b"", append=True)

    async def append_line(self, path: Path, line: str) -> None:
        """Append a line to a file unless it has it already, so that this can be repeated."""
        content = (await self.remote.read(path) or b"").decode(errors="replace")
        if line not in content.splitlines():
            start = "" if content.endswith("\n") or not content else "\n"
            await self.remote.write(path, f"{start}{line}\n".encode(), append=True)

    # -- repositories --------------------------------------------------------------------------------------------------

    def access(self, session: str) -> RepositoryAccess:
        """Return how the node reaches the main repository for a session; the node adds the certificate it trusts."""
        return RepositoryAccess(self.url, self.daemon.token(session))

    def spec_on_node(self, spec: WorkspaceSpec) -> WorkspaceSpec:
        """Return a workspace's specification for the node: made from its own copy of the repository, without files of the main checkout."""
        project = self.daemon.project(spec.session)
        repo = Repositories(self.home, self.host).path(project)
        origin = self.access(spec.session).origin(project)
        return replace(spec, repo=repo, origin=origin, link=None, copy=(), symlinks=(), post_create=())

    def main_repository(self, spec: WorkspaceSpec) -> Git:
        """Return the main repository here."""
        return Git(self.daemon.host, spec.repo)

    async def call_repository(self, method: str, spec: WorkspaceSpec, **arguments: Any) -> Any:
        """Call a method of the node's copy of the repository, and return its result."""
        project = self.daemon.project(spec.session)
        if method != "forget":
            arguments["access"] = self.access(spec.session)
        return await self.remote.call(f"repository.{method}", timeout=None, project=project, **arguments)

    async def publish(self, spec: WorkspaceSpec) -> None:
        """Bring the branch's commits here, and move the branch."""
        arguments = {"session": spec.session, "branch": spec.branch, "workspace": spec.path}
        before = (await self.main_repository(spec).refs(ref := branch_publication.workspace_ref(spec.session))).get(ref)
        if await self.call_repository("publish", spec, **arguments) is not None:
            await branch_publication.move_branch(
                self.main_repository(spec), spec.session, spec.branch, spec.path, before
            )

    async def make_commits_available(self, session: str, branch: str) -> None:
        """Bring a branch's commits to the node's copy, which the workspaces on the node use."""
        project, access = self.daemon.project(session), self.access(session)
        arguments: dict[str, Any] = {"project": project, "access": access, "session": session}
        await self.remote.call("repository.refresh", timeout=None, **arguments, branches=(branch,))

    # -- work that must not be lost ------------------------------------------------------------------------------------

    async def rescue(self, spec: WorkspaceSpec) -> Rescue:
        """Save work that is nowhere else, and bring it into the main repository."""
        await self.publish(spec)
        spec_there = self.spec_on_node(spec)
        report = await self.remote.rescue(spec_there.repo, spec.path, spec.session, spec.copy, spec.branch)
        if report.ref:
            await self.call_repository("push", spec, refs=(report.ref,))
        await self._drop_checkpoint(spec)  # the rescue holds everything that it held
        return report

    async def _drop_checkpoint(self, spec: WorkspaceSpec) -> None:
        """Delete the session's checkpoint here."""
        main, ref = self.main_repository(spec), checkpoint_ref(spec.session)
        if commit := (await main.refs(ref)).get(ref):
            await main.delete_ref(ref, commit)

    async def stored_rescue(self, spec: WorkspaceSpec) -> Rescue:
        """Return what an interrupted rescue saved."""
        return await saving.stored_rescue(self.daemon.host, spec.repo, spec.session)

    async def removal_obstacles(self, spec: WorkspaceSpec) -> Sequence[str]:
        """Return why the workspace may not be removed yet: work is not saved on the node, or not yet in the main repository."""
        spec_there, ref, branch = self.spec_on_node(spec), rescue_ref(spec.session), f"refs/heads/{spec.branch}"
        reasons = await self.remote.removal_obstacles(spec_there.repo, spec.path, spec.session, spec.copy)
        if reasons:
            return reasons
        refs_there, refs_here = (
            await self.remote.git(spec_there.repo).refs(ref),
            await self.main_repository(spec).refs(ref, branch),
        )
        if refs_there.get(ref) not in (None, refs_here.get(ref)):
            return ("what was saved has not come to the main repository yet",)
        tip = await self.remote.git(spec.path).resolve(branch)
        if tip is not None and refs_here.get(branch) is not None and not await self.main_has_commit(spec, tip):
            return ("its commits have not come to the main repository yet",)
        return ()

    async def main_has_commit(self, spec: WorkspaceSpec, commit: str) -> bool:
        """Return whether the main repository has this commit."""
        completed = await self.main_repository(spec).run("cat-file", "-e", f"{commit}^{{commit}}", ok=(0, 1, 128))
        return completed.code == 0

    async def restore_work(self, spec: WorkspaceSpec) -> RestoreResult:
        """Restore saved work into the new workspace: rescued work, else the last checkpoint."""
        repo = self.spec_on_node(spec).repo
        outcome = await self.remote.restore_work(repo, spec.path, spec.session)
        if outcome.restored:
            await saving.mark_restored(self.daemon.host, spec.repo, spec.session)
        return (
            outcome
            if outcome.restored or outcome.waiting
            else await self.remote.restore_checkpoint(repo, spec.path, spec.session)
        )

    async def checkpoint(self, spec: WorkspaceSpec) -> CheckpointResult | None:
        """Save the workspace as it is and bring that here; return None if the last checkpoint here is the same."""
        checkpoint = await self.remote.checkpoint(self.spec_on_node(spec).repo, spec.path, spec.session, spec.copy)
        if (await self.main_repository(spec).refs(checkpoint.ref)).get(checkpoint.ref) == checkpoint.commit:
            return None
        await self.call_repository("push", spec, refs=(checkpoint.ref,))
        return checkpoint


class NodeWorkspace(Workspace):
    """A workspace plugin on a node, supplied from the main repository here."""

    def __init__(self, site: NodeSite, plugin: Workspace) -> None:
        self._site = site
        self._plugin = plugin

    async def create(self, spec: WorkspaceSpec, report: LineCallback) -> WorkspaceInfo:
        """Update the node's copy of the repository, create the workspace there, and copy files from the main checkout."""
        site, main = self._site, self._site.main_repository(spec)
        start = await reserve(main, spec)
        try:
            await site.call_repository("refresh", spec, session=spec.session, branches=(spec.base, spec.branch))
            workspace = await self._plugin.create(replace(site.spec_on_node(spec), existing=True), report)
        except AoError as error:
            if not error.retryable:
                await release(main, spec, start)
            raise
        notes = [*start.notes, *workspace.notes, *await self._copy_files(spec)]
        if spec.symlinks:
            notes.append(f"{', '.join(spec.symlinks)} of the main checkout cannot be shared with node {site.node}")
        await copied_and_linked_files.set_up(site.host, spec, workspace.git_env, report)
        if spec.post_create:
            git_there = site.remote.git(spec.path)
            for pattern in await git_exclude.tool_output_patterns(git_there, await git_there.untracked()):
                await site.append_line(spec.path / ".git" / "info" / "exclude", pattern)
        return replace(workspace, base_commit=start.base_commit, notes=tuple(notes))

    async def _copy_files(self, spec: WorkspaceSpec) -> list[str]:
        """Copy the files that `copy` names to the node, and exclude them from `git status` there; return notes."""
        layout = find_layout(spec.repo)
        if not spec.copy or layout is None or layout.top is None:
            return []
        top = layout.top
        files = await asyncio.to_thread(copied_and_linked_files.files_to_copy, top, spec.copy)
        names, notes = [], []
        for file in files:
            name = str(file.relative_to(top))
            if await self._site.folder_exists(spec.path / name):
                continue
            if escapes_folder(top, name):
                notes.append(f"{name} leads out of {top}: it was not copied")
                continue
            try:
                content = await asyncio.to_thread(read_regular_file, file.resolve(), MAX_COPIED_FILE_BYTES)
                await self._site.remote.write(spec.path / name, content, mode=file.stat().st_mode & 0o777)
                names.append(name)
            except OSError as error:
                notes.append(f"{name} was not copied: {error.strerror or error}")
        if names and (patterns := await git_exclude.visible_patterns(self._site.remote.git(spec.path), names)):
            for pattern in patterns:
                await self._site.append_line(spec.path / ".git" / "info" / "exclude", pattern)
        return notes if files else [f"nothing in {top} matches {', '.join(spec.copy)}: nothing was copied"]

    async def publish(self, spec: WorkspaceSpec) -> None:
        """Bring the branch's commits into the main repository."""
        await self._site.publish(spec)

    async def remove(self, spec: WorkspaceSpec) -> None:
        """Remove the folder on the node, and what the node's copy of the repository kept for it."""
        site = self._site
        if await site.folder_exists(spec.path):
            await site.publish(spec)
        await self._plugin.remove(site.spec_on_node(spec))
        await site.call_repository("forget", spec, session=spec.session, branch=spec.branch)
        await branch_publication.delete_refs(site.main_repository(spec), spec.session)

    async def abandon(self, spec: WorkspaceSpec) -> WorkspaceInfo | None:
        """Remove what an interrupted creation left on the node; the branch that was made here has no commits of the session."""
        return await self._plugin.abandon(self._site.spec_on_node(spec))
