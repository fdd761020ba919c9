"""Records what an agent reports by a tool of ours: the same events as its spool would give, recorded before the tool returns."""

from __future__ import annotations

import uuid

from agent_orchestrator.core import events as e
from agent_orchestrator.core.engine import Flow
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.errors import Conflict
from agent_orchestrator.sessions.agents.observer import Observer

SOURCE = "mcp"


class ReportRecorder:
    """The recorder of reports of the current launch; reports of an older launch, or of one that has ended, are refused."""

    def __init__(self, flow: Flow, observer: Observer) -> None:
        self.flow = flow
        self.observer = observer

    def require_current_launch(self, session: str, generation: int) -> SessionFacts:
        """Return the session if this launch is its current, live one; raise `Conflict` otherwise."""
        facts = self.flow.sessions.get(session)
        if facts is None or facts.stopped or facts.requested_state == "stop":
            raise Conflict(f"{session} is stopped", f"bring it back: ao restore {session}")
        if generation != facts.generation:
            raise Conflict(
                f"this token is of launch {generation} of {session}, which is at launch {facts.generation}",
                "use the token that the running agent has in $AO_TOKEN",
            )
        if not facts.live:
            raise Conflict(f"the agent of {session} has ended", f"bring it back: ao restore {session}")
        return facts

    async def record(self, session: str, generation: int, body: e.AgentProgress | e.AgentAsk | e.AgentDone) -> None:
        """Record a report of the agent."""
        self.require_current_launch(session, generation)
        if isinstance(body, e.AgentDone):
            await self.observer.record_head(session)  # what it reports as done was committed before
        facts = self.require_current_launch(session, generation)
        key = f"{SOURCE}:{session}:{generation}:{uuid.uuid4().hex}"
        await self.flow.append(Event(body, self.flow.clock(), SOURCE, key, facts.project, session, generation))
