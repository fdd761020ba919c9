"""Which of an agent's requests an answer is for: `request_of(facts, kind, text) -> id`. Pure.

Two requests have the same id only if the same is asked: whoever answers one names it, and answers no other.
"""

from __future__ import annotations

import hashlib

from agent_orchestrator.core.facts import SessionFacts


def request_of(facts: SessionFacts, kind: str, text: str) -> str:
    """The id of what a session waits for: a `permission`, or a `question` with this text."""
    asked = facts.permission
    told: tuple[str, ...]
    if kind == "question":
        told = (text,)
    elif asked is None:  # all that is known is that a dialog is shown since then
        told = (text, f"{facts.activity.at:.6f}")
    else:  # the agent's own id tells two requests for the same apart, else their times do
        told = (asked.tool, asked.command, asked.request or f"{asked.at:.6f}")
    said = "\0".join((kind, str(facts.generation), *told))
    return f"r-{hashlib.sha256(said.encode(errors='surrogatepass')).hexdigest()[:16]}"
