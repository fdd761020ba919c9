"""Decide the next steps of a fixing run. Pure: after a crash the same steps are decided again.

Look here if a run stops or continues wrongly.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from agent_orchestrator.changes.checks.required_checks import fix_check_name
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.fixes import LATER_OUTCOME, MERGED_OUTCOME, READY_OUTCOME, Fix, FixGroup, FixRound
from agent_orchestrator.core.pull_request import PASSING_STATES
from agent_orchestrator.core.status import derive_status

SENDER = "ao fix"
"""The sender of the message that reminds an agent."""
SETTLE_SECONDS = 3.0
"""Seconds to wait after a turn for its commits, before the turn counts as having changed nothing."""


@dataclass(frozen=True, slots=True)
class Measure:
    """A step: measure the base branch."""

    round: int


@dataclass(frozen=True, slots=True)
class StartAgent:
    """A step: start an agent on a cause."""

    round: int
    group: FixGroup


@dataclass(frozen=True, slots=True)
class Settle:
    """A step: record the outcome of a cause; nothing more is done for it."""

    round: int
    group: FixGroup
    outcome: str
    reason: str = ""
    commit: str | None = None


@dataclass(frozen=True, slots=True)
class MergeFix:
    """A step: merge a verified fix."""

    session: str
    key: str


@dataclass(frozen=True, slots=True)
class Verify:
    """A step: verify a fix that passes the project's checks but was checked before its session was recorded as that of a cause."""

    session: str
    key: str


@dataclass(frozen=True, slots=True)
class MakeReady:
    """A step: mark a draft pull request as ready, because its agent has finished without doing so."""

    session: str
    key: str


@dataclass(frozen=True, slots=True)
class Remind:
    """A step: remind an agent that ended its turn without a change."""

    session: str


@dataclass(frozen=True, slots=True)
class End:
    """A step: end the run."""

    outcome: str
    reason: str = ""


Step = Measure | StartAgent | Settle | MergeFix | Verify | MakeReady | Remind | End


def next_steps(fix: Fix, sessions: Mapping[str, SessionFacts], now: float) -> list[Step]:
    """Return the steps to carry out now, or an empty list to wait."""
    if fix.ended:
        return []
    if not fix.rounds:
        return [Measure(1)]
    last = fix.rounds[-1]
    if not any(group.session for group in last.groups) and (end := _end_of_run(fix, last)):
        return [end]
    steps: list[Step] = []
    for group in last.groups:
        if group.settled:
            continue
        if group.session is None:
            steps.append(StartAgent(last.number, group))
        elif (facts := sessions.get(group.session)) is not None:
            steps += _steps_of_session(fix, last, group, facts, now)
    if steps or not all(group.settled for group in last.groups):
        return steps
    return [Measure(last.number + 1)] if fix.request.merge else [End("review", _review_summary(last))]


def _end_of_run(fix: Fix, last: FixRound) -> End | None:
    """Return the end of the run if a new measurement ends it, else None."""
    if last.missing_setup:
        return End("not_set_up", last.missing_setup)
    if not fix.tools:
        return End(
            "failed", "no checks are configured, and no tests or linters were found; name a command: --command CMD"
        )
    if len(last.problems) == len(fix.tools):
        return End("failed", f"nothing could be measured: {_problems_text(last)}")
    if not last.total:
        return End("left", f"could not be run: {_problems_text(last)}") if last.problems else End("green")
    if fix.request.dry_run:
        return End("measured")
    if last.number > fix.request.max_rounds:
        return End("left", f"{_failures_text(last.total)} left after {_rounds_text(fix.request.max_rounds)}")
    before = fix.rounds[-2] if len(fix.rounds) > 1 else None
    is_without_progress = before and not any(
        group.outcome in (MERGED_OUTCOME, LATER_OUTCOME) for group in before.groups
    )
    if before and is_without_progress and last.commit == before.commit:
        return End("left", f"{_failures_text(last.total)} left, and the last round fixed none")
    return None


