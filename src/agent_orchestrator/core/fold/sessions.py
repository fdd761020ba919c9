"""From events to facts: `reduce(facts, event) -> facts`. Pure.

Two kinds of events are folded here. *Decisions* (created, admitted, launched, stop requested) come only from the
daemon, in the order of the log. *Observations* (what the agent reported, how its process ended, where HEAD is) come
from outside: late, twice or out of order. Therefore an observation of an earlier launch changes nothing, an older one
never replaces a newer one, a message's state only rises, and an end is final.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from agent_orchestrator.core import events as e
from agent_orchestrator.core.episodes import without_finished_episodes
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.facts import (
    ActivityFact,
    Digest,
    Failure,
    SessionFacts,
    SessionWorkspace,
)
from agent_orchestrator.core.fold import agents, clock, messages, nodes, pull_requests, reactions, usage
from agent_orchestrator.core.fold.keys import update_positions
from agent_orchestrator.core.fold.messages import fail_pending
from agent_orchestrator.core.fold.step import Step
from agent_orchestrator.core.status import derive_status


def reduce(facts: SessionFacts | None, event: Event) -> SessionFacts | None:
    """Return one session's facts after an event; an event without a session, or of another launch, leaves them unchanged."""
    if isinstance(event.body, e.SessionCreated):
        return facts or _create_facts(event, event.body)
    step = _STEPS.get(type(event.body))
    if facts is None or step is None:
        return facts
    is_other_launch = event.generation and event.generation != facts.generation
    if is_other_launch and not isinstance(event.body, e.AgentLaunched | e.AgentUsage | e.AgentAck):
        return facts  # usage and acknowledgements of an earlier launch do count
    after = update_positions(step(facts, event, event.body), event)
    return (
        without_finished_episodes(after, derive_status(after, event.time)) if after.episodes or after.offers else after
    )


def _create_facts(event: Event, body: e.SessionCreated) -> SessionFacts:
    """Return the facts of a new session."""
    return SessionFacts(
        id=event.session or "",
        project=event.project or "",
        spec=body,
        created_at=event.time,
        updated_at=event.time,
        seq=event.seq,
        branch=body.branch,
        base=body.base,
        activity=ActivityFact("unknown", "daemon", event.time),
        digest=Digest(upto=event.seq),
    )


def _apply_session_reassigned(facts: SessionFacts, _event: Event, body: e.SessionReassigned) -> SessionFacts:
    """Change the agent, model and account of a session that was not launched yet."""
    if facts.launch is not None:
        return facts
    spec = replace(
        facts.spec,
        agent=body.agent,
        runtime=body.runtime,
        title=body.title,
        profile=body.profile,
        model=body.model,
        rules=body.rules,
        account=body.account,
    )
    return replace(facts, spec=spec)


def _apply_session_admitted(facts: SessionFacts, _event: Event, _body: e.SessionAdmitted) -> SessionFacts:
    """Mark the session as admitted to start."""
    return replace(facts, admitted=True, waiting_for="", slot_wait_since=None)


def _apply_session_waiting(facts: SessionFacts, event: Event, body: e.SessionWaiting) -> SessionFacts:
    """Record what the session waits for before its start; once it waits only for a slot, keep the time since when."""
    if facts.admitted:
        return facts
    since = (facts.slot_wait_since or event.time) if body.turn else None
    return replace(facts, waiting_for=body.reason, slot_wait_since=since)


def _apply_start_put_off(facts: SessionFacts, _event: Event, body: e.StartPutOff) -> SessionFacts:
    """Withdraw the admission of a session that cannot start, and count a new run."""
    if facts.live or not facts.admitted or facts.requested_state != "run":
        return facts
    return replace(facts, admitted=False, waiting_for=body.reason, slot_wait_since=None, run=facts.run + 1)


def _apply_session_failed(facts: SessionFacts, event: Event, body: e.SessionFailed) -> SessionFacts:
    """Record the step that failed."""
    return replace(facts, failure=Failure(body.step, body.error, body.remedy, event.time))


def _apply_stop_requested(facts: SessionFacts, event: Event, body: e.StopRequested) -> SessionFacts:
    """Record that the session is to be stopped; a second request retries a stop that failed."""
    if facts.stopped:
        return facts
    is_retry = facts.requested_state == "stop" and facts.failure is not None
    requester = event.source or "person"
    return replace(
        facts,
        requested_state="stop",
        keep_workspace=body.keep,
        failure=None,
        run=facts.run + is_retry,
        stopped_by=requester,
    )


def _apply_session_stopped(facts: SessionFacts, _event: Event, body: e.SessionStopped) -> SessionFacts:
    """Record that the session was stopped, and fail its undelivered messages."""
    workspace = facts.workspace and replace(facts.workspace, present=body.kept)
    node = facts.node if body.kept else None
    stopped = fail_pending(facts, "the session was stopped")
    return replace(
        stopped,
        stopped=True,
        saved_work=body.saved,
        workspace=workspace,
        node=node,
        move_reason="",
        unreachable_reason="",
        unseen_since=None,
    )


