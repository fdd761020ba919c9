"""Conversations of sessions on nodes: the agent's files are copied here at each checkpoint, and from here to the next node."""

from __future__ import annotations

import asyncio
from pathlib import Path

from agent_orchestrator.cluster.daemon.registry import NodeRegistry
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.sessions.lifecycle.conversations import Conversations
from agent_orchestrator.sessions.lifecycle.session_specs import SessionSpecs
from agent_orchestrator.sessions.part import Core

MAX_FILE_BYTES = 64 << 20
"""Bytes of one file, at most; a conversation with a larger file is not copied."""


class ConversationCopier(Conversations):
    """Copies conversations between nodes and the daemon's machine."""

    def __init__(self, core: Core, nodes: NodeRegistry, specs: SessionSpecs) -> None:
        self.core = core
        self.nodes = nodes
        self.specs = specs

    def _file_pairs(self, facts: SessionFacts) -> list[tuple[Path, Path]] | None:
        """Return pairs of each conversation file on the node and its copy here, or None if the agent's conversations cannot be moved."""
        agent = self.core.plugins.agent_of(facts)
        if not facts.conversation:
            return None
        paths = agent.conversation_files(self.specs.environment(facts), Path(facts.spec.path), facts.conversation)
        if paths is None:
            return None
        folder = self.core.home.session(facts.id) / "conversation"
        return [(path, folder / f"{number}-{path.name}") for number, path in enumerate(paths)]

    async def save(self, facts: SessionFacts) -> None:
        """Copy the session's conversation files from its node to here; files that do not exist there are skipped."""
        if facts.node is None or not facts.conversation:
            return
        remote = self.nodes.site(facts.node).remote
        for path, copy in self._file_pairs(facts) or ():
            content = await remote.read(path)
            if content and len(content) <= MAX_FILE_BYTES:
                await asyncio.to_thread(_replace_file, copy, content)

    async def restore(self, facts: SessionFacts) -> bool:
        """Copy the conversation to the session's node unless it is there; return whether it can be continued there."""
        launch, node = facts.launch, facts.node or ""
        if launch is None or not facts.conversation:
            return True
        files = self._file_pairs(facts)
        if files is None:
            return bool(launch.handle.get("address", {}).get("node") == node)
        remote = self.nodes.site(node).remote
        for path, copy in files:
            if await remote.path_exists(path):
                continue
            if not copy.exists():
                return False
            await remote.write(path, await asyncio.to_thread(copy.read_bytes))
        return True


def _replace_file(path: Path, content: bytes) -> None:
    """Write a file for the owner only, whole or not at all."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.new")
    draft.touch(mode=0o600)
    draft.write_bytes(content)
    draft.replace(path)
