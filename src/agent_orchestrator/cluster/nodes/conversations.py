"""Conversations go along: the files that an agent keeps one in are copied here at each checkpoint, and to the next node from here."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

from agent_orchestrator.base.home import Home
from agent_orchestrator.cluster.nodes.site import NodeSite
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.protocols import Portable
from agent_orchestrator.sessions.plugins import Plugins

LARGEST = 64 << 20
"""Bytes of one file; a larger one is left where it is, and its conversation with it."""


class Carrying:
    """Copies them."""

    def __init__(
        self,
        home: Home,
        plugins: Plugins,
        site_of: Callable[[str], NodeSite],
        environment: Callable[[SessionFacts], Mapping[str, str]],
    ) -> None:
        self.home = home
        self.plugins = plugins
        self.site_of = site_of
        self.environment = environment

    def _files(self, facts: SessionFacts) -> list[tuple[Path, Path]] | None:
        """Each file on the node, and its copy here; none: the agent's conversations stay where they are."""
        agent = self.plugins.agent_of(facts)
        if not isinstance(agent, Portable) or not facts.conversation:
            return None
        there = agent.conversation_files(self.environment(facts), Path(facts.spec.path), facts.conversation)
        kept = self.home.session(facts.id) / "conversation"
        return [(path, kept / f"{number}-{path.name}") for number, path in enumerate(there)]

    async def save(self, facts: SessionFacts) -> None:
        """Copy them here, as far as they are there."""
        if facts.node is None or not facts.conversation:
            return
        remote = self.site_of(facts.node).remote
        for path, copy in self._files(facts) or ():
            content = await remote.read(path)
            if content and len(content) <= LARGEST:
                await asyncio.to_thread(_write, copy, content)

    async def bring(self, facts: SessionFacts) -> bool:
        """Copy them to the session's node, unless they are there; false: the conversation cannot be gone on with there."""
        launch, node = facts.launch, facts.node or ""
        if launch is None or not facts.conversation:
            return True
        files = self._files(facts)
        if files is None:
            return bool(launch.handle.get("address", {}).get("node") == node)
        remote = self.site_of(node).remote
        for path, copy in files:
            if await remote.present(path):
                continue
            if not copy.exists():
                return False
            await remote.write(path, await asyncio.to_thread(copy.read_bytes))
        return True


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.new")
    draft.touch(mode=0o600)
    draft.write_bytes(content)
    draft.replace(path)
