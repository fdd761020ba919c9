"""How far the script of a message is carried out."""

from __future__ import annotations

import re
from dataclasses import dataclass

from agent_orchestrator.testing.model.conversation import INTERRUPTED, Request

_NAMES = "say|sh|write|edit|todo|tool|json|wait|slow|hang|stall|drop|error|limit|usage"
DIRECTIVE = re.compile(rf"\[\[({_NAMES})(?:[:\s]\s*(.*?))?\]\]", re.DOTALL)


@dataclass(frozen=True, slots=True)
class InHand:
    """The message that is worked on, where in the conversation it stands, and how many calls were made for it."""

    text: str = ""
    place: int = 0
    done: int = 0


def in_hand(request: Request) -> InHand:
    """A message without directives that comes in the middle of a turn does not replace the work in hand."""
    text, place, done, in_turn = "", 0, 0, False
    for number, entry in enumerate(request.entries):
        if entry.role == "user":
            if INTERRUPTED.match(entry.text):
                in_turn = False
            elif not in_turn or DIRECTIVE.search(entry.text):
                text, place, done = entry.text, number, 0
        elif entry.role == "call":
            done += 1
            in_turn = True
        elif entry.role == "assistant":
            in_turn = False
    return InHand(text, place, done)
