"""How many requests a host still grants to a token, and how long reading that nobody waits for should pause. Pure.

A host grants points per hour for each resource (`core`, `graphql` …) and says in every answer what is left and when it starts anew;
besides, it may demand a pause at any time. Background reading spreads what is left over the time until then and never touches a
reserve: that is for people's commands, which wait only when nothing is left at all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

RESERVE = 0.2
"""The part of each allowance that background reading leaves to people."""
PLENTY = 0.5
"""While more than this is left, background reading does not pause."""
FIRST_PAUSE = 60.0
LONGEST_PAUSE = 900.0
JUST_OVER = 3.0
"""So long ago a reset may lie because a host tells whole seconds or its clock is late: then it is worth asking again soon."""
SOON = 2.0
LONGEST_WINDOW = 86_400.0
"""A reset time further away than this is a mistake."""


@dataclass(frozen=True, slots=True)
class Allowance:
    """What is left of one resource."""

    limit: int
    remaining: int
    reset: float
    seen: float
    first: int = 0
    """What was used already when this window was first seen."""
    ours: int = 0
    """What we have used since."""

    @property
    def others(self) -> int:
        """What somebody else has used since with the same token: a person, or an agent by his own `gh`."""
        return max(0, self.limit - self.remaining - self.first - self.ours)


@dataclass(frozen=True, slots=True)
class Row:
    """One resource, for people."""

    resource: str
    limit: int
    remaining: int
    resets_in: float
    pause: float
    others: int


class Budget:
    """What one host grants to one token; shared by all that use it."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._allowances: dict[str, Allowance] = {}
        self._paused: dict[str, float] = {}
        self._refusals = 0
        self.requests = 0
        self.unchanged = 0

    def seen(self, headers: Mapping[str, str], status: int = 200) -> None:
        """Take in what an answer says; any other answer than a refusal ends the growth of pauses."""
        self.requests += 1
        self.unchanged += status == 304
        if status < 400:
            self._refusals = 0
        limit = _number(headers, "x-ratelimit-limit", "ratelimit-limit")
        remaining = _number(headers, "x-ratelimit-remaining", "ratelimit-remaining")
        if limit is None or remaining is None:
            return
        now = self._clock()
        reset = _number(headers, "x-ratelimit-reset", "ratelimit-reset")
        resource = headers.get("x-ratelimit-resource") or "core"
        just_over = reset is not None and now - JUST_OVER < reset <= now
        in_time = reset is not None and now < reset <= now + LONGEST_WINDOW
        until = float(reset or 0) if in_time else now + (SOON if just_over else 60.0)
        known = self._allowances.get(resource)
        if known is not None and known.reset == until and known.remaining < remaining and known.seen > now - 5.0:
            return  # an answer that was overtaken by another one
        granted, left = int(limit), max(0, int(remaining))
        free = status == 304 and "x-ratelimit-limit" in headers  # at GitHub; GitLab counts what is unchanged too
        own = int(resource == "core" and not free)  # what a query costs is told apart: see `spent`
        if known is None or known.reset != until:
            self._allowances[resource] = Allowance(granted, left, until, now, granted - left)
        else:
            self._allowances[resource] = Allowance(granted, left, until, now, known.first, known.ours + own)

    def spent(self, resource: str, cost: int) -> None:
        """We have used so much of it, which its answers do not tell."""
        known = self._allowances.get(resource)
        if known is not None and known.remaining + known.first < known.limit:
            self._allowances[resource] = replace(known, ours=known.ours + cost)

    def refused(self, headers: Mapping[str, str], *, secondary: bool, resource: str = "core") -> float:
        """A request was one too many; returns the time until which none is sent: of this resource, or after a secondary limit of any."""
        now = self._clock()
        after, first = _retry_after(headers, now), FIRST_PAUSE
        if after is None and not secondary:
            reset = _number(headers, "x-ratelimit-reset", "ratelimit-reset")
            if reset is not None and now < reset <= now + LONGEST_WINDOW:
                after = reset - now
            elif reset is not None and now - JUST_OVER < reset <= now:
                first = SOON
        if after is None:  # nothing is said, or a time that is over: each time twice as long
            after = min(LONGEST_PAUSE, first * 2.0**self._refusals)
        self._refusals = min(self._refusals + 1, 16)
        until = now + min(after, LONGEST_WINDOW)
        name = "" if secondary else resource
        self._paused[name] = max(until, self._paused.get(name, 0.0))
        return self._paused[name]

    def until(self, resource: str = "core") -> float | None:
        """Nobody's request may be sent before this time; none: it may be now."""
        now = self._clock()
        held = max(self._paused.get("", 0.0), self._paused.get(resource, 0.0))
        known = self._allowances.get(resource)
        if known is not None and known.remaining <= 0:
            held = max(held, known.reset)
        return held if held > now else None

    def wait(self, resource: str = "core", cost: int = 1) -> float:
        """Seconds that reading which nobody waits for should pause before its next request of this cost."""
        now = self._clock()
        held = self.until(resource)
        if held is not None:
            return held - now
        known = self._allowances.get(resource)
        if known is None or known.reset <= now:
            return 0.0
        if known.remaining - cost >= known.limit * PLENTY:
            return 0.0
        usable = known.remaining - known.limit * RESERVE
        left = known.reset - now
        return left if usable < cost else left * cost / usable

    def shown(self) -> list[Row]:
        """What is known, for people."""
        now = self._clock()
        rows = []
        for name, one in sorted(self._allowances.items()):
            anew = one.reset <= now
            left, others = (one.limit, 0) if anew else (one.remaining, one.others)
            rows.append(Row(name, one.limit, left, max(0.0, one.reset - now), self.wait(name), others))
        return rows


def _number(headers: Mapping[str, str], *names: str) -> float | None:
    for name in names:
        text = headers.get(name, "")
        if text.isascii() and text.isdigit() and len(text) < 16:
            return float(text)
    return None


def _retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Seconds, from a number or a date; none when it is not there, no time, or over."""
    text = headers.get("retry-after", "").strip()
    seconds = _number({"retry-after": text}, "retry-after")
    if seconds is None and text:
        try:
            at = parsedate_to_datetime(text)
        except (ValueError, TypeError, OverflowError):
            return None
        seconds = (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() - now
    return seconds if seconds is not None and seconds > 0 else None


def clock_text(at: float) -> str:
    """A time of day for people."""
    return datetime.fromtimestamp(at, UTC).strftime("%H:%M:%S UTC")
