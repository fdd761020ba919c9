"""Decides when a notification is sent and with which others: digest, rate limit, repetition. Pure; the clock is an input.

Urgent messages and others are counted separately, so that many others never delay an urgent one. Nothing is dropped
because of the rate limit: the last message that it allows includes all that wait.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from agent_orchestrator.core.notices import Notice

DIGEST_LEVELS = ("warning", "info")
"""Levels that a digest collects."""


@dataclass(frozen=True, slots=True)
class SendLimits:
    """How often a receiver may be sent messages."""

    digest_seconds: float = 0.0
    """Seconds for which notices of a warning's level or less are collected; 0: they are sent at once."""
    max_messages: int = 20
    """The most messages in `per` seconds."""
    period_seconds: float = 600.0
    """The seconds that `most` refers to."""
    repeat_after: float = 600.0
    """Seconds in which the same notice is not sent again."""


@dataclass(frozen=True, slots=True)
class SendHistory:
    """What was sent to a receiver."""

    messages: tuple[tuple[float, bool], ...] = ()
    """When each message was sent, and whether it was urgent."""
    marks: Mapping[str, float] = field(default_factory=dict)
    """Mark of a notice → when it was last sent."""


@dataclass(frozen=True, slots=True)
class Postpone:
    """The notification is not to be sent before this time."""

    until: float


@dataclass(frozen=True, slots=True)
class Skip:
    """The notification is not to be sent, because the same was sent a short time ago."""


@dataclass(frozen=True, slots=True)
class Send:
    """The notification is to be sent now, with these others in one message; `taken` are repetitions that count as sent."""

    notices: tuple[Notice, ...]
    repetitions: tuple[Notice, ...] = ()


Decision = Postpone | Skip | Send


def decide(
    notice: Notice, waiting: Sequence[Notice], marks: Mapping[str, str], pace: SendLimits, past: SendHistory, now: float
) -> Decision:
    """Return whether a notification is sent now, later or not at all.

    `waiting` are all notices for the same receiver, with or without this one; `marks` has the mark of each by its id.
    """
    if is_repeated(marks[notice.id], pace, past, now):
        return Skip()
    collected = pace.digest_seconds > 0 and notice.level in DIGEST_LEVELS
    due = notice.at + pace.digest_seconds if collected else notice.at
    if due > now and notice.at <= now:  # a time in the future is of a clock that was set back
        return Postpone(due)
    free_at = next_free_time(notice.urgent, pace, past, now)
    if free_at > now:
        return Postpone(free_at)
    candidates = [other for other in waiting if other.id != notice.id and other.urgent == notice.urgent]
    is_last = messages_left(notice.urgent, pace, past, now) <= 1
    joined = [
        other
        for other in candidates
        if (collected and other.level in DIGEST_LEVELS) or (is_last and not _is_collected(other, pace, now))
    ]
    return _join([notice, *joined], marks, pace, past, now)


def is_repeated(mark: str, pace: SendLimits, past: SendHistory, now: float) -> bool:
    """Return whether a notice with this mark was sent so recently that it is not sent again."""
    sent_at = past.marks.get(mark)
    return sent_at is not None and 0 <= now - sent_at < pace.repeat_after


def messages_left(urgent: bool, pace: SendLimits, past: SendHistory, now: float) -> int:
    """Return how many messages may still be sent now."""
    recent = [at for at, was_urgent in past.messages if was_urgent == urgent and now - pace.period_seconds < at <= now]
    return max(0, pace.max_messages - len(recent))


def next_free_time(urgent: bool, pace: SendLimits, past: SendHistory, now: float) -> float:
    """Return the time from which one more message may be sent."""
    recent = sorted(
        at for at, was_urgent in past.messages if was_urgent == urgent and now - pace.period_seconds < at <= now
    )
    if len(recent) < pace.max_messages:
        return now
    return recent[len(recent) - pace.max_messages] + pace.period_seconds


def remember(past: SendHistory, notices: Sequence[str], *, urgent: bool, pace: SendLimits, at: float) -> SendHistory:
    """Return the past with one more message that had these marks, without what no longer counts."""
    longest = max(pace.period_seconds, pace.repeat_after)
    messages = tuple(message for message in past.messages if at - message[0] < longest)
    marks = {mark: sent_at for mark, sent_at in past.marks.items() if at - sent_at < longest}
    return SendHistory((*messages, (at, urgent)), {**marks, **dict.fromkeys(notices, at)})


def _is_collected(notice: Notice, pace: SendLimits, now: float) -> bool:
    """Return whether a notice is still being collected for a digest."""
    return (
        pace.digest_seconds > 0 and notice.level in DIGEST_LEVELS and notice.at <= now < notice.at + pace.digest_seconds
    )


def _join(notices: Sequence[Notice], marks: Mapping[str, str], pace: SendLimits, past: SendHistory, now: float) -> Send:
    used_marks: set[str] = set()
    distinct, repeated_notices = [], []
    for notice in sorted(notices, key=lambda item: item.at):
        mark = marks[notice.id]
        if mark in used_marks or is_repeated(mark, pace, past, now):
            repeated_notices.append(notice)
        else:
            used_marks.add(mark)
            distinct.append(notice)
    return Send(tuple(distinct), tuple(repeated_notices))
