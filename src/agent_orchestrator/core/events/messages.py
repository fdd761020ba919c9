"""Events of messages to agents, from their acceptance to their delivery."""

from __future__ import annotations

from agent_orchestrator.core.events.event import Body
from agent_orchestrator.protocols.records import record
from agent_orchestrator.protocols.text import clean_text


@record
class MessageQueued(Body):
    """A message was accepted for the agent."""

    message: str
    text: str
    sender: str = "person"
    interrupt: bool = False
    task: bool = False
    """It is the session's first prompt."""
    hold: str = ""
    """Why it waits for a person's word."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", clean_text(self.text))


@record
class MessageHeld(Body):
    """The message cannot be delivered now."""

    message: str
    reason: str


@record
class MessageReleased(Body):
    """A person's word that a message may reach the agent."""

    message: str


@record
class MessageDelivered(Body):
    """It was written to the agent's terminal, once."""

    message: str


@record
class MessageFailed(Body):
    """It was not, or cannot be shown to have been, delivered; it is not tried again."""

    message: str
    reason: str


@record
class DigestSent(Body):
    """This message informs the coordinating agent of what happened in its project up to this event."""

    message: str
    upto: int
    events: int = 0
    """How many events it contains."""
    left_out: int = 0
    """How many more there were than it has room for."""