def _failures_text(count: int) -> str:
    """Return a number of failures with its verb."""
    return "1 failure is" if count == 1 else f"{count} failures are"


def _rounds_text(count: int) -> str:
    """Return a number of rounds as text."""
    return "1 round" if count == 1 else f"{count} rounds"


def _problems_text(last: FixRound) -> str:
    """Return which tools could not be run in a round, and why."""
    return "; ".join(f"{tool}: {why}" for tool, why in last.problems.items())


def _review_summary(last: FixRound) -> str:
    """Return which verified fixes are left for a person to merge."""
    ready = [group.session for group in last.groups if group.outcome == READY_OUTCOME and group.session]
    if not ready:
        return "no fix was verified"
    return f"verified, and left for you to merge: ao merge {' '.join(ready)}"


def _steps_of_session(fix: Fix, last: FixRound, group: FixGroup, facts: SessionFacts, now: float) -> list[Step]:
    """Return the next steps for a cause that has a session."""
    pr, status = facts.pr, derive_status(facts, now)

    def settle(outcome: str, reason: str = "", commit: str | None = None) -> list[Step]:
        """Return the step that settles the cause."""
        return [Settle(last.number, group, outcome, reason, commit)]

    if pr and pr.state == "merged":
        return settle(MERGED_OUTCOME, commit=pr.merge_commit)
    if facts.stopped or facts.requested_state == "stop":
        return settle("stopped", "its session was stopped")
    if pr and pr.state == "closed":
        return settle("stopped", "its pull request was closed")
    if status.name in ("failed", "exited"):
        return settle("failed", status.why)
    if pr and status.needs_person and status.name in ("ci_failed", "conflicted"):
        failed_checks = pr.blocking_checks(facts.head)
        return settle("failed", _failure_summary(failed_checks[0].summary) if failed_checks else status.why)
    if status.name == "not_set_up":
        return settle("failed", status.why)
    if pr and status.name in ("ci_running", "merging", "working", "starting"):
        return []
    if pr and pr.draft:
        is_quiet = (
            status.name == "pr_open" and facts.activity.state == "idle" and now - facts.activity.at >= SETTLE_SECONDS
        )
        return [MakeReady(facts.id, f"fix:{fix.id}:{facts.head}")] if is_quiet else []
    if pr and pr.is_green(facts.head) and pr.mergeability(facts.head, facts.base_head) == "yes":
        if not _is_verified(fix, last, group, facts):
            return [Verify(facts.id, f"fix:{fix.id}:{facts.head}")]
        if not fix.request.merge:
            return settle(READY_OUTCOME)
        if pr.merge_failure and pr.merge_failure_head == facts.head:
            return settle("failed", pr.merge_failure)
        return [MergeFix(facts.id, f"fix:{fix.id}:{facts.head}:{facts.base_head}")]
    if pr is None and status.name == "idle" and now - facts.activity.at >= SETTLE_SECONDS:
        reminders = [message for message in facts.messages if message.sender == SENDER]
        if not reminders:
            return [Remind(facts.id)]
        if not reminders[-1].pending and facts.activity.at > (reminders[-1].delivered_at or now):
            return settle("failed", "its agent changed nothing")
    return []


def _is_verified(fix: Fix, last: FixRound, group: FixGroup, facts: SessionFacts) -> bool:
    """Return whether the check that verifies the fix has passed on the session's head."""
    run = facts.pr.checks.get(fix_check_name(fix, last, group)) if facts.pr else None
    return run is not None and run.head == facts.head and run.state in PASSING_STATES


def _failure_summary(summary: str) -> str:
    """Return why the verification failed, in one line."""
    _, marker, rest = summary.partition("not fixed:")
    lines = [line.strip().removeprefix("error: ") for line in (rest if marker else summary).split("\n") if line.strip()]
    return " ".join(lines)[:300]
