"""When a notification is sent, and together with which others: digest, rate limit, repetition. Pure; the clock is an input.

What is urgent and what is not are counted apart: however much there is to know, somebody who must act is told at once. Nothing is
dropped for being too much: the last message that a limit allows takes along all that waits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from agent_orchestrator.core.notices import Notice

DIGESTED = ("warning", "info")
"""Levels that a digest collects."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How often somebody may be told."""

    digest: float = 0.0
    """Seconds for which what is no more than a warning is collected; 0: it is sent at once."""
    most: int = 20
    """Messages that may be sent …"""
    per: float = 600.0
    """… in so many seconds."""
    repeat_after: float = 600.0
    """Seconds in which the same is not said again."""


@dataclass(frozen=True, slots=True)
class Past:
    """What was sent to somebody."""

    messages: tuple[tuple[float, bool], ...] = ()
    """When, and whether it was urgent."""
    marks: Mapping[str, float] = field(default_factory=dict)
    """What it said, and when last."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Not before this time."""

    until: float


@dataclass(frozen=True, slots=True)
class Skip:
    """The same was said a moment ago."""


@dataclass(frozen=True, slots=True)
class Send:
    """Now, with these others in the same message; those that say the same as another of them are taken for said."""

    notices: tuple[Notice, ...]
    taken: tuple[Notice, ...] = ()


Decision = Wait | Skip | Send


def decide(
    notice: Notice, waiting: Sequence[Notice], marks: Mapping[str, str], pace: Pace, past: Past, now: float
) -> Decision:
    """What becomes of a notification now. `waiting`: all that are to be sent to the same receiver, this one or not; `marks`: the
    mark of each, by its id."""
    if repeated(marks[notice.id], pace, past, now):
        return Skip()
    collected = pace.digest > 0 and notice.level in DIGESTED
    due = notice.at + pace.digest if collected else notice.at
    if due > now and notice.at <= now:  # what comes from the future is of a clock that was set back
        return Wait(due)
    room = room_at(notice.urgent, pace, past, now)
    if room > now:
        return Wait(room)
    alike = [one for one in waiting if one.id != notice.id and one.urgent == notice.urgent]
    last = left(notice.urgent, pace, past, now) <= 1
    joined = [one for one in alike if (collected and one.level in DIGESTED) or (last and not _collects(one, pace, now))]
    return _together([notice, *joined], marks, pace, past, now)


def repeated(mark: str, pace: Pace, past: Past, now: float) -> bool:
    """Was the same said so lately that it need not be said again?"""
    said = past.marks.get(mark)
    return said is not None and 0 <= now - said < pace.repeat_after


def left(urgent: bool, pace: Pace, past: Past, now: float) -> int:
    """How many messages may still be sent now."""
    lately = [at for at, was in past.messages if was == urgent and now - pace.per < at <= now]
    return max(0, pace.most - len(lately))


def room_at(urgent: bool, pace: Pace, past: Past, now: float) -> float:
    """From when on one more message may be sent."""
    lately = sorted(at for at, was in past.messages if was == urgent and now - pace.per < at <= now)
    if len(lately) < pace.most:
        return now
    return lately[len(lately) - pace.most] + pace.per


def remember(past: Past, notices: Sequence[str], *, urgent: bool, pace: Pace, at: float) -> Past:
    """The past with one more message, that had these marks; what no longer counts is forgotten."""
    longest = max(pace.per, pace.repeat_after)
    messages = tuple(one for one in past.messages if at - one[0] < longest)
    marks = {mark: said for mark, said in past.marks.items() if at - said < longest}
    return Past((*messages, (at, urgent)), {**marks, **dict.fromkeys(notices, at)})


def _collects(notice: Notice, pace: Pace, now: float) -> bool:
    """Is it still being collected for a digest?"""
    return pace.digest > 0 and notice.level in DIGESTED and notice.at <= now < notice.at + pace.digest


def _together(notices: Sequence[Notice], marks: Mapping[str, str], pace: Pace, past: Past, now: float) -> Send:
    seen: set[str] = set()
    said, taken = [], []
    for one in sorted(notices, key=lambda each: each.at):
        mark = marks[one.id]
        if mark in seen or repeated(mark, pace, past, now):
            taken.append(one)
        else:
            seen.add(mark)
            said.append(one)
    return Send(tuple(said), tuple(taken))
