"""What a fixing run needs next, given what is known. Pure: after a crash the same is decided again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.fixes import LANDED, LATER, READY, Fix, FixGroup, FixRound
from agent_orchestrator.core.pull_request import GOOD
from agent_orchestrator.core.status import derive

SENDER = "ao fix"
"""Who speaks when an agent is reminded."""
SETTLES = 3.0
"""Seconds after a turn before it counts that nothing came of it: what was committed is seen meanwhile."""


@dataclass(frozen=True, slots=True)
class Measure:
    """Measure the base."""

    round: int


@dataclass(frozen=True, slots=True)
class StartAgent:
    """Give a cause to an agent."""

    round: int
    group: FixGroup


@dataclass(frozen=True, slots=True)
class Settle:
    """Nothing more comes of a cause."""

    round: int
    group: FixGroup
    outcome: str
    reason: str = ""
    commit: str | None = None


@dataclass(frozen=True, slots=True)
class Land:
    """It is verified: let it land."""

    session: str
    key: str


@dataclass(frozen=True, slots=True)
class Verify:
    """It passes its project's checks, and was not verified: it was faster than the record of what it works on."""

    session: str
    key: str


@dataclass(frozen=True, slots=True)
class MakeReady:
    """Its agent has finished without saying so: its pull request is no draft any more."""

    session: str
    key: str


@dataclass(frozen=True, slots=True)
class Remind:
    """Its agent ended its turn and changed nothing."""

    session: str


@dataclass(frozen=True, slots=True)
class End:
    """The run is over."""

    outcome: str
    reason: str = ""


Step = Measure | StartAgent | Settle | Land | Verify | MakeReady | Remind | End


def next_steps(fix: Fix, sessions: Mapping[str, SessionFacts], now: float) -> list[Step]:
    """What is to be done now; nothing: wait."""
    if fix.ended:
        return []
    if not fix.rounds:
        return [Measure(1)]
    last = fix.rounds[-1]
    if not any(group.session for group in last.groups) and (over := _over(fix, last)):
        return [over]
    steps: list[Step] = []
    for group in last.groups:
        if group.settled:
            continue
        if group.session is None:
            steps.append(StartAgent(last.number, group))
        elif (facts := sessions.get(group.session)) is not None:
            steps += _of_session(fix, last, group, facts, now)
    if steps or not all(group.settled for group in last.groups):
        return steps
    return [Measure(last.number + 1)] if fix.lands else [End("review", _for_review(last))]


def _over(fix: Fix, last: FixRound) -> End | None:
    """Return the end of the run if a fresh measurement ends it."""
    if last.lacks:
        return End("not_set_up", last.lacks)
    if not fix.tools:
        return End(
            "failed", "no checks are configured, and no tests or linters were found; name a command: --command CMD"
        )
    if len(last.problems) == len(fix.tools):
        return End("failed", f"nothing could be measured: {_problems(last)}")
    if not last.total:
        return End("left", f"could not be run: {_problems(last)}") if last.problems else End("green")
    if fix.dry:
        return End("measured")
    if last.number > fix.max_rounds:
        return End("left", f"{_failures(last.total)} left after {_rounds(fix.max_rounds)}")
    before = fix.rounds[-2] if len(fix.rounds) > 1 else None
    tried = before and not any(group.outcome in (LANDED, LATER) for group in before.groups)
    if before and tried and last.commit == before.commit:
        return End("left", f"{_failures(last.total)} left, and the last round fixed none")
    return None


def _failures(count: int) -> str:
    return "1 failure is" if count == 1 else f"{count} failures are"


def _rounds(count: int) -> str:
    return "1 round" if count == 1 else f"{count} rounds"


def _problems(last: FixRound) -> str:
    return "; ".join(f"{tool}: {why}" for tool, why in last.problems.items())


def _for_review(last: FixRound) -> str:
    ready = [group.session for group in last.groups if group.outcome == READY and group.session]
    if not ready:
        return "no fix was verified"
    return f"verified, and left for you to merge: ao merge {' '.join(ready)}"


def _of_session(fix: Fix, last: FixRound, group: FixGroup, facts: SessionFacts, now: float) -> list[Step]:
    pr, status = facts.pr, derive(facts, now)

    def settle(outcome: str, reason: str = "", commit: str | None = None) -> list[Step]:
        return [Settle(last.number, group, outcome, reason, commit)]

    if pr and pr.state == "merged":
        return settle(LANDED, commit=pr.landed)
    if facts.stopped or facts.wanted == "stop":
        return settle("stopped", "its session was stopped")
    if pr and pr.state == "closed":
        return settle("stopped", "its pull request was closed")
    if status.name in ("failed", "exited"):
        return settle("failed", status.why)
    if pr and status.called and status.name in ("ci_failed", "conflicted"):
        told = pr.red(facts.head)
        return settle("failed", _verdict(told[0].summary) if told else status.why)
    if status.name == "not_set_up":
        return settle("failed", status.why)
    if pr and status.name in ("ci_running", "merging", "working", "starting"):
        return []
    if pr and pr.draft:
        quiet = status.name == "pr_open" and facts.activity.state == "idle" and now - facts.activity.at >= SETTLES
        return [MakeReady(facts.id, f"fix:{fix.id}:{facts.head}")] if quiet else []
    if pr and pr.green(facts.head) and pr.mergeable(facts.head, facts.base_head) == "yes":
        if not _verified(fix, last, group, facts):
            return [Verify(facts.id, f"fix:{fix.id}:{facts.head}")]
        if not fix.lands:
            return settle(READY)
        if pr.refused and pr.refused_head == facts.head:
            return settle("failed", pr.refused)
        return [Land(facts.id, f"fix:{fix.id}:{facts.head}:{facts.base_head}")]
    if pr is None and status.name == "idle" and now - facts.activity.at >= SETTLES:
        reminded = [one for one in facts.messages if one.sender == SENDER]
        if not reminded:
            return [Remind(facts.id)]
        if not reminded[-1].pending and facts.activity.at > (reminded[-1].delivered_at or now):
            return settle("failed", "its agent changed nothing")
    return []


def check_name(fix: Fix, last: FixRound, group: FixGroup) -> str:
    """The check that verifies a cause's fix; each has its own, for two changes may be alike."""
    return f"fix-{fix.id}-{last.number}.{group.number}"


def _verified(fix: Fix, last: FixRound, group: FixGroup, facts: SessionFacts) -> bool:
    run = facts.pr.checks.get(check_name(fix, last, group)) if facts.pr else None
    return run is not None and run.head == facts.head and run.state in GOOD


def _verdict(summary: str) -> str:
    """What the verification found, in one line."""
    _, found, rest = summary.partition("not fixed:")
    lines = [line.strip().removeprefix("error: ") for line in (rest if found else summary).split("\n") if line.strip()]
    return " ".join(lines)[:300]
