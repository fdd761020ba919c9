"""The status of a session: `derive_status(facts, now) -> Status`. Pure, never stored; every status names its evidence."""

from __future__ import annotations

from dataclasses import dataclass, replace

from agent_orchestrator.core.events import rfc3339
from agent_orchestrator.core.facts import COORDINATOR_KIND, SessionFacts
from agent_orchestrator.core.pull_request import DEPENDENCY_ENDED, CheckRun
from agent_orchestrator.core.rules.stuck_threshold import STUCK_AFTER_SECONDS

BOARD_COLUMNS = {
    "merged": "Done",
    "stopped": "Done",
    "closed": "Done",
    "queued": "Working",
    "starting": "Working",
    "needs_input": "Needs you",
    "blocked": "Needs you",
    "failed": "Needs you",
    "stuck": "Needs you",
    "interrupted": "Needs you",
    "not_set_up": "Needs you",
    "merging": "Working",
    "working": "Working",
    "limited": "Working",
    "conflicted": "Working",
    "ci_failed": "Working",
    "changes_requested": "Working",
    "ci_running": "In review",
    "review_pending": "In review",
    "pr_open": "In review",
    "approved": "Ready to merge",
    "mergeable": "Ready to merge",
    "exited": "Needs you",
    "idle": "Needs you",
}
"""Status → column of the board."""

IN_TURN_ACTIVITIES = frozenset({"starting", "active", "retrying"})
"""Activities in which silence indicates a problem."""

QUIET_STATUSES = frozenset({"exited", "idle"})
"""Statuses that wait for a person without notifying them."""

PERMISSION_REASON_PREFIX = "waits for permission: "
"""Prefix of the reason of a blocked session."""

STATUS_ROUTE_STATES = {
    "needs_input": "waiting",
    "blocked": "waiting",
    "interrupted": "error",
    "failed": "error",
    "stuck": "error",
    "not_set_up": "waiting",
    "queued": "working",
    "starting": "working",
    "merging": "working",
    "working": "working",
    "limited": "waiting",
}
"""Status → one of the words of the status route; any other status is `idle`."""


@dataclass(frozen=True, slots=True)
class Status:
    """A session's status, its reason, and what the session waits for."""

    name: str
    source: str
    """Whose report the status is based on."""
    at: float
    """Time of that report."""
    why: str
    waiting_for: str | None = None
    needs_person: bool = False
    """A person is needed although the status alone would not need one."""
    is_idle_as_intended: bool = False
    """The session is idle as intended; no person needs to look at it."""

    @property
    def column(self) -> str:
        """The column of the board that the session is shown in."""
        return "Needs you" if self.needs_person else "Working" if self.is_idle_as_intended else BOARD_COLUMNS[self.name]

    @property
    def state(self) -> str:
        """`idle`, `working`, `waiting` or `error`."""
        return STATUS_ROUTE_STATES.get(self.name, "idle")


def derive_status(facts: SessionFacts, now: float, stuck_after: float = STUCK_AFTER_SECONDS) -> Status:
    """Return the first status that applies; a message that waits for a person's approval always needs that person."""
    status = (
        _final_status(facts)
        or _status_before_launch(facts)
        or _status_needing_person(facts, now, stuck_after)
        or _status_of_missing_setup(facts)
        or _status_at_work(facts, now)
        or _pull_request_status(facts)
        or _resting_status(facts)
    )
    if facts.unseen_since is not None and facts.live:
        status = _with_unreachable_node(facts, status)
    return _with_held_message(facts, status) if facts.held_messages else status


def _with_unreachable_node(facts: SessionFacts, status: Status) -> Status:
    """Return the status with the unreachable node in its reason; the session may still run there."""
    since = rfc3339(facts.unseen_since or 0.0)
    return replace(
        status, why=f"{status.why}; node {facts.node} is unreachable since {since} ({facts.unreachable_reason})"
    )


def _with_held_message(facts: SessionFacts, status: Status) -> Status:
    """Return the status as one that waits for a person because of a held message."""
    if status.column == "Done" or status.name in ("needs_input", "blocked"):
        return status
    needed = f"your word on a message: {facts.held_messages[0].reason}"
    return replace(status, waiting_for=needed, needs_person=True)


