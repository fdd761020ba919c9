"""Cleanup of a node that reconnects: it may hold sessions that continued elsewhere or were stopped while it was away.

Their agents are ended, their work is saved in the main repository under `refs/ao/stale/<session>/`, and their workspaces are removed.
"""

from __future__ import annotations

from pathlib import Path

import structlog

from agent_orchestrator.base.git.refs import escape_for_ref
from agent_orchestrator.cluster.daemon.site import NodeSite
from agent_orchestrator.cluster.link.calls import Hello
from agent_orchestrator.config.projects.plugin_registry import PluginRegistry
from agent_orchestrator.core import events as e
from agent_orchestrator.core.engine import Flow
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.errors import AoError
from agent_orchestrator.sessions.lifecycle.session_specs import SessionSpecs

log = structlog.get_logger()


class NodeCleanup:
    """Cleans up nodes that connect."""

    def __init__(self, flow: Flow, specs: SessionSpecs) -> None:
        self.flow = flow
        self.specs = specs

    async def tidy(self, site: NodeSite, hello: Hello) -> None:
        """End agents, and save and remove workspaces, that do not belong on the node."""
        node = site.node or ""
        for launch in hello.sessions:
            facts = self.flow.sessions.get(launch.session)
            if facts is None or not facts.remote:
                continue
            is_stale = facts.node != node or facts.stopped or launch.generation < facts.generation
            has_ended = facts.launch is not None and facts.launch.ended and launch.generation == facts.generation
            if launch.alive and (is_stale or has_ended):
                await self._end(site, launch.session, launch.generation)
        for facts in list(self.flow.sessions.values()):
            if facts.remote and facts.node != node and facts.workspace is not None:
                await self._remove(site, facts)

    async def _end(self, site: NodeSite, session: str, generation: int) -> None:
        """Stop a launch that is outdated, and discard its terminal."""
        runtime = site.remote.runtime()
        for handle in await runtime.orphaned_terminals([]):
            if (handle.session, handle.generation) == (session, generation):
                await runtime.stop(handle, grace=0.0)
                await runtime.discard(handle)
                log.info("a stale agent was ended", node=site.node, session=session, generation=generation)

    async def _remove(self, site: NodeSite, facts: SessionFacts) -> None:
        """Remove the session's workspace there; what is in it is saved to the main repository first unless that has it."""
        assert facts.workspace is not None
        path = Path(facts.workspace.path)
        if not await site.folder_exists(path):
            return
        try:
            spec = self.specs.workspace(facts, site)
            spec_there = site.spec_on_node(spec)
            checkpoint = await site.remote.checkpoint(spec_there.repo, path, facts.id, spec.copy)
            if checkpoint.unsafe:
                log.warning("a stale workspace stays", node=site.node, session=facts.id, holds=checkpoint.unsafe)
                return
            name = f"refs/ao/stale/{escape_for_ref(facts.id)}/{escape_for_ref(site.node or '')}-{facts.moves}"
            if not await site.main_has_commit(spec, checkpoint.commit):
                await site.call_repository("save", spec, ref=checkpoint.ref, name=name)
                body = e.WorkRescued(name, checkpoint.commit, (f"what was left on node {site.node}",))
                await self.flow.append(Event(body, self.flow.clock(), "node", f"stale:{name}", facts.project, facts.id))
            plugin = site.remote.workspace(facts.spec.workspace, PluginRegistry().files)
            await plugin.remove(spec_there)
            await site.call_repository("forget", spec, session=facts.id, branch=spec.branch)
            await site.remote.remove(site.home.session(facts.id))
            log.info("a stale workspace was removed", node=site.node, session=facts.id)
        except AoError as error:
            log.warning("a stale workspace stays", node=site.node, session=facts.id, error=str(error))
