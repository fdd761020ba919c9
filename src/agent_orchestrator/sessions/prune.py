"""Removes what is provably safe to remove: workspaces of stopped sessions, terminals without a session, broken links."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agent_orchestrator.core import events as e
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.errors import AoError
from agent_orchestrator.protocols import Handle
from agent_orchestrator.sessions.lifecycle.session_specs import SessionSpecs
from agent_orchestrator.sessions.part import Core, Part
from agent_orchestrator.sessions.session_plugins import handle_of


class Prune(Part):
    """The clean-up of a home. It removes only what holds no unsaved work, and returns why the rest stays."""

    def __init__(self, core: Core, specs: SessionSpecs) -> None:
        super().__init__(core)
        self.specs = specs

    async def run(self, dry_run: bool) -> dict[str, Any]:
        """Check everything of ours; remove what is safe, or with `dry_run` only list it."""
        removed: list[dict[str, str]] = []
        remaining: list[dict[str, str]] = []
        for facts in list(self.flow.sessions.values()):
            if facts.stopped and facts.workspace and await self._has_workspace(facts):
                await self._remove_workspace(facts, dry_run, removed, remaining)
        await self._remove_terminals(dry_run, removed)
        self._list_unknown_folders(remaining)
        self._remove_links(dry_run, removed)
        return {"removed": removed, "kept": remaining, "dryRun": dry_run}

    async def _has_workspace(self, facts: SessionFacts) -> bool:
        """Return whether a session's workspace exists; False on a node that cannot be reached."""
        assert facts.workspace is not None
        if facts.remote and facts.node is None:
            return False
        try:
            return await self.core.sites.for_session(facts).folder_exists(Path(facts.workspace.path))
        except AoError:
            return False

    async def _remove_workspace(
        self, facts: SessionFacts, dry_run: bool, removed: list[dict[str, str]], remaining: list[dict[str, str]]
    ) -> None:
        """Remove a stopped session's workspace if it is unused and everything in it is saved."""
        try:
            spec = self.specs.workspace(facts)
            site = self.core.sites.for_session(facts)
            users = await site.processes_using(spec.path)
            reasons = [f"{name} (pid {pid}) uses it" for pid, name in users[:1]]
            reasons += await site.removal_obstacles(spec)
            if not reasons and not dry_run:
                await self.core.plugins.workspace_of(facts).remove(spec)
                now = self.clock()
                body = e.SessionStopped(facts.saved_work)
                await self.flow.append(Event(body, now, "person", f"pruned:{facts.id}:{now}", facts.project, facts.id))
        except AoError as error:
            reasons = [error.text]
        if reasons:
            remaining.append({"what": facts.spec.path, "why": "; ".join(reasons)})
        else:
            removed.append(
                {"kind": "workspace", "what": facts.spec.path, "why": f"{facts.id} is stopped and all of it is saved"}
            )

    async def _remove_terminals(self, dry_run: bool, removed: list[dict[str, str]]) -> None:
        """Stop the terminals that belong to no session."""
        local_sessions = (facts for facts in self.flow.sessions.values() if not facts.remote)
        handles: list[Handle] = [handle for facts in local_sessions if (handle := handle_of(facts))]
        for name, runtime in self.core.sites.local.runtimes.items():
            for stray in await runtime.orphaned_terminals([handle for handle in handles if handle.runtime == name]):
                if not dry_run:
                    await runtime.stop(stray)
                    await runtime.discard(stray)
                removed.append({"kind": "terminal", "what": f"{name} {stray.session}", "why": "no session knows it"})

    def _list_unknown_folders(self, remaining: list[dict[str, str]]) -> None:
        """List the folders among the workspaces that belong to no session; they are never removed."""
        workspaces = {Path(facts.spec.path) for facts in self.flow.sessions.values()}
        reason = "no session knows it; look into it, and remove it by hand"
        folders = sorted(self.home.worktrees.glob("*/*"))
        remaining.extend({"what": str(folder), "why": reason} for folder in folders if folder not in workspaces)

    def _remove_links(self, dry_run: bool, removed: list[dict[str, str]]) -> None:
        """Remove links to workspaces that no longer exist."""
        for facts in self.flow.sessions.values():
            link = Path(facts.spec.link) if facts.spec.link else None
            if link and link.is_symlink() and not link.exists() and not self.flow.owner_home(facts.id):
                if not dry_run:
                    link.unlink()
                removed.append({"kind": "link", "what": str(link), "why": "it leads nowhere"})