def _final_status(facts: SessionFacts) -> Status | None:
    """Return the status of a session that is merged, stopped or closed, or None."""
    if facts.pr and facts.pr.state == "merged":
        merged = f"landed on {facts.pr.base} as {(facts.pr.merge_commit or '')[:8]}"
        later_commit = f"; not landed: {facts.head_after_merge[:8]}, committed since" if facts.head_after_merge else ""
        return Status(
            "merged",
            "pr",
            facts.updated_at,
            f"{merged}{_uncommitted_text(facts, facts.pr.uncommitted_files)}{later_commit}",
        )
    if facts.stopped and (
        budget_offer := next((offer for offer in facts.offers if offer.trigger == "budget-exceeded"), None)
    ):
        answer = f"your word on its budget: ao answer {facts.id} --allow"
        return Status(
            "stopped", "budget", facts.updated_at, f"{budget_offer.text}; its work is saved", answer, needs_person=True
        )
    if facts.stopped:
        pending_merge = (
            f"; its change is still to land on {facts.pr.base}" if facts.pr and facts.pr.merge_request else ""
        )
        why = f"{_stopper(facts)} stopped it; its work is saved{pending_merge}"
        return Status("stopped", facts.stopped_by, facts.updated_at, why)
    if facts.pr and facts.pr.state == "closed":
        return Status("closed", "pr", facts.updated_at, "its pull request was closed")
    return None


def _stopper(facts: SessionFacts) -> str:
    """Return who stopped the session, as text."""
    return "a person" if facts.stopped_by == "person" else facts.stopped_by


def _uncommitted_text(facts: SessionFacts, files: tuple[str, ...]) -> str:
    """Return text that lists uncommitted files, which were not merged, and where they are once the workspace is
    removed; "" without files.
    """
    if not files:
        return ""
    file_list = ", ".join(files[:3]) + (f" and {len(files) - 3} more" if len(files) > 3 else "")
    location = f"saved as {facts.rescues[-1]}" if facts.stopped and facts.rescues else "kept"
    return f"; not committed, and {location}: {file_list}"


def _status_before_launch(facts: SessionFacts) -> Status | None:
    """Return the status of a session that is being stopped or whose agent is not launched yet, or None."""
    if facts.requested_state == "stop":
        return (
            Status("stopped", facts.stopped_by, facts.updated_at, f"{_stopper(facts)} stops it", "its work to be saved")
            if not facts.failure
            else None
        )
    if facts.failure:
        return None
    if facts.move_reason:
        return Status("starting", "daemon", facts.updated_at, f"leaves node {facts.node}: {facts.move_reason}")
    if not facts.admitted:
        reason = facts.waiting_for or ("a node" if facts.remote and facts.node is None else "its turn")
        is_offered = any(offer.trigger == DEPENDENCY_ENDED for offer in facts.offers)
        return Status("queued", "scheduler", facts.updated_at, f"waits for {reason}", reason, is_offered)
    if facts.launched_run == facts.run:
        return None
    if facts.remote and facts.node is None:
        return Status("starting", "daemon", facts.updated_at, "a node is being chosen for it")
    if facts.workspace is None or not facts.workspace.present:
        return Status("starting", "daemon", facts.updated_at, "its workspace is being made")
    if facts.spec.defer and facts.launch is None and facts.next_message is None:
        if facts.pr is not None:
            return None  # the branch has work on it, which needs no agent to be merged
        return Status("queued", "daemon", facts.updated_at, "has no task yet", "its first message")
    return Status("starting", "daemon", facts.updated_at, "its agent is being started")


def _status_needing_person(facts: SessionFacts, now: float, stuck_after: float) -> Status | None:
    """Return the status of a session that cannot continue without a person, or None."""
    activity, launch = facts.activity, facts.launch
    if facts.failure:
        failure = facts.failure
        remedy = f"; {failure.remedy}" if failure.remedy else ""
        return Status(
            "failed", "daemon", failure.at, f"{failure.step} failed: {failure.error}{remedy}", failure.remedy or None
        )
    if launch is None:
        return None
    if launch.ended:
        return _usage_limit_status(facts, now) if facts.limited else _status_of_bad_end(facts)
    if activity.state == "blocked":
        request = activity.detail or "a permission"
        return Status("blocked", activity.source, activity.at, f"{PERMISSION_REASON_PREFIX}{request}", request)
    if facts.question or activity.state == "waiting_input":
        request = facts.question or activity.detail or "an answer"
        return Status("needs_input", activity.source, activity.at, f"asks: {request}", request)
    last_sign = max(activity.at, facts.last_sign_at)
    if activity.state in IN_TURN_ACTIVITIES and now - last_sign >= stuck_after:
        return Status(
            "stuck",
            activity.source,
            last_sign,
            f"in a turn, and silent for {_duration_text(now - last_sign)}",
            "a look at it",
        )
    if activity.state == "interrupted":
        return Status(
            "interrupted", activity.source, activity.at, activity.detail or "its turn was interrupted", "a message"
        )
    return None


