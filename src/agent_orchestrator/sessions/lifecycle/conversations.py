"""`Conversations`: whether an agent's conversation is there when its session continues on another machine."""

from __future__ import annotations

from agent_orchestrator.core.facts import SessionFacts


class Conversations:
    """The conversations of a home without nodes, which are always in place; a cluster derives from it and copies them."""

    async def restore(self, _facts: SessionFacts) -> bool:
        """Copy the agent's conversation to the session's node; return False if it is lost."""
        return True
