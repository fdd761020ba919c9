"""`Stops`: the effects that end an agent, save its work and remove its workspace.

Look here when an agent does not end, when a stopped session's workspace stays, or to see where its work was saved.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Protocol

from agent_orchestrator.base.git.commands import Git
from agent_orchestrator.core import events as e
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.fold.keys import launch_end_key
from agent_orchestrator.core.reactions import Intent
from agent_orchestrator.errors import Temporary
from agent_orchestrator.plugins.runtimes import single_use_files
from agent_orchestrator.protocols import Handle, WorkspaceSpec
from agent_orchestrator.sessions.isolation import sandbox
from agent_orchestrator.sessions.lifecycle.session_specs import SessionSpecs
from agent_orchestrator.sessions.lifecycle.workspaces import workspace_created
from agent_orchestrator.sessions.part import Core, Part
from agent_orchestrator.sessions.rescue import unsaved_git_state
from agent_orchestrator.sessions.session_plugins import handle_of
from agent_orchestrator.sessions.site import Site


class BranchCleanup(Protocol):
    """Removes the branch of a merged change."""

    async def delete_merged_branch(self, facts: SessionFacts) -> str:
        """Delete the session's branch if its change was merged; return one line about it for the report of the stop, or ""."""
        ...


class Stops(Part):
    """Stops agents, and cleans up after sessions whose work is safe."""

    def __init__(self, core: Core, specs: SessionSpecs, branches: BranchCleanup) -> None:
        super().__init__(core)
        self.specs = specs
        self.branches = branches

    async def stop(self, intent: Intent, _attempts: int) -> Sequence[Event]:
        """Stop the agent and everything it started."""
        facts = self.flow.sessions[intent.session]
        handle = handle_of(facts)
        assert handle is not None
        end = await self.core.plugins.runtime_of(facts).stop(handle)
        body = e.AgentStopped(end.exit.code, end.exit.signal)
        return [self.event(facts, body, launch_end_key(facts.id, handle.generation), handle.generation)]

    async def clean_up(self, intent: Intent, attempts: int) -> Sequence[Event]:
        """Save unsaved work, then remove the workspace if nothing in it can be lost and no process uses it."""
        facts = self.flow.sessions[intent.session]
        has_no_node = facts.remote and facts.node is None
        handle = None if has_no_node else handle_of(facts)
        events = [] if has_no_node else await self._stop_stray_launches(facts, handle)
        saved: list[str] = []
        kept = False
        is_present = facts.workspace is not None and facts.workspace.present
        if not is_present and not has_no_node:
            # A daemon that was killed while making the workspace, or failed to fill it, has not recorded it.
            missing_spec = self.specs.workspace(facts)
            abandoned = await self.core.plugins.workspace_of(facts).abandon(missing_spec)
            events += (
                [self.event(facts, workspace_created(abandoned, missing_spec), f"{intent.key}:found")]
                if abandoned
                else []
            )
            is_present = abandoned is not None
        if is_present:
            site, spec, why = self.core.sites.for_session(facts), self.specs.workspace(facts), ""
            if await site.folder_exists(spec.path):
                await self._refuse_if_in_use(site, spec.path, attempts, keep=facts.keep_workspace)
                report = await site.rescue(spec)
                kept, why = await self._remove(facts, spec)
            else:  # its removal was interrupted, or another program removed it
                report = await site.stored_rescue(spec)
                remaining = () if facts.remote else await unsaved_git_state(self.host, spec.repo, spec.path)
                kept, why = bool(remaining), _missing_folder_reason(remaining)
                if not kept:
                    await self.core.plugins.workspace_of(facts).remove(spec)
                    saved.append(f"the workspace was gone already: {spec.path}")
            if report.ref:
                rescued = e.WorkRescued(report.ref, report.commit or "", tuple(report.saved))
                events.append(self.event(facts, rescued, f"{intent.key}:rescued"))
                saved.append(f"{', '.join(report.saved)}: {report.ref}")
            if kept:
                saved.append(f"the workspace stays ({why}): {spec.path}")
            else:
                sandbox.remove_sandbox_files(facts, self.home.session(facts.id))
        if facts.workspace is not None:
            saved.insert(0, await self._describe_commits(facts))
        if handle is not None:
            await self.core.plugins.runtime_of(facts).discard(handle)
        single_use_files.remove_with_retry(single_use_files.remove_one_time_files(self.home.session(facts.id)))
        if note := await self.branches.delete_merged_branch(facts):
            saved.append(note)
        if facts.pr and facts.pr.merge_request:
            saved.append(f"its change is still to land on {facts.pr.base}; not so: ao merge {facts.id} --cancel")
        events.append(self.event(facts, e.SessionStopped(tuple(saved), kept), f"{intent.key}:done"))
        return events

    async def _describe_commits(self, facts: SessionFacts) -> str:
        """Describe where the session's commits are."""
        if await Git(self.host, Path(facts.spec.repo)).resolve(f"refs/heads/{facts.branch}"):
            return f"commits: branch {facts.branch} in {facts.spec.repo}"
        return f"commits: up to {(facts.head or '')[:8]}; branch {facts.branch} is gone from {facts.spec.repo}"

    async def _stop_stray_launches(self, facts: SessionFacts, current_handle: Handle | None) -> list[Event]:
        """Record and stop agents of launches that were killed before they were recorded."""
        runtime = self.core.plugins.runtime_of(facts)
        events = []
        for stray in await runtime.orphaned_terminals([current_handle] if current_handle else []):
            if stray.session != facts.id:
                continue
            end = await runtime.stop(stray)
            await runtime.discard(stray)
            key, generation = launch_end_key(facts.id, stray.generation), stray.generation
            events.append(self.event(facts, e.AgentLaunched(asdict(stray)), f"stray:{key}", generation))
            events.append(self.event(facts, e.AgentStopped(end.exit.code, end.exit.signal), key, generation))
        return events

    async def _refuse_if_in_use(self, site: Site, path: Path, attempts: int, *, keep: bool) -> None:
        """Raise `Temporary` on the first two attempts while a process uses the folder."""
        users = [] if keep else await site.processes_using(path)
        if users and attempts < 2:
            pid, name = users[0]
            raise Temporary(f"{path} is in use by {name} (pid {pid})", "end it, or stop with --keep")

    async def _remove(self, facts: SessionFacts, spec: WorkspaceSpec) -> tuple[bool, str]:
        """Remove the workspace if that is safe; return whether it was kept, and why."""
        if facts.keep_workspace:
            return True, "as asked"
        site = self.core.sites.for_session(facts)
        if users := await site.processes_using(spec.path):
            pid, name = users[0]
            return True, f"{name}, pid {pid}, uses it"
        reasons = await site.removal_obstacles(spec)
        if reasons:
            return True, "; ".join(reasons)
        await self.core.plugins.workspace_of(facts).remove(spec)
        return False, ""


def _missing_folder_reason(entries: Sequence[str]) -> str:
    """Return why a workspace is kept although its folder is missing."""
    return (
        f"Git still has {', '.join(entries)} of it: bring its folder back, or let Git forget it by git worktree prune"
    )
