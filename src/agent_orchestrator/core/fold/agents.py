"""From events to facts: the start and end of a session's agent, and what it reports.

Part of the fold in `core/fold/sessions.py`. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from agent_orchestrator.core import events as e
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.facts import (
    ActivityFact,
    Launch,
    PermissionRequest,
    Progress,
    SessionFacts,
)
from agent_orchestrator.core.fold.messages import doubt_messages, fail_pending, raise_message
from agent_orchestrator.core.fold.step import Step, is_outdated
from agent_orchestrator.core.status import IN_TURN_ACTIVITIES
from agent_orchestrator.core.turn_text.questions import find_question


def _apply_agent_launched(facts: SessionFacts, event: Event, body: e.AgentLaunched) -> SessionFacts:
    """Record a launch and reset what belonged to the one before it."""
    if event.generation <= facts.generation:
        return facts
    return replace(
        facts,
        launch=Launch(
            event.generation, body.handle, event.time, resumed=body.resumed, has_inbox=body.inbox, plugin_data=body.memo
        ),
        launched_run=facts.run,
        conversation=body.conversation or facts.conversation,
        activity=ActivityFact("starting", "process", event.time),
        conversation_lost=False,
        has_reported=False,
        last_sign_at=0.0,
        spool_position=0,
        question="",
        unanswered_question="",
        permission=None,
        done_summary=None,
        failure=None,
        limited_at=None,
        limit_until=None,
        notes=facts.notes + tuple(note for note in body.env_notes if note not in facts.notes),
    )


def _apply_agent_activity(facts: SessionFacts, event: Event, body: e.AgentActivity) -> SessionFacts:
    """Record the agent's activity, unless a newer one or a better source is recorded."""
    # A screen reading of the agent's plugin counts as the agent's own report: the plugin knows what its records leave out.
    is_own_report = event.source not in ("screen", "terminal", "process") or event.key.startswith(("now:", "heard:"))
    if (
        not facts.live
        or is_outdated(facts, event, is_own_report=is_own_report)
        or (facts.has_reported and not is_own_report)
    ):
        return facts
    is_answered = body.state in ("active", "idle") and is_own_report
    return replace(
        facts,
        activity=ActivityFact(body.state, event.source, event.time, body.detail),
        has_reported=facts.has_reported or is_own_report,
        permission=facts.permission if body.state == "blocked" else None,
        question=facts.unanswered_question
        if is_answered
        else facts.question or (body.detail if body.state == "waiting_input" else ""),
        limited_at=event.time if body.state == "limited" and not facts.limited else facts.limited_at,
        limit_until=None if body.state == "active" else facts.limit_until,
        done_summary=None if body.state == "active" else facts.done_summary,
    )


def _apply_permission_asked(facts: SessionFacts, event: Event, body: e.PermissionAsked) -> SessionFacts:
    """Record a permission request; the agent is blocked until it is answered."""
    if not facts.live or is_outdated(facts, event):
        return facts
    request_text = f"{body.tool}: {body.command}" if body.command else body.tool
    request = PermissionRequest(body.tool, body.command, body.reason, body.request, event.time)
    return replace(
        facts,
        permission=request,
        activity=ActivityFact("blocked", event.source, event.time, request_text),
        has_reported=True,
    )


def _apply_turn_ended(facts: SessionFacts, event: Event, body: e.AgentTurnEnded) -> SessionFacts:
    """Record the end of a turn; the agent waits for input if its last words ask a question."""
    if not facts.live or is_outdated(facts, event):
        return facts
    question = find_question(body.text) or facts.unanswered_question
    state = "waiting_input" if question else "idle"
    return replace(
        facts,
        activity=ActivityFact(state, event.source, event.time, question),
        question=question,
        permission=None,
        last_turn_text=body.text,
        has_reported=True,
        losses=0,
    )


def _apply_agent_conversation(facts: SessionFacts, _event: Event, body: e.AgentConversation) -> SessionFacts:
    """Record the id of the agent's conversation."""
    return replace(facts, conversation=body.conversation)


def _apply_agent_ack(facts: SessionFacts, event: Event, body: e.AgentAck) -> SessionFacts:
    """Mark a message as acknowledged: the named one, or else the oldest delivered one."""
    delivered_ids = [message.id for message in facts.messages if message.state == "delivered"]
    facts = raise_message(facts, body.message or next(iter(delivered_ids), ""), "acknowledged", event.time)
    return replace(facts, has_acknowledged=True)


