"""The message that a request works on, and how many of its calls were made."""

from __future__ import annotations

import re
from dataclasses import dataclass

from agent_orchestrator.testing.model.conversation import INTERRUPTION_NOTICE, ModelRequest

_NAMES = "say|sh|write|edit|todo|tool|json|wait|slow|hang|stall|drop|error|limit|usage"
DIRECTIVE = re.compile(rf"\[\[({_NAMES})(?:[:\s]\s*(.*?))?\]\]", re.DOTALL)


@dataclass(frozen=True, slots=True)
class CurrentMessage:
    """The message that is worked on, its position in the conversation, and how many calls were made for it."""

    text: str = ""
    position: int = 0
    call_count: int = 0


def current_message(request: ModelRequest) -> CurrentMessage:
    """Return the current message; one without directives in the middle of a turn does not replace it."""
    text, position, done, in_turn = "", 0, 0, False
    for number, entry in enumerate(request.entries):
        if entry.role == "user":
            if INTERRUPTION_NOTICE.match(entry.text):
                in_turn = False
            elif not in_turn or DIRECTIVE.search(entry.text):
                text, position, done = entry.text, number, 0
        elif entry.role == "call":
            done += 1
            in_turn = True
        elif entry.role == "assistant":
            in_turn = False
    return CurrentMessage(text, position, done)