def _status_of_missing_setup(facts: SessionFacts) -> Status | None:
    """Return the status of a check that could not run because its environment lacks something, or None.

    It is reported only after the agent's turn has ended.
    """
    pr = facts.pr
    if (
        pr is None
        or pr.state != "open"
        or pr.merge_request
        or (facts.live and facts.activity.state in IN_TURN_ACTIVITIES)
    ):
        return None
    runs = pr.checks_not_set_up(facts.head)
    if not runs:
        return None
    remedy = f". {runs[0].remedy}" if runs[0].remedy else ""
    why = f"{runs[0].name}: environment not set up: {runs[0].reason}{remedy}"
    return Status("not_set_up", "checks", facts.updated_at, why, runs[0].remedy or "a working set-up: ao init --check")


def _status_of_bad_end(facts: SessionFacts) -> Status | None:
    """Return the status of an agent whose process was lost, stopped, killed or failed, or None if it exited with 0."""
    launch, activity = facts.launch, facts.activity
    assert launch is not None
    ended_at = launch.ended_at or activity.at
    reason = f": {launch.reason}" if launch.reason else ""
    if launch.loss_reason:
        return Status("interrupted", activity.source, ended_at, launch.loss_reason, "ao restore, or a message")
    if launch.stopped:
        return Status("interrupted", activity.source, ended_at, "its agent was stopped", "ao restore, or a message")
    if launch.signal:
        return Status(
            "failed",
            activity.source,
            ended_at,
            f"its agent was killed by signal {launch.signal}{reason}",
            "ao logs, ao restore",
        )
    if launch.code:
        return Status(
            "failed", activity.source, ended_at, f"its agent exited with {launch.code}{reason}", "ao logs, ao restore"
        )
    if launch.code is None:
        return Status("failed", activity.source, ended_at, "its agent ended, nobody saw how", "ao logs, ao restore")
    return None


def _status_at_work(facts: SessionFacts, now: float) -> Status | None:
    """Return the status of a session whose change is being merged or whose agent is working, or None."""
    activity = facts.activity
    if facts.pr and facts.pr.merge_request:
        merge_request = facts.pr.merge_request
        return Status(
            "merging", "queue", merge_request.at, f"lands on {facts.pr.base}", merge_request.wait_reason or None
        )
    if not facts.live:
        return None
    if activity.state == "starting":
        return Status("starting", activity.source, activity.at, "its agent runs and has not spoken yet")
    if activity.state == "limited":
        return _usage_limit_status(facts, now)
    if activity.state in ("active", "retrying"):
        return Status(
            "working",
            activity.source,
            activity.at,
            "in a turn" if activity.state == "active" else "retries after an error",
        )
    return None


def _usage_limit_status(facts: SessionFacts, now: float) -> Status:
    """Return the status of a session that waits for the end of its account's usage limit."""
    activity, until = facts.activity, facts.limit_until
    if until is not None and until <= now:
        why, awaited = "the account's usage limit should be over", "its turn to go on"
    else:
        when = f" at {rfc3339(until)[:19]}Z" if until is not None else ""
        why, awaited = "the account's usage limit is reached", f"the limit's reset{when}"
    return Status("limited", activity.source, facts.limited_at or activity.at, why, awaited)


