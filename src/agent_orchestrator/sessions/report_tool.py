"""What an agent says of itself by a tool of ours: the events that its spool would give, recorded before it is answered."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable

from agent_orchestrator.core import events as e
from agent_orchestrator.core.engine import Flow
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.errors import Conflict

SOURCE = "mcp"


class Reporting:
    """Records what the agent of a launch says. What an older launch, or one that is over, still says is refused."""

    def __init__(self, flow: Flow, look_at_head: Callable[[str], Awaitable[None]]) -> None:
        self.flow = flow
        self._look_at_head = look_at_head

    def check(self, session: str, generation: int) -> SessionFacts:
        """The session, if this launch is the one that speaks for it."""
        facts = self.flow.sessions.get(session)
        if facts is None or facts.stopped or facts.wanted == "stop":
            raise Conflict(f"{session} is stopped", f"bring it back: ao restore {session}")
        if generation != facts.generation:
            raise Conflict(
                f"this token is of launch {generation} of {session}, which is at launch {facts.generation}",
                "use the token that the running agent has in $AO_TOKEN",
            )
        if not facts.live:
            raise Conflict(f"the agent of {session} has ended", f"bring it back: ao restore {session}")
        return facts

    async def tell(self, session: str, generation: int, body: e.AgentProgress | e.AgentAsk | e.AgentDone) -> None:
        """Record it."""
        self.check(session, generation)
        if isinstance(body, e.AgentDone):
            await self._look_at_head(session)  # what it says is done is what it committed before
        facts = self.check(session, generation)
        key = f"{SOURCE}:{session}:{generation}:{uuid.uuid4().hex}"
        await self.flow.append(Event(body, self.flow.clock(), SOURCE, key, facts.project, session, generation))
