"""The ids of permission requests and questions: `request_id(facts, kind, text)`.

Two requests have the same id only if they ask the same. A person's answer names the id, so it answers no other request. Pure.
"""

from __future__ import annotations

import hashlib

from agent_orchestrator.core.facts import SessionFacts


def request_id(facts: SessionFacts, kind: str, text: str) -> str:
    """Return the id of what a session waits for: a `permission`, or a `question` with this text."""
    request = facts.permission
    parts: tuple[str, ...]
    if kind == "question":
        parts = (text,)
    elif request is None:  # only the time is known since which a dialog is shown
        parts = (text, f"{facts.activity.at:.6f}")
    else:  # the agent's own id distinguishes equal requests, or their times do
        parts = (request.tool, request.command, request.request or f"{request.at:.6f}")
    identity = "\0".join((kind, str(facts.generation), *parts))
    return f"r-{hashlib.sha256(identity.encode(errors='surrogatepass')).hexdigest()[:16]}"