def _pull_request_status(facts: SessionFacts) -> Status | None:
    """Return the status that follows from the session's pull request, or None if there is none."""
    pr, head, at = facts.pr, facts.head, facts.updated_at
    if pr is None:
        return None
    verdict = pr.verdict(head)
    if pr.mergeability(head, facts.base_head) == "no":
        return _problem_status(
            facts, "conflicted", "merge-conflicts", f"conflicts with {pr.base} in {', '.join(pr.conflicting_files[:3])}"
        )
    if failing := pr.failing_checks(head):
        return _problem_status(facts, "ci_failed", "ci-failed", f"checks fail: {', '.join(map(_check_text, failing))}")
    if forbidden := pr.forbidden_failures(head):
        why = f"checks fail as they do on {pr.base}, and redBase is forbid: {', '.join(map(_check_text, forbidden))}"
        return Status("ci_failed", "checks", at, why, f"a green {pr.base}", True)
    if verdict == "changes_requested":
        return _problem_status(facts, "changes_requested", "changes-requested", "a reviewer asks for changes")
    if pr.has_running_checks(head):
        return Status("ci_running", "checks", at, "its checks run", "its checks")
    if pr.draft:
        return Status("pr_open", "pr", at, f"pull request #{pr.number} is a draft", "the agent to be done")
    if dropping := pr.checks_dropping_tests(head):
        why = pr.drop_text(dropping[0])
        return Status("review_pending", "checks", at, why, f"your approval: ao review {facts.id} --approve")
    if verdict == "approved":
        if facts.stacked and pr.is_green(head):
            return Status("approved", "pr", at, f"approved and green, on top of {facts.spec.stack}", "that to land")
        if pr.is_green(head) and pr.mergeability(head, facts.base_head) == "yes":
            return Status(
                "mergeable",
                "pr",
                at,
                "approved and green" + (f"; {pr.merge_failure}" if pr.merge_failure else ""),
                "ao merge",
            )
        if pr.manual_checks_head == head and not pr.is_green(head):
            return Status("approved", "pr", at, "approved; its checks are only run by hand", "ao checks --run")
        return Status("approved", "pr", at, "approved; its checks or its base are not known yet", "its checks")
    if pr.awaits_checks(head):
        return Status("ci_running", "checks", at, "its checks are about to run", "its checks")
    agent_review = pr.last_agent_review
    review_text = (
        f"; {agent_review.author} {agent_review.verdict.replace('_', ' ')} {agent_review.head[:8]}"
        if agent_review
        else ""
    )
    return Status(
        "review_pending",
        "pr",
        at,
        f"pull request #{pr.number} waits for a review{review_text}",
        "your review: ao review",
    )


def _check_text(run: CheckRun) -> str:
    """Return a check's name with how its failures compare with the base branch's."""
    return f"{run.name} ({run.comparison_text})" if run.comparison_text else run.name


def _problem_status(facts: SessionFacts, name: str, trigger: str, why: str) -> Status:
    """Return the status of a problem that the agent is to fix, or a person once its rule has escalated."""
    episode = facts.episodes.get(trigger)
    is_escalated = episode is not None and episode.escalated
    return Status(name, "pr", facts.updated_at, why, "you" if is_escalated else "the agent to mend it", is_escalated)


def _resting_status(facts: SessionFacts) -> Status:
    """Return the status of a session at rest."""
    activity = facts.activity
    if facts.spec.kind == COORDINATOR_KIND:
        why = "watches: it is told what happens" if facts.live else "its agent has ended; the next message wakes it"
        return Status("idle", activity.source, activity.at, why, "news, or your message", is_idle_as_intended=True)
    if facts.launch and facts.launch.ended:
        if facts.has_commits or facts.done_summary is not None:
            return Status(
                "idle", activity.source, activity.at, "its agent finished; its work is on the branch", "your look at it"
            )
        return Status("exited", activity.source, activity.at, "its agent exited and left no commit", "your look at it")
    if facts.done_summary is None and activity.state == "idle" and _is_only_restored(facts):
        why = "it was brought back, and has not been told to go on"
        return Status("idle", activity.source, activity.at, why, "a message")
    why = (
        "says it is done"
        if facts.done_summary is not None
        else "its turn is finished"
        if activity.state == "idle"
        else "its state is not known"
    )
    return Status("idle", activity.source, activity.at, why, "your look at it")


def _is_only_restored(facts: SessionFacts) -> bool:
    """Return whether the agent was restarted in its conversation and has received no message since."""
    is_resumed = facts.launch is not None and facts.launch.resumed
    return is_resumed and all(message.launch != facts.generation and not message.pending for message in facts.messages)


def _duration_text(seconds: float) -> str:
    """Return a duration as text, in hours and minutes, minutes, or seconds."""
    minutes = int(seconds // 60)
    return (
        f"{minutes // 60} h {minutes % 60} min"
        if minutes >= 60
        else f"{minutes} min"
        if minutes
        else f"{int(seconds)} s"
    )
