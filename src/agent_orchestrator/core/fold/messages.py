"""From events to facts: a session's messages, whose state only rises.

Part of the fold in `core/fold/sessions.py`. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from agent_orchestrator.core import events as e
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.facts import (
    ActivityFact,
    Digest,
    Message,
    SessionFacts,
)
from agent_orchestrator.core.fold.step import Step

MAX_SETTLED_MESSAGES = 200
"""Number of settled messages that a session's facts keep."""

_RANK = {"queued": 0, "held": 1, "failed": 2, "delivered": 3, "acknowledged": 5}
"""Order of a message's states; the state only rises."""

_RANK_IN_DOUBT = 4
"""Rank of a message that was delivered and failed: its agent was lost before it took the message up."""


def _apply_message_queued(facts: SessionFacts, event: Event, body: e.MessageQueued) -> SessionFacts:
    """Add a message; the task goes before all others, and a message to a stopped session fails."""
    if any(message.id == body.message for message in facts.messages):
        return facts
    message = Message(body.message, body.text, body.sender, event.time, interrupt=body.interrupt, is_task=body.task)
    if body.hold:
        message = replace(message, state="held", reason=body.hold, needs_approval=True)
    if facts.stopped:
        message = replace(message, state="failed", reason="the session was stopped")
    position = 0 if body.task else len(facts.messages)
    return replace(
        facts, messages=_drop_old_messages((*facts.messages[:position], message, *facts.messages[position:]))
    )


def _apply_digest_sent(facts: SessionFacts, event: Event, body: e.DigestSent) -> SessionFacts:
    """Record the digest sent to a coordinating agent; after one that failed, the next starts where the failed one did."""
    last_message = next((message for message in facts.messages if message.id == facts.digest.message), None)
    has_failed = last_message is not None and last_message.state == "failed"
    since = facts.digest.since if has_failed else facts.digest.upto
    return replace(facts, digest=Digest(body.upto, body.message, since, event.time))


def _apply_message_held(facts: SessionFacts, event: Event, body: e.MessageHeld) -> SessionFacts:
    """Mark a message as held, with the reason."""
    return raise_message(facts, body.message, "held", event.time, body.reason)


def _apply_message_released(facts: SessionFacts, _event: Event, body: e.MessageReleased) -> SessionFacts:
    """Release a message that a person approved, so that it can be delivered."""

    def release(message: Message) -> Message:
        """Return the message without its hold if it is the approved one."""
        is_released = message.id == body.message and message.pending and message.needs_approval
        return replace(message, needs_approval=False, reason="") if is_released else message

    return replace(facts, messages=tuple(release(message) for message in facts.messages))


def _apply_message_delivered(facts: SessionFacts, event: Event, body: e.MessageDelivered) -> SessionFacts:
    """Mark a message as delivered; an agent that was waiting for it is active again."""
    facts = raise_message(facts, body.message, "delivered", event.time, launch=event.generation)
    if facts.launch and facts.launch.loss_reason:
        facts = doubt_messages(facts, f"was lost ({facts.launch.loss_reason})")
    if facts.unanswered_question:
        facts = replace(facts, question="", unanswered_question="")
    if facts.live and facts.activity.state in ("waiting_input", "starting") and facts.activity.at <= event.time:
        facts = replace(facts, question="", activity=ActivityFact("active", "message", event.time))
    return facts


def _apply_message_failed(facts: SessionFacts, event: Event, body: e.MessageFailed) -> SessionFacts:
    """Mark a message as failed, with the reason."""
    return raise_message(facts, body.message, "failed", event.time, body.reason)


def message_rank(message: Message) -> int:
    """Return how far a message has come, as a number that only rises."""
    return _RANK_IN_DOUBT if message.state == "failed" and message.delivered_at is not None else _RANK[message.state]


def raise_message(
    facts: SessionFacts, message_id: str, state: str, at: float, reason: str = "", launch: int = 0
) -> SessionFacts:
    """Raise the state of one message; a lower state is ignored, and a held message may be held for another reason."""

    def with_state(message: Message) -> Message:
        """Return the message with the new state if it is the named one and the state is higher."""
        if message.id != message_id or _RANK[state] < message_rank(message):
            return message
        return replace(
            message,
            state=state,
            reason=reason,
            delivered_at=message.delivered_at or (at if state in ("delivered", "acknowledged") else None),
            acknowledged_at=message.acknowledged_at or (at if state == "acknowledged" else None),
            launch=launch or message.launch,
        )

    return replace(facts, messages=tuple(with_state(message) for message in facts.messages))


def doubt_messages(facts: SessionFacts, end_text: str) -> SessionFacts:
    """Mark delivered messages that the ended agent may not have read.

    If the agent acknowledges messages, an unacknowledged one has failed. Otherwise only messages delivered after the
    agent's last sign of life are in doubt; they stay delivered and get a reason.
    """
    assert facts.launch is not None
    has_acks = facts.has_acknowledged or facts.launch.has_inbox
    last_sign = max(facts.activity.at, facts.last_sign_at)

    def with_doubt(message: Message) -> Message:
        """Return the message as failed or in doubt if it was delivered to this launch and is not acknowledged."""
        if message.state != "delivered" or message.launch != facts.generation:
            return message
        if has_acks:
            text = (
                f"its agent {end_text} before it said that it took the message up; send it again if it was not followed"
            )
            return replace(message, state="failed", reason=text)
        is_in_doubt = (message.delivered_at or 0.0) >= last_sign
        return replace(message, reason=f"its agent {end_text}, and may not have read it") if is_in_doubt else message

    return replace(facts, messages=tuple(with_doubt(message) for message in facts.messages))


def fail_pending(facts: SessionFacts, reason: str, before: float | None = None) -> SessionFacts:
    """Fail the messages that wait for delivery.

    With `before`, only those queued until then; messages that wait for a person's approval are kept, because they can
    be delivered to a later launch.
    """

    def with_failure(message: Message) -> Message:
        """Return the message as failed if it is affected."""
        is_affected = before is None or (message.at <= before and not message.needs_approval)
        return replace(message, state="failed", reason=reason) if message.pending and is_affected else message

    return replace(facts, messages=tuple(with_failure(message) for message in facts.messages))


def _drop_old_messages(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Drop the oldest settled messages beyond `MAX_SETTLED_MESSAGES`; the log still has them."""
    surplus = len(messages) - MAX_SETTLED_MESSAGES
    if surplus <= 0:
        return messages
    settled = [message.id for message in messages if not message.pending][:surplus]
    return tuple(message for message in messages if message.id not in settled)


STEPS: Mapping[type[e.Body], Step] = {
    e.MessageQueued: _apply_message_queued,
    e.DigestSent: _apply_digest_sent,
    e.MessageHeld: _apply_message_held,
    e.MessageReleased: _apply_message_released,
    e.MessageDelivered: _apply_message_delivered,
    e.MessageFailed: _apply_message_failed,
}
