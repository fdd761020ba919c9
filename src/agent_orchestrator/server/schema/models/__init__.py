"""The models of answers, for the OpenAPI document: one module per subject. They are loaded for that document alone.

Answers are produced in this form and are not validated again. Routes name a model by its class name
(`server/schema/openapi.py`, `responds_with`), so a class name is used once in the whole package.
"""

from __future__ import annotations

from agent_orchestrator.server.schema.models import (
    access,
    answer,
    audit,
    board,
    configuration,
    daemon,
    events,
    fixes,
    issues,
    merge_queue,
    messages,
    notifications,
    plans,
    plugins,
    projects,
    pull_requests,
    reactions,
    sessions,
    usage,
)

MODULES = (
    access,
    answer,
    audit,
    board,
    configuration,
    daemon,
    events,
    fixes,
    issues,
    merge_queue,
    messages,
    notifications,
    plans,
    plugins,
    projects,
    pull_requests,
    reactions,
    sessions,
    usage,
)
"""All modules of this package."""
