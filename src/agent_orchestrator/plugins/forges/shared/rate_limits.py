"""How many requests a host still grants to a token, and how long background reading should pause. Pure.

A host grants points per hour for each resource (`core`, `graphql` …), and every answer says how many are left and when the count is
reset. It may also demand a pause at any time. Background reading spreads what is left over the time until the reset and never uses the
reserve, which is for people's commands: these wait only when nothing is left at all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

RESERVED_SHARE = 0.2
"""The part of each allowance that background reading leaves to people."""
UNPACED_SHARE = 0.5
"""While more than this part is left, background reading does not pause."""
FIRST_REFUSAL_PAUSE = 60.0
"""The pause after a refusal that names no time, in seconds; doubled with each further refusal."""
MAX_REFUSAL_PAUSE = 900.0
"""The longest such pause, in seconds."""
RESET_TOLERANCE = 3.0
"""Seconds that a reset may lie in the past because a host sends whole seconds or its clock is late: retry soon in that case."""
RETRY_AFTER_RESET = 2.0
"""The pause until that retry, in seconds."""
MAX_WINDOW_SECONDS = 86_400.0
"""A reset time further away than this many seconds is a mistake and is ignored."""


@dataclass(frozen=True, slots=True)
class Allowance:
    """What is left of one resource."""

    limit: int
    remaining: int
    reset: float
    seen_at: float
    used_at_start: int = 0
    """Points that were already used when this window was first seen."""
    used_by_us: int = 0
    """Points that we have used since."""

    @property
    def used_by_others(self) -> int:
        """The points that others have used since with the same token: a person, or an agent with its own `gh`."""
        return max(0, self.limit - self.remaining - self.used_at_start - self.used_by_us)


@dataclass(frozen=True, slots=True)
class RateLimitRow:
    """One resource, as shown to people."""

    resource: str
    limit: int
    remaining: int
    resets_in: float
    pause: float
    used_by_others: int


class RequestBudget:
    """What one host grants to one token; shared by all users of the token."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._allowances: dict[str, Allowance] = {}
        self._paused_until: dict[str, float] = {}
        self._refusals = 0
        self.request_count = 0
        self.unchanged_count = 0

    def record(self, headers: Mapping[str, str], status: int = 200) -> None:
        """Record the rate limits of an answer. Any answer other than a refusal ends the doubling of pauses."""
        self.request_count += 1
        self.unchanged_count += status == 304
        if status < 400:
            self._refusals = 0
        limit = _parse_number(headers, "x-ratelimit-limit", "ratelimit-limit")
        remaining = _parse_number(headers, "x-ratelimit-remaining", "ratelimit-remaining")
        if limit is None or remaining is None:
            return
        now = self._clock()
        reset = _parse_number(headers, "x-ratelimit-reset", "ratelimit-reset")
        resource = headers.get("x-ratelimit-resource") or "core"
        is_just_over = reset is not None and now - RESET_TOLERANCE < reset <= now
        is_plausible = reset is not None and now < reset <= now + MAX_WINDOW_SECONDS
        until = float(reset or 0) if is_plausible else now + (RETRY_AFTER_RESET if is_just_over else 60.0)
        previous = self._allowances.get(resource)
        if (
            previous is not None
            and previous.reset == until
            and previous.remaining < remaining
            and previous.seen_at > now - 5.0
        ):
            return  # this answer is older than the one that was recorded last
        total, remaining_points = int(limit), max(0, int(remaining))
        is_free = status == 304 and "x-ratelimit-limit" in headers  # at GitHub; GitLab counts unchanged answers too
        our_cost = int(resource == "core" and not is_free)  # the cost of a GraphQL query is recorded by `spent`
        if previous is None or previous.reset != until:
            self._allowances[resource] = Allowance(total, remaining_points, until, now, total - remaining_points)
        else:
            self._allowances[resource] = Allowance(
                total, remaining_points, until, now, previous.used_at_start, previous.used_by_us + our_cost
            )

    def record_cost(self, resource: str, cost: int) -> None:
        """Record a cost that the rate-limit headers do not show as ours."""
        allowance = self._allowances.get(resource)
        if allowance is not None and allowance.remaining + allowance.used_at_start < allowance.limit:
            self._allowances[resource] = replace(allowance, used_by_us=allowance.used_by_us + cost)

    def record_refusal(self, headers: Mapping[str, str], *, secondary: bool, resource: str = "core") -> float:
        """Record a rate-limit refusal and return the time until which no request is sent.

        It holds for this resource, or for all resources after a secondary limit.
        """
        now = self._clock()
        delay, first_pause = _parse_retry_after(headers, now), FIRST_REFUSAL_PAUSE
        if delay is None and not secondary:
            reset = _parse_number(headers, "x-ratelimit-reset", "ratelimit-reset")
            if reset is not None and now < reset <= now + MAX_WINDOW_SECONDS:
                delay = reset - now
            elif reset is not None and now - RESET_TOLERANCE < reset <= now:
                first_pause = RETRY_AFTER_RESET
        if delay is None:  # no time is named, or one in the past: double the pause each time
            delay = min(MAX_REFUSAL_PAUSE, first_pause * 2.0**self._refusals)
        self._refusals = min(self._refusals + 1, 16)
        until = now + min(delay, MAX_WINDOW_SECONDS)
        paused_resource = "" if secondary else resource
        self._paused_until[paused_resource] = max(until, self._paused_until.get(paused_resource, 0.0))
        return self._paused_until[paused_resource]

    def blocked_until(self, resource: str = "core") -> float | None:
        """Return the time before which no request may be sent, or None if one may be sent now."""
        now = self._clock()
        blocked_until = max(self._paused_until.get("", 0.0), self._paused_until.get(resource, 0.0))
        allowance = self._allowances.get(resource)
        if allowance is not None and allowance.remaining <= 0:
            blocked_until = max(blocked_until, allowance.reset)
        return blocked_until if blocked_until > now else None

    def pause_before_next(self, resource: str = "core", cost: int = 1) -> float:
        """Return how many seconds background reading should pause before its next request of this cost."""
        now = self._clock()
        blocked_until = self.blocked_until(resource)
        if blocked_until is not None:
            return blocked_until - now
        allowance = self._allowances.get(resource)
        if allowance is None or allowance.reset <= now:
            return 0.0
        if allowance.remaining - cost >= allowance.limit * UNPACED_SHARE:
            return 0.0
        usable = allowance.remaining - allowance.limit * RESERVED_SHARE
        seconds_left = allowance.reset - now
        return seconds_left if usable < cost else seconds_left * cost / usable

    def rows(self) -> list[RateLimitRow]:
        """Return a row per resource, for people."""
        now = self._clock()
        rows = []
        for name, allowance in sorted(self._allowances.items()):
            is_reset = allowance.reset <= now
            remaining, used_by_others = (
                (allowance.limit, 0) if is_reset else (allowance.remaining, allowance.used_by_others)
            )
            rows.append(
                RateLimitRow(
                    name,
                    allowance.limit,
                    remaining,
                    max(0.0, allowance.reset - now),
                    self.pause_before_next(name),
                    used_by_others,
                )
            )
        return rows


def _parse_number(headers: Mapping[str, str], *names: str) -> float | None:
    """Return the first of these headers that is a whole number, or None."""
    for name in names:
        text = headers.get(name, "")
        if text.isascii() and text.isdigit() and len(text) < 16:
            return float(text)
    return None


def _parse_retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Return the seconds of a `Retry-After` header, which is a number or a date; None if it is absent, malformed or over."""
    text = headers.get("retry-after", "").strip()
    seconds = _parse_number({"retry-after": text}, "retry-after")
    if seconds is None and text:
        try:
            moment = parsedate_to_datetime(text)
        except (ValueError, TypeError, OverflowError):
            return None
        seconds = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() - now
    return seconds if seconds is not None and seconds > 0 else None


def clock_text(at: float) -> str:
    """Return a time of day as text for people."""
    return datetime.fromtimestamp(at, UTC).strftime("%H:%M:%S UTC")
