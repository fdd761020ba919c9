"""What it means: `derive(facts, now) -> Status`. Pure, never stored. Every status names its evidence."""

from __future__ import annotations

from dataclasses import dataclass, replace

from agent_orchestrator.core.events import rfc3339
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.pull_request import DEPENDENCY_ENDED, CheckRun

STUCK_AFTER = 600.0
"""Seconds of silence in a turn after which a session counts as stuck, unless its rules say otherwise."""

COLUMNS = {
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

IN_TURN = frozenset({"starting", "active", "retrying"})
"""Activities in which silence means something."""

QUIET = frozenset({"exited", "idle"})
"""Statuses that wait for a person without calling him."""

WAITS_FOR = "waits for permission: "
"""How the reason of a session begins that is blocked."""

WATCHING = "coordinator"
"""The kind of session whose rest is no end."""

STATES = {
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
"""The four words that the status route speaks in; the rest is `idle`."""


@dataclass(frozen=True, slots=True)
class Status:
    """A session's status, why, and what it waits for."""

    name: str
    source: str
    """Whose word it rests on."""
    at: float
    """When that word was given."""
    why: str
    waiting_for: str | None = None
    called: bool = False
    """A person was called, although the status alone would not."""
    rests: bool = False
    """It is at rest, as it should be: nobody need look."""

    @property
    def column(self) -> str:
        """Where it stands on the board."""
        return "Needs you" if self.called else "Working" if self.rests else COLUMNS[self.name]

    @property
    def state(self) -> str:
        """`idle`, `working`, `waiting` or `error`."""
        return STATES.get(self.name, "idle")


def derive(facts: SessionFacts, now: float, stuck_after: float = STUCK_AFTER) -> Status:
    """The first status that holds; a message that waits for a person's word calls him, whatever it is."""
    status = (
        _ended(facts)
        or _before_launch(facts)
        or _needs_you(facts, now, stuck_after)
        or _not_set_up(facts)
        or _at_work(facts, now)
        or _of_change(facts)
        or _quiet(facts)
    )
    if facts.unseen_since is not None and facts.live:
        status = _unseen(facts, status)
    return _called_for_word(facts, status) if facts.held_messages else status


def _unseen(facts: SessionFacts, status: Status) -> Status:
    """Not seen is not dead: all that changes is what it rests on."""
    since = rfc3339(facts.unseen_since or 0.0)
    return replace(status, why=f"{status.why}; node {facts.node} is unreachable since {since} ({facts.unseen})")


def _called_for_word(facts: SessionFacts, status: Status) -> Status:
    if status.column == "Done" or status.name in ("needs_input", "blocked"):
        return status
    what = f"your word on a message: {facts.held_messages[0].reason}"
    return replace(status, waiting_for=what, called=True)


def _ended(facts: SessionFacts) -> Status | None:
    if facts.pr and facts.pr.state == "merged":
        landed = f"landed on {facts.pr.base} as {(facts.pr.landed or '')[:8]}"
        since = f"; not landed: {facts.unlanded[:8]}, committed since" if facts.unlanded else ""
        return Status("merged", "pr", facts.updated_at, f"{landed}{_left(facts, facts.pr.left)}{since}")
    if facts.stopped and (asked := next((one for one in facts.offers if one.trigger == "budget-exceeded"), None)):
        what = f"your word on its budget: ao answer {facts.id} --allow"
        return Status("stopped", "budget", facts.updated_at, f"{asked.text}; its work is saved", what, called=True)
    if facts.stopped:
        lands = f"; its change is still to land on {facts.pr.base}" if facts.pr and facts.pr.landing else ""
        why = f"{_who(facts)} stopped it; its work is saved{lands}"
        return Status("stopped", facts.stopped_by, facts.updated_at, why)
    if facts.pr and facts.pr.state == "closed":
        return Status("closed", "pr", facts.updated_at, "its pull request was closed")
    return None


def _who(facts: SessionFacts) -> str:
    return "a person" if facts.stopped_by == "person" else facts.stopped_by


def _left(facts: SessionFacts, files: tuple[str, ...]) -> str:
    """What was not committed did not land: which files, and where they are once the workspace is gone."""
    if not files:
        return ""
    some = ", ".join(files[:3]) + (f" and {len(files) - 3} more" if len(files) > 3 else "")
    where = f"saved as {facts.rescues[-1]}" if facts.stopped and facts.rescues else "kept"
    return f"; not committed, and {where}: {some}"


def _before_launch(facts: SessionFacts) -> Status | None:
    if facts.wanted == "stop":
        return (
            Status("stopped", facts.stopped_by, facts.updated_at, f"{_who(facts)} stops it", "its work to be saved")
            if not facts.failure
            else None
        )
    if facts.failure:
        return None
    if facts.moving:
        return Status("starting", "daemon", facts.updated_at, f"leaves node {facts.node}: {facts.moving}")
    if not facts.admitted:
        reason = facts.waiting_for or ("a node" if facts.remote and facts.node is None else "its turn")
        asked = any(one.trigger == DEPENDENCY_ENDED for one in facts.offers)
        return Status("queued", "scheduler", facts.updated_at, f"waits for {reason}", reason, asked)
    if facts.launched_run == facts.run:
        return None
    if facts.remote and facts.node is None:
        return Status("starting", "daemon", facts.updated_at, "a node is being chosen for it")
    if facts.place is None or not facts.place.present:
        return Status("starting", "daemon", facts.updated_at, "its workspace is being made")
    if facts.spec.defer and facts.launch is None and facts.next_message is None:
        if facts.pr is not None:
            return None  # a branch with work on it, which needs no agent to land
        return Status("queued", "daemon", facts.updated_at, "has no task yet", "its first message")
    return Status("starting", "daemon", facts.updated_at, "its agent is being started")


def _needs_you(facts: SessionFacts, now: float, stuck_after: float) -> Status | None:
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
        return _limited(facts, now) if facts.limited else _ended_badly(facts)
    if activity.state == "blocked":
        what = activity.detail or "a permission"
        return Status("blocked", activity.source, activity.at, f"{WAITS_FOR}{what}", what)
    if facts.question or activity.state == "waiting_input":
        what = facts.question or activity.detail or "an answer"
        return Status("needs_input", activity.source, activity.at, f"asks: {what}", what)
    heard = max(activity.at, facts.heard_at)
    if activity.state in IN_TURN and now - heard >= stuck_after:
        return Status("stuck", activity.source, heard, f"in a turn, and silent for {_age(now - heard)}", "a look at it")
    if activity.state == "interrupted":
        return Status(
            "interrupted", activity.source, activity.at, activity.detail or "its turn was interrupted", "a message"
        )
    return None


def _not_set_up(facts: SessionFacts) -> Status | None:
    """A check has no verdict because its environment lacks something; said once the agent's turn has ended."""
    pr = facts.pr
    if pr is None or pr.state != "open" or pr.landing or (facts.live and facts.activity.state in IN_TURN):
        return None
    runs = pr.not_set_up(facts.head)
    if not runs:
        return None
    remedy = f". {runs[0].remedy}" if runs[0].remedy else ""
    why = f"{runs[0].name}: environment not set up: {runs[0].reason}{remedy}"
    return Status("not_set_up", "checks", facts.updated_at, why, runs[0].remedy or "a working set-up: ao init --check")


def _ended_badly(facts: SessionFacts) -> Status | None:
    launch, activity = facts.launch, facts.activity
    assert launch is not None
    at = launch.ended_at or activity.at
    why = f": {launch.reason}" if launch.reason else ""
    if launch.lost:
        return Status("interrupted", activity.source, at, launch.lost, "ao restore, or a message")
    if launch.stopped:
        return Status("interrupted", activity.source, at, "its agent was stopped", "ao restore, or a message")
    if launch.signal:
        return Status(
            "failed", activity.source, at, f"its agent was killed by signal {launch.signal}{why}", "ao logs, ao restore"
        )
    if launch.code:
        return Status("failed", activity.source, at, f"its agent exited with {launch.code}{why}", "ao logs, ao restore")
    if launch.code is None:
        return Status("failed", activity.source, at, "its agent ended, nobody saw how", "ao logs, ao restore")
    return None


def _at_work(facts: SessionFacts, now: float) -> Status | None:
    activity = facts.activity
    if facts.pr and facts.pr.landing:
        landing = facts.pr.landing
        return Status("merging", "queue", landing.at, f"lands on {facts.pr.base}", landing.waits or None)
    if not facts.live:
        return None
    if activity.state == "starting":
        return Status("starting", activity.source, activity.at, "its agent runs and has not spoken yet")
    if activity.state == "limited":
        return _limited(facts, now)
    if activity.state in ("active", "retrying"):
        return Status(
            "working",
            activity.source,
            activity.at,
            "in a turn" if activity.state == "active" else "retries after an error",
        )
    return None


def _limited(facts: SessionFacts, now: float) -> Status:
    activity, until = facts.activity, facts.limit_until
    if until is not None and until <= now:
        why, what = "the account's usage limit should be over", "its turn to go on"
    else:
        when = f" at {rfc3339(until)[:19]}Z" if until is not None else ""
        why, what = "the account's usage limit is reached", f"the limit's reset{when}"
    return Status("limited", activity.source, facts.limited_at or activity.at, why, what)


def _of_change(facts: SessionFacts) -> Status | None:
    """Where its pull request is."""
    pr, head, at = facts.pr, facts.head, facts.updated_at
    if pr is None:
        return None
    verdict = pr.verdict(head)
    if pr.mergeable(head, facts.base_head) == "no":
        return _trouble(
            facts, "conflicted", "merge-conflicts", f"conflicts with {pr.base} in {', '.join(pr.conflicts[:3])}"
        )
    if failing := pr.failing(head):
        return _trouble(facts, "ci_failed", "ci-failed", f"checks fail: {', '.join(map(_check_text, failing))}")
    if known := pr.forbidden(head):
        why = f"checks fail as they do on {pr.base}, and redBase is forbid: {', '.join(map(_check_text, known))}"
        return Status("ci_failed", "checks", at, why, f"a green {pr.base}", True)
    if verdict == "changes_requested":
        return _trouble(facts, "changes_requested", "changes-requested", "a reviewer asks for changes")
    if pr.running(head):
        return Status("ci_running", "checks", at, "its checks run", "its checks")
    if pr.draft:
        return Status("pr_open", "pr", at, f"pull request #{pr.number} is a draft", "the agent to be done")
    if dropping := pr.dropping(head):
        why = pr.drop_text(dropping[0])
        return Status("review_pending", "checks", at, why, f"your approval: ao review {facts.id} --approve")
    if verdict == "approved":
        if facts.stacked and pr.green(head):
            return Status("approved", "pr", at, f"approved and green, on top of {facts.spec.stack}", "that to land")
        if pr.green(head) and pr.mergeable(head, facts.base_head) == "yes":
            return Status(
                "mergeable", "pr", at, "approved and green" + (f"; {pr.refused}" if pr.refused else ""), "ao merge"
            )
        if pr.by_hand == head and not pr.green(head):
            return Status("approved", "pr", at, "approved; its checks are only run by hand", "ao checks --run")
        return Status("approved", "pr", at, "approved; its checks or its base are not known yet", "its checks")
    if pr.awaited(head):
        return Status("ci_running", "checks", at, "its checks are about to run", "its checks")
    word = pr.agents_word
    said = f"; {word.author} {word.verdict.replace('_', ' ')} {word.head[:8]}" if word else ""
    return Status(
        "review_pending", "pr", at, f"pull request #{pr.number} waits for a review{said}", "your review: ao review"
    )


def _check_text(run: CheckRun) -> str:
    return f"{run.name} ({run.compared})" if run.compared else run.name


def _trouble(facts: SessionFacts, name: str, trigger: str, why: str) -> Status:
    episode = facts.episodes.get(trigger)
    called = episode is not None and episode.escalated
    return Status(name, "pr", facts.updated_at, why, "you" if called else "the agent to mend it", called)


def _quiet(facts: SessionFacts) -> Status:
    activity = facts.activity
    if facts.spec.kind == WATCHING:
        why = "watches: it is told what happens" if facts.live else "its agent has ended; the next message wakes it"
        return Status("idle", activity.source, activity.at, why, "news, or your message", rests=True)
    if facts.launch and facts.launch.ended:
        if facts.committed or facts.done is not None:
            return Status(
                "idle", activity.source, activity.at, "its agent finished; its work is on the branch", "your look at it"
            )
        return Status("exited", activity.source, activity.at, "its agent exited and left no commit", "your look at it")
    if facts.done is None and activity.state == "idle" and _only_brought_back(facts):
        why = "it was brought back, and has not been told to go on"
        return Status("idle", activity.source, activity.at, why, "a message")
    why = (
        "says it is done"
        if facts.done is not None
        else "its turn is finished"
        if activity.state == "idle"
        else "its state is not known"
    )
    return Status("idle", activity.source, activity.at, why, "your look at it")


def _only_brought_back(facts: SessionFacts) -> bool:
    """Its agent was started again in its conversation, and got no message since."""
    resumed = facts.launch is not None and facts.launch.resumed
    return resumed and all(one.launch != facts.generation and not one.pending for one in facts.messages)


def _age(seconds: float) -> str:
    minutes = int(seconds // 60)
    return (
        f"{minutes // 60} h {minutes % 60} min"
        if minutes >= 60
        else f"{minutes} min"
        if minutes
        else f"{int(seconds)} s"
    )
