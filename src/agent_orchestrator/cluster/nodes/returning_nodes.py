"""A node that comes back may hold what is not its own any more: sessions that went on elsewhere, or were stopped, while it was away.

Their agents are ended, what they left is brought here under `refs/ao/stale/<session>/`, and their workspaces go.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import structlog

from agent_orchestrator.base.git.refs import ref_safe
from agent_orchestrator.cluster.link.calls import Hello
from agent_orchestrator.cluster.nodes.site import NodeSite
from agent_orchestrator.config.projects.plugin_registry import Registry
from agent_orchestrator.core import events as e
from agent_orchestrator.core.engine import Flow
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.errors import AoError
from agent_orchestrator.protocols import WorkspaceSpec

log = structlog.get_logger()


class Stale:
    """Puts a node in order when it comes."""

    def __init__(self, flow: Flow, spec_of: Callable[[SessionFacts, NodeSite], WorkspaceSpec]) -> None:
        self.flow = flow
        self.spec_of = spec_of

    async def tidy(self, site: NodeSite, hello: Hello) -> None:
        """End, save and remove what does not belong there."""
        node = site.node or ""
        for held in hello.sessions:
            facts = self.flow.sessions.get(held.session)
            if facts is None or not facts.remote:
                continue
            elsewhere = facts.node != node or facts.stopped or held.generation < facts.generation
            over = facts.launch is not None and facts.launch.ended and held.generation == facts.generation
            if held.alive and (elsewhere or over):
                await self._end(site, held.session, held.generation)
        for facts in list(self.flow.sessions.values()):
            if facts.remote and facts.node != node and facts.place is not None:
                await self._remove(site, facts)

    async def _end(self, site: NodeSite, session: str, generation: int) -> None:
        runtime = site.remote.runtime()
        for handle in await runtime.leftovers([]):
            if (handle.session, handle.generation) == (session, generation):
                await runtime.stop(handle, grace=0.0)
                await runtime.discard(handle)
                log.info("a stale agent was ended", node=site.node, session=session, generation=generation)

    async def _remove(self, site: NodeSite, facts: SessionFacts) -> None:
        """Its workspace there: what is in it comes here first, unless it is here already."""
        assert facts.place is not None
        path = Path(facts.place.path)
        if not await site.present(path):
            return
        try:
            spec = self.spec_of(facts, site)
            inside = site.there(spec)
            saved = await site.remote.checkpoint(inside.repo, path, facts.id, spec.copy)
            if saved.unsafe:
                log.warning("a stale workspace stays", node=site.node, session=facts.id, holds=saved.unsafe)
                return
            name = f"refs/ao/stale/{ref_safe(facts.id)}/{ref_safe(site.node or '')}-{facts.moves}"
            if not await site.holds(spec, saved.commit):
                await site.of_repository("save", spec, ref=saved.ref, name=name)
                body = e.WorkRescued(name, saved.commit, (f"what was left on node {site.node}",))
                await self.flow.append(Event(body, self.flow.clock(), "node", f"stale:{name}", facts.project, facts.id))
            plugin = site.remote.workspace(facts.spec.workspace, Registry().files)
            await plugin.remove(inside)
            await site.of_repository("forget", spec, session=facts.id, branch=spec.branch)
            await site.remote.remove(site.home.session(facts.id))
            log.info("a stale workspace was removed", node=site.node, session=facts.id)
        except AoError as error:
            log.warning("a stale workspace stays", node=site.node, session=facts.id, error=str(error))
