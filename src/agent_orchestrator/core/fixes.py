"""Fixing runs: what was measured, which causes were found, which session works on each, and the results. Facts and their fold. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from agent_orchestrator.core import events as e
from agent_orchestrator.core.events import Event

MAX_FIXES = 100
"""Number of fixing runs that are kept."""
MERGED_OUTCOME = "landed"
"""Outcome of a group whose fix was merged."""
READY_OUTCOME = "ready"
"""Outcome of a group whose fix is verified and waits for a person to merge it."""
LATER_OUTCOME = "later"
"""Outcome of a group that was not started in its round because there were too many causes."""


@dataclass(frozen=True, slots=True)
class FixRequest:
    """How a fixing run works. What a person leaves open (`base`, `commands`) is filled in before it is recorded."""

    base: str = ""
    """The branch that is to become green."""
    commands: tuple[str, ...] = ()
    """What finds failures; empty: it is detected."""
    max_rounds: int = 3
    """The number of rounds in which agents are started."""
    max_agents: int = 0
    """How many agents may work at once; 0: any number."""
    agent: str | None = None
    """A profile, else an agent."""
    model: str | None = None
    merge: bool = True
    """Whether verified fixes are merged automatically."""
    is_one_agent_for_all: bool = False
    """Whether one agent gets all failures, because no part of the fix could be merged alone."""
    dry_run: bool = False
    """Whether failures are only measured."""

    def to_json(self) -> dict[str, Any]:
        """Return the request as `FixStarted` stores it."""
        values = {stored: getattr(self, name) for name, stored in _STORED_NAMES.items()}
        return {**values, "commands": list(self.commands)}


_STORED_NAMES: Mapping[str, str] = {
    "base": "base",
    "commands": "commands",
    "max_rounds": "maxRounds",
    "max_agents": "maxAgents",
    "agent": "agent",
    "model": "model",
    "merge": "merge",
    "is_one_agent_for_all": "together",
    "dry_run": "dryRun",
}
"""Field of `FixRequest` → its key in `FixStarted.request`."""


def _read_request(data: Mapping[str, Any]) -> FixRequest:
    """Return the request that `FixStarted` stores; a key that is missing was not known to the version that stored it."""
    return FixRequest(
        base=str(data.get("base") or ""),
        commands=tuple(map(str, data.get("commands") or ())),
        max_rounds=int(data.get("maxRounds") or 1),
        max_agents=int(data.get("maxAgents") or 0),
        agent=data.get("agent"),
        model=data.get("model"),
        merge=bool(data.get("merge", True)),
        is_one_agent_for_all=bool(data.get("together")) and not data.get("dryRun"),
        dry_run=bool(data.get("dryRun")),
    )


@dataclass(frozen=True, slots=True)
class FixGroup:
    """Failures that probably have one cause."""

    number: int
    key: str
    """What the failures have in common; it is the same each time they are measured."""
    title: str
    count: int
    tools: Mapping[str, int] = field(default_factory=dict)
    files: tuple[str, ...] = ()
    session: str | None = None
    outcome: str = ""
    """`landed` (merged), `ready`, `failed`, `stopped` or `later`; empty while it is not known."""
    commit: str | None = None
    reason: str = ""

    @property
    def settled(self) -> bool:
        """Whether the group has its outcome in this round."""
        return bool(self.outcome)


@dataclass(frozen=True, slots=True)
class FixRound:
    """What was measured at one commit of the base branch, and what was done about it."""

    number: int
    commit: str
    at: float
    counts: Mapping[str, int] = field(default_factory=dict)
    """Failures by tool."""
    problems: Mapping[str, str] = field(default_factory=dict)
    """Tools that could not be run, and why."""
    groups: tuple[FixGroup, ...] = ()
    missing_setup: str = ""
    """What the environment lacks, and how to fix it."""

    @property
    def total(self) -> int:
        """The number of all failures."""
        return sum(self.counts.values())


@dataclass(frozen=True, slots=True)
class Fix:
    """One fixing run."""

    id: str
    project: str
    request: FixRequest
    created_at: float
    updated_at: float
    tools: tuple[Mapping[str, Any], ...] = ()
    """The commands that find failures, as detected at the start."""
    rounds: tuple[FixRound, ...] = ()
    outcome: str = ""
    """`green`, `left`, `measured`, `review`, `not_set_up`, `stopped` or `failed`; empty while it runs."""
    reason: str = ""

    @property
    def ended(self) -> bool:
        """Whether the run is over."""
        return bool(self.outcome)

    def group_of(self, session: str) -> tuple[FixRound, FixGroup] | None:
        """Return the round and the group that a session works on, or None."""
        for fix_round in reversed(self.rounds):
            for group in fix_round.groups:
                if group.session == session:
                    return fix_round, group
        return None


def reduce_fixes(fixes: Mapping[str, Fix], event: Event) -> Mapping[str, Fix]:
    """Return the fixing runs after an event."""
    body = event.body
    match body:
        case e.FixStarted() if body.fix not in fixes:
            new_fix = Fix(body.fix, event.project or "", _read_request(body.request), event.time, event.time)
            return dict(list({**fixes, body.fix: new_fix}.items())[-MAX_FIXES:])
        case e.FixMeasured() if (fix := fixes.get(body.fix)) and body.round == len(fix.rounds) + 1:
            groups = tuple(_parse_group(number, data) for number, data in enumerate(body.groups, 1))
            new_round = FixRound(body.round, body.commit, event.time, body.counts, body.problems, groups, body.lacks)
            extended = replace(fix, rounds=(*fix.rounds, new_round), tools=fix.tools or body.tools)
            return _with_fix(fixes, event, extended)
        case e.FixAgentStarted():
            return _with_changed_group(fixes, event, body, lambda group: replace(group, session=body.session))
        case e.FixGroupSettled():
            return _with_changed_group(fixes, event, body, lambda group: _with_outcome(group, body))
        case e.FixEnded() if (fix := fixes.get(body.fix)) and not fix.ended:
            return _with_fix(fixes, event, replace(fix, outcome=body.outcome, reason=body.reason))
    return fixes


def _parse_group(number: int, data: Mapping[str, Any]) -> FixGroup:
    """Return a group from the data of an event."""
    return FixGroup(
        number=number,
        key=str(data["key"]),
        title=str(data["title"]),
        count=int(data["count"]),
        tools=dict(data.get("tools") or {}),
        files=tuple(data.get("files") or ()),
        outcome=str(data.get("outcome") or ""),
    )


def _with_outcome(group: FixGroup, body: e.FixGroupSettled) -> FixGroup:
    """Return the group with its outcome; the first outcome stays."""
    if group.settled:
        return group
    return replace(group, outcome=body.outcome, commit=body.commit, reason=body.reason)


def _with_changed_group(
    fixes: Mapping[str, Fix],
    event: Event,
    body: e.FixAgentStarted | e.FixGroupSettled,
    change: Callable[[FixGroup], FixGroup],
) -> Mapping[str, Fix]:
    """Return the fixing runs with one group changed."""
    fix = fixes.get(body.fix)
    if fix is None:
        return fixes
    rounds = tuple(
        replace(
            fix_round,
            groups=tuple(change(group) if group.number == body.group else group for group in fix_round.groups),
        )
        if fix_round.number == body.round
        else fix_round
        for fix_round in fix.rounds
    )
    return _with_fix(fixes, event, replace(fix, rounds=rounds))


def _with_fix(fixes: Mapping[str, Fix], event: Event, fix: Fix) -> Mapping[str, Fix]:
    """Return the fixing runs with one of them replaced and its time updated."""
    return {**fixes, fix.id: replace(fix, updated_at=max(fix.updated_at, event.time))}


def fix_commands(fixes: Mapping[str, Fix], group: str) -> tuple[str, ...]:
    """Return the commands that find the failures which the sessions of a group are to fix, or () if the group is no fix."""
    fix = fixes.get(group) if group else None
    return tuple(str(tool["command"]) for tool in fix.tools) if fix else ()
