"""Events of fixing runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from agent_orchestrator.core.events.event import Body
from agent_orchestrator.protocols.records import record


@record
class FixStarted(Body):
    """A run that fixes a project's failing tests and lint errors was requested."""

    fix: str
    """The run's id: `F1`."""
    request: Mapping[str, Any] = field(default_factory=dict)
    """How: branch, commands, rounds, agents, and whether verified fixes are merged."""


@record
class FixMeasured(Body):
    """The base was measured at a commit; what fails there was grouped by likely cause."""

    fix: str
    round: int
    commit: str
    counts: Mapping[str, Any] = field(default_factory=dict)
    """Failures by tool."""
    problems: Mapping[str, Any] = field(default_factory=dict)
    """Tools that could not be run, and why."""
    groups: tuple[Mapping[str, Any], ...] = ()
    tools: tuple[Mapping[str, Any], ...] = ()
    """What was run, and how."""
    lacks: str = ""
    """What the environment lacks, and what to do: nothing is fixed then."""


@record
class FixAgentStarted(Body):
    """A session works on one cause."""

    fix: str
    round: int
    group: int
    session: str


@record
class FixGroupSettled(Body):
    """Nothing more comes of one cause in this round."""

    fix: str
    round: int
    group: int
    outcome: str
    """`landed`, `ready` (verified, and left to be merged), `failed` or `stopped`."""
    commit: str | None = None
    reason: str = ""


@record
class FixEnded(Body):
    """A fixing run is over."""

    fix: str
    outcome: str
    """`green`, `left` (something still fails), `review`, `measured`, `not_set_up`, `stopped` or `failed`."""
    reason: str = ""
