"""What is done with a message while it waits for its agent: the reason is recorded, and the message is put into the agent's inbox file."""

from __future__ import annotations

import json

from agent_orchestrator.core import events as e
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.facts import Message, SessionFacts
from agent_orchestrator.sessions.part import Core, Part


def held_events(part: Part, facts: SessionFacts, message: Message, reason: str) -> list[Event]:
    """Return the event that a message is held for this reason, or none if that is recorded already."""
    if message.state == "held" and message.reason == reason:
        return []
    return [part.event(facts, e.MessageHeld(message.id, reason), f"held:{message.id}:{part.clock():.3f}")]


async def append_to_inbox(core: Core, facts: SessionFacts, message: Message) -> None:
    """Append a message to the inbox file of programs that acknowledge; it is written once, however often delivery is tried."""
    site = core.sites.for_session(facts)
    line = json.dumps({"message": message.id, "text": message.text}, ensure_ascii=False)
    await site.append_line(site.home.session(facts.id) / "inbox.jsonl", line)
