"""Ids of permission requests and questions."""

from __future__ import annotations

from dataclasses import replace

from agent_orchestrator.core.events import SessionCreated
from agent_orchestrator.core.facts import ActivityFact, PermissionRequest, SessionFacts
from agent_orchestrator.sessions.permissions.request_ids import request_id

SPEC = SessionCreated("t", "s", "", "", "demo", "process", "worktree", "b", "main", "/r", "/w")
FACTS = SessionFacts("app-a", "app", SPEC, 0.0, 0.0)
ASKS = replace(FACTS, permission=PermissionRequest("Bash", "rm -rf build", "", "17", 5.0))


def test_a_repeated_request_has_the_same_id() -> None:
    repeated = replace(ASKS, permission=PermissionRequest("Bash", "rm -rf build", "tidier", "17", 6.0))
    assert request_id(ASKS, "permission", "Bash: rm -rf build") == request_id(
        repeated, "permission", "Bash: rm -rf build"
    )
    later = replace(FACTS, activity=ActivityFact("waiting_input", "hook", 9.0))
    assert request_id(FACTS, "question", "Which?") == request_id(later, "question", "Which?")


def test_different_requests_have_different_ids() -> None:
    others = [
        replace(ASKS, permission=PermissionRequest("Bash", "rm -rf build", "", "18", 5.0)),
        replace(ASKS, permission=PermissionRequest("Bash", "rm -rf /", "", "17", 5.0)),
        replace(ASKS, permission=PermissionRequest("Edit", "rm -rf build", "", "17", 5.0)),
        replace(ASKS, permission=PermissionRequest("Bash", "rm -rf build", "", "", 5.0)),
        replace(ASKS, permission=PermissionRequest("Bash", "rm -rf build", "", "", 6.0)),
        replace(FACTS, activity=ActivityFact("blocked", "screen", 5.0, "a dialog")),
        replace(FACTS, activity=ActivityFact("blocked", "screen", 6.0, "a dialog")),
    ]
    ids = [request_id(facts, "permission", "a dialog") for facts in (ASKS, *others)]
    ids += [request_id(ASKS, "question", "a dialog"), request_id(ASKS, "question", "another")]
    assert len(set(ids)) == len(ids)