def _apply_agent_progress(facts: SessionFacts, _event: Event, body: e.AgentProgress) -> SessionFacts:
    """Record the agent's progress; fields that the event leaves out keep their value."""
    earlier = facts.progress
    return replace(
        facts,
        progress=Progress(
            done=earlier.done if body.done is None else body.done,
            total=earlier.total if body.total is None else body.total,
            step=body.step or earlier.step,
            tests_passed=earlier.tests_passed if body.tests_passed is None else body.tests_passed,
        ),
    )


def _apply_agent_ask(facts: SessionFacts, event: Event, body: e.AgentAsk) -> SessionFacts:
    """Record a question of the agent."""
    if not facts.live or is_outdated(facts, event):
        return facts
    activity = ActivityFact("waiting_input", event.source, event.time, body.question)
    open_question = body.question if body.stands else facts.unanswered_question
    return replace(
        facts, question=body.question, unanswered_question=open_question, activity=activity, has_reported=True
    )


def _apply_agent_done(facts: SessionFacts, event: Event, body: e.AgentDone) -> SessionFacts:
    """Record the agent's summary of its finished work."""
    activity = facts.activity
    if facts.live and not is_outdated(facts, event):
        activity = ActivityFact("idle", event.source, event.time, body.summary)
    return replace(
        facts, done_summary=body.summary, activity=activity, question="", unanswered_question="", has_reported=True
    )


def _apply_agent_exited(facts: SessionFacts, event: Event, body: e.AgentExited | e.AgentStopped) -> SessionFacts:
    """Record the end of the agent's process, and fail the messages that it can no longer receive."""
    if facts.launch is None or facts.launch.ended:
        return facts
    is_stopped = isinstance(body, e.AgentStopped)
    launch = replace(
        facts.launch,
        ended=True,
        stopped=is_stopped,
        code=body.code,
        signal=body.signal,
        ended_at=event.time,
        output=body.output if isinstance(body, e.AgentExited) else "",
        reason=body.reason if isinstance(body, e.AgentExited) else "",
    )
    exit_text = "stopped" if is_stopped else "killed" if body.signal else f"exit {body.code}"
    limited_at = facts.limited_at if facts.activity.state == "limited" and not is_stopped else None
    if is_stopped and facts.move_reason:
        facts = doubt_messages(facts, "was moved")
    facts = replace(facts, launch=launch, activity=ActivityFact("exited", event.source, event.time))
    facts = replace(facts, question="", permission=None, limited_at=limited_at)
    if facts.limited:
        return facts  # it is started again after the limit, and receives its messages then
    if facts.launched_run != facts.run and facts.requested_state == "run":
        return facts  # a new launch is due, and receives its messages then
    return fail_pending(facts, f"the agent ended ({exit_text}) before it was delivered", before=event.time)


def _apply_agent_lost(facts: SessionFacts, event: Event, body: e.AgentLost) -> SessionFacts:
    """Record that the agent's process was lost, and doubt the messages it may not have read."""
    if facts.launch is None or facts.launch.ended:
        return facts
    in_turn = facts.activity.state in {*IN_TURN_ACTIVITIES, "blocked"}
    launch = replace(facts.launch, ended=True, loss_reason=body.reason, lost_in_turn=in_turn, ended_at=event.time)
    activity = ActivityFact("interrupted", event.source, event.time, body.reason)
    facts = doubt_messages(facts, f"was lost ({body.reason})")
    return replace(facts, launch=launch, activity=activity, permission=None)


def _apply_agent_output(facts: SessionFacts, event: Event, _body: e.AgentOutput) -> SessionFacts:
    """Record the time of terminal output as a sign of life."""
    return replace(facts, last_sign_at=max(facts.last_sign_at, event.time))


STEPS: Mapping[type[e.Body], Step] = {
    e.AgentLaunched: _apply_agent_launched,
    e.AgentActivity: _apply_agent_activity,
    e.AgentConversation: _apply_agent_conversation,
    e.AgentTurnEnded: _apply_turn_ended,
    e.PermissionAsked: _apply_permission_asked,
    e.AgentAck: _apply_agent_ack,
    e.AgentProgress: _apply_agent_progress,
    e.AgentOutput: _apply_agent_output,
    e.AgentAsk: _apply_agent_ask,
    e.AgentDone: _apply_agent_done,
    e.AgentExited: _apply_agent_exited,
    e.AgentStopped: _apply_agent_exited,
    e.AgentLost: _apply_agent_lost,
    e.AgentReport: lambda facts, _event, _body: facts,
    e.AgentReportInvalid: lambda facts, _event, _body: facts,
}
