"""A fixing run: what was measured, which causes were found, who works on each, and what came of it. Facts, and their fold. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from agent_orchestrator.core import events as e
from agent_orchestrator.core.events import Event

KEPT = 100
"""Runs that are remembered."""
LANDED = "landed"
READY = "ready"
"""Verified, and left for a person to land."""
LATER = "later"
"""Not taken in its round: there were too many causes."""


@dataclass(frozen=True, slots=True)
class FixGroup:
    """Failures that likely have one cause."""

    number: int
    key: str
    """What they have in common, the same whenever it is measured."""
    title: str
    count: int
    tools: Mapping[str, int] = field(default_factory=dict)
    files: tuple[str, ...] = ()
    session: str | None = None
    outcome: str = ""
    """`landed`, `ready`, `failed`, `stopped` or `later`; empty: not known yet."""
    commit: str | None = None
    reason: str = ""

    @property
    def settled(self) -> bool:
        """Nothing more comes of it in this round."""
        return bool(self.outcome)


@dataclass(frozen=True, slots=True)
class FixRound:
    """What was measured at one commit of the base, and what was done about it."""

    number: int
    commit: str
    at: float
    counts: Mapping[str, int] = field(default_factory=dict)
    """Failures by tool."""
    problems: Mapping[str, str] = field(default_factory=dict)
    """Tools that could not be run, and why."""
    groups: tuple[FixGroup, ...] = ()
    lacks: str = ""
    """What the environment lacks, and what to do."""

    @property
    def total(self) -> int:
        """All failures."""
        return sum(self.counts.values())


@dataclass(frozen=True, slots=True)
class Fix:
    """One fixing run."""

    id: str
    project: str
    request: Mapping[str, Any]
    created_at: float
    updated_at: float
    tools: tuple[Mapping[str, Any], ...] = ()
    """What is run to find failures, as it was found at first."""
    rounds: tuple[FixRound, ...] = ()
    outcome: str = ""
    """`green`, `left`, `measured`, `review`, `not_set_up`, `stopped` or `failed`; empty: it goes on."""
    reason: str = ""

    @property
    def base(self) -> str:
        """The branch that is to become green."""
        return str(self.request.get("base") or "")

    @property
    def max_rounds(self) -> int:
        """How often agents are sent."""
        return int(self.request.get("maxRounds") or 1)

    @property
    def lands(self) -> bool:
        """What is verified lands by itself."""
        return bool(self.request.get("merge", True))

    @property
    def together(self) -> bool:
        """One agent gets everything that fails: no part of it could be merged alone."""
        return bool(self.request.get("together")) and not self.dry

    @property
    def dry(self) -> bool:
        """Only to be measured."""
        return bool(self.request.get("dryRun"))

    @property
    def ended(self) -> bool:
        """It is over."""
        return bool(self.outcome)

    def group_of(self, session: str) -> tuple[FixRound, FixGroup] | None:
        """The cause that a session works on."""
        for measured in reversed(self.rounds):
            for group in measured.groups:
                if group.session == session:
                    return measured, group
        return None


def reduce_fixes(fixes: Mapping[str, Fix], event: Event) -> Mapping[str, Fix]:
    """The fixing runs after one more event."""
    body = event.body
    match body:
        case e.FixStarted() if body.fix not in fixes:
            begun = Fix(body.fix, event.project or "", body.request, event.time, event.time)
            return dict(list({**fixes, body.fix: begun}.items())[-KEPT:])
        case e.FixMeasured() if (fix := fixes.get(body.fix)) and body.round == len(fix.rounds) + 1:
            groups = tuple(_group(number, data) for number, data in enumerate(body.groups, 1))
            measured = FixRound(body.round, body.commit, event.time, body.counts, body.problems, groups, body.lacks)
            grown = replace(fix, rounds=(*fix.rounds, measured), tools=fix.tools or body.tools)
            return _with(fixes, event, grown)
        case e.FixAgentStarted():
            return _changed(fixes, event, body, lambda group: replace(group, session=body.session))
        case e.FixGroupSettled():
            return _changed(fixes, event, body, lambda group: _settled(group, body))
        case e.FixEnded() if (fix := fixes.get(body.fix)) and not fix.ended:
            return _with(fixes, event, replace(fix, outcome=body.outcome, reason=body.reason))
    return fixes


def _group(number: int, data: Mapping[str, Any]) -> FixGroup:
    return FixGroup(
        number=number,
        key=str(data["key"]),
        title=str(data["title"]),
        count=int(data["count"]),
        tools=dict(data.get("tools") or {}),
        files=tuple(data.get("files") or ()),
        outcome=str(data.get("outcome") or ""),
    )


def _settled(group: FixGroup, body: e.FixGroupSettled) -> FixGroup:
    if group.settled:
        return group
    return replace(group, outcome=body.outcome, commit=body.commit, reason=body.reason)


def _changed(
    fixes: Mapping[str, Fix],
    event: Event,
    body: e.FixAgentStarted | e.FixGroupSettled,
    change: Callable[[FixGroup], FixGroup],
) -> Mapping[str, Fix]:
    fix = fixes.get(body.fix)
    if fix is None:
        return fixes
    rounds = tuple(
        replace(one, groups=tuple(change(group) if group.number == body.group else group for group in one.groups))
        if one.number == body.round
        else one
        for one in fix.rounds
    )
    return _with(fixes, event, replace(fix, rounds=rounds))


def _with(fixes: Mapping[str, Fix], event: Event, fix: Fix) -> Mapping[str, Fix]:
    return {**fixes, fix.id: replace(fix, updated_at=max(fix.updated_at, event.time))}
