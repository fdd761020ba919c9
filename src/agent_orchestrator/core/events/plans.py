"""Events of plans."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from agent_orchestrator.core.events.event import Body
from agent_orchestrator.protocols.records import record


@record
class PlanRequested(Body):
    """A plan was requested, for a goal or for the tracker's open issues."""

    plan: str
    goal: str = ""
    agent: str = ""
    """The profile or agent that is to plan; empty if the tasks are given."""
    model: str | None = None
    from_issues: bool = False
    """The tracker's open issues are the tasks."""


@record
class PlanDrafted(Body):
    """There are tasks, checked; a person may look at them."""

    plan: str
    tasks: tuple[Mapping[str, Any], ...] = ()
    notes: tuple[str, ...] = ()
    input: int = 0
    """Tokens that the planning took."""
    output: int = 0
    usd: float | None = None


@record
class PlanFailed(Body):
    """No plan came of it."""

    plan: str
    error: str
    input: int = 0
    output: int = 0
    usd: float | None = None


@record
class PlanChanged(Body):
    """A person made other tasks of it."""

    plan: str
    tasks: tuple[Mapping[str, Any], ...] = ()
    notes: tuple[str, ...] = ()
    goal: str | None = None
    """None: it stays."""


@record
class PlanApplyRequested(Body):
    """Its tasks are to become issues."""

    plan: str
    start: bool = True
    """They are taken as soon as there is room."""
    group_limit: int = 0
    """How many of its sessions may work at once; 0: as many as there is room for."""


@record
class PlanApplied(Body):
    """All its tasks are issues."""

    plan: str
    issues: Mapping[str, int] = field(default_factory=dict)
    """Task → number of its issue."""


@record
class PlanRefused(Body):
    """Its tasks cannot become issues as they are; it is a draft again."""

    plan: str
    error: str


@record
class PlanDiscarded(Body):
    """A person does not want it."""

    plan: str