def _apply_restore_requested(facts: SessionFacts, _event: Event, _body: e.RestoreRequested) -> SessionFacts:
    """Begin a new run of a stopped session."""
    return replace(
        facts,
        requested_state="run",
        keep_workspace=False,
        stopped=False,
        saved_work=(),
        run=facts.run + 1,
        admitted=False,
        waiting_for="",
        slot_wait_since=None,
        failure=None,
        losses=0,
    )


def _apply_timer_due(facts: SessionFacts, event: Event, body: e.TimerDue) -> SessionFacts:
    """End the usage limit of a session when its time has passed."""
    is_limited = facts.activity.state == "limited" or facts.limit_until is not None
    if body.name == "limit" and is_limited and (facts.limit_until or 0.0) <= event.time:
        activity = ActivityFact("unknown", "clock", event.time) if facts.activity.state == "limited" else facts.activity
        return replace(facts, limited_at=None, limit_until=None, activity=activity)
    return facts


def _apply_workspace_created(facts: SessionFacts, _event: Event, body: e.WorkspaceCreated) -> SessionFacts:
    """Record the session's workspace; one that is created again without a base commit keeps the earlier one."""
    notes = facts.notes + tuple(note for note in body.notes if note not in facts.notes)
    workspace = SessionWorkspace(
        body.path, body.base_commit, body.git_dir, body.git_env, shared=body.shared, copied_patterns=body.copied
    )
    if facts.workspace and body.base_commit == "":
        workspace = replace(workspace, base_commit=facts.workspace.base_commit)
    return replace(
        facts,
        workspace=workspace,
        branch=body.branch,
        base=body.base,
        head=body.head,
        notes=notes,
        conversation_lost=facts.conversation_lost or body.forgot,
    )


def _apply_work_rescued(facts: SessionFacts, _event: Event, body: e.WorkRescued) -> SessionFacts:
    """Add the ref of rescued work as the newest one."""
    return replace(facts, rescues=(*(ref for ref in facts.rescues if ref != body.ref), body.ref))


def _apply_head_moved(facts: SessionFacts, _event: Event, body: e.HeadMoved) -> SessionFacts:
    """Record the session's head; a new commit clears the reason of a failed merge."""
    pr = replace(facts.pr, merge_failure="") if facts.pr and body.head != facts.head else facts.pr
    return replace(facts, head=body.head, pr=pr)


def _apply_base_changed(facts: SessionFacts, _event: Event, body: e.BaseChanged) -> SessionFacts:
    """Record another base branch, and drop the results that were compared with the old one."""
    pr = (
        replace(facts.pr, base=body.base, compared_heads=None, conflicting_files=(), merge_failure="")
        if facts.pr
        else None
    )
    old_base_commit = body.below if facts.workspace else None
    return replace(
        facts, base=body.base, base_head=None, old_base_commit=old_base_commit or None, rebase_refused_head=None, pr=pr
    )


def _apply_branch_rebased(facts: SessionFacts, _event: Event, body: e.BranchRebased) -> SessionFacts:
    """Record that the branch was moved to its base."""
    return replace(
        facts,
        old_base_commit=None,
        rebase_refused_head=None,
        workspace=facts.workspace and replace(facts.workspace, base_commit=body.onto),
    )


def _apply_rebase_refused(facts: SessionFacts, _event: Event, body: e.RebaseRefused) -> SessionFacts:
    """Record the head at which the branch could not be moved to its base."""
    return replace(facts, rebase_refused_head=body.head)


def _apply_work_published(facts: SessionFacts, _event: Event, body: e.WorkPublished) -> SessionFacts:
    """Record the head that was brought into the main repository."""
    return replace(facts, published_head=body.head)


def _apply_work_pushed(facts: SessionFacts, _event: Event, body: e.WorkPushed) -> SessionFacts:
    """Record the head that was pushed to the forge."""
    return replace(facts, pushed_head=body.head)


def _apply_issue_tracked(facts: SessionFacts, _event: Event, body: e.IssueTracked) -> SessionFacts:
    """Record the state that was reported to the issue tracker."""
    return replace(facts, tracker_state=body.state)


_STEPS: Mapping[type[e.Body], Step] = {
    **agents.STEPS,
    **usage.STEPS,
    **messages.STEPS,
    **pull_requests.STEPS,
    **reactions.STEPS,
    **nodes.STEPS,
    **clock.STEPS,
    e.SessionAdmitted: _apply_session_admitted,
    e.SessionReassigned: _apply_session_reassigned,
    e.SessionWaiting: _apply_session_waiting,
    e.StartPutOff: _apply_start_put_off,
    e.SessionFailed: _apply_session_failed,
    e.StopRequested: _apply_stop_requested,
    e.SessionStopped: _apply_session_stopped,
    e.RestoreRequested: _apply_restore_requested,
    e.TimerDue: _apply_timer_due,
    e.IssueTracked: _apply_issue_tracked,
    e.WorkspaceCreated: _apply_workspace_created,
    e.WorkRescued: _apply_work_rescued,
    e.HeadMoved: _apply_head_moved,
    e.BaseChanged: _apply_base_changed,
    e.BranchRebased: _apply_branch_rebased,
    e.RebaseRefused: _apply_rebase_refused,
    e.WorkPublished: _apply_work_published,
    e.WorkPushed: _apply_work_pushed,
}
