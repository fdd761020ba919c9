"""How many changes of a merge queue are checked at the same time."""

from __future__ import annotations

from agent_orchestrator.changes.checks.required_checks import RequiredChecks
from agent_orchestrator.errors import AoError
from agent_orchestrator.sessions.part import Core


def max_checks(core: Core, required: RequiredChecks, project: str) -> int:
    """Return how many changes are checked at a time: the largest parallel limit of the project's checks."""
    try:
        checks = list(core.settings.project(project).ci.values())
    except AoError:
        return 1
    for facts in core.flow.sessions.values():
        if facts.pr and facts.pr.merge_request and facts.project == project:
            checks += required.fix_check(facts).values()
    return max((check.parallel for check in checks), default=1)
